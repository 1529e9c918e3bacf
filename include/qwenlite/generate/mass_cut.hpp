// SPDX-License-Identifier: Apache-2.0
//
// MassCut: the smallest set of best-ranked weights whose sum reaches a share of the whole, without sorting.
//
// A non-negative float orders as its bits, so the last weight of the set is found by narrowing down its bit
// pattern: masses are added up per leading 11 bits, then among the tokens that share those per next 11, then
// per last 8. Where a sample of the weights represents the whole (flat distributions), the sample first
// brackets the last weight, and only the few tokens inside the bracket are looked at one by one; an exact
// sum of everything above proves the bracket right, or else it is not used (after Floyd and Rivest,
// "Expected time bounds for selection", 1975).
#pragma once

#include <algorithm>
#include <array>
#include <bit>
#include <cmath>
#include <limits>
#include <memory>
#include <span>

#include <qwenlite/generate/candidates.hpp>
#include <qwenlite/generate/token_weights.hpp>
#include <qwenlite/tensor.hpp>

namespace qwenlite {
inline namespace QWENLITE_ABI {
namespace candidates {

class MassCut {
 public:
  /// For up to n weights.
  explicit MassCut(Index n)
      : ids_(std::make_unique_for_overwrite<std::int32_t[]>(static_cast<std::size_t>(n + 1))),
        sample_(std::make_unique_for_overwrite<float[]>(sample_size)),
        mass_(std::make_unique<double[]>(buckets * copies)) {}

  /// weights: at most n, in [0, 1]; total: their sum; share: in (0, 1). At least one weight stays.
  [[nodiscard]] Cut find(std::span<const float> weights, double total, double share) noexcept {
    const Bracket bracket = bracket_of(weights, total, share);
    if (bracket.past > 0 && inside(weights, bracket, share * total)) {
      if (bracket.past <= std::nextafter(bracket.least, 2.0F)) return last_of_equals(bracket.least);
      return among_listed(weights, 0, 0);
    }
    return by_masses(weights, total, share);
  }

 private:
  static constexpr std::size_t buckets = 2048;
  static constexpr std::size_t copies = 4;
  static constexpr std::size_t sample_size = 4096;
  static constexpr Index few = 64;       // so many are sorted
  static constexpr Index stretch = 512;  // summed in float
  struct Step {
    unsigned shift = 0;
    unsigned bits = 0;
  };
  static constexpr Step steps[] = {{19, 11}, {8, 11}, {0, 8}};  // 1.0F >> 19 is 2032
  struct Bracket {
    float least = 0;
    float past = 0;  // 0: no bracket
  };
  struct Masses {
    double above = 0;
    double within = 0;
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

  /// All weights below this together weigh less than what is left out, so the cut lies above it.
  [[nodiscard]] static float floor_of(Index n, double total, double share) noexcept {
    return static_cast<float>(0.5 * (1 - share) * total / static_cast<double>(n));
  }

  /// Adds up all masses, lists the ids of the bucket in which the limit is reached, and narrows it down.
  [[nodiscard]] Cut by_masses(std::span<const float> weights, double total, double share) noexcept {
    const auto n = static_cast<Index>(weights.size());
    const float* w = weights.data();
    const float floor = floor_of(n, total, share);
    limit_ = share * total;
    before_ = 0;
    clear();
    for (Index i = 0; i < n; i += block) {
      const Index end = std::min(n, i + block);
      if (end - i == block && !block_above(w + i, floor)) continue;
      for (Index j = i; j < end; ++j) add(static_cast<std::size_t>(j), bits_of(w[j]) >> steps[0].shift, w[j]);
    }
    const std::uint32_t key = crossing();
    (void)list<false>(weights, {std::bit_cast<float>(key << steps[0].shift),
                                std::bit_cast<float>((key + 1U) << steps[0].shift)});
    return among_listed(weights, key, 1);
  }

  /// Where the cut should lie, by that of a sample and three standard deviations to either side; none where
  /// the sample's sum shows that it does not represent the whole, nor for a share so large that the weights
  /// near the cut are lost in the rounding of the sum above it.
  [[nodiscard]] Bracket bracket_of(std::span<const float> weights, double total, double share) noexcept {
    if (weights.size() < 4 * sample_size || share > 0.99) return {};
    const std::size_t stride = weights.size() / sample_size;
    double sum = 0;
    for (std::size_t i = 0; i < sample_size; ++i) {
      sample_[i] = weights[i * stride];
      sum += static_cast<double>(sample_[i]);
    }
    const std::span<const float> sample(sample_.get(), sample_size);
    const double expected = total * static_cast<double>(sample_size) / static_cast<double>(weights.size());
    if (std::abs(sum - expected) > 0.2 * expected) return {};
    const float middle = by_masses(sample, sum, share).weight;
    double squares_above = 0;
    double squares_below = 0;
    for (const float w : sample) (w >= middle ? squares_above : squares_below) += static_cast<double>(w * w);
    const double variance = (1 - share) * (1 - share) * squares_above + share * share * squares_below;
    const double slack = 3 * std::sqrt(variance) / sum;
    Bracket bracket{floor_of(static_cast<Index>(weights.size()), total, share), std::nextafter(1.0F, 2.0F)};
    if (share + slack < 1) bracket.least = by_masses(sample, sum, share + slack).weight;
    if (share > slack) {
      bracket.past = std::nextafter(by_masses(sample, sum, share - slack).weight, 2.0F);
    }
    return bracket;
  }

  /// Lists the ids inside the bracket; false when the cut is not among them.
  [[nodiscard]] bool inside(std::span<const float> weights, const Bracket& bracket, double limit) noexcept {
    const Masses masses = list<true>(weights, bracket);
    limit_ = limit;
    before_ = masses.above;
    return masses.above < limit && masses.above + masses.within >= limit;
  }

  /// Lists the ids of the weights in [least, past), ascending; if `sum`, adds up those above and inside.
  template <bool sum>
  Masses list(std::span<const float> weights, const Bracket& bracket) noexcept {
    const auto n = static_cast<Index>(weights.size());
    count_ = 0;
    Masses masses;
    for (Index begin = 0; begin < n; begin += stretch) {
      list_stretch<sum>(weights.data(), begin, std::min(n, begin + stretch), bracket, masses);
    }
    return masses;
  }

  template <bool sum>
  void list_stretch(const float* w, Index begin, Index end, const Bracket& bracket, Masses& masses) noexcept {
    const Float4 least = splat(bracket.least);
    const Float4 past = splat(bracket.past);
    const Float4 zero = splat(0);
    Float4 from_least = zero;  // sums of floats stay short, so they stay exact enough
    Float4 from_past = zero;
    std::array<Index, stretch / 8> hits;  // eights with one to list: first all are found, then looked into,
    std::size_t count = 0;                // without a branch that depends on the weights
    Index i = begin;
    for (; i + 8 <= end; i += 8) {
      const Float4 a = load4(w + i);
      const Float4 b = load4(w + i + 4);
      const Int4 a_least = a >= least;
      const Int4 b_least = b >= least;
      const Int4 a_past = a >= past;
      const Int4 b_past = b >= past;
      if constexpr (sum) {
        from_least += (a_least ? a : zero) + (b_least ? b : zero);
        from_past += (a_past ? a : zero) + (b_past ? b : zero);
      }
      hits[count] = i;
      count += static_cast<std::size_t>(any((a_least ^ a_past) | (b_least ^ b_past)));
    }
    for (std::size_t hit = 0; hit < count; ++hit) list_run(w, hits[hit], hits[hit] + 8, bracket);
    list_run(w, i, end, bracket);
    const double above = sum_of(from_past);
    masses.above += above;
    masses.within += sum_of(from_least) - above;
    for (; i < end; ++i) {
      if (w[i] < bracket.least) continue;
      (w[i] < bracket.past ? masses.within : masses.above) += static_cast<double>(w[i]);
    }
  }

  void list_run(const float* w, Index begin, Index end, const Bracket& bracket) noexcept {
    std::int32_t* ids = ids_.get();
    Index count = count_;
    for (Index j = begin; j < end; ++j) {
      ids[count] = static_cast<std::int32_t>(j);
      count += static_cast<Index>(w[j] >= bracket.least) & static_cast<Index>(w[j] < bracket.past);
    }
    count_ = count;
  }

  /// Finds the cut among the listed ids, whose weights share `key` as their leading bits.
  [[nodiscard]] Cut among_listed(std::span<const float> weights, std::uint32_t key,
                                 std::size_t step) noexcept {
    if (count_ > few && all_equal(weights)) return last_of_equals(weights[static_cast<std::size_t>(ids_[0])]);
    for (; step < std::size(steps) && count_ > few; ++step) key = narrow(weights, key, steps[step]);
    if (count_ > few) return last_of_equals(std::bit_cast<float>(key));
    return last_of_few(weights);
  }

  /// Appends the next bits of the cut to `key` and keeps those listed ids that share them.
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

  /// The listed ids are few: sort them and walk down.
  [[nodiscard]] Cut last_of_few(std::span<const float> weights) noexcept {
    const float* w = weights.data();
    const std::span<std::int32_t> ids(ids_.get(), static_cast<std::size_t>(count_));
    std::sort(ids.begin(), ids.end(),
              [w](std::int32_t a, std::int32_t b) { return w[a] != w[b] ? w[a] > w[b] : a < b; });
    std::size_t last = 0;
    double reached = before_ + static_cast<double>(w[ids[0]]);
    while (reached < limit_ && last + 1 < ids.size()) reached += static_cast<double>(w[ids[++last]]);
    return {w[ids[last]], ids[last]};
  }

  std::unique_ptr<std::int32_t[]> ids_;  // [n + 1], ascending; the last place takes what is not kept
  std::unique_ptr<float[]> sample_;      // [sample_size]
  std::unique_ptr<double[]> mass_;       // [buckets][copies]
  Index count_ = 0;                      // of the listed ids
  double limit_ = 0;
  double before_ = 0;  // mass of everything ranked before the listed ids
};

}  // namespace candidates
}  // namespace QWENLITE_ABI
}  // namespace qwenlite
