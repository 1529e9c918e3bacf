// SPDX-License-Identifier: Apache-2.0
//
// Prefill and decode of a checkpoint beside what the machine can give; see benchmarks/README.md.
#include <cstdio>

#include "output.hpp"

int main(int argc, char** argv) try {
  const bench::Options options = bench::parse_options(argc, argv);
  if (options.help) {
    std::fputs(bench::usage, stdout);
  } else if (!options.probe.empty()) {
    bench::answer_probe(options);
  } else if (options.on_demand) {
    bench::serve_measurements(options);
  } else {
    const bench::Report report = bench::measure(options);
    std::fputs((options.json ? bench::to_json(report) : bench::to_table(report)).c_str(), stdout);
  }
  return 0;
} catch (const bench::UsageError& e) {
  std::fprintf(stderr, "model_bench: %s\n", e.what());
  return 2;
} catch (const std::exception& e) {
  std::fprintf(stderr, "model_bench: %s\n", e.what());
  return 1;
}
