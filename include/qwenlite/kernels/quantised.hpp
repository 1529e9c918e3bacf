// SPDX-License-Identifier: Apache-2.0
//
// Quantised weights: which formats there are, how they lie in memory, and their scalar codec.
//
// A matrix [rows, cols] is two or three planes. The values lie row after row, each row in blocks of 128
// elements of which the last is padded. Those of int8 and int4 are unsigned integers u; each group of
// consecutive elements of a row has a float16 scale and possibly a zero point:
//
//   element = (u - zero) * scale          zero = 128 (int8) or 8 (int4) where there is no plane of zeros
//
//   int8  a block is 128 bytes, element after element
//   int4  a block is sixteen little-endian 32-bit words: word l has element 16 j + l in bits 4 j to 4 j + 3,
//         so that one shift of a vector brings sixteen consecutive elements to the bottom of its lanes
//
// fp8 is e4m3 (a sign, four bits of exponent with bias 7, three of fraction; subnormals; no infinities; 0x7F
// and 0xFF are NaN), byte after byte, with a float32 scale for each block of 128 rows by 128 elements:
//
//   element = value * scale               0 < scale < 2^119
//
// A product of 8 bits with the 11 of a float16 is exact in float32, and one with any float32 is rounded once:
// whatever way a kernel takes to an element, it is the same number. Padding decodes to zero.
#pragma once

#include <string>

#include <qwenlite/kernels/formats.hpp>

namespace qwenlite {
inline namespace QWENLITE_ABI {

/// What weights are quantised to: a format, elements that share a scale, and whether groups have zero points.
/// Made from a Format alone, the usual choice for it: {.weights = Format::int8} is int8 by rows. The only fp8
/// is Format::fp8.
struct WeightFormat {
  Format format = Format::bf16;
  Index group = 0;        ///< 32, 64 or 128; 0: the whole row (int8 only); fp8: 128, and 128 rows share it
  bool symmetric = true;  ///< false: each group has a zero point (not fp8)

  constexpr WeightFormat() = default;
  constexpr WeightFormat(Format f) noexcept  // NOLINT(google-explicit-constructor)
      : format(f),
        group(f == Format::int4  ? 64
              : f == Format::fp8 ? 128
                                 : 0) {}
  constexpr WeightFormat(Format f, Index elements, bool without_zeros = true) noexcept
      : format(f), group(elements), symmetric(without_zeros) {}

  [[nodiscard]] constexpr bool operator==(const WeightFormat&) const noexcept = default;
  [[nodiscard]] constexpr bool is_valid() const noexcept {
    const bool usual = group == 32 || group == 64 || group == 128;
    if (format == Format::int8) return usual || group == 0;
    if (format == Format::int4) return usual;
    return symmetric && group == (format == Format::fp8 ? 128 : 0);
  }

  /// Elements of a group in rows of `cols`, never 0.
  [[nodiscard]] constexpr Index group_of(Index cols) const noexcept {
    return group > 0 ? group : cols > 0 ? round_up(cols, quantised_block) : quantised_block;
  }
  /// Bytes of all planes of a matrix, or of the matrix itself if the format is not quantised.
  [[nodiscard]] constexpr Index bytes(Index rows, Index cols) const noexcept {
    const Index values = rows * row_bytes(format, cols);
    if (!is_quantised(format)) return values;
    return values + scale_bytes(rows, cols) + (symmetric ? 0 : rows * ceil_div(cols, group_of(cols)));
  }
  /// Bytes of the plane of scales.
  [[nodiscard]] constexpr Index scale_bytes(Index rows, Index cols) const noexcept {
    const Index groups = ceil_div(cols, group_of(cols));
    return format == Format::fp8 ? ceil_div(rows, quantised_block) * groups * 4 : rows * groups * 2;
  }
};

/// "int8 in groups of 128", "int8 by rows", "int4 in groups of 64 with zero points", "fp8 in blocks of 128".
[[nodiscard]] inline std::string to_string(const WeightFormat& f) {
  std::string text(name_of(f.format));
  if (!is_quantised(f.format)) return text;
  text += f.group == 0 ? std::string(" by rows")
                       : joined({f.format == Format::fp8 ? " in blocks of " : " in groups of ", f.group});
  return f.symmetric ? text : text + " with zero points";
}

/// Largest stored number, and the one that is zero in groups without a zero point of their own. The numbers
/// of fp8 are its codes.
[[nodiscard]] constexpr int largest_value(Format format) noexcept {
  return format == Format::int4 ? 15 : 255;
}
[[nodiscard]] constexpr int middle_value(Format format) noexcept {
  return format == Format::int8 ? 128 : format == Format::int4 ? 8 : 0;
}

/// Element i of a row of values.
[[nodiscard]] inline int stored_value(Format format, const std::byte* row, Index i) noexcept {
  if (format != Format::int4) return std::to_integer<int>(row[i]);
  const Index word = i / quantised_block * 16 + i % 16;
  const Index bit = i % quantised_block / 16 * 4;
  return std::to_integer<int>(row[word * 4 + bit / 8]) >> (bit % 8) & 15;
}

/// Sets element i of a row of values.
inline void store_value(Format format, std::byte* row, Index i, int value) noexcept {
  if (format != Format::int4) {
    row[i] = static_cast<std::byte>(value);
    return;
  }
  const Index word = i / quantised_block * 16 + i % 16;
  const Index bit = i % quantised_block / 16 * 4;
  std::byte& pair = row[word * 4 + bit / 8];
  pair = (pair & (bit % 8 == 0 ? std::byte{0xF0} : std::byte{0x0F})) |
         static_cast<std::byte>(static_cast<unsigned>(value) << static_cast<unsigned>(bit % 8));
}

/// Whether a row's elements are integers of bf16 times one number: int8 by rows, without zero points.
[[nodiscard]] constexpr bool has_row_scales(const WeightView& w) noexcept {
  return w.format == Format::int8 && w.planes.zeros == nullptr && w.cols <= w.planes.group;
}

/// Scale of group g of row r of an fp8 matrix.
[[nodiscard]] inline float block_scale(const WeightView& w, Index r, Index g) noexcept {
  const Index block = (w.planes.block_row + r) / quantised_block;
  float scale = 0;
  std::memcpy(&scale, w.planes.scales + 4 * (block * ceil_div(w.cols, w.planes.group) + g), 4);
  return scale;
}

/// Decodes element `i` of row `r` of any matrix.
[[nodiscard]] inline float decode(const WeightView& w, Index r, Index i) noexcept {
  if (!is_quantised(w.format)) return decode(w.format, w.row(r), i);
  const int number = stored_value(w.format, w.row(r), i);
  if (w.format == Format::fp8) {
    return static_cast<float>(F8E4M3::from_bits(static_cast<std::uint8_t>(number))) *
           block_scale(w, r, i / w.planes.group);
  }
  const Index at = r * ceil_div(w.cols, w.planes.group) + i / w.planes.group;
  F16 scale;
  std::memcpy(&scale, w.planes.scales + 2 * at, 2);
  const int zero =
      w.planes.zeros != nullptr ? std::to_integer<int>(w.planes.zeros[at]) : middle_value(w.format);
  return static_cast<float>(number - zero) * static_cast<float>(scale);
}

}  // namespace QWENLITE_ABI
}  // namespace qwenlite
