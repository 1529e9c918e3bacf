#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Ours beside llama.cpp and transformers on the same shape, in one run: every engine waits in a process of its own,
and each repeat asks all of them in turn for one prefill and one decode. Ratios are medians over the repeats of
ours divided by theirs, with ours in the format nearest to theirs: q8_0 beside int8, q4_0 beside int4.

usage: compare.py --programs BUILD/benchmarks --shape qwen3-0.6b|qwen3.5-0.8b [--prefill N] [--decode-context N]
                  [--threads N] [--repeats N] [--peers llama.cpp,transformers] [--formats bf16,q8_0,q4_0]
                  [--ours bf16,int8,int4/int4] [--json FILE]
A peer that is not installed, or cannot load the shape, is reported and left out.
"""
import argparse
import importlib.metadata
import json
import os
import pathlib
import signal
import statistics
import subprocess
import sys
import tempfile

HERE = pathlib.Path(__file__).resolve().parent


class Engine:
    """A process that answers requests."""

    def __init__(self, name, command, tokens):
        self.name, self.samples = name, {}
        environment = dict(os.environ, PEER_TOKENS=str(tokens))
        self.process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
                                        env=environment, stderr=subprocess.PIPE)

    def ask(self, request):
        """Tokens per second of one measurement, or None when the process has ended."""
        try:
            self.process.stdin.write(request + "\n")
            self.process.stdin.flush()
        except BrokenPipeError:
            return None
        answer = self.process.stdout.readline().split()
        return float(answer[1]) / float(answer[0]) if len(answer) == 2 else None

    def close(self):
        self.process.stdin.close()
        self.process.wait()

    def complaint(self):
        lines = self.process.stderr.read().strip().split("\n")
        return lines[-1] if lines[-1] else "it ended without an answer"


def version_of(package):
    try:
        return importlib.metadata.version(package)
    except importlib.metadata.PackageNotFoundError:
        return None


def read_anew(path):
    """What random_checkpoint does with ours: the file then lies in memory as if read from the disk, in large pages."""
    with open(path, "rb") as file:
        os.fsync(file.fileno())
        os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)
        while file.read(1 << 20):
            pass


def engines_for(options, directory):
    """Starts ours first, then every peer that is installed."""
    tokens = max(options.prefill, options.decode_context) + 64
    threads = str(options.threads)
    started = []
    for weights in options.ours.split(","):
        chosen = [] if weights == "bf16" else ["--weights", weights]
        started.append(Engine(f"ours {weights}", [str(options.programs / "model_bench"), str(directory), "--on-demand",
                                                  "--threads", threads, *chosen], tokens))
    config = directory / "config.json"
    if "llama.cpp" not in options.peers:
        pass
    elif version_of("llama-cpp-python") and version_of("gguf"):
        for kind in options.formats.split(","):
            path = directory / f"{kind}.gguf"
            subprocess.run([sys.executable, str(HERE / "write_gguf.py"), str(config), kind, str(path)], check=True)
            read_anew(path)
            started.append(Engine(f"llama.cpp {kind}", [sys.executable, str(HERE / "peer_llama.py"), str(path),
                                                        threads], tokens))
    else:
        print("compare.py: llama-cpp-python or gguf is not installed: no llama.cpp", file=sys.stderr)
    if "transformers" not in options.peers:
        pass
    elif version_of("transformers") and version_of("torch"):
        started.append(Engine("transformers bf16", [sys.executable, str(HERE / "peer_transformers.py"), str(config),
                                                    threads], tokens))
    else:
        print("compare.py: transformers or torch is not installed", file=sys.stderr)
    return started


def measure(engines, requests, repeats):
    """Fills engine.samples[request]; drops engines that fail. The first round warms up."""
    for repeat in range(repeats + 1):
        for request in requests:
            for engine in list(engines):
                speed = engine.ask(request)
                if speed is None:
                    print(f"compare.py: without {engine.name}: {engine.complaint()}", file=sys.stderr)
                    engines.remove(engine)
                elif repeat > 0:
                    engine.samples.setdefault(request, []).append(speed)


def counterpart(engine, engines):
    """Ours in the format nearest to an engine's, or else the first of ours."""
    ours = [e for e in engines if e.name.startswith("ours ")]
    for theirs, format in (("q8_0", "ours int8"), ("q4_0", "ours int4")):
        for candidate in ours:
            if theirs in engine.name and candidate.name.startswith(format):
                return candidate
    return ours[0]


def results_of(engines, requests):
    results = []
    for request in requests:
        for engine in engines:
            ours = counterpart(engine, engines)
            pairs = [a / b for a, b in zip(ours.samples[request], engine.samples[request])]
            results.append({"engine": engine.name, "test": request, "ours": ours.name,
                            "ratio": statistics.median(pairs),
                            "tokens_per_s": statistics.median(engine.samples[request]),
                            "samples": engine.samples[request]})
    return results


def options_of(arguments):
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--programs", type=lambda path: pathlib.Path(path).resolve(), required=True)
    parser.add_argument("--shape", required=True)
    parser.add_argument("--prefill", type=int, default=512)
    parser.add_argument("--decode-context", type=int, default=128)
    parser.add_argument("--threads", type=int, default=len(os.sched_getaffinity(0)))
    parser.add_argument("--repeats", type=int, default=7)
    parser.add_argument("--peers", default="llama.cpp,transformers")
    parser.add_argument("--formats", default="bf16,q8_0,q4_0")
    parser.add_argument("--ours", default="bf16,int8,int4/int4")
    parser.add_argument("--json", type=pathlib.Path)
    return parser.parse_args(arguments)


def main(arguments):
    options = options_of(arguments)
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))  # so that the temporary directory is removed
    requests = [f"prefill {options.prefill}", f"decode {options.decode_context}"]
    with tempfile.TemporaryDirectory() as place:
        directory = pathlib.Path(place)
        subprocess.run([str(options.programs / "random_checkpoint"), options.shape, place], check=True)
        engines = engines_for(options, directory)
        measure(engines, requests, options.repeats)
        results = results_of(engines, requests)
        for engine in engines:
            engine.close()
    print(f"{options.shape}, {options.threads} threads, medians of {options.repeats} interleaved repeats")
    for r in results:
        print(f"{r['test']:<14} {r['engine']:<20} {r['tokens_per_s']:9.2f} tokens/s   "
              f"{r['ours']} / this {r['ratio']:6.2f}")
    if options.json:
        versions = {p: version_of(p) for p in ("llama-cpp-python", "gguf", "transformers", "torch")}
        options.json.write_text(json.dumps({"model": options.shape, "threads": options.threads,
                                            "versions": versions, "results": results}, indent=1) + "\n")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
