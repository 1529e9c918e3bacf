// SPDX-License-Identifier: Apache-2.0
//
// Finding the best of a whole vocabulary's logits without sorting them: the maximum and the k largest.
//
// Every pass is linear and goes four lanes at a time in the compilers' own vectors, which need no
// instruction-set flag: the sampler's choices are the same under every set of kernels. Ranking is by
// value, largest first, then by id, smallest first, so that ties are always settled the same way.
#pragma once

#include <algorithm>
#include <array>
#include <bit>
#include <cmath>
#include <cstring>
#include <functional>
#include <limits>
#include <optional>
#include <span>

#include <qwenlite/tensor.hpp>

namespace qwenlite {
inline namespace QWENLITE_ABI {
namespace candidates {

using Float4 = float __attribute__((vector_size(16)));
using Int4 = std::int32_t __attribute__((vector_size(16)));
using Word4 = std::uint32_t __attribute__((vector_size(16)));

/// Elements looked at together: a block none of which can matter is skipped with one test.
inline constexpr Index block = 16;

[[nodiscard]] inline Float4 load4(const float* from) noexcept {
  Float4 value;
  std::memcpy(&value, from, sizeof value);
  return value;
}
[[nodiscard]] inline Float4 splat(float x) noexcept {
  return Float4{x, x, x, x};
}
[[nodiscard]] inline bool any(Int4 mask) noexcept {
  using Long2 = std::int64_t __attribute__((vector_size(16)));
  const auto halves = std::bit_cast<Long2>(mask);
  return (halves[0] | halves[1]) != 0;
}

/// True when one of the `block` values at x exceeds the threshold.
[[nodiscard]] inline bool block_above(const float* x, float threshold) noexcept {
  const Float4 t = splat(threshold);
  return any((load4(x) > t) | (load4(x + 4) > t) | (load4(x + 8) > t) | (load4(x + 12) > t));
}

struct Maximum {
  float value = -std::numeric_limits<float>::infinity();
  bool has_nan = false;
};

[[nodiscard]] inline Maximum maximum(std::span<const float> x) noexcept {
  const auto n = static_cast<Index>(x.size());
  Maximum result;
  Float4 best0 = splat(result.value);
  Float4 best1 = best0;
  Int4 nan = {0, 0, 0, 0};
  Index i = 0;
  for (; i + 8 <= n; i += 8) {
    const Float4 a = load4(x.data() + i);
    const Float4 b = load4(x.data() + i + 4);
    best0 = a > best0 ? a : best0;
    best1 = b > best1 ? b : best1;
    nan |= (a != a) | (b != b);
  }
  result.has_nan = any(nan);
  for (int lane = 0; lane < 4; ++lane) result.value = std::max({result.value, best0[lane], best1[lane]});
  for (const float v : x.subspan(static_cast<std::size_t>(i))) {
    result.has_nan = result.has_nan || std::isnan(v);
    result.value = v > result.value ? v : result.value;
  }
  return result;
}

/// The lowest index at which `value` stands; it must occur.
[[nodiscard]] inline Index first_equal(std::span<const float> x, float value) noexcept {
  const auto n = static_cast<Index>(x.size());
  const Float4 v = splat(value);
  Index i = 0;
  while (i + 8 <= n && !any((load4(x.data() + i) == v) | (load4(x.data() + i + 4) == v))) i += 8;
  return std::find(x.begin() + i, x.end(), value) - x.begin();
}

struct Candidate {
  float logit = 0;
  std::int32_t id = 0;
};

/// The ranking: larger logits first, equal ones by id.
[[nodiscard]] inline bool ranks_before(const Candidate& a, const Candidate& b) noexcept {
  return a.logit != b.logit ? a.logit > b.logit : a.id < b.id;
}

/// Entries that top() needs in its buffer to find the best k of n.
[[nodiscard]] constexpr Index top_capacity(Index k, Index n) noexcept {
  return std::min(n, 3 * k + 4 * block) + block;
}

/// Puts the k best of those of x that exceed `above`, or of all without it, into the front of `buffer`
/// (top_capacity entries), in no order; returns how many there are, at most k.
/// Whenever the buffer fills up it is cut back to the best k and the worst of them becomes the threshold,
/// which almost every later block fails to exceed. Equal values come in id order, so a later tie loses.
inline Index collect_top(std::span<const float> x, Index k, std::optional<float> above,
                         Candidate* buffer) noexcept {
  const auto n = static_cast<Index>(x.size());
  const Index capacity = top_capacity(k, n);
  const Index taken_anyway = above ? 0 : k;
  float threshold = above.value_or(-std::numeric_limits<float>::infinity());
  Index count = 0;
  const auto cut_back = [&] {
    std::nth_element(buffer, buffer + (k - 1), buffer + count, ranks_before);
    threshold = buffer[k - 1].logit;
    count = k;
  };
  for (Index i = 0; i < n; i += block) {
    const Index end = std::min(n, i + block);
    if (count >= taken_anyway && end - i == block && !block_above(x.data() + i, threshold)) continue;
    for (Index id = i; id < end; ++id) {
      const float logit = x.data()[id];
      if (count < taken_anyway || logit > threshold) buffer[count++] = {logit, static_cast<std::int32_t>(id)};
    }
    if (count > k && count + block > capacity) cut_back();
  }
  if (count > k) cut_back();
  return count;
}

/// A value that probably a few more than k of x exceed, judged by values at regular distances.
[[nodiscard]] inline float guessed_threshold(std::span<const float> x, Index k) noexcept {
  constexpr Index looked_at = 1024;
  std::array<float, looked_at> sample{};
  const auto n = static_cast<Index>(x.size());
  for (Index i = 0; i < looked_at; ++i) sample[static_cast<std::size_t>(i)] = x.data()[i * n / looked_at];
  const double expected = static_cast<double>(k) * looked_at / static_cast<double>(n);
  const auto rank = std::min(looked_at - 1, static_cast<Index>(expected + 3 * std::sqrt(expected)));
  std::nth_element(sample.begin(), sample.begin() + rank, sample.end(), std::greater<>());
  return sample[static_cast<std::size_t>(rank)];
}

/// The k best of x (k <= x.size()) into the front of `buffer` (top_capacity entries), in no order. For many,
/// a good first threshold spares most of the cutting back; where it was too high, it is done without.
inline void top(std::span<const float> x, Index k, Candidate* buffer) noexcept {
  const bool many = k >= 256 && k <= static_cast<Index>(x.size()) / 8;
  if (many && collect_top(x, k, guessed_threshold(x, k), buffer) == k) return;
  collect_top(x, k, std::nullopt, buffer);
}

}  // namespace candidates
}  // namespace QWENLITE_ABI
}  // namespace qwenlite
