#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Runs every measurement of the suite on both built-in shapes, writes one JSON file for each into a directory, and
draws the pictures.

usage: run_all.py --programs BUILD/benchmarks [--out DIR] [--threads N] [--repeats N] [--only PART,...] [--long]
                  [--through COMMAND] [--no-plot]
Parts: model, batch, threads, isa, cache, matmul, compare; each is one or two short commands, so that a machine can
be kept quiet while one runs: --through runs each of them through COMMAND. --long adds prompts and contexts of
8,192 tokens. What cannot run here (no oneDNN, no llama.cpp) is left out, visibly.
"""
import argparse
import os
import pathlib
import shlex
import subprocess
import sys

HERE = pathlib.Path(__file__).resolve().parent
SHAPES = ("qwen3-0.6b", "qwen3.5-0.8b")


def commands(options):
    """(part, file to write, command); a command without "{out}" prints what goes into the file."""
    program = lambda name: str(options.programs / name)
    threads, repeats = str(options.threads), str(options.repeats)
    lengths = "512,8192" if options.long else "512"
    contexts = "128,8192" if options.long else "128,1024"
    batches = "1,4,16,64" if options.long else "1,4,16"
    counts = ",".join(str(n) for n in sorted({1, options.threads}))
    isas = subprocess.run([program("model_bench"), "--shape", "qwen3-tiny", "--json", "--repeats", "1",
                           "--bandwidth-mb", "16", "--prefill", "1"], capture_output=True, text=True, check=True)
    known = ("avx2", "avx512", "avx512_vnni", "avx512_bf16", "amx", "neon")
    isas = [name for name in known if f'"{name}"' in isas.stdout]
    if "avx512_vnni" in isas:
        isas.remove("avx512")  # differs in products of bytes alone
    for shape in SHAPES:
        bench = [program("model_bench"), "--shape", shape, "--repeats", repeats, "--json"]
        here = [*bench, "--threads", threads]
        yield "model", f"model-{shape}", [*here, "--prefill", lengths, "--decode-context", contexts]
        yield "batch", f"batch-{shape}", [*here, "--prefill", "0", "--decode-context", "128", "--batch", batches]
        yield "threads", f"threads-{shape}", [*bench, "--threads", counts]
        yield "isa", f"isa-{shape}", [*here, "--isa", ",".join(isas)]
        yield "cache", f"cache-{shape}", [program("cache_bench"), "--shape", shape, "--threads", threads, "--json"]
        yield "compare", f"compare-{shape}", [
            sys.executable, str(HERE / "compare.py"), "--programs", str(options.programs), "--shape", shape,
            "--threads", threads, "--repeats", repeats, "--json", "{out}"]
    yield "matmul", "matmul", [program("matmul_bench"), "--threads", threads, "--json"]


def run(name, command, options):
    """Runs one command; keeps the old file when it fails."""
    out = options.out / f"{name}.json"
    fresh = out.with_suffix(".new")
    into_file = "{out}" in command
    command = [str(fresh) if word == "{out}" else word for word in command]
    if not (options.programs / pathlib.Path(command[0]).name).exists() and not into_file:
        print(f"{name}: left out, {command[0]} was not built")
        return
    print(f"{name}: {shlex.join(command)}", flush=True)
    with open(os.devnull if into_file else fresh, "w", encoding="utf-8") as output:
        done = subprocess.run(shlex.split(options.through) + command, stdout=None if into_file else output)
    if done.returncode == 0 and fresh.exists():
        text = fresh.read_text(encoding="utf-8")
        out.write_text(text[text.index("{"):], encoding="utf-8")  # what --through says comes before it
    else:
        print(f"{name}: failed")
    fresh.unlink(missing_ok=True)


def main(arguments):
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--programs", type=lambda path: pathlib.Path(path).resolve(), required=True)
    parser.add_argument("--out", type=pathlib.Path, default=HERE / "results")
    parser.add_argument("--threads", type=int, default=len(os.sched_getaffinity(0)))
    parser.add_argument("--repeats", type=int, default=7)
    parser.add_argument("--only", default="")
    parser.add_argument("--long", action="store_true")
    parser.add_argument("--through", default="")
    parser.add_argument("--no-plot", action="store_true")
    options = parser.parse_args(arguments)
    options.out.mkdir(parents=True, exist_ok=True)
    wanted = [part for part in options.only.split(",") if part]
    for part, name, command in commands(options):
        if not wanted or part in wanted:
            run(name, command, options)
    if not options.no_plot:
        subprocess.run([sys.executable, str(HERE / "plot.py"), str(options.out)], check=True)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
