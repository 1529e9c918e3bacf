// SPDX-License-Identifier: Apache-2.0
//
// Weights exp((x - max) / T) of all tokens, and a draw in proportion to those that a cut leaves.
//
// The largest weight is exactly 1. A cut keeps everything above a weight and, of the tokens that have
// just this weight, those up to an id: the ranking of candidates.hpp.
#pragma once

#include <algorithm>
#include <array>
#include <bit>
#include <cmath>
#include <cstring>
#include <limits>
#include <span>

#include <qwenlite/generate/candidates.hpp>
#include <qwenlite/tensor.hpp>

namespace qwenlite {
inline namespace QWENLITE_ABI {
namespace candidates {

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

/// The sum of four lanes in double precision.
[[nodiscard]] inline double sum_of(Float4 x) noexcept {
  return static_cast<double>(x[0] + x[1]) + static_cast<double>(x[2] + x[3]);
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
    total += sum_of(sum);
  }
  return total;
}

/// Where the ranking is cut: weights above `weight` stay, and those equal to it up to id `last_tie`.
struct Cut {
  float weight = std::numeric_limits<float>::denorm_min();
  Index last_tie = std::numeric_limits<Index>::max();
};

/// Sum of the weights in [begin, end) that are >= threshold (at most some thousands of them).
[[nodiscard]] inline double sum_from(const float* weights, Index begin, Index end, float threshold) noexcept {
  const Float4 t = splat(threshold);
  Float4 sum = splat(0);
  Index i = begin;
  for (; i + 4 <= end; i += 4) {
    const Float4 w = load4(weights + i);
    sum += w >= t ? w : splat(0);
  }
  double total = sum_of(sum);
  for (; i < end; ++i) total += weights[i] >= threshold ? static_cast<double>(weights[i]) : 0.0;
  return total;
}

/// What a cut leaves of the weights in [begin, end).
[[nodiscard]] inline double kept_sum(const float* weights, Index begin, Index end, const Cut& cut) noexcept {
  const float heavier = std::nextafter(cut.weight, std::numeric_limits<float>::infinity());
  if (end - 1 <= cut.last_tie) return sum_from(weights, begin, end, cut.weight);
  if (begin > cut.last_tie) return sum_from(weights, begin, end, heavier);
  const Index tied = cut.last_tie + 1;
  return sum_from(weights, begin, tied, cut.weight) + sum_from(weights, tied, end, heavier);
}

/// A part of the ids, and how far into its mass a draw lies.
struct Place {
  Index begin = 0;
  double rest = 0;
};

/// Cuts [place.begin, end) into parts of `width` ids and finds the one in which the running sum of
/// mass_of(begin, end) passes place.rest: the last part with any mass when rounding lets none.
template <class MassOf>
[[nodiscard]] inline Place part_at(Place place, Index end, Index width, MassOf mass_of) noexcept {
  Place found;
  for (Index begin = place.begin; begin < end; begin += width) {
    const double mass = mass_of(begin, std::min(end, begin + width));
    if (mass <= 0) continue;
    found = {begin, place.rest};
    if (place.rest < mass) break;
    place.rest -= mass;
  }
  return found;
}

/// Draws an id in proportion to the weights that a cut leaves. uniform: in [0, 1).
[[nodiscard]] inline Index draw(std::span<const float> weights, const Cut& cut, double uniform) noexcept {
  constexpr Index stretch = 256;
  constexpr Index sections = 64;
  const auto n = static_cast<Index>(weights.size());
  const auto kept = [&](Index begin, Index end) { return kept_sum(weights.data(), begin, end, cut); };
  const Index section = (n / (sections * stretch) + 1) * stretch;
  std::array<double, sections> sums{};  // each section is walked twice only if it is the chosen one
  double total = 0;
  for (Index begin = 0; begin < n; begin += stretch) {
    const double here = kept(begin, std::min(n, begin + stretch));
    sums[static_cast<std::size_t>(begin / section)] += here;
  }
  for (const double sum : sums) total += sum;
  const auto sum_of_section = [&](Index begin, Index) {
    return sums[static_cast<std::size_t>(begin / section)];
  };
  Place place = part_at({0, uniform * total}, n, section, sum_of_section);
  place = part_at(place, std::min(n, place.begin + section), stretch, kept);
  return part_at(place, std::min(n, place.begin + stretch), 1, kept).begin;
}

}  // namespace candidates
}  // namespace QWENLITE_ABI
}  // namespace qwenlite
