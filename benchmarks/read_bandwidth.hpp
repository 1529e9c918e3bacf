// SPDX-License-Identifier: Apache-2.0
//
// What the machine's memory delivers: the roof over every decode figure. All workers read one large buffer in
// huge pages, each its own part, as 1, 4 or 16 forward streams of 64-byte lines, with and without prefetch;
// the best of the six counts.
#pragma once

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <new>
#include <random>
#include <sys/mman.h>

#include <qwenlite/kernels/threads.hpp>

#include "statistics.hpp"

namespace bench {

/// Bytes to read from, all of them present in memory: as bf16, ordinary numbers around 1.
class ReadMemory {
 public:
  /// `bytes` is rounded up to a multiple of 2 MiB.
  explicit ReadMemory(qwenlite::Index bytes) : bytes_(qwenlite::round_up(bytes, huge_page)) {
    void* const p = mmap(nullptr, static_cast<std::size_t>(bytes_ + huge_page), PROT_READ | PROT_WRITE,
                         MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (p == MAP_FAILED) throw std::bad_alloc();
    mapped_ = p;
    const auto address = reinterpret_cast<std::uintptr_t>(p);
    data_ = static_cast<std::byte*>(p) + (huge_page - static_cast<qwenlite::Index>(address % huge_page));
    madvise(data_, static_cast<std::size_t>(bytes_), MADV_HUGEPAGE);
    fill();
  }
  ReadMemory(const ReadMemory&) = delete;
  ReadMemory& operator=(const ReadMemory&) = delete;
  ~ReadMemory() { munmap(mapped_, static_cast<std::size_t>(bytes_ + huge_page)); }

  [[nodiscard]] const std::byte* data() const { return data_; }
  [[nodiscard]] qwenlite::Index bytes() const { return bytes_; }

 private:
  static constexpr qwenlite::Index huge_page = qwenlite::Index{2} << 20U;

  /// One random page, again and again.
  void fill() {
    std::mt19937 random(1);
    for (qwenlite::Index at = 0; at < huge_page; at += 2) {
      const auto bits = static_cast<std::uint16_t>((random() & 0x80FFU) | 0x3F00U);
      std::memcpy(data_ + at, &bits, 2);
    }
    for (qwenlite::Index at = huge_page; at < bytes_; at += huge_page) {
      std::memcpy(data_ + at, data_, static_cast<std::size_t>(huge_page));
    }
  }

  void* mapped_ = nullptr;
  std::byte* data_ = nullptr;
  qwenlite::Index bytes_;
};

/// Reads `bytes` at `data` as so many parallel streams; the sum keeps the reads from being removed. It is one
/// small vector, whose registers every compiler finds: sums that travel through memory would be the limit.
template <int streams, bool prefetch>
[[nodiscard]] inline std::int64_t read_streams(const std::byte* data, qwenlite::Index bytes) {
  using Quarter = std::int64_t __attribute__((vector_size(16), aligned(16), may_alias));
  constexpr qwenlite::Index ahead = 2048;
  const qwenlite::Index part = bytes / streams / 64 * 64;
  Quarter sum = {};
  for (qwenlite::Index at = 0; at < part; at += 64) {
    for (int s = 0; s < streams; ++s) {
      const std::byte* p = data + s * part + at;
      if constexpr (prefetch) __builtin_prefetch(p + ahead);
      const auto* line = reinterpret_cast<const Quarter*>(p);
      sum += (line[0] + line[1]) + (line[2] + line[3]);
    }
  }
  return sum[0] + sum[1];
}

/// One pass over all of `memory` by all workers, in GB/s.
template <int streams, bool prefetch>
[[nodiscard]] inline double read_pass(qwenlite::Executor& executor, const ReadMemory& memory) {
  const qwenlite::Index workers = executor.concurrency();
  const qwenlite::Index share = memory.bytes() / workers / 64 * 64;
  auto task = [&](qwenlite::Index i, int /*worker*/) {
    keep(read_streams<streams, prefetch>(memory.data() + i * share, share));
  };
  const auto start = Clock::now();
  executor.run(workers, qwenlite::TaskRef(task));
  const double elapsed = seconds_since(start);
  return static_cast<double>(share * workers) / elapsed / 1e9;
}

/// The best of all patterns, one pass each, in GB/s.
[[nodiscard]] inline double read_gb_s(qwenlite::Executor& executor, const ReadMemory& memory) {
  return std::max({read_pass<1, false>(executor, memory), read_pass<1, true>(executor, memory),
                   read_pass<4, false>(executor, memory), read_pass<4, true>(executor, memory),
                   read_pass<16, false>(executor, memory), read_pass<16, true>(executor, memory)});
}

}  // namespace bench
