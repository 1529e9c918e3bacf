#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Fails when clang-format would change a source.

usage: check_format.py ROOT | --self-test
Other versions than 14 (Debian 12's) break lines differently: then the exit status is 77, for skipped.
"""
import pathlib
import re
import shutil
import subprocess
import sys
import tempfile


def formatter():
    """The name of clang-format 14, or None."""
    for name in ("clang-format-14", "clang-format"):
        if shutil.which(name):
            version = subprocess.run([name, "--version"], capture_output=True, text=True).stdout
            if re.search(r"version 14\.", version):
                return name
    return None


def check(name, root):
    files = sorted(p for folder in ("include", "examples", "tests", "benchmarks")
                   for p in (root / folder).rglob("*") if p.suffix in (".hpp", ".cpp"))
    command = [name, "--style=file", "--dry-run", "-Werror", *map(str, files)]
    result = subprocess.run(command, capture_output=True, text=True)
    bad = sorted(set(re.findall(r"^(\S.*?):\d+:\d+: error: code should be", result.stderr, re.M)))
    print("\n".join([f"{path}: run {name} -i on it" for path in bad] + [f"format: {len(files)} files, {len(bad)} to mend"]))
    return result.returncode != 0 or not files


def self_test(name):
    style = pathlib.Path(__file__).resolve().parent.parent / ".clang-format"
    with tempfile.TemporaryDirectory() as place:
        root = pathlib.Path(place)
        (root / ".clang-format").write_text(style.read_text())
        (root / "include").mkdir()
        (root / "include" / "a.hpp").write_text("#pragma once\ninline int f() {\n  return 1;\n}\n")
        good = check(name, root)
        (root / "include" / "b.hpp").write_text("#pragma once\ninline int f( ) {return 1;}\n")
        bad = check(name, root)
    print("self-test:", "right" if bad and not good else "wrong")
    return not bad or good


def main(arguments):
    name = formatter()
    if name is None:
        print("SKIPPED: clang-format 14 is not installed")
        return 77
    if arguments == ["--self-test"]:
        return int(self_test(name))
    if len(arguments) != 1:
        print(__doc__, file=sys.stderr)
        return 2
    return int(check(name, pathlib.Path(arguments[0])))


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
