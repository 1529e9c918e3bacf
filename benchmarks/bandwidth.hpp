// SPDX-License-Identifier: Apache-2.0
//
// What the machine's memory delivers: the roof over every decode figure.
#pragma once

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <vector>

#include <qwenlite/kernels/threads.hpp>

namespace bench {

using Clock = std::chrono::steady_clock;

[[nodiscard]] inline double seconds_since(Clock::time_point start) {
  return std::chrono::duration<double>(Clock::now() - start).count();
}

/// Reads `bytes` at `data` as `streams` parallel forward streams of 64-byte lines, optionally prefetching
/// ahead in each, and returns a checksum so that the reads are not removed.
[[nodiscard]] inline std::int64_t read_streams(const std::byte* data, qwenlite::Index bytes,
                                               qwenlite::Index streams, bool prefetch) {
  using Line = std::int64_t __attribute__((vector_size(64), aligned(64), may_alias));
  constexpr qwenlite::Index ahead = 2048;
  const qwenlite::Index part = bytes / streams / 64 * 64;
  Line sum = {};
  for (qwenlite::Index at = 0; at < part; at += 64) {
    for (qwenlite::Index s = 0; s < streams; ++s) {
      const std::byte* p = data + s * part + at;
      if (prefetch) __builtin_prefetch(p + ahead);
      sum += *reinterpret_cast<const Line*>(p);
    }
  }
  return sum[0] + sum[1] + sum[2] + sum[3] + sum[4] + sum[5] + sum[6] + sum[7];
}

/// The best read bandwidth in GB/s over 1, 4 and 16 streams a thread, with and without prefetch, over 1 GiB.
class ReadBandwidth {
 public:
  explicit ReadBandwidth(qwenlite::Executor& executor)
      : executor_(&executor), memory_(std::size_t{1} << 30U, std::byte{1}) {}

  /// One pass of each pattern; returns the best.
  [[nodiscard]] double measure() {
    double best = 0;
    for (const qwenlite::Index streams : {1, 4, 16}) {
      for (const bool prefetch : {false, true}) best = std::max(best, pass(streams, prefetch));
    }
    return best;
  }

 private:
  [[nodiscard]] double pass(qwenlite::Index streams, bool prefetch) {
    const qwenlite::Index workers = executor_->concurrency();
    const auto size = static_cast<qwenlite::Index>(memory_.size());
    const qwenlite::Index share = size / workers / 64 * 64;
    const auto base = reinterpret_cast<std::uintptr_t>(memory_.data());
    const std::byte* start = memory_.data() + (64 - base % 64) % 64;
    std::vector<std::int64_t> sums(static_cast<std::size_t>(workers));
    auto task = [&](qwenlite::Index i, int /*worker*/) {
      sums[static_cast<std::size_t>(i)] = read_streams(start + i * share, share - 64, streams, prefetch);
    };
    const auto begin = Clock::now();
    executor_->run(workers, qwenlite::TaskRef(task));
    const double elapsed = seconds_since(begin);
    for (const std::int64_t s : sums) checksum_ = checksum_ + s;
    return static_cast<double>(share * workers) / elapsed / 1e9;
  }

  qwenlite::Executor* executor_;
  std::vector<std::byte> memory_;
  volatile std::int64_t checksum_ = 0;
};

/// Middle value of the samples.
[[nodiscard]] inline double median(std::vector<double> samples) {
  std::sort(samples.begin(), samples.end());
  const std::size_t n = samples.size();
  return n % 2 == 1 ? samples[n / 2] : (samples[n / 2 - 1] + samples[n / 2]) / 2;
}

}  // namespace bench
