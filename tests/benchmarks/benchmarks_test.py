#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Runs the benchmark programs on tiny shapes: what they print has the promised form, and what they cannot do is
refused in one line.

usage: benchmarks_test.py DIRECTORY_OF_PROGRAMS
"""
import json
import pathlib
import subprocess
import sys
import tempfile
import unittest

PROGRAMS = pathlib.Path(".")

ROOFLINE = {"read_gb_s": float, "tile_peak_gflop_s": (float, type(None)), "tile_fed_gflop_s": (float, type(None)),
            "bf16_dot_gflop_s": (float, type(None)), "fma_gflop_s": (float, type(None)), "quietness": float}
RESULT = {"model": str, "weights": str, "kv": str, "isa": str, "threads": int, "test": str, "tokens": int,
          "context": int, "batch": int, "tokens_per_s": float, "spread": float,
          "roofline_ratio": (float, type(None)), "peak_rss_bytes": int}


def run(program, *arguments):
    return subprocess.run([str(PROGRAMS / program), *arguments], capture_output=True, text=True, timeout=300)


class ModelBench(unittest.TestCase):
    def measure(self, *arguments):
        done = run("model_bench", *arguments, "--repeats", "1", "--bandwidth-mb", "32", "--json")
        self.assertEqual((done.returncode, done.stderr), (0, ""))
        return json.loads(done.stdout)

    def check_fields(self, found, expected):
        for name, kind in expected.items():
            self.assertIn(name, found)
            self.assertIsInstance(found[name], kind, name)

    def test_json_of_both_families(self):
        for shape in ("qwen3-tiny", "qwen3.5-tiny"):
            report = self.measure("--shape", shape, "--prefill", "80", "--decode-context", "70", "--batch", "1,3",
                                  "--threads", "1,2", "--kv", "bf16,f32")
            self.assertIsInstance(report["machine"]["cpu"], str)
            self.check_fields(report["roofline"], ROOFLINE)
            self.assertGreater(report["roofline"]["read_gb_s"], 0)
            self.assertGreater(report["open_seconds"], 0)
            self.assertGreater(report["first_token_seconds"], report["open_seconds"])
            for result in report["results"]:
                self.check_fields(result, RESULT)
                self.assertEqual(result["model"], shape)
                self.assertGreater(result["tokens_per_s"], 0)
                self.assertGreater(result["peak_rss_bytes"], 1_000_000)
            kinds = {(r["threads"], r["kv"], r["test"], r["tokens"], r["context"], r["batch"])
                     for r in report["results"]}
            self.assertEqual(len(kinds), len(report["results"]))
            expected = {(t, kv, *test) for t in (1, 2) for kv in ("bf16", "f32")
                        for test in (("prefill", 80, 0, 1), ("decode", 16, 70, 1), ("decode", 16, 70, 3))}
            self.assertEqual(kinds, expected)

    def test_every_format_and_a_directory(self):
        report = self.measure("--shape", "qwen3-tiny", "--weights", "f16,f32", "--decode-context", "0",
                              "--prefill", "8")
        self.assertEqual([r["weights"] for r in report["results"]], ["f16", "f32"])
        with tempfile.TemporaryDirectory() as place:
            self.assertEqual(run("random_checkpoint", "qwen3.5-tiny", place, "f32").returncode, 0)
            report = self.measure(place, "--prefill", "8", "--decode-context", "0")
            quantised = self.measure(place, "--prefill", "8", "--decode-context", "0",
                                     "--weights", "int8:128,fp8/int4:32")
        self.assertEqual([r["weights"] for r in report["results"]], ["f32"])
        self.assertEqual(report["results"][0]["model"], pathlib.Path(place).name)
        self.assertEqual([(r["weights"], r["embedding_weights"]) for r in quantised["results"]],
                         [("int8:128", "int8:row"), ("fp8", "int4:32")])

    def test_quantised_weights(self):
        words = ("bf16", "int8", "int4", "int4:32:zeros/int4", "fp8/fp8")
        report = self.measure("--shape", "qwen3.5-tiny", "--weights", ",".join(words), "--decode-context", "20",
                              "--prefill", "8")
        results = [r for r in report["results"] if r["test"] == "decode"]
        self.assertEqual([(r["weights"], r["embedding_weights"]) for r in results],
                         [("bf16", "bf16"), ("int8:row", "int8:row"), ("int4:64", "int8:row"),
                          ("int4:32:zeros", "int4:64"), ("fp8", "fp8")])
        bytes_of_step = [r["read_gb_s"] / r["tokens_per_s"] for r in results]
        for quantised in bytes_of_step[1:]:
            self.assertLess(quantised, bytes_of_step[0])
        self.assertLess(bytes_of_step[2], bytes_of_step[1])

    def test_wrong_command_lines(self):
        for arguments in ([], ["--shape", "qwen9"], ["--shape"], ["--no-such-flag", "1"], ["a", "b"],
                          ["--shape", "qwen3-tiny", "dir"], ["--shape", "qwen3-tiny", "--prefill", "x"],
                          ["--shape", "qwen3-tiny", "--prefill", "1,,2"], ["--shape", "qwen3-tiny", "--batch", "0"],
                          ["--shape", "qwen3-tiny", "--weights", "q4"], ["dir", "--weights", "bf16"],
                          ["--shape", "qwen3-tiny", "--weights", "int4/f16"], ["dir", "--weights", "int4:row"],
                          ["--shape", "qwen3-tiny", "--threads", "0"], ["--shape", "qwen3-tiny", "--repeats", "-1"]):
            done = run("model_bench", *arguments)
            self.assertEqual((done.returncode, done.stdout), (2, ""), arguments)
            self.assertEqual(done.stderr.count("\n"), 1, arguments)
            self.assertTrue(done.stderr.startswith("model_bench: "), arguments)

    def test_missing_directory(self):
        done = run("model_bench", "/no/such/checkpoint")
        self.assertEqual((done.returncode, done.stdout, done.stderr.count("\n")), (1, "", 1))

    def test_on_demand(self):
        done = subprocess.run([str(PROGRAMS / "model_bench"), "--shape", "qwen3.5-tiny", "--on-demand"],
                              input="prefill 20\ndecode 30\ndecode 30\n", capture_output=True, text=True, timeout=300)
        lines = [line.split() for line in done.stdout.splitlines()]
        self.assertEqual([tokens for _, tokens in lines], ["20", "16", "16"])
        self.assertTrue(all(float(seconds) > 0 for seconds, _ in lines))


class CacheBench(unittest.TestCase):
    def test_json(self):
        done = run("cache_bench", "--shape", "qwen3-tiny", "--tokens", "20", "--json")
        self.assertEqual(done.returncode, 0, done.stderr)
        without, with_cache = json.loads(done.stdout)["series"]
        for series in (without, with_cache):
            self.assertEqual(len(series["token_seconds"]), 20)
            self.assertAlmostEqual(sum(series["token_seconds"]), series["decode_seconds"])

    def test_wrong_command_lines(self):
        for arguments in ([], ["--shape", "qwen9"], ["a", "b"], ["a", "--tokens", "0"], ["a", "--prompt"]):
            self.assertEqual(run("cache_bench", *arguments).returncode, 2, arguments)


if __name__ == "__main__":
    if len(sys.argv) != 2:
        print(__doc__, file=sys.stderr)
        sys.exit(2)
    PROGRAMS = pathlib.Path(sys.argv.pop())
    unittest.main()
