#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Draws the pictures of a directory of results, beside the JSON files that they come from.

usage: plot.py DIRECTORY
Needs matplotlib. Files that are missing are left out.
"""
import json
import pathlib
import sys

import matplotlib
matplotlib.use("Agg")
import matplotlib.pyplot as plt  # noqa: E402  (the backend is chosen first)

SHAPES = ("qwen3-0.6b", "qwen3.5-0.8b")
NAMES = {"qwen3-0.6b": "Qwen3-0.6B", "qwen3.5-0.8b": "Qwen3.5-0.8B"}
OURS, PEER, LIGHT = "#1f6f8b", "#c9ada7", "#99c1cf"


def load(directory, name):
    path = directory / f"{name}.json"
    return json.loads(path.read_text(encoding="utf-8")) if path.exists() else None


def machine_line(report):
    machine = report.get("machine", {})
    return f"{machine.get('cpu', '')}, {machine.get('cores', '?')} cores"


def save(figure, directory, name, note):
    figure.text(0.5, 0.015, note, ha="center", fontsize=7, color="#555555")
    figure.tight_layout(rect=(0, 0.05, 1, 1))
    figure.savefig(directory / f"{name}.svg", metadata={"Date": None})
    plt.close(figure)
    print(directory / f"{name}.svg")


def cache(directory):
    """Time of each token over the sequence's length, with and without a cache."""
    reports = [r for r in (load(directory, f"cache-{s}") for s in SHAPES) if r]
    if not reports:
        return
    figure, axes = plt.subplots(1, len(reports), figsize=(4.6 * len(reports), 3.4), squeeze=False)
    for axis, report in zip(axes[0], reports):
        without, with_cache = report["series"]
        for series, colour in ((without, PEER), (with_cache, OURS)):
            seconds = series["token_seconds"]
            lengths = [report["prompt"] + i + 1 for i in range(len(seconds))]
            axis.plot(lengths, [1e3 * s for s in seconds], color=colour, label=series["name"])
        ratio = without["decode_seconds"] / with_cache["decode_seconds"]
        axis.set_title(f"{NAMES.get(report['model'], report['model'])}: {len(without['token_seconds'])} tokens, "
                       f"{ratio:.1f} times as fast", fontsize=9)
        axis.set_xlabel("tokens in the sequence")
        axis.set_ylabel("ms per token")
        axis.set_ylim(bottom=0)
        axis.grid(True, alpha=0.25)
        axis.legend(frameon=False, fontsize=8)
    save(figure, directory, "cache", f"{machine_line(reports[0])}, {reports[0]['isa']} kernels")


def peers(directory):
    """Tokens per second of every engine, prefill and decode."""
    reports = [r for r in (load(directory, f"compare-{s}") for s in SHAPES) if r]
    if not reports:
        return
    tests = list(dict.fromkeys(r["test"] for r in reports[0]["results"]))
    figure, axes = plt.subplots(len(reports), len(tests), figsize=(9.2, 2.3 * len(reports)), squeeze=False)
    for row, report in zip(axes, reports):
        for axis, test in zip(row, tests):
            results = [r for r in report["results"] if r["test"] == test][::-1]
            bars = axis.barh([r["engine"] for r in results], [r["tokens_per_s"] for r in results],
                             color=[OURS if r["engine"].startswith("ours") else PEER for r in results])
            axis.bar_label(bars, [f"{r['tokens_per_s']:.3g}" for r in results], padding=2, fontsize=7)
            axis.margins(x=0.15)
            axis.tick_params(labelsize=7)
            axis.set_title(f"{NAMES.get(report['model'], report['model'])}, {test}: tokens/s", fontsize=9)
    versions = ", ".join(f"{k} {v}" for k, v in reports[0]["versions"].items() if v)
    save(figure, directory, "peers", f"{reports[0]['threads']} threads; {versions}")


def limits(directory):
    """Each figure's share of what the machine can give."""
    reports = [r for r in (load(directory, f"model-{s}") for s in SHAPES) if r]
    rows = [(f"{NAMES.get(r['model'], r['model'])} {r['test']} "
             f"{r['tokens'] if r['test'] == 'prefill' else 'at ' + str(r['context'])}", r)
            for report in reports for r in report["results"] if r["roofline_ratio"]][::-1]
    if not rows:
        return
    figure, axis = plt.subplots(figsize=(7, 0.42 * len(rows) + 1.3))
    bars = axis.barh([name for name, _ in rows], [r["roofline_ratio"] for _, r in rows],
                     color=[OURS if r["test"] == "decode" else LIGHT for _, r in rows])
    axis.bar_label(bars, [f"{r['roofline_ratio']:.2f}  ({r['tokens_per_s']:.3g} tokens/s)" for _, r in rows],
                   padding=3, fontsize=7)
    axis.axvline(1, color="#555555", linewidth=0.8, linestyle="--")
    axis.set_xlim(0, 1.35)
    axis.tick_params(labelsize=8)
    axis.set_title("decode: share of read bandwidth; prefill: share of arithmetic peak", fontsize=9)
    roof = reports[0]["roofline"]
    save(figure, directory, "limits", f"{machine_line(reports[0])}, {roof['threads']} threads, {roof['isa']}, "
                                      f"quietness {roof['quietness']:.2f}")


def main(arguments):
    if len(arguments) != 1:
        print(__doc__, file=sys.stderr)
        return 2
    directory = pathlib.Path(arguments[0])
    for draw in (cache, peers, limits):
        draw(directory)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
