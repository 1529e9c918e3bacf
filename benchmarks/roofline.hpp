// SPDX-License-Identifier: Apache-2.0
//
// The limits of the machine for one number of threads: what its memory delivers and what its arithmetic units
// can do, and how quiet it is. A busy neighbour that shares a physical core takes cache bandwidth first, so
// quietness compares a loop fed from the first-level cache with one that runs from registers; and a process
// that shares a logical core takes time, so it is multiplied with the share of CPU time that the loops got.
// About 1 on a quiet machine; below 0.9 a measurement is void.
#pragma once

#include <algorithm>
#include <ctime>
#include <numeric>
#include <optional>
#include <random>
#include <string_view>
#include <vector>

#include <qwenlite/kernels/dispatch.hpp>
#include <qwenlite/kernels/ops_arguments.hpp>
#include <qwenlite/kernels/process.hpp>

#include "peak_loops.hpp"
#include "read_bandwidth.hpp"
#include "tile_loops.hpp"

namespace bench {

/// All workers together; empty where the machine has no such unit.
struct Roofline {
  int threads = 0;
  double read_gb_s = 0;
  std::optional<double> tile_peak_gflop_s;  ///< bf16 tiles from registers
  std::optional<double> tile_fed_gflop_s;   ///< weights from memory, activations in the second-level cache
  std::optional<double> fma_gflop_s;        ///< float32 multiply-adds of the instruction set in use
  std::optional<double> int8_gop_s;         ///< VNNI dot products
  std::optional<double> bf16_dot_gflop_s;   ///< dot products of bf16 vectors
  double quietness = 1;

  /// The roof over products of bf16 matrices: fed tiles, else dot products, else multiply-adds.
  [[nodiscard]] double product_gflop_s() const {
    if (tile_fed_gflop_s) return *tile_fed_gflop_s;
    return bf16_dot_gflop_s ? *bf16_dot_gflop_s : fma_gflop_s.value_or(0);
  }
};

/// The medians of each figure.
[[nodiscard]] inline Roofline median_of(const std::vector<Roofline>& measured) {
  Roofline middle;
  if (measured.empty()) return middle;
  middle.threads = measured[0].threads;
  const auto of = [&](const auto& figure) {
    std::vector<double> samples;
    for (const Roofline& r : measured) samples.push_back(figure(r));
    return median(std::move(samples));
  };
  const auto if_present = [&](std::optional<double> Roofline::*figure) {
    if (!(measured[0].*figure)) return std::optional<double>();
    return std::optional<double>(of([&](const Roofline& r) { return (r.*figure).value_or(0); }));
  };
  middle.read_gb_s = of([](const Roofline& r) { return r.read_gb_s; });
  middle.quietness = of([](const Roofline& r) { return r.quietness; });
  middle.tile_peak_gflop_s = if_present(&Roofline::tile_peak_gflop_s);
  middle.tile_fed_gflop_s = if_present(&Roofline::tile_fed_gflop_s);
  middle.fma_gflop_s = if_present(&Roofline::fma_gflop_s);
  middle.int8_gop_s = if_present(&Roofline::int8_gop_s);
  middle.bf16_dot_gflop_s = if_present(&Roofline::bf16_dot_gflop_s);
  return middle;
}

/// Measures the limits with the workers of one executor.
class RooflineMeter {
 public:
  /// `isa`: the name of the kernel table in use; tiles are measured only for "amx", dot products of bf16 only
  /// for "avx512_bf16".
  RooflineMeter(qwenlite::Executor& executor, std::string_view isa, const ReadMemory& memory)
      : executor_(&executor),
        memory_(&memory),
        loops_(peak_loops(isa)),
        operands_(executor.concurrency() * operand_bytes) {
    std::mt19937 random(1);
    std::uniform_real_distribution<float> value(0.5F, 1.0F);  // two bf16 halves, both ordinary numbers
    float* const floats = operands_.floats();
    for (qwenlite::Index i = 0; i < operands_.bytes() / 4; ++i) {
      const float drawn = i % 2 == 0 ? value(random) : -value(random);
      const auto half = static_cast<std::uint32_t>(qwenlite::Bf16(drawn).bits);
      floats[i] = std::bit_cast<float>(half << 16U | half);
    }
#if defined(__x86_64__)
    tiles_ = isa == "amx" && qwenlite::kernels::amx::request_permission();
#endif
  }

  /// Everything once, in about half a second.
  [[nodiscard]] Roofline measure() {
    Roofline r;
    cpu_seconds_ = wall_seconds_ = 0;
    r.threads = executor_->concurrency();
    r.read_gb_s = read_gb_s(*executor_, *memory_);
    if (loops_.fma != nullptr) {
      r.fma_gflop_s = loop_rate(loops_.fma, loops_.fma_operations);
      r.quietness = loop_rate(loops_.fma_fed, loops_.fma_operations) / *r.fma_gflop_s;
    }
    if (loops_.int8 != nullptr) r.int8_gop_s = loop_rate(loops_.int8, loops_.int8_operations);
    if (loops_.bf16_dot != nullptr) {
      r.bf16_dot_gflop_s = loop_rate(loops_.bf16_dot, loops_.bf16_dot_operations);
    }
    if (tiles_) measure_tiles(r);
    if (wall_seconds_ > 0) r.quietness *= std::min(1.0, cpu_seconds_ / (wall_seconds_ * r.threads));
    return r;
  }

 private:
  static constexpr qwenlite::Index operand_bytes = (qwenlite::Index{1} << 20U) + 65536;
  static constexpr qwenlite::Index loop_rounds = 128 * 16000;  // some milliseconds

  [[nodiscard]] const std::byte* operands(qwenlite::Index worker) const {
    return operands_.data() + worker * operand_bytes;
  }

  [[nodiscard]] static double thread_cpu_seconds() {
    timespec time{};
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &time);
    return static_cast<double>(time.tv_sec) + 1e-9 * static_cast<double>(time.tv_nsec);
  }

  /// Calls f(worker) on all workers at once and returns the best of three times, in seconds.
  template <class F>
  [[nodiscard]] double best_seconds(const F& f) {
    double best = 1e300;
    double cpu = 0;
    for (int attempt = 0; attempt < 3; ++attempt) {
      std::vector<double> used(static_cast<std::size_t>(executor_->concurrency()));
      auto task = [&](qwenlite::Index worker, int /*id*/) {
        const double before = thread_cpu_seconds();
        f(worker);
        used[static_cast<std::size_t>(worker)] = thread_cpu_seconds() - before;
      };
      const auto start = Clock::now();
      executor_->run(executor_->concurrency(), qwenlite::TaskRef(task));
      const double seconds = seconds_since(start);
      if (seconds >= best) continue;
      best = seconds;
      cpu = std::accumulate(used.begin(), used.end(), 0.0);
    }
    wall_seconds_ += best;
    cpu_seconds_ += cpu;
    return best;
  }

  [[nodiscard]] double loop_rate(Loop loop, double operations) {
    const double seconds = best_seconds([&](qwenlite::Index worker) {
      keep(loop(loop_rounds, reinterpret_cast<const float*>(operands(worker))));
    });
    return operations * static_cast<double>(loop_rounds * executor_->concurrency()) / seconds / 1e9;
  }

#if defined(__x86_64__)
  void measure_tiles(Roofline& r) {
    constexpr qwenlite::Index rounds = 300'000;
    const double flop = 4 * tile_multiply_flop * static_cast<double>(rounds * r.threads);
    const double registers = best_seconds([&](qwenlite::Index worker) {
      alignas(64) float sums[256];
      tiles_from_registers(rounds, operands(worker), sums);
    });
    const double l1 = best_seconds([&](qwenlite::Index worker) {
      alignas(64) float sums[256];
      tiles_from_l1(rounds, operands(worker), sums);
    });
    r.tile_peak_gflop_s = flop / registers / 1e9;
    r.quietness = registers / l1;

    static_assert(operand_bytes >= fed_activation_bytes);
    const qwenlite::Index strips = memory_->bytes() / r.threads / fed_strip_bytes;
    const double fed = best_seconds([&](qwenlite::Index worker) {
      alignas(64) float sums[1024];
      tiles_fed(memory_->data() + worker * strips * fed_strip_bytes, strips, operands(worker), sums);
    });
    const double fed_flop = 2.0 * 32 * fed_in * fed_columns * static_cast<double>(strips * r.threads);
    r.tile_fed_gflop_s = fed_flop / fed / 1e9;
  }
#else
  void measure_tiles(Roofline& /*r*/) {}
#endif

  qwenlite::Executor* executor_;
  const ReadMemory* memory_;
  PeakLoops loops_;
  qwenlite::AlignedBuffer operands_;  // [workers][operand_bytes]
  bool tiles_ = false;
  double cpu_seconds_ = 0;   // of all workers in the best loops of a measurement
  double wall_seconds_ = 0;  // that these loops took
};

}  // namespace bench
