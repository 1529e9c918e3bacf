// SPDX-License-Identifier: Apache-2.0
//
// Choosing among the logits of a whole vocabulary without sorting them: maximum, the k largest, weights
// exp((x - max) / T), the cut that leaves a given share of their sum, and a draw in proportion to them.
//
// Every pass is linear and goes four lanes at a time in the compilers' own vectors, which need no
// instruction-set flag: the sampler's choices are the same under every set of kernels. Ranking is by
// value, largest first, then by id, smallest first, so that ties are always settled the same way.
#pragma once

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstring>
#include <limits>
#include <memory>
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

/// True when one of the 8 values at x lies in [least, past).
[[nodiscard]] inline bool eight_within(const float* x, float least, float past) noexcept {
  const Float4 a = load4(x);
  const Float4 b = load4(x + 4);
  const Float4 l = splat(least);
  const Float4 p = splat(past);
  return any(((a >= l) & (a < p)) | ((b >= l) & (b < p)));
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

/// The k best of x (k <= x.size()) into the front of `buffer` (top_capacity entries), in no order.
/// Whenever the buffer fills up it is cut back to the best k and the worst of them becomes the threshold,
/// which almost every later block fails to exceed. Equal values come in id order, so a later tie loses.
inline void top(std::span<const float> x, Index k, Candidate* buffer) noexcept {
  const auto n = static_cast<Index>(x.size());
  const Index capacity = top_capacity(k, n);
  float threshold = -std::numeric_limits<float>::infinity();
  Index count = 0;
  const auto cut_back = [&] {
    std::nth_element(buffer, buffer + (k - 1), buffer + count, ranks_before);
    threshold = buffer[k - 1].logit;
    count = k;
  };
  for (Index i = 0; i < n; i += block) {
    const Index end = std::min(n, i + block);
    if (count >= k && end - i == block && !block_above(x.data() + i, threshold)) continue;
    for (Index id = i; id < end; ++id) {
      const float logit = x.data()[id];
      if (count < k || logit > threshold) buffer[count++] = {logit, static_cast<std::int32_t>(id)};
    }
    if (count > k && count + block > capacity) cut_back();
  }
  if (count > k) cut_back();
}

/// 2^z for z <= 0, zero below 2^-125: the integer part goes into the exponent, a polynomial fitted for
/// |f| <= 1/2 with 2^0 = 1 exactly gives the rest (relative error 2e-7 with float32's own rounding).
[[nodiscard]] inline Float4 exp2_lanes(Float4 z) noexcept {
  constexpr float shifter = 12582912.0F;  // 1.5 * 2^23: adding it rounds to an integer in the low bits
  const Float4 shifted = z + splat(shifter);
  const Float4 f = z - (shifted - splat(shifter));
  Float4 p = f * splat(1.32647e-3F) + splat(9.67151e-3F);
  p = p * f + splat(5.550734e-2F);
  p = p * f + splat(2.4022242e-1F);
  p = p * f + splat(6.9314698e-1F);
  p = p * f + splat(1.0F);
  const Word4 whole = std::bit_cast<Word4>(shifted) << 23U;      // the shifter's own bits leave at the top
  const auto alive = std::bit_cast<Word4>(z >= splat(-125.0F));  // elsewhere p is meaningless
  return std::bit_cast<Float4>((std::bit_cast<Word4>(p) + whole) & alive);
}

/// weights[i] = exp((x[i] - max) * inverse_temperature), the largest being 1; returns their sum.
inline double exp_weights(std::span<const float> x, float max, double inverse_temperature,
                          float* weights) noexcept {
  const auto n = static_cast<Index>(x.size());
  const Float4 scale = splat(static_cast<float>(inverse_temperature * 1.4426950408889634));  // log2(e) / T
  double total = 0;
  for (Index begin = 0; begin < n; begin += 1024) {  // float sums stay short, so they stay exact enough
    const Index end = std::min(n, begin + 1024);
    Float4 sum = splat(0);
    Index i = begin;
    for (; i + 4 <= end; i += 4) {
      const Float4 w = exp2_lanes((load4(x.data() + i) - splat(max)) * scale);
      std::memcpy(weights + i, &w, sizeof w);
      sum += w;
    }
    for (; i < end; ++i) {
      weights[i] = exp2_lanes((splat(x.data()[i]) - splat(max)) * scale)[0];
      total += static_cast<double>(weights[i]);
    }
    total += static_cast<double>(sum[0] + sum[1]) + static_cast<double>(sum[2] + sum[3]);
  }
  return total;
}

/// Where the ranking is cut: weights above `weight` stay, and those equal to it up to id `last_tie`.
struct Cut {
  float weight = std::numeric_limits<float>::denorm_min();
  Index last_tie = std::numeric_limits<Index>::max();
};

/// Finds the smallest set of best-ranked weights whose sum reaches a limit, by narrowing down the bit
/// pattern of the last one in three steps of 11, 11 and 8 bits (a non-negative float orders as its bits).
class MassCut {
 public:
  explicit MassCut(Index n)
      : ids_(std::make_unique_for_overwrite<std::int32_t[]>(static_cast<std::size_t>(n + 1))),
        mass_(std::make_unique<double[]>(static_cast<std::size_t>(buckets * copies))) {}

  /// weights: [n] in [0, 1]; total: their sum; share: in (0, 1). At least one weight stays.
  [[nodiscard]] Cut find(std::span<const float> weights, double total, double share) noexcept {
    limit_ = share * total;
    before_ = 0;
    // All weights below this together weigh less than what is left out, so the cut lies above it.
    const auto n = static_cast<Index>(weights.size());
    const double floor = 0.5 * (1 - share) * total / static_cast<double>(n);
    std::uint32_t key = gather(weights, static_cast<float>(floor));
    if (all_equal(weights)) return last_of_equals(weights.data()[ids_[0]]);
    for (const Step step : {Step{8, 11}, Step{0, 8}}) key = narrow(weights, key, step);
    return last_of_equals(std::bit_cast<float>(key));
  }

 private:
  static constexpr std::size_t buckets = 2048;
  static constexpr std::size_t copies = 4;
  static constexpr unsigned coarse_shift = 19;  // 1.0F >> 19 is 2032: the weights use 2,033 buckets
  struct Step {
    unsigned shift = 0;
    unsigned bits = 0;
  };

  [[nodiscard]] static std::uint32_t bits_of(float w) noexcept { return std::bit_cast<std::uint32_t>(w); }
  void clear() noexcept { std::fill_n(mass_.get(), buckets * copies, 0.0); }

  /// Neighbours go to different copies of a bucket, so that equal ones need not wait for each other.
  void add(std::size_t turn, std::uint32_t bucket, float w) noexcept {
    mass_[bucket * copies + turn % copies] += static_cast<double>(w);
  }

  /// Walks down from the heaviest bucket to the one in which the limit is reached.
  [[nodiscard]] std::uint32_t crossing() noexcept {
    std::size_t lowest = buckets - 1;
    double last = 0;
    for (std::size_t b = buckets; b-- > 0;) {
      const double* m = &mass_[b * copies];
      const double here = (m[0] + m[1]) + (m[2] + m[3]);
      if (here <= 0) continue;
      lowest = b;
      last = here;
      if (before_ + here >= limit_) return static_cast<std::uint32_t>(b);
      before_ += here;
    }
    before_ -= last;  // rounding left the sum just short: the last one it is
    return static_cast<std::uint32_t>(lowest);
  }

  /// First step, over the whole vocabulary: finds the bucket of the cut and lists its members' ids.
  [[nodiscard]] std::uint32_t gather(std::span<const float> weights, float floor) noexcept {
    const auto n = static_cast<Index>(weights.size());
    const float* w = weights.data();
    clear();
    for (Index i = 0; i < n; i += block) {
      const Index end = std::min(n, i + block);
      if (end - i == block && !block_above(w + i, floor)) continue;
      for (Index j = i; j < end; ++j) add(static_cast<std::size_t>(j), bits_of(w[j]) >> coarse_shift, w[j]);
    }
    const std::uint32_t key = crossing();
    const float least = std::bit_cast<float>(key << coarse_shift);
    const float past = std::bit_cast<float>((key + 1U) << coarse_shift);
    std::int32_t* ids = ids_.get();
    Index count = 0;
    for (Index i = 0; i < n; i += 8) {
      const Index end = std::min(n, i + 8);
      if (end - i == 8 && !eight_within(w + i, least, past)) continue;
      for (Index j = i; j < end; ++j) {  // without a branch: whether it is listed cannot be predicted
        ids[count] = static_cast<std::int32_t>(j);
        count += static_cast<Index>(w[j] >= least) & static_cast<Index>(w[j] < past);
      }
    }
    count_ = count;
    return key;
  }

  /// A further step, among the listed ids: appends the next bits of the cut to `key` and keeps those
  /// ids that share them.
  [[nodiscard]] std::uint32_t narrow(std::span<const float> weights, std::uint32_t key, Step step) noexcept {
    const std::uint32_t mask = (1U << step.bits) - 1U;
    const float* w = weights.data();
    std::int32_t* ids = ids_.get();
    clear();
    for (Index j = 0; j < count_; ++j) {
      add(static_cast<std::size_t>(j), bits_of(w[ids[j]]) >> step.shift & mask, w[ids[j]]);
    }
    key = key << step.bits | crossing();
    Index kept = 0;
    for (Index j = 0; j < count_; ++j) {
      const std::int32_t id = ids[j];
      ids[kept] = id;
      kept += static_cast<Index>(bits_of(w[id]) >> step.shift == key);
    }
    count_ = kept;
    return key;
  }

  [[nodiscard]] bool all_equal(std::span<const float> weights) const noexcept {
    const float first = weights.data()[ids_[0]];
    return std::all_of(ids_.get(), ids_.get() + count_,
                       [&](std::int32_t id) { return weights.data()[id] == first; });
  }

  /// The listed ids all weigh the same: as many stay as the limit needs.
  [[nodiscard]] Cut last_of_equals(float weight) const noexcept {
    const double missing = (limit_ - before_) / static_cast<double>(weight);
    const double needed = std::clamp(std::ceil(missing), 1.0, static_cast<double>(count_));
    return {weight, ids_[static_cast<std::size_t>(needed) - 1]};
  }

  std::unique_ptr<std::int32_t[]> ids_;  // [n + 1], ascending; the last place takes what is not kept
  std::unique_ptr<double[]> mass_;       // [buckets][copies]
  Index count_ = 0;
  double limit_ = 0;
  double before_ = 0;  // mass of everything ranked before the listed ids
};

/// Calls visit(begin, end, threshold) for the two runs of ids that a cut makes: inside a run a weight
/// stays exactly when it is >= threshold.
template <class Visit>
inline void for_kept_runs(Index n, const Cut& cut, Visit visit) {
  const Index tied = cut.last_tie < n ? cut.last_tie + 1 : n;
  visit(Index{0}, tied, cut.weight);
  visit(tied, n, std::nextafter(cut.weight, std::numeric_limits<float>::infinity()));
}

/// Sum of the weights in [begin, end) that are >= threshold (at most some thousands of them).
[[nodiscard]] inline double kept_sum(const float* weights, Index begin, Index end, float threshold) noexcept {
  const Float4 t = splat(threshold);
  Float4 sum = splat(0);
  Index i = begin;
  for (; i + 4 <= end; i += 4) {
    const Float4 w = load4(weights + i);
    sum += w >= t ? w : splat(0);
  }
  double total = static_cast<double>(sum[0] + sum[1]) + static_cast<double>(sum[2] + sum[3]);
  for (; i < end; ++i) total += weights[i] >= threshold ? static_cast<double>(weights[i]) : 0.0;
  return total;
}

/// The id in [begin, end) at which the running sum of kept weights passes `rest`, else the last kept one.
[[nodiscard]] inline Index pick(const float* weights, Index begin, Index end, float threshold,
                                double rest) noexcept {
  Index last = -1;
  for (Index i = begin; i < end && rest >= 0; ++i) {
    if (weights[i] < threshold) continue;
    last = i;
    rest -= static_cast<double>(weights[i]);
  }
  return last;
}

/// Draws an id in proportion to the weights that a cut leaves. uniform: in [0, 1).
[[nodiscard]] inline Index draw(std::span<const float> weights, const Cut& cut, double uniform) noexcept {
  constexpr Index stretch = 256;
  const auto n = static_cast<Index>(weights.size());
  const float* w = weights.data();
  double kept = 0;
  for_kept_runs(n, cut, [&](Index begin, Index end, float threshold) {
    for (; begin < end; begin += stretch)
      kept += kept_sum(w, begin, std::min(end, begin + stretch), threshold);
  });
  const double target = uniform * kept;
  double sum = 0;
  Index chosen = -1;
  for_kept_runs(n, cut, [&](Index begin, Index end, float threshold) {
    for (; begin < end && chosen < 0; begin += stretch) {
      const Index stop = std::min(end, begin + stretch);
      const double here = kept_sum(w, begin, stop, threshold);
      const bool reached = sum + here > target || sum + here >= kept;  // the latter ends the last stretch
      if (here > 0 && reached) chosen = pick(w, begin, stop, threshold, target - sum);
      sum += here;
    }
  });
  return chosen;
}

}  // namespace candidates
}  // namespace QWENLITE_ABI
}  // namespace qwenlite
