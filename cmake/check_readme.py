#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Keeps README.md true: its programs are files that the build compiles, its commands are one line each.

usage: check_readme.py ROOT
       check_readme.py --self-test
A code block after <!-- file: PATH --> equals that file without its opening comment.
"""
import pathlib
import re
import sys
import tempfile

BLOCK = re.compile(r"<!-- (file|command): (\S+) -->\n+```\w*\n(.*?)```", re.S)
COMMANDS = ["try", "test"]
LINK = re.compile(r"\]\((?!https?:|#)([^)#]+)\)")


def without_opening_comment(source):
    lines = source.splitlines(keepends=True)
    while lines and (lines[0].startswith("//") or not lines[0].strip()):
        lines.pop(0)
    return "".join(lines)


def check(root):
    """All complaints about ROOT/README.md."""
    readme = (root / "README.md").read_text(encoding="utf-8")
    blocks = BLOCK.findall(readme)
    problems = [f"no command marked {name}" for name in COMMANDS if ("command", name) not in [b[:2] for b in blocks]]
    if not any(kind == "file" for kind, _, _ in blocks):
        problems.append("no program is shown")
    for kind, name, text in blocks:
        if kind == "command" and text.count("\n") != 1:
            problems.append(f"the command {name} is not one line")
        if kind == "file" and not (root / name).is_file():
            problems.append(f"{name}: no such file")
        elif kind == "file" and without_opening_comment((root / name).read_text(encoding="utf-8")) != text:
            problems.append(f"{name}: README shows something else than the file")
    prose = re.sub(r"```.*?```", "", readme, flags=re.S)
    problems += [f"link to {path}: no such file" for path in LINK.findall(prose) if not (root / path).exists()]
    return problems


def self_test():
    good = ("<!-- command: try -->\n```sh\nmake\n```\n<!-- command: test -->\n```sh\nmake test\n```\n"
            "<!-- file: a.cpp -->\n```cpp\nint main() {}\n```\n[a](a.cpp)\n")
    changes = [("", ""), ("make test", "make\ntest"), ("command: test", "command: tests"), ("int main()", "int  main()"),
               ("file: a.cpp", "file: b.cpp"), ("(a.cpp)", "(b.cpp)")]
    wrong = 0
    for old, new in changes:
        with tempfile.TemporaryDirectory() as place:
            root = pathlib.Path(place)
            (root / "a.cpp").write_text("// SPDX\n//\n// Says nothing.\n\nint main() {}\n")
            (root / "README.md").write_text(good.replace(old, new) if old else good)
            if bool(check(root)) != bool(old):
                wrong += 1
                print(f"self-test: {old!r} -> {new!r} gave {check(root)}")
    print(f"self-test: {len(changes)} cases, {wrong} wrong")
    return 1 if wrong else 0


def main(arguments):
    if arguments == ["--self-test"]:
        return self_test()
    if len(arguments) != 1:
        print(__doc__, file=sys.stderr)
        return 2
    problems = check(pathlib.Path(arguments[0]))
    print("\n".join(problems + [f"README: {len(problems)} problems"]))
    return 1 if problems else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
