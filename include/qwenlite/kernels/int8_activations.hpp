// SPDX-License-Identifier: Apache-2.0
//
// Activations as int8 (Precision::int8), for products with int8 and int4 weights: what they are rounded to,
// how they lie in memory, and the arithmetic that every instruction set keeps to the bit.
//
// A token's activations are cut into blocks of 128, the last one padded with zeros. The largest magnitude m
// of a block is mapped to 127: scale = m / 127, code = x * (127 / m) rounded to the nearest integer, ties to
// even. Blocks of m < 2^-100 are zero (scale 0, codes 0); a block with an infinity or NaN has codes 0 and the
// scale NaN, so that products with it are NaN.
//
// An output is a chain over the groups of its weight row, in ascending order, cut at blocks (a group of a
// whole row is as many of 128 with the same scale):
//
//   sum   = sum over the group of (u - zero) * code          exact in int32, and in float32: below 2^24
//   total = fma(float(sum) * weight scale, block scale, total)     float32, from total = 0
//
// Sums of integers are exact in any order. So an output has the same bits whatever the instruction set and
// however many others are computed beside it.
//
// A packed column is, one after another: the codes, a byte for each element of the blocks; for each block
// eight int16, which are sums of codes (of its four groups of 32, its two of 64, all of it, and a zero); and
// for each block its float32 scale.
#pragma once

#include <qwenlite/kernels/formats.hpp>

namespace qwenlite {
inline namespace QWENLITE_ABI {
namespace kernels {

/// The parts of a packed column of `in` elements.
struct Int8Column {
  Index blocks;

  explicit constexpr Int8Column(Index in) noexcept : blocks(ceil_div(in, quantised_block)) {}

  [[nodiscard]] constexpr Index codes() const noexcept { return blocks * quantised_block; }
  /// Where the sums begin, 16 bytes for each block, and where the scales do.
  [[nodiscard]] constexpr Index sums() const noexcept { return codes(); }
  [[nodiscard]] constexpr Index scales() const noexcept { return codes() + blocks * 16; }
  /// From one column to the next: an odd number of cache lines, so that columns do not compete for the same
  /// sets of a cache.
  [[nodiscard]] constexpr Index bytes() const noexcept {
    return (ceil_div(scales() + blocks * 4, 64) | Index{1}) * 64;
  }
};

[[nodiscard]] constexpr Index int8_column_bytes(Index in) noexcept {
  return Int8Column(in).bytes();
}

/// Which of a block's eight sums are those of groups: the first of them.
[[nodiscard]] constexpr Index first_sum(Index groups_of_block) noexcept {
  return groups_of_block == 4 ? 0 : groups_of_block == 2 ? 4 : 6;
}

/// How the groups of a weight row divide its blocks. The group is 32, 64 or a multiple of 128.
struct GroupsOfBlock {
  Index group;
  Index count;     ///< of a block
  Index elements;  ///< of each

  explicit constexpr GroupsOfBlock(Index elements_of_group) noexcept
      : group(elements_of_group),
        count(group < quantised_block ? quantised_block / group : 1),
        elements(quantised_block / count) {}

  /// The group of the row that is part g of a block.
  [[nodiscard]] constexpr Index of(Index block, Index g) const noexcept {
    return (block * quantised_block + g * elements) / group;
  }
};

/// What the largest magnitude of a block says: its scale, and what to multiply with.
struct Int8Scale {
  float scale = 0;
  float inverse = 0;
  bool finite = true;

  /// `magnitude`: bits of the largest, without a sign; they are ordered as the numbers are, NaN last.
  explicit Int8Scale(std::uint32_t magnitude) noexcept : finite(magnitude < 0x7F800000U) {
    if (!finite) {
      scale = std::numeric_limits<float>::quiet_NaN();
    } else if (magnitude >= 0x0D800000U) {  // 2^-100
      scale = std::bit_cast<float>(magnitude) / 127.0F;
      inverse = 127.0F / std::bit_cast<float>(magnitude);
    }
  }
};

/// The code nearest to a number of at most 127. The sum is in double, so that no compiler makes one operation
/// of it and the product before.
[[nodiscard]] inline std::int8_t int8_code(float x) noexcept {
  const double whole = static_cast<double>(x) + 6755399441055744.0;  // 1.5 * 2^52: the unit is the last bit
  return static_cast<std::int8_t>(std::bit_cast<std::uint64_t>(whole));
}

/// Writes block `b` of a packed column: values [128], zeros beyond the end of the activations.
inline void quantise_block(const float* values, const Int8Column& parts, Index b,
                           std::byte* column) noexcept {
  std::uint32_t largest = 0;
  for (Index i = 0; i < quantised_block; ++i) {
    const std::uint32_t magnitude = std::bit_cast<std::uint32_t>(values[i]) & 0x7FFFFFFFU;
    largest = magnitude > largest ? magnitude : largest;
  }
  const Int8Scale to(largest);
  std::int16_t sums[8] = {};
  for (Index i = 0; i < quantised_block; ++i) {
    const auto code = to.finite ? int8_code(values[i] * to.inverse) : std::int8_t{0};
    column[b * quantised_block + i] = static_cast<std::byte>(code);
    sums[i / 32] = static_cast<std::int16_t>(sums[i / 32] + code);
  }
  sums[4] = static_cast<std::int16_t>(sums[0] + sums[1]);
  sums[5] = static_cast<std::int16_t>(sums[2] + sums[3]);
  sums[6] = static_cast<std::int16_t>(sums[4] + sums[5]);
  std::memcpy(column + parts.sums() + b * 16, sums, 16);
  std::memcpy(column + parts.scales() + b * 4, &to.scale, 4);
}

}  // namespace kernels
}  // namespace QWENLITE_ABI
}  // namespace qwenlite
