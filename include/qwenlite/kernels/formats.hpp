// SPDX-License-Identifier: Apache-2.0
//
// Storage formats of weights and of cached keys and values: what a row looks like in memory and how one
// element of it is decoded. Everything else about a format is a kernel's business.
#pragma once

#include <cstring>

#include <qwenlite/tensor.hpp>

namespace qwenlite {
inline namespace QWENLITE_ABI {

/// How a weight matrix is stored. The last two are quantised, see quantised.hpp.
enum class Format : std::uint8_t { bf16, f16, f32, int8, int4 };
inline constexpr Index format_count = 5;

/// How keys and values are stored in a cache.
enum class KvFormat : std::uint8_t { bf16, f32 };

/// What a matrix product rounds its inputs to (weights are used as stored, sums are float32).
enum class Precision : std::uint8_t {
  exact,  ///< activations keep float32's accuracy
  bf16,   ///< activations are rounded once to bfloat16, as the original models run
};

[[nodiscard]] constexpr std::string_view name_of(Format format) noexcept {
  switch (format) {
    case Format::bf16: return "bf16";
    case Format::f16: return "f16";
    case Format::f32: return "f32";
    case Format::int8: return "int8";
    case Format::int4: return "int4";
  }
  return "?";
}

[[nodiscard]] constexpr std::string_view name_of(KvFormat format) noexcept {
  return format == KvFormat::bf16 ? "bf16" : "f32";
}

[[nodiscard]] constexpr std::string_view name_of(Precision precision) noexcept {
  return precision == Precision::exact ? "exact" : "bf16";
}

/// Whether elements are small integers with a scale for each group of them.
[[nodiscard]] constexpr bool is_quantised(Format format) noexcept {
  return format == Format::int8 || format == Format::int4;
}

/// Elements of a block: quantised rows are whole blocks, the last one padded.
inline constexpr Index quantised_block = 128;

/// Bytes of one stored element of a format that is not quantised.
[[nodiscard]] constexpr Index element_bytes(Format format) noexcept {
  return format == Format::f32 ? 4 : 2;
}
[[nodiscard]] constexpr Index element_bytes(KvFormat format) noexcept {
  return format == KvFormat::f32 ? 4 : 2;
}

/// Bytes from one row of a matrix to the next.
[[nodiscard]] constexpr Index row_bytes(Format format, Index cols) noexcept {
  if (!is_quantised(format)) return cols * element_bytes(format);
  return round_up(cols, quantised_block) / (format == Format::int8 ? 1 : 2);
}

/// The scales of quantised rows, and their zero points if they have any. Any alignment.
struct GroupPlanes {
  const std::byte* scales = nullptr;  ///< [rows][groups] float16
  const std::byte* zeros = nullptr;   ///< [rows][groups] uint8, or null: the middle of the format's range
  Index group = 0;                    ///< elements of a group: a multiple of 32; groups = ceil(cols / group)
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
    const Index skipped = r * ceil_div(cols, planes.group);
    return {planes.scales + 2 * skipped, planes.zeros == nullptr ? nullptr : planes.zeros + skipped,
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

// ------------------------------------------------------------------------------ keys and values

/// Positions in a block of keys and values; also the block of attention, of the delta rule's chunk and
/// of prefix hashing. Blocks start at absolute positions that are multiples of it.
inline constexpr Index block_positions = 64;

/// Keys after which attention starts a new partial result (a span); spans are merged in ascending order.
inline constexpr Index span_positions = 1024;

/// 64 positions of one key/value head, as every cache hands them to the attention kernels.
///
///   k  [64][head_dim]      one row per position
///   v  [32][head_dim][2]   two positions interleaved: even position first
///
/// Memory holds finite numbers everywhere, also at and beyond `count`: kernels may multiply them by zero.
/// k and v are aligned to 64 bytes.
struct KvBlock {
  const std::byte* k = nullptr;
  const std::byte* v = nullptr;
  Index first = 0;  ///< absolute position of the first row, a multiple of 64
  Index count = 0;  ///< valid positions, 1..64
  KvFormat format = KvFormat::bf16;
};

/// Bytes of one of k or v of a block.
[[nodiscard]] constexpr Index kv_plane_bytes(KvFormat format, Index head_dim) noexcept {
  return block_positions * head_dim * element_bytes(format);
}

/// Writes one position (row 0..63) of a block: `key` and `value` are [head_dim] float32.
inline void store_kv(KvFormat format, Index head_dim, Index row, const float* key, const float* value,
                     std::byte* k, std::byte* v) noexcept {
  const Index pair = row / 2;
  const Index half = row % 2;
  if (format == KvFormat::f32) {
    std::memcpy(k + row * head_dim * 4, key, static_cast<std::size_t>(head_dim) * 4);
    auto* out = reinterpret_cast<float*>(v) + pair * head_dim * 2 + half;
    for (Index d = 0; d < head_dim; ++d) out[d * 2] = value[d];
    return;
  }
  auto* keys = reinterpret_cast<std::uint16_t*>(k) + row * head_dim;
  auto* values = reinterpret_cast<std::uint16_t*>(v) + pair * head_dim * 2 + half;
  for (Index d = 0; d < head_dim; ++d) keys[d] = Bf16(key[d]).bits;
  for (Index d = 0; d < head_dim; ++d) values[d * 2] = Bf16(value[d]).bits;
}

}  // namespace QWENLITE_ABI
}  // namespace qwenlite
