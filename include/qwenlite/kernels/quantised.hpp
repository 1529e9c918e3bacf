// SPDX-License-Identifier: Apache-2.0
//
// Quantised weights: which formats there are, how they lie in memory, and their scalar codec.
//
// A matrix [rows, cols] is two or three planes. The values are unsigned integers u, row after row, each row
// in blocks of 128 elements of which the last is padded; each group of consecutive elements of a row has a
// float16 scale and possibly a zero point:
//
//   element = (u - zero) * scale          zero = 128 (int8) or 8 (int4) where there is no plane of zeros
//
//   int8  a block is 128 bytes, element after element
//   int4  a block is sixteen little-endian 32-bit words: word l has element 16 j + l in bits 4 j to 4 j + 3,
//         so that one shift of a vector brings sixteen consecutive elements to the bottom of its lanes
//
// A product of 8 bits with the 11 of a float16 is exact in float32: whatever way a kernel takes to an
// element, it is the same number. Padding decodes to zero.
#pragma once

#include <string>

#include <qwenlite/kernels/formats.hpp>

namespace qwenlite {
inline namespace QWENLITE_ABI {

/// What weights are quantised to: a format, elements that share a scale, and whether groups have zero points.
/// Made from a Format alone, the usual choice for it: {.weights = Format::int8}.
struct WeightFormat {
  Format format = Format::bf16;
  Index group = 0;        ///< 32, 64 or 128; 0: the whole row (int8 only)
  bool symmetric = true;  ///< false: each group has a zero point (int4 only)

  constexpr WeightFormat() = default;
  constexpr WeightFormat(Format f) noexcept  // NOLINT(google-explicit-constructor)
      : format(f),
        group(f == Format::int8   ? 128
              : f == Format::int4 ? 64
                                  : 0) {}
  constexpr WeightFormat(Format f, Index elements, bool without_zeros = true) noexcept
      : format(f), group(elements), symmetric(without_zeros) {}

  [[nodiscard]] constexpr bool operator==(const WeightFormat&) const noexcept = default;
  [[nodiscard]] constexpr bool is_valid() const noexcept {
    const bool usual = group == 32 || group == 64 || group == 128;
    if (format == Format::int8) return symmetric && (usual || group == 0);
    if (format == Format::int4) return usual;
    return group == 0 && symmetric;
  }

  /// Elements of a group in rows of `cols`.
  [[nodiscard]] constexpr Index group_of(Index cols) const noexcept {
    return group > 0 ? group : round_up(cols, quantised_block);
  }
  /// Bytes of all planes of a matrix, or of the matrix itself if the format is not quantised.
  [[nodiscard]] constexpr Index bytes(Index rows, Index cols) const noexcept {
    const Index values = rows * row_bytes(format, cols);
    if (!is_quantised(format)) return values;
    return values + rows * ceil_div(cols, group_of(cols)) * (symmetric ? 2 : 3);
  }
};

/// "int8 in groups of 128", "int8 by rows", "int4 in groups of 64 with zero points".
[[nodiscard]] inline std::string to_string(const WeightFormat& f) {
  std::string text(name_of(f.format));
  if (!is_quantised(f.format)) return text;
  text += f.group == 0 ? std::string(" by rows") : joined({" in groups of ", f.group});
  return f.symmetric ? text : text + " with zero points";
}

/// Largest stored value, and the zero point of groups that have none of their own.
[[nodiscard]] constexpr int largest_value(Format format) noexcept {
  return format == Format::int8 ? 255 : 15;
}
[[nodiscard]] constexpr int middle_value(Format format) noexcept {
  return format == Format::int8 ? 128 : 8;
}

/// Element i of a row of values.
[[nodiscard]] inline int stored_value(Format format, const std::byte* row, Index i) noexcept {
  if (format == Format::int8) return std::to_integer<int>(row[i]);
  const Index word = i / quantised_block * 16 + i % 16;
  const Index bit = i % quantised_block / 16 * 4;
  return std::to_integer<int>(row[word * 4 + bit / 8]) >> (bit % 8) & 15;
}

/// Sets element i of a row of values.
inline void store_value(Format format, std::byte* row, Index i, int value) noexcept {
  if (format == Format::int8) {
    row[i] = static_cast<std::byte>(value);
    return;
  }
  const Index word = i / quantised_block * 16 + i % 16;
  const Index bit = i % quantised_block / 16 * 4;
  std::byte& pair = row[word * 4 + bit / 8];
  pair = (pair & (bit % 8 == 0 ? std::byte{0xF0} : std::byte{0x0F})) |
         static_cast<std::byte>(static_cast<unsigned>(value) << static_cast<unsigned>(bit % 8));
}

/// Decodes element `i` of row `r` of any matrix.
[[nodiscard]] inline float decode(const WeightView& w, Index r, Index i) noexcept {
  if (!is_quantised(w.format)) return decode(w.format, w.row(r), i);
  const Index at = r * ceil_div(w.cols, w.planes.group) + i / w.planes.group;
  F16 scale;
  std::memcpy(&scale, w.planes.scales + 2 * at, 2);
  const int zero =
      w.planes.zeros != nullptr ? std::to_integer<int>(w.planes.zeros[at]) : middle_value(w.format);
  return static_cast<float>(stored_value(w.format, w.row(r), i) - zero) * static_cast<float>(scale);
}

}  // namespace QWENLITE_ABI
}  // namespace qwenlite
