// SPDX-License-Identifier: Apache-2.0
//
// Every operation of the two networks, alone, in each format and on each instruction set of this machine, as
// benchmarks of Google Benchmark: `kernel_bench --benchmark_filter=matmul/.*bf16.*T:512`. Names are
// operation/shape/format/kernels/T:tokens. QWENLITE_BENCH_THREADS sets the number of threads.
#include "bench.hpp"

int main(int argc, char** argv) {
  kernel_bench::add_matmul();
  kernel_bench::add_attention();
  kernel_bench::add_delta();
  kernel_bench::add_rows();
  benchmark::Initialize(&argc, argv);
  if (benchmark::ReportUnrecognizedArguments(argc, argv)) return 2;
  benchmark::RunSpecifiedBenchmarks();
  benchmark::Shutdown();
  return 0;
}
