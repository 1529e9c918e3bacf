#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Keeps README.md true: its programs are files that the build compiles, its commands are one line each.

usage: check_readme.py ROOT
       check_readme.py --self-test
A code block after <!-- file: PATH --> equals that file without its opening comment, one after
<!-- part: PATH --> stands in that file, maybe further to the right.
"""
import pathlib
import re
import sys
import tempfile
import textwrap

BLOCK = re.compile(r"<!-- (file|part|command): (\S+) -->\n+```\w*\n(.*?)```", re.S)
COMMANDS = ["try", "test"]
LINK = re.compile(r"\]\((?!https?:|#)([^)#]+)\)")


def without_opening_comment(source):
    lines = source.splitlines(keepends=True)
    while lines and (lines[0].startswith("//") or not lines[0].strip()):
        lines.pop(0)
    return "".join(lines)


def stands_in(part, source):
    """Whether the lines of `part` follow each other in `source`, indented alike."""
    wanted, lines = part.splitlines(), source.splitlines()
    windows = (lines[i:i + len(wanted)] for i in range(len(lines) - len(wanted) + 1))
    return any(textwrap.dedent("\n".join(window)).splitlines() == wanted for window in windows)


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
        if kind == "command":
            continue
        source = (root / name).read_text(encoding="utf-8") if (root / name).is_file() else None
        if source is None:
            problems.append(f"{name}: no such file")
        elif kind == "file" and without_opening_comment(source) != text:
            problems.append(f"{name}: README shows something else than the file")
        elif kind == "part" and not stands_in(text, source):
            problems.append(f"{name}: README shows lines that the file does not have")
    prose = re.sub(r"```.*?```", "", readme, flags=re.S)
    problems += [f"link to {path}: no such file" for path in LINK.findall(prose) if not (root / path).exists()]
    return problems


def self_test():
    good = ("<!-- command: try -->\n```sh\nmake\n```\n<!-- command: test -->\n```sh\nmake test\n```\n"
            "<!-- file: a.cpp -->\n```cpp\nint main() {}\n```\n[a](a.cpp)\n"
            "<!-- part: b.cpp -->\n```cpp\nif (x) {\n  y();\n```\n")
    changes = [("", ""), ("make test", "make\ntest"), ("command: test", "command: tests"), ("int main()", "int  main()"),
               ("file: a.cpp", "file: c.cpp"), ("(a.cpp)", "(c.cpp)"), ("part: b.cpp", "part: c.cpp"), ("  y()", " y()"),
               ("if (x)", "if (z)")]
    wrong = 0
    for old, new in changes:
        with tempfile.TemporaryDirectory() as place:
            root = pathlib.Path(place)
            (root / "a.cpp").write_text("// SPDX\n//\n// Says nothing.\n\nint main() {}\n")
            (root / "b.cpp").write_text("int main() {\n  if (x) {\n    y();\n  }\n}\n")
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
