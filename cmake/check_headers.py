#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Compiles each library header alone, as a user who includes it first and without -isystem would. Kernels of
another processor than the compiler's are left out, and so are definitions that their own header includes.

usage: check_headers.py INCLUDE_DIR [--system DIR]... [--compiler NAME]... [--jobs N]
       check_headers.py --self-test
Compilers that are not installed are skipped, and that is said; with none at all the exit status is 77.
"""
import argparse
import concurrent.futures
import fnmatch
import pathlib
import shutil
import subprocess
import sys
import tempfile

FLAGS = ["-std=c++20", "-fsyntax-only", "-Wall", "-Wextra", "-Wpedantic", "-Wshadow", "-Wconversion",
         "-Wsign-conversion", "-Wswitch-enum", "-Werror"]

# Headers that only compilers for one processor can read.
PROCESSORS = {"kernels/avx*": "x86_64", "kernels/amx*": "x86_64", "kernels/neon*": "aarch64"}


def processor_of(compiler):
    """What the compiler compiles for, as "x86_64"."""
    return subprocess.run([compiler, "-dumpmachine"], capture_output=True, text=True).stdout.split("-")[0]


def is_for(header, processor):
    return all(only == processor or not fnmatch.fnmatchcase(header, pattern) for pattern, only in PROCESSORS.items())


def is_read_by_own_header(path):
    """Whether path is some/name-inl.hpp and some/name.hpp includes it."""
    own = path.with_name(path.name.replace("-inl.hpp", ".hpp"))
    return own != path and own.exists() and f"/{path.name}>" in own.read_text(encoding="utf-8")


def compile_alone(compiler, include_dir, system, header):
    """The compiler's complaint about a unit that includes only this header (twice), or ''."""
    source = f"#include <qwenlite/{header}>\n#include <qwenlite/{header}>\nint main() {{}}\n"
    command = [compiler, *FLAGS, "-I", include_dir]
    for place in system:
        command += ["-isystem", place]
    result = subprocess.run(command + ["-x", "c++", "-"], input=source, capture_output=True, text=True)
    return result.stderr or f"exit status {result.returncode}" if result.returncode else ""


def check(include_dir, system, compilers, jobs):
    """The number of failures; prints each."""
    root = pathlib.Path(include_dir) / "qwenlite"
    headers = sorted(p.relative_to(root).as_posix() for p in root.rglob("*.hpp") if not is_read_by_own_header(p))
    if not headers:
        print(f"no headers under {root}")
        return 1
    failures = 0
    processors = {compiler: processor_of(compiler) for compiler in compilers}
    work = [(compiler, header) for compiler in compilers for header in headers
            if is_for(header, processors[compiler])]
    with concurrent.futures.ThreadPoolExecutor(jobs) as pool:
        results = pool.map(lambda pair: compile_alone(pair[0], include_dir, system, pair[1]), work)
        for (compiler, header), text in zip(work, results):
            if text:
                failures += 1
                print(f"{compiler}: <qwenlite/{header}> does not compile alone\n{text}")
    print(f"headers alone: {len(headers)} headers with {', '.join(compilers)}, {failures} failures")
    return failures


def self_test(compilers):
    trees = {"#include <string>\ninline std::string f() { return {}; }\n": False,
             "inline std::string f() { return {}; }\n": True,                       # needs <string>
             "inline int f(long x) { return x; }\n": True,                          # -Wconversion
             "inline int f(int x) { { int x = 1; (void)x; } return x; }\n": True}   # -Wshadow
    wrong = 0
    for body, bad in trees.items():
        with tempfile.TemporaryDirectory() as place:
            header = pathlib.Path(place) / "qwenlite" / "x.hpp"
            header.parent.mkdir()
            header.write_text("#pragma once\n" + body)
            for compiler in compilers:
                wrong += (check(place, [], [compiler], 1) > 0) != bad
        with tempfile.TemporaryDirectory() as place:  # without #pragma once
            header = pathlib.Path(place) / "qwenlite" / "x.hpp"
            header.parent.mkdir()
            header.write_text("struct Twice {};\n")
            wrong += check(place, [], compilers[:1], 1) == 0
    wrong += is_for("kernels/neon.hpp", "x86_64") or not is_for("kernels/neon.hpp", "aarch64")
    wrong += is_for("kernels/avx2.hpp", "aarch64") or not is_for("kernels/ops.hpp", "aarch64")
    print(f"self-test: {wrong} wrong")
    return 1 if wrong else 0


def main():
    parser = argparse.ArgumentParser(usage=__doc__)
    parser.add_argument("include_dir", nargs="?")
    parser.add_argument("--system", action="append", default=[])
    parser.add_argument("--compiler", action="append", default=[])
    parser.add_argument("--jobs", type=int, default=2)
    parser.add_argument("--self-test", action="store_true")
    options = parser.parse_args()
    wanted = options.compiler or ["g++", "clang++"]
    compilers = [name for name in wanted if shutil.which(name)]
    for name in wanted:
        if name not in compilers:
            print(f"SKIPPED: {name} is not installed")
    if not compilers:
        return 77
    if options.self_test:
        return self_test(compilers)
    if not options.include_dir:
        parser.error("INCLUDE_DIR is missing")
    return 1 if check(options.include_dir, options.system, compilers, options.jobs) else 0


if __name__ == "__main__":
    sys.exit(main())
