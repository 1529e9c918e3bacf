// SPDX-License-Identifier: Apache-2.0
//
// Storage formats of weights: what a row looks like in memory and how one element of it is decoded.
// Everything else about a format is a kernel's business. Those of cached keys and values are in
// kv_formats.hpp.
#pragma once

#include <cstring>
#include <optional>

#include <qwenlite/kernels/kv_formats.hpp>
#include <qwenlite/tensor.hpp>

namespace qwenlite {
inline namespace QWENLITE_ABI {

/// How a weight matrix is stored. The last three are quantised, see quantised.hpp.
enum class Format : std::uint8_t { bf16, f16, f32, int8, int4, fp8 };
inline constexpr Index format_count = 6;

/// What a matrix product rounds its inputs to (sums are float32). Weights are used as stored.
enum class Precision : std::uint8_t {
  exact,  ///< activations keep float32's accuracy
  bf16,   ///< activations may be rounded once to bfloat16, as the original models run; so may the elements of
          ///< quantised weights, but for int8 by rows
  int8,   ///< before int8 and int4 weights activations become int8 (int8_activations.hpp); else exact
};

[[nodiscard]] constexpr std::string_view name_of(Format format) noexcept {
  switch (format) {
    case Format::bf16: return "bf16";
    case Format::f16: return "f16";
    case Format::f32: return "f32";
    case Format::int8: return "int8";
    case Format::int4: return "int4";
    case Format::fp8: return "fp8";
  }
  return "?";
}

[[nodiscard]] constexpr std::string_view name_of(Precision precision) noexcept {
  switch (precision) {
    case Precision::exact: return "exact";
    case Precision::bf16: return "bf16";
    case Precision::int8: return "int8";
  }
  return "?";
}

/// Whether elements are small numbers with a scale for each group of them.
[[nodiscard]] constexpr bool is_quantised(Format format) noexcept {
  return format == Format::int8 || format == Format::int4 || format == Format::fp8;
}

/// Elements of a block: quantised rows are whole blocks, the last one padded.
inline constexpr Index quantised_block = 128;

/// The format of stored elements of a dtype; none when kernels do not read it as it is.
[[nodiscard]] constexpr std::optional<Format> stored_format(DType dtype) noexcept {
  if (dtype == DType::bf16) return Format::bf16;
  if (dtype == DType::f16) return Format::f16;
  if (dtype == DType::f32) return Format::f32;
  return {};
}

/// Bytes of one stored element of a format that is not quantised.
[[nodiscard]] constexpr Index element_bytes(Format format) noexcept {
  return format == Format::f32 ? 4 : 2;
}

/// Bytes from one row of a matrix to the next.
[[nodiscard]] constexpr Index row_bytes(Format format, Index cols) noexcept {
  if (!is_quantised(format)) return cols * element_bytes(format);
  return round_up(cols, quantised_block) / (format == Format::int4 ? 2 : 1);
}

/// The scales of quantised rows, and their zero points if they have any. Any alignment.
struct GroupPlanes {
  const std::byte* scales = nullptr;  ///< [rows][groups] float16; fp8: [ceil(rows / 128)][groups] float32
  const std::byte* zeros = nullptr;   ///< [rows][groups] uint8, or null: the middle of the format's range
  Index group = 0;      ///< elements of a group: a multiple of 32, fp8: 128; groups = ceil(cols / group)
  Index block_row = 0;  ///< fp8: place of the first row within its block of 128
};

/// A weight matrix where it lies: [rows, cols] = [out, in], rows contiguous, any alignment.
struct WeightView {
  const std::byte* data = nullptr;
  Index rows = 0;
  Index cols = 0;
  Format format = Format::bf16;
  GroupPlanes planes{};  ///< of a quantised format

  [[nodiscard]] Index row_bytes() const noexcept { return qwenlite::row_bytes(format, cols); }
  [[nodiscard]] const std::byte* row(Index r) const noexcept { return data + r * row_bytes(); }
  /// The planes from row r on.
  [[nodiscard]] GroupPlanes planes_from(Index r) const noexcept {
    if (!is_quantised(format)) return {};
    const Index groups = ceil_div(cols, planes.group);
    if (format == Format::fp8) {
      const Index row = planes.block_row + r;
      return {planes.scales + 4 * groups * (row / quantised_block), nullptr, planes.group,
              row % quantised_block};
    }
    return {planes.scales + 2 * groups * r, planes.zeros == nullptr ? nullptr : planes.zeros + groups * r,
            planes.group};
  }
};

/// A stored vector, such as the weight of a norm: [size], any alignment. With an offset, a norm takes each
/// element plus the offset, the sum formed in float32 (weights stored around 0 that mean 1 + weight).
struct VectorView {
  const std::byte* data = nullptr;
  Index size = 0;
  Format format = Format::bf16;
  float offset = 0;
};

/// Decodes element `i` of a row of stored weights that are not quantised.
[[nodiscard]] inline float decode(Format format, const std::byte* row, Index i) noexcept {
  if (format == Format::f32) {
    float value;
    std::memcpy(&value, row + i * 4, 4);
    return value;
  }
  std::uint16_t bits;
  std::memcpy(&bits, row + i * 2, 2);
  if (format == Format::bf16) return std::bit_cast<float>(static_cast<std::uint32_t>(bits) << 16U);
  F16 half;
  half.bits = bits;
  return static_cast<float>(half);
}

}  // namespace QWENLITE_ABI
}  // namespace qwenlite
