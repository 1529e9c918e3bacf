#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Links units compiled with different -m flags into one program and checks both promises about that:
each unit works on its own, in any link order; passing an object from one to the other fails to link.

usage: check.py --compiler NAME --include DIR [--system DIR]... --checkpoint DIR
"""
import argparse
import json
import pathlib
import shutil
import subprocess
import sys
import tempfile

HERE = pathlib.Path(__file__).resolve().parent
WEAK = ["-march=x86-64"]
STRONG = {
    "avx2": (["-mavx2", "-mfma"], {"avx2", "fma"}),
    "avx512": (["-mavx2", "-mfma", "-mavx512f", "-mavx512bw", "-mavx512dq", "-mavx512vl"],
               {"avx2", "fma", "avx512f", "avx512bw", "avx512dq", "avx512vl"}),
}


def cpu_flags():
    for line in pathlib.Path("/proc/cpuinfo").read_text().splitlines():
        if line.startswith("flags"):
            return set(line.split(":")[1].split())
    return set()


class Builder:
    def __init__(self, options, place):
        self.command = [options.compiler, "-std=c++20", "-O1", "-pthread", "-I", options.include]
        for system in options.system:
            self.command += ["-isystem", system]
        self.compiler, self.place = options.compiler, place

    def object(self, source, name, flags):
        """Compiles tests/mixed_flags/`source`; ends the check when that fails."""
        output = f"{self.place}/{name}.o"
        result = subprocess.run(self.command + flags + ["-c", str(HERE / source), "-o", output],
                                capture_output=True, text=True)
        if result.returncode:
            sys.exit(f"{source} with {' '.join(flags)} does not compile\n{result.stderr}")
        return output

    def link(self, objects):
        """The program and the linker's complaint, '' when it linked."""
        program = f"{self.place}/program"
        result = subprocess.run([self.compiler, "-pthread", *objects, "-o", program], capture_output=True, text=True)
        return program, result.stderr if result.returncode else ""


def run(program, checkpoint):
    """'' when the program continues the longest golden prompt as the reference does, else what went wrong."""
    golden = json.loads((pathlib.Path(checkpoint) / "golden.json").read_text())
    prompt = max(golden["prompts"], key=lambda prompt: len(prompt["ids"]))
    result = subprocess.run([program, checkpoint, *map(str, prompt["ids"])], capture_output=True, text=True)
    ids = result.stdout.split()
    if result.returncode == 0 and ids == [str(i) for i in prompt["greedy_ids"]]:
        return ""
    return f"exit status {result.returncode}, {result.stdout}{result.stderr}, expected {prompt['greedy_ids']}"


def check_running(build, checkpoint):
    """Both link orders with each stronger unit; the number of failures."""
    failures = 0
    main = build.object("main.cpp", "main", WEAK)
    weak = build.object("unit.cpp", "weak", WEAK + ["-DQWENLITE_UNIT=weak_ids"])
    for name, (flags, needed) in STRONG.items():
        strong = build.object("unit.cpp", name, flags + ["-DQWENLITE_UNIT=strong_ids"])
        for order, objects in {"x86-64 first": [weak, strong], f"{name} first": [strong, weak]}.items():
            program, complaint = build.link([main] + objects)
            if not complaint and not needed <= cpu_flags():
                print(f"SKIPPED: this CPU has no {name}; the program with it was linked, not run")
                continue
            complaint = complaint or run(program, checkpoint)
            failures += complaint != ""
            print(f"x86-64 with {name}, {order}: {'FAILED: ' + complaint if complaint else 'right'}")
    return failures


def check_passing(build):
    """An object passed between units links with equal flags only; the number of failures."""
    failures = 0
    caller = build.object("caller.cpp", "caller", WEAK)
    units = {"x86-64": WEAK} | {name: flags for name, (flags, _) in STRONG.items()}
    for name, flags in units.items():
        _, complaint = build.link([caller, build.object("callee.cpp", "callee", flags)])
        refused = "undefined reference" in complaint and "take" in complaint
        good = refused if name != "x86-64" else not complaint
        failures += not good
        print(f"an object from x86-64 to {name}: {'refused' if refused else complaint or 'linked'}"
              f"{'' if good else ' FAILED'}")
    return failures


def main():
    parser = argparse.ArgumentParser(usage=__doc__)
    parser.add_argument("--compiler", required=True)
    parser.add_argument("--include", required=True)
    parser.add_argument("--system", action="append", default=[])
    parser.add_argument("--checkpoint", required=True)
    options = parser.parse_args()
    if not shutil.which(options.compiler):
        print(f"SKIPPED: {options.compiler} is not installed")
        return 77
    with tempfile.TemporaryDirectory() as place:
        build = Builder(options, place)
        failures = check_passing(build) + check_running(build, options.checkpoint)
    print(f"mixed flags with {options.compiler}: {failures} failures")
    return 1 if failures else 0


if __name__ == "__main__":
    sys.exit(main())
