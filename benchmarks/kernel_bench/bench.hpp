// SPDX-License-Identifier: Apache-2.0
//
// What the kernel benchmarks share: one pool, the machine's limits, operations of every kernel table, memory
// at the addresses that weights have in the published files, and the counters of a result.
#pragma once

#include <algorithm>
#include <benchmark/benchmark.h>
#include <cmath>
#include <cstdlib>
#include <cstring>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include <qwenlite/kernels/ops.hpp>

#include "../random_checkpoint.hpp"
#include "../roofline.hpp"

namespace kernel_bench {

using qwenlite::AlignedBuffer;
using qwenlite::Format;
using qwenlite::Index;
using qwenlite::kernels::KernelTable;

/// Everything that lives as long as the program.
class Setting {
 public:
  static Setting& get() {
    static Setting setting;
    return setting;
  }

  [[nodiscard]] qwenlite::ThreadPool& pool() { return pool_; }
  [[nodiscard]] qwenlite::Ops ops(const KernelTable& table) {
    return {table, pool_, table.default_precision};
  }
  /// Random bytes of weights, larger than any cache, for `format`: 1 GiB.
  [[nodiscard]] const std::byte* weights(Format format) {
    if (format_ != format || weights_.bytes() == 0) fill(format);
    return weights_.data();
  }
  static constexpr Index weight_bytes = Index{1} << 30U;

  /// The machine's limits with a table's instruction set; measured when first asked for.
  [[nodiscard]] const bench::Roofline& roofline(const KernelTable& table) {
    auto& found = rooflines_[table.name];
    if (found.threads == 0) {
      bench::RooflineMeter meter(pool_, table.name, memory_);
      found = bench::median_of({meter.measure(), meter.measure(), meter.measure()});
    }
    return found;
  }

 private:
  Setting() : pool_(threads()), memory_(weight_bytes) {}
  [[nodiscard]] static int threads() {
    const char* const asked = std::getenv("QWENLITE_BENCH_THREADS");
    return asked == nullptr ? 0 : std::atoi(asked);
  }
  void fill(Format format) {
    if (weights_.bytes() == 0) weights_ = AlignedBuffer(weight_bytes);
    const auto dtype = format == Format::bf16  ? qwenlite::DType::bf16
                       : format == Format::f16 ? qwenlite::DType::f16
                                               : qwenlite::DType::f32;
    const bench::RandomTensor tensor{"", dtype, {}};
    constexpr Index piece = Index{1} << 20U;
    auto task = [&](Index i, int /*worker*/) {
      bench::fill_random(weights_.data() + i * piece, piece, static_cast<std::uint64_t>(i) + 1, tensor);
    };
    pool_.run(weight_bytes / piece, qwenlite::TaskRef(task));
    format_ = format;
  }

  qwenlite::ThreadPool pool_;
  bench::ReadMemory memory_;
  AlignedBuffer weights_;
  Format format_ = Format::bf16;
  std::map<std::string, bench::Roofline> rooflines_;
};

/// The tables this machine runs, without those that only serve as a reference.
[[nodiscard]] inline std::vector<const KernelTable*> tables() {
  std::vector<const KernelTable*> all;
  for (const KernelTable* t : qwenlite::kernels::supported()) {
    if (std::string_view(t->name) != "scalar") all.push_back(t);
  }
#if defined(__x86_64__)
  const bool amx = !all.empty() && std::string_view(all.back()->name) == "amx";
  if (amx && !qwenlite::kernels::amx::request_permission()) all.pop_back();
#endif
  return all;
}

/// Random float32 activations.
[[nodiscard]] inline AlignedBuffer random_floats(Index count) {
  AlignedBuffer buffer(count * 4);
  bench::fill_random(buffer.data(), count * 4, 77, {"", qwenlite::DType::f32, {}});
  return buffer;
}

/// Runs the iterations of a benchmark; returns the seconds of one.
template <class Run>
[[nodiscard]] double time_each(benchmark::State& state, const Run& run) {
  const auto start = bench::Clock::now();
  for (auto _ : state) run();
  return bench::seconds_since(start) / static_cast<double>(state.iterations());
}

/// The same where `run` overwrites its input, which is restored from `original` before each call, untimed.
template <class Run>
[[nodiscard]] double time_restored(benchmark::State& state, const AlignedBuffer& original,
                                   const AlignedBuffer& overwritten, const Run& run) {
  double total = 0;
  for (auto _ : state) {
    std::memcpy(overwritten.data(), original.data(), static_cast<std::size_t>(original.bytes()));
    const auto start = bench::Clock::now();
    run();
    const double seconds = bench::seconds_since(start);
    state.SetIterationTime(seconds);
    total += seconds;
  }
  return total / static_cast<double>(state.iterations());
}

/// What one iteration did, and how fast matrix products can be at most (0: it does none).
struct Done {
  double seconds = 0;
  double bytes = 0;
  double flop = 0;
  double roof_gflop_s = 0;
};

/// Sets the counters: GB/s, GFLOP/s, and `of_roof`, the time that the bytes or the operations need at least
/// (whichever is longer) to the time taken. Bytes may come from a cache: then of_roof can exceed 1.
inline void report(benchmark::State& state, const KernelTable& table, const Done& done) {
  const bench::Roofline& roof = Setting::get().roofline(table);
  const double compute = done.roof_gflop_s > 0 ? done.flop / done.roof_gflop_s : 0;
  const double least = std::max(done.bytes / roof.read_gb_s, compute) / 1e9;
  if (done.bytes > 0) state.counters["GB/s"] = done.bytes / done.seconds / 1e9;
  if (done.flop > 0) state.counters["GFLOP/s"] = done.flop / done.seconds / 1e9;
  state.counters["of_roof"] = least / done.seconds;
}

// Each file of benchmarks adds its own.
void add_matmul();
void add_attention();
void add_delta();
void add_rows();

}  // namespace kernel_bench
