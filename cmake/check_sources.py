#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Checks sizes and house rules of the sources.

usage: check_sources.py ROOT      check include/, examples/, tests/, benchmarks/ under ROOT; licence lines everywhere
       check_sources.py --self-test
Files: at most 600 lines (generated Unicode tables exempt). Functions: at most 60 lines, counted from
the opening brace to the closing one; 80 in the instruction-set headers, 120 for a test case. Each file
opens with the licence line, scripts and build files too. Library headers have #pragma once and neither print, end the process nor
use std::regex; only two of them call the operating system.
"""
import pathlib
import re
import sys
import tempfile

MAX_FILE, MAX_FUNCTION, MAX_KERNEL, MAX_TEST_CASE = 600, 60, 80, 120
ISA_HEADERS = re.compile(r"include/qwenlite/kernels/(avx2|avx512|amx|neon|scalar)[a-z0-9_]*\.hpp")
UNICODE_TABLES = re.compile(r"include/qwenlite/text/unicode[a-z0-9_]*\.hpp")
BANNED_FOLDERS = {"util", "utils", "common", "core", "helper", "helpers", "detail"}
BANNED = [  # in library headers, outside comments and strings
    (re.compile(r"\bstd::(basic_|w)?regex\b|#\s*include\s*<regex>"), "std::regex is too slow and recursive"),
    (re.compile(r"\bstd::(cout|cerr|clog)\b|\b(std::)?f?(printf|puts)\s*\(|#\s*include\s*<iostream>"),
     "the library does not print"),
    (re.compile(r"\b(std::)?(abort|exit|_Exit|quick_exit|terminate)\s*\(|\bassert\s*\("),
     "the library does not end the process"),
]
SYSTEM_FILES = {"include/qwenlite/checkpoint/mapped_file-inl.hpp", "include/qwenlite/kernels/process.hpp"}
SYSTEM = re.compile(r"#\s*include\s*<((sys|linux|asm|arpa|netinet|net)/[^>]*|(unistd|fcntl|sched|pthread|signal|poll"
                    r"|dirent|dlfcn|malloc|spawn|termios|time|windows)\.h)>|\bsyscall\s*\(")

TOKEN = re.compile(
    r'//[^\n]*|/\*.*?\*/|R"(?P<mark>[^()\\ ]{0,16})\(.*?\)(?P=mark)"|"(?:\\.|[^"\\\n])*"'
    r"|(?<![0-9A-Fa-f])'(?:\\.|[^'\\\n])+'", re.S)
DIRECTIVE = re.compile(r"^[ \t]*#(?:[^\n\\]|\\.|\\\n)*", re.M)


def blanked(match):
    """Comments and literals without their content; line breaks stay."""
    text = match.group(0)
    return ('""' if text[0] in "\"R'" else "") + "\n" * text.count("\n")


def bare(source):
    return TOKEN.sub(blanked, source)


HEAD_ENDS = re.compile(r"\b(const|noexcept(\s*\(.*\))?|override|final|mutable|try|&{1,2})\s*$|->[^(){};]*$")
ENUM_OR_CLASS = re.compile(r"^(\[\[.*?\]\]\s*|export\s+|typedef\s+|static\s+)*(class|struct|union|enum)\b")


def without_template(head):
    """`head` without a leading template<...> and access labels."""
    head = re.sub(r"^((public|private|protected)\s*:\s*)+", "", head.strip())
    while head.startswith("template"):
        depth, i = 0, head.find("<")
        if i < 0:
            return head
        while i < len(head):
            depth += {"<": 1, ">": -1}.get(head[i], 0) if head[i - 1:i + 1] != "->" else 0
            i += 1
            if depth == 0:
                break
        head = head[i:].strip()
        head = re.sub(r"^requires\b.*?(?=\b(class|struct|union)\b)", "", head, flags=re.S)
    return head


def kind_of(head):
    """What a brace after `head` opens at namespace or class level: scope, function or value."""
    head = without_template(head)
    if re.search(r"\bnamespace\b[^()]*$", head) or head in ('extern ""', ""):
        return "scope"
    if ENUM_OR_CLASS.match(head) and not head.endswith(")"):
        return "scope"
    while HEAD_ENDS.search(head):
        head = HEAD_ENDS.sub("", head).rstrip()
    initialised = re.search(r"\)\s*(noexcept)?\s*:[^:]", head) is not None
    return "function" if head.endswith((")", "]")) or (initialised and head.endswith("}")) else "value"


def functions_of(source):
    """(first line, lines, head) of each outermost function body."""
    text = DIRECTIVE.sub(lambda m: "\n" * m.group(0).count("\n"), bare(source))
    head, line, stack, start, found = "", 1, [], 0, []
    for character in text:
        line += character == "\n"
        inside = "function" in stack
        if character == "{":
            kind = "block" if inside else kind_of(head)
            stack.append(kind)
            if kind == "function":
                start, title = line, " ".join(head.split())[-60:]
            if kind in ("scope", "function"):
                head = ""
        elif character == "}" and stack:
            kind = stack.pop()
            if kind == "function":
                found.append((start, line - start + 1, title))
            if kind == "value":
                head += "{}"
            elif kind != "block":
                head = ""
        elif not inside:
            value_open = bool(stack) and stack[-1] == "value"
            head = "" if character == ";" else head if value_open else head + character
    return found


def check_file(name, source):
    """All complaints about one file; `name` is relative to the root, with forward slashes."""
    problems, lines = [], source.count("\n")
    if not source.startswith("// SPDX-License-Identifier: Apache-2.0\n"):
        problems.append(f"{name}:1: the first line is not the SPDX licence line")
    if lines > MAX_FILE and not UNICODE_TABLES.fullmatch(name):
        problems.append(f"{name}: {lines} lines, at most {MAX_FILE}")
    for start, length, head in functions_of(source):
        limit = MAX_KERNEL if ISA_HEADERS.fullmatch(name) else MAX_FUNCTION
        limit = MAX_TEST_CASE if "TEST_CASE" in head else limit
        if length > limit:
            problems.append(f"{name}:{start}: a function of {length} lines, at most {limit}: {head}")
    if BANNED_FOLDERS & set(pathlib.PurePosixPath(name).parts):
        problems.append(f"{name}: a folder name that says nothing")
    if name.startswith("include/"):
        if not re.search(r"^#pragma once$", source, re.M):
            problems.append(f"{name}: no #pragma once")
        for number, line in enumerate(bare(source).split("\n"), 1):
            problems += [f"{name}:{number}: {why}" for pattern, why in BANNED if pattern.search(line)]
            if name not in SYSTEM_FILES and SYSTEM.search(line):
                problems.append(f"{name}:{number}: calls to the system belong into {' or '.join(sorted(SYSTEM_FILES))}")
    return problems


def unlicensed(root):
    """Files that are no C++ and lack the licence line, which may follow a line for the system."""
    for path in sorted(p for folder in ("cmake", "examples", "tests", "benchmarks", ".ci", ".")
                       for p in (root / folder).glob("*" if folder == "." else "**/*") if p.is_file()):
        if path.suffix in (".py", ".cmake", ".in", ".h") or path.name in ("CMakeLists.txt", "run"):
            opening = path.read_text(encoding="utf-8").split("\n")[:2]
            if not any(re.fullmatch(r"(#|/\*) SPDX-License-Identifier: Apache-2\.0", line) for line in opening):
                yield f"{path.relative_to(root).as_posix()}:1: no SPDX licence line"


def check(root):
    root = pathlib.Path(root)
    files = sorted(p for folder in ("include", "examples", "tests", "benchmarks")
                   for p in (root / folder).rglob("*") if p.suffix in (".hpp", ".cpp"))
    problems = [text for path in files
                for text in check_file(path.relative_to(root).as_posix(), path.read_text(encoding="utf-8"))]
    return problems + list(unlicensed(root)), len(files)


def self_test():
    spdx, once = "// SPDX-License-Identifier: Apache-2.0\n", "#pragma once\n"

    def body(n):
        return "  // {\n" * (n - 2)

    plain, isa = "include/qwenlite/text/a.hpp", "include/qwenlite/kernels/avx512.hpp"
    cases = [
        (plain, spdx + once + "namespace a {\nstruct B {\n" + "int x;\n" * 100 + "};\n}\n", False),
        (plain, spdx + once + "inline int f() {\n" + body(60) + "}\n", False),
        (plain, spdx + once + "inline int f() {\n" + body(61) + "}\n", True),
        (plain, spdx + once + "template <class T>\nint A<T>::f(int x) const noexcept {\n" + body(61) + "}\n", True),
        (plain, spdx + once + "struct A { A(int x) : a_{x}, b_(x) {\n" + body(61) + "} };\n", True),
        (plain, spdx + once + "inline auto f() -> std::vector<int> {\n" + body(61) + "}\n", True),
        (plain, spdx + once + "constexpr int t[] = {\n" + "1,\n" * 100 + "};\n", False),
        (isa, spdx + once + "inline int f() {\n" + body(80) + "}\n", False),
        (isa, spdx + once + "inline int f() {\n" + body(81) + "}\n", True),
        ("tests/text/a_test.cpp", spdx + 'TEST_CASE("x, y") {\n' + body(100) + "}\n", False),
        ("tests/text/a_test.cpp", spdx + 'TEST_CASE("x") {\n' + body(121) + "}\n", True),
        (plain, spdx + once + "\n" * 598, False), (plain, spdx + once + "\n" * 599, True),
        ("include/qwenlite/text/unicode_tables.hpp", spdx + once + "\n" * 9000, False),
        (plain, once, True), (plain, spdx, True), ("include/qwenlite/detail/a.hpp", spdx + once, True),
        (plain, spdx + once + "inline std::regex r;\n", True), (plain, spdx + once + "// std::regex is slow\n", False),
        (plain, spdx + once + 'inline void f() { std::printf("x"); }\n', True),
        (plain, spdx + once + "inline void f() { std::exit(1); }\n", True),
        (plain, spdx + once + 'inline auto s = "std::cout";\n', False),
        (plain, spdx + once + "inline void f() { assert(1); static_assert(true); }\n", True),
        (plain, spdx + once + "inline void f() { static_assert(1'000 > 0); }\n", False),
        ("cmake/a.py", "#!/usr/bin/env python3\n# SPDX-License-Identifier: Apache-2.0\n", False),
        ("cmake/a.py", "#!/usr/bin/env python3\n", True), ("CMakeLists.txt", "project(a)\n", True),
        ("examples/b/CMakeLists.txt", "# SPDX-License-Identifier: Apache-2.0\n", False),
        ("examples/b/a.h", "/* SPDX-License-Identifier: Apache-2.0\n */\n", False), ("examples/b/a.h", "int f();\n", True),
        (plain, spdx + once + "#include <unistd.h>\n", True), (plain, spdx + once + "# include <sys/mman.h>\n", True),
        (plain, spdx + once + "// #include <unistd.h>\n#include <system_error>\n", False),
        (plain, spdx + once + "inline long f() { return syscall(1); }\n", True),
        ("include/qwenlite/kernels/process.hpp", spdx + once + "#include <sched.h>\n", False),
        ("examples/a.cpp", spdx + "#include <unistd.h>\n", False),
    ]
    wrong = 0
    with tempfile.TemporaryDirectory() as place:
        for name, source, bad in cases:
            path = pathlib.Path(place) / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(source)
            problems, _ = check(place)
            path.unlink()
            if bool(problems) != bad:
                wrong += 1
                print(f"self-test: {source[:120]!r}... gave {problems}")
    print(f"self-test: {len(cases)} cases, {wrong} wrong")
    return 1 if wrong else 0


def main(arguments):
    if arguments == ["--self-test"]:
        return self_test()
    if len(arguments) != 1:
        print(__doc__, file=sys.stderr)
        return 2
    problems, count = check(arguments[0])
    print("\n".join(problems + [f"sources: {count} files, {len(problems)} problems"]))
    return 1 if problems or count == 0 else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
