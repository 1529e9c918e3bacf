#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""What every format of weights and of keys and values costs in quality: both demo models on text that they have not
seen, against the weights as stored with keys and values in bf16. Writes quality.json and quality.md.

usage: quality.py --programs BUILD/examples [--out DIR] [--threads N]

Weights are quantised by `quantize` (GPTQ and AWQ with the calibration text that comes with the demo models, which
holds none of the scored one) and judged by `perplexity` over the answers of tests/data/demo/held_out.txt.
"""
import argparse
import json
import os
import pathlib
import subprocess
import sys
import tempfile

ROOT = pathlib.Path(__file__).resolve().parent.parent
MODELS = ("qwen3", "qwen3_5")
TEXT = ROOT / "tests/data/demo/held_out.txt"
METHODS = {"rtn": ["--method", "rtn"], "rtn, clipped": ["--method", "rtn", "--search"],
           "GPTQ": ["--method", "gptq"], "AWQ": ["--method", "awq"]}
INT8 = ("int8:row", "int8:128", "int8:32")
INT4 = ("int4:128", "int4:64", "int4:32", "int4:128:zeros", "int4:64:zeros", "int4:32:zeros")
KV = ("f32", "bf16", "int8", "fp8", "int4")
HEADINGS = ("weights", "method", "keys and values", "inputs", "MB", "perplexity", "rise %", "KL", "top-1 %")


def variants():
    """(weights, method, keys and values, inputs of products) of each row; no method: as stored."""
    yield "bf16", "", "bf16", "exact"
    for weights in INT8:
        yield weights, "rtn", "bf16", "exact"
    yield "fp8", "rtn", "bf16", "exact"
    for weights in INT4:
        for method in METHODS:
            yield weights, method, "bf16", "exact"
    for kv in KV:
        if kv != "bf16":
            yield "bf16", "", kv, "exact"
    yield "int8:row", "rtn", "int8", "exact"
    yield "int4:32", "GPTQ", "int8", "exact"
    yield "int8:row", "rtn", "bf16", "int8"
    yield "int4:32", "GPTQ", "bf16", "int8"
    yield "bf16", "", "bf16", "bf16"
    yield "int8:row", "rtn", "bf16", "bf16"
    yield "int4:32", "GPTQ", "bf16", "bf16"


class Measurement:
    def __init__(self, options, scratch):
        self.options, self.scratch, self.made = options, scratch, {}

    def program(self, name, *words):
        command = [str(self.options.programs / name), *words, "--threads", str(self.options.threads), "--json"]
        done = subprocess.run(command, capture_output=True, text=True)
        if done.returncode != 0:
            sys.exit(f"{' '.join(command)}: {done.stderr.strip()}")
        return json.loads(done.stdout)

    def directory(self, model, weights, method):
        """A checkpoint, and the bytes of its weights."""
        source = ROOT / "examples/demo_models" / model
        if not method:
            return str(source), (source / "model.safetensors").stat().st_size
        key = (model, weights, method)
        if key not in self.made:
            path = str(self.scratch / f"{model}-{len(self.made)}")
            made = self.program("quantize", str(source), path, "--weights", weights, *METHODS[method])
            self.made[key] = path, made["bytes"]
        return self.made[key]

    def row(self, model, weights, method, kv, inputs):
        path, size = self.directory(model, weights, method)
        source = str(ROOT / "examples/demo_models" / model)
        found = self.program("perplexity", path, "--text", str(TEXT), "--conversations", "--kv", kv,
                             "--precision", inputs, "--reference", source, "--reference-kv", "bf16",
                             "--reference-precision", "exact")
        scores = {key: found[key] for key in ("tokens", "perplexity", "kl", "top1")}
        return {"model": model, "weights": weights, "method": method, "kv": kv, "inputs": inputs, "bytes": size,
                **scores}


def with_rises(rows):
    """Rows with what perplexity rises by, in percent of the model's as it is stored."""
    stored = {row["model"]: row["perplexity"] for row in reversed(rows) if not row["method"] and row["kv"] == "bf16"}
    return [{**row, "rise_percent": 100 * (row["perplexity"] / stored[row["model"]] - 1)} for row in rows]


def cells(row):
    return (row["weights"] if row["method"] else "as stored", row["method"], row["kv"], row["inputs"],
            f"{row['bytes'] / 1e6:.2f}", f"{row['perplexity']:.4f}", f"{row['rise_percent']:+.3f}", f"{row['kl']:.6f}",
            f"{100 * row['top1']:.2f}")


def table(rows):
    """One Markdown table."""
    lines = [HEADINGS, ("---",) * 4 + ("---:",) * 5, *map(cells, rows)]
    return "".join("| " + " | ".join(line) + " |\n" for line in lines)


def report(rows):
    text = ("# What quantising costs\n\nThe answers of the held-out conversations "
            "(`perplexity --conversations`), against the same model as stored. Made by `quality.py`. Embedding and "
            "output matrix are int8 by rows where weights are int8 or int4. Inputs of bf16 are "
            "rounded by the kernels of AMX, AVX512_BF16 and Arm's bf16 alone. KL in nats a token.\n")
    for model in MODELS:
        mine = [row for row in rows if row["model"] == model]
        text += f"\n## {model}, {mine[0]['tokens']} tokens\n\n{table(mine)}"
    return text


def main(arguments):
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--programs", type=lambda path: pathlib.Path(path).resolve(), required=True)
    parser.add_argument("--out", type=pathlib.Path, default=ROOT / "benchmarks/results")
    parser.add_argument("--threads", type=int, default=len(os.sched_getaffinity(0)))
    options = parser.parse_args(arguments)
    options.out.mkdir(parents=True, exist_ok=True)
    rows = []
    with tempfile.TemporaryDirectory(prefix="qwenlite-quality-") as scratch:
        measurement = Measurement(options, pathlib.Path(scratch))
        for model in MODELS:
            for variant in variants():
                rows.append(measurement.row(model, *variant))
                print(*cells(with_rises(rows)[-1]), sep="  ", flush=True)
    rows = with_rises(rows)
    (options.out / "quality.json").write_text(json.dumps({"results": rows}, indent=1) + "\n", encoding="utf-8")
    (options.out / "quality.md").write_text(report(rows), encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
