#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Fails on any #include of a library header that the layering does not allow.

usage: check_layers.py INCLUDE_DIR      check the tree under INCLUDE_DIR/qwenlite
       check_layers.py --self-test      prove that each rule can fail
"""
import fnmatch
import pathlib
import re
import sys
import tempfile

FLOOR = ["error.hpp", "file_kind.hpp", "in_quotes.hpp", "json_text.hpp", "sampling_ranges.hpp", "tensor.hpp"]

# What each folder or header may include of ours, besides its own folder. The first match counts.
LAYERS = [
    ("error.hpp", []),
    ("file_kind.hpp", ["in_quotes.hpp"]),
    ("in_quotes.hpp", ["error.hpp"]),
    ("json_text.hpp", ["error.hpp", "in_quotes.hpp"]),
    ("sampling_ranges.hpp", ["error.hpp"]),
    ("tensor.hpp", ["error.hpp"]),
    ("checkpoint/packed*.hpp", FLOOR + ["kernels/formats.hpp", "kernels/quantised*.hpp", "kernels/weight_words.hpp"]),
    ("checkpoint/weights*.hpp", FLOOR + ["kernels/formats.hpp"]),
    ("checkpoint/*", FLOOR),
    ("text/*", FLOOR),
    ("kernels/*", FLOOR),
    ("cache/session_file*.hpp", FLOOR + ["kernels/*", "checkpoint/safetensors*.hpp"]),
    ("cache/*", FLOOR + ["kernels/*"]),
    ("layers/*", FLOOR + ["kernels/*", "checkpoint/weights*.hpp"]),
    ("models/mtp*.hpp", FLOOR + ["checkpoint/*", "kernels/*", "cache/*", "layers/*", "generate/speculative.hpp"]),
    ("models/*", FLOOR + ["checkpoint/*", "kernels/*", "cache/*", "layers/*", "quantize/round_to_nearest*.hpp"]),
    ("generate/*", FLOOR + ["kernels/*"]),
    ("quantize/round_to_nearest*.hpp", FLOOR + ["kernels/*"]),
    ("quantize/*", FLOOR + ["checkpoint/*", "kernels/*", "cache/*", "layers/*", "models/*"]),
    ("serve/*", FLOOR + ["cache/*", "generate/*"]),
    ("score.hpp", FLOOR + ["score_numbers.hpp"]),
    ("score_numbers.hpp", FLOOR),
    ("chat_reply.hpp", FLOOR + ["text/*", "generate/*"]),
    ("chat.hpp", FLOOR + ["checkpoint/*", "text/*", "kernels/*", "cache/*", "layers/*", "models/*", "generate/*", "chat_reply.hpp"]),
    ("model.hpp", FLOOR + ["checkpoint/*", "text/*", "kernels/*", "cache/*", "layers/*", "models/*", "generate/*", "chat.hpp"]),
]

# Headers of others, and where they may appear. Everything that matches no row is a standard header.
FOREIGN = [
    (r"(unsupported/)?Eigen/.*", ["tensor.hpp", "quantize/*"]),
    (r"nlohmann/.*", ["json_text.hpp", "text/*"]),
    (r".*intrin\.h|arm_neon\.h|arm_sve\.h|arm_acle\.h|cpuid\.h", ["kernels/*"]),
    (r"(sys|linux|asm)/.*\.h|(fcntl|unistd|sched|pthread|signal|dirent|errno)\.h", ["*"]),
    (r".*\.(h|hpp|hh|inc)|.*/.*", []),
]

INCLUDE = re.compile(r'^\s*#\s*include\s*([<"])([^>"]+)[>"]')


def matches(name, patterns):
    return any(fnmatch.fnmatchcase(name, pattern) for pattern in patterns)


def folder_of(name):
    return name.rsplit("/", 1)[0] if "/" in name else ""


def includes_of(path):
    """(line number, bracket, name) of each #include, comments left out."""
    for number, line in enumerate(path.read_text(encoding="utf-8").splitlines(), 1):
        found = INCLUDE.match(line)
        if found:
            yield number, found.group(1), found.group(2)


def complaint(header, bracket, name, known):
    """What is wrong with `header` including `name`, or None."""
    if bracket == '"':
        return f'"{name}": write <qwenlite/...>'
    if not name.startswith("qwenlite/"):
        for pattern, places in FOREIGN:
            if re.fullmatch(pattern, name):
                return None if matches(header, places) else f"<{name}>: not allowed here"
        return None
    target = name.removeprefix("qwenlite/")
    if target not in known:
        return f"<{name}>: no such header"
    if folder_of(header) and folder_of(header) == folder_of(target):
        return None
    for pattern, allowed in LAYERS:
        if fnmatch.fnmatchcase(header, pattern):
            return None if matches(target, allowed) else f"<{name}>: this layer may not include that one"
    return f"{header} is in no row of the table of layers"


def continues(part, whole):
    """True for what a header ends by including: definitions (*-inl.hpp), or x_attention.hpp for x.hpp."""
    return part.endswith("-inl.hpp") or part.startswith(whole.removesuffix(".hpp") + "_")


def cycle_in(graph):
    """One circle of headers as a list, or None."""
    state = {}
    for root in graph:
        path = [(root, iter(graph[root]))] if root not in state else []
        while path:
            node, rest = path[-1]
            state[node] = "open"
            step = next((n for n in rest if state.get(n) != "done"), None)
            if step is None:
                state[node] = "done"
                path.pop()
            elif state.get(step) == "open":
                names = [n for n, _ in path]
                return names[names.index(step):] + [step]
            else:
                path.append((step, iter(graph[step])))
    return None


def check(include_dir):
    """All complaints about the headers under include_dir/qwenlite."""
    root = pathlib.Path(include_dir) / "qwenlite"
    headers = sorted(p for p in root.rglob("*") if p.is_file())
    known = {p.relative_to(root).as_posix() for p in headers}
    problems, graph = [], {name: [] for name in known}
    for path in headers:
        header = path.relative_to(root).as_posix()
        for number, bracket, name in includes_of(path):
            text = complaint(header, bracket, name, known)
            if text:
                problems.append(f"{header}:{number}: {text}")
            target = name.removeprefix("qwenlite/")
            if target in known and not continues(target, header):
                graph[header].append(target)
    cycle = cycle_in(graph)
    if cycle:
        problems.append("headers include each other in a circle: " + " -> ".join(cycle))
    return problems, len(headers)


def self_test():
    base = {"error.hpp": "<string>", "tensor.hpp": "<qwenlite/error.hpp>", "kernels/ops.hpp": "<immintrin.h>",
            "text/a.hpp": "<nlohmann/json.hpp>", "layers/norm.hpp": "<qwenlite/kernels/ops.hpp>",
            "checkpoint/b.hpp": "<qwenlite/tensor.hpp>", "checkpoint/b-inl.hpp": "<qwenlite/checkpoint/b.hpp>"}
    bad = {"kernels/x.hpp": "<qwenlite/text/a.hpp>", "text/x.hpp": "<qwenlite/checkpoint/b.hpp>",
           "layers/x.hpp": "<nlohmann/json.hpp>", "models/x.hpp": "<immintrin.h>", "cache/x.hpp": "<Eigen/Core>",
           "error.hpp": "<qwenlite/tensor.hpp>", "layers/y.hpp": "<qwenlite/cache/none.hpp>",
           "text/q.hpp": '"a.hpp"', "generate/x.hpp": "<boost/any.hpp>", "cellar/x.hpp": "<qwenlite/error.hpp>",
           "kernels/ops.hpp": "<qwenlite/kernels/table.hpp>"}
    extra = {"kernels/ops.hpp": {"kernels/table.hpp": "<qwenlite/kernels/ops.hpp>"}}  # a circle
    failures = 0
    for change in [{}] + [{k: v} | extra.get(k, {}) for k, v in bad.items()]:
        with tempfile.TemporaryDirectory() as place:
            for name, include in (base | change).items():
                path = pathlib.Path(place) / "qwenlite" / name
                path.parent.mkdir(parents=True, exist_ok=True)
                path.write_text(f"#pragma once\n#include {include}\n")
            problems, _ = check(place)
        if bool(problems) != bool(change):
            failures += 1
            print(f"self-test: {change or 'the good tree'} gave {problems or 'no complaint'}")
    print(f"self-test: {len(bad)} bad trees and a good one, {failures} wrong")
    return 1 if failures else 0


def main(arguments):
    if arguments == ["--self-test"]:
        return self_test()
    if len(arguments) != 1:
        print(__doc__, file=sys.stderr)
        return 2
    problems, count = check(arguments[0])
    print("\n".join(problems + [f"layers: {count} headers, {len(problems)} problems"]))
    return 1 if problems or count == 0 else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
