// SPDX-License-Identifier: Apache-2.0
//
// How caches hold keys and values: blocks of 64 positions of one head, which every cache hands to the
// attention kernels and every format fills in its own way.
//
// The compressed formats keep a small number for each element and one float32 scale for each position of a
// head. The small numbers are exact in bf16 and float32, and a position's scale is a factor of its score and
// of its probability: kernels multiply small numbers as if they were bf16, and scale 64 results, not 64 rows.
// A float32 scale never overflows and costs 4 bytes beside the 128 of a row of int8.
#pragma once

#include <cstring>

#include <qwenlite/kernels/kv_codes.hpp>

namespace qwenlite {
inline namespace QWENLITE_ABI {

/// How keys and values are stored in a cache. The last three are compressed.
enum class KvFormat : std::uint8_t {
  bf16,
  f32,
  int8,  ///< -127..127 times the position's scale, the largest magnitude being 127
  fp8,   ///< e4m3 times the position's scale, the largest magnitude being 448
  int4,  ///< odd numbers -15..15 times the scale, of heads rotated by a Hadamard matrix (an experiment)
};
inline constexpr KvFormat kv_formats[] = {KvFormat::bf16, KvFormat::f32, KvFormat::int8, KvFormat::fp8,
                                          KvFormat::int4};

/// Names of the compressed formats as types: KvCache<Int8>.
struct Int8 {};
struct Fp8 {};
struct Int4 {};

[[nodiscard]] constexpr std::string_view name_of(KvFormat format) noexcept {
  switch (format) {
    case KvFormat::bf16: return "bf16";
    case KvFormat::f32: return "f32";
    case KvFormat::int8: return "int8";
    case KvFormat::fp8: return "fp8";
    case KvFormat::int4: return "int4";
  }
  return "?";
}

/// Whether elements are small numbers with a scale for each position.
[[nodiscard]] constexpr bool is_compressed(KvFormat format) noexcept {
  return format != KvFormat::bf16 && format != KvFormat::f32;
}

/// Throws `bad_argument` if heads of this width cannot be stored so: a rotation needs a power of two.
inline void check_kv_format(KvFormat format, Index head_dim) {
  if (format != KvFormat::int4 || can_rotate(head_dim)) return;
  throw Error(ErrorCode::bad_argument, "int4 keys and values", {"a head_dim of ", head_dim},
              {"a power of two from 2 to ", max_rotated_dim, ": heads are rotated by a Hadamard matrix"});
}

/// Positions in a block of keys and values; also the block of attention, of the delta rule's chunk and
/// of prefix hashing. Blocks start at absolute positions that are multiples of it.
inline constexpr Index block_positions = 64;

/// Keys after which attention starts a new partial result (a span); spans are merged in ascending order.
inline constexpr Index span_positions = 1024;

/// Small numbers of a position of a compressed format, with those that pad it: kernels read whole groups
/// of 32.
[[nodiscard]] constexpr Index padded_dim(Index head_dim) noexcept {
  return round_up(head_dim, code_group);
}

/// Bytes of one position of a plane, without its scale.
[[nodiscard]] constexpr Index kv_row_bytes(KvFormat format, Index head_dim) noexcept {
  switch (format) {
    case KvFormat::bf16: return head_dim * 2;
    case KvFormat::f32: return head_dim * 4;
    case KvFormat::int8:
    case KvFormat::fp8: return padded_dim(head_dim);
    case KvFormat::int4: return padded_dim(head_dim) / 2;
  }
  return 0;
}

/// 64 positions of one key/value head, as every cache hands them to the attention kernels.
///
///   bf16, f32    k  [64][head_dim]      one row per position
///                v  [32][head_dim][2]   two positions interleaved: even position first
///   int8, fp8    k, v  [64][head_dim rounded up to 32] bytes, one row per position; then [64] float32 scales
///   int4         k, v  [64][head_dim rounded up to 32, /2]: of each 32 numbers, byte i holds i in its lower
///                and i + 16 in its upper half; then [64] float32 scales
///
/// Memory at and beyond `count` holds finite numbers, scales too: kernels may multiply them by zero. So they
/// may what is not finite before it, which then reaches queries that do not see it. k and v are aligned to 64
/// bytes.
struct KvBlock {
  const std::byte* k = nullptr;
  const std::byte* v = nullptr;
  Index first = 0;  ///< absolute position of the first row, a multiple of 64
  Index count = 0;  ///< valid positions, 1..64
  KvFormat format = KvFormat::bf16;
};

/// Bytes of one of k or v of a block.
[[nodiscard]] constexpr Index kv_plane_bytes(KvFormat format, Index head_dim) noexcept {
  const Index row = kv_row_bytes(format, head_dim) + (is_compressed(format) ? Index{sizeof(float)} : 0);
  return block_positions * row;
}

/// Where the scales [64] of a plane of a compressed format lie.
[[nodiscard]] inline const float* kv_scales(KvFormat format, Index head_dim,
                                            const std::byte* plane) noexcept {
  return reinterpret_cast<const float*>(plane + block_positions * kv_row_bytes(format, head_dim));
}

/// Writes one position (row 0..63) of one plane of a compressed format.
inline void store_compressed(KvFormat format, Index head_dim, Index row, const float* values,
                             std::byte* plane) noexcept {
  const Index bytes = kv_row_bytes(format, head_dim);
  auto* const codes = reinterpret_cast<std::uint8_t*>(plane + row * bytes);
  float scale = 0;
  switch (format) {
    case KvFormat::fp8: scale = encode_fp8(values, head_dim, codes); break;
    case KvFormat::int4: scale = encode_int4(values, head_dim, codes); break;
    case KvFormat::int8: scale = encode_int8(values, head_dim, codes); break;
    case KvFormat::bf16:
    case KvFormat::f32: break;  // not compressed
  }
  std::memcpy(plane + block_positions * bytes + row * Index{sizeof(float)}, &scale, sizeof scale);
}

/// Writes one position (row 0..63) of a block: `key` and `value` are [head_dim] float32. The bytes depend on
/// them alone.
inline void store_kv(KvFormat format, Index head_dim, Index row, const float* key, const float* value,
                     std::byte* k, std::byte* v) noexcept {
  if (is_compressed(format)) {
    store_compressed(format, head_dim, row, key, k);
    store_compressed(format, head_dim, row, value, v);
    return;
  }
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

/// Element d of position `row` of a plane of rows of a compressed format.
[[nodiscard]] inline float decode_compressed(KvFormat format, Index head_dim, const std::byte* plane,
                                             Index row, Index d) noexcept {
  const Index bytes = kv_row_bytes(format, head_dim);
  const auto* const codes = reinterpret_cast<const std::uint8_t*>(plane + row * bytes);
  const float scale = kv_scales(format, head_dim, plane)[row];
  if (format == KvFormat::int8) return static_cast<float>(static_cast<std::int8_t>(codes[d])) * scale;
  if (format == KvFormat::int4) return static_cast<float>(decode_int4(codes, d)) * scale;
  return static_cast<float>(F8E4M3::from_bits(codes[d])) * scale;
}

/// Element i of a plane of bf16 or f32.
[[nodiscard]] inline float decode_plain(KvFormat format, const std::byte* plane, Index i) noexcept {
  if (format == KvFormat::f32) {
    float value;
    std::memcpy(&value, plane + i * 4, 4);
    return value;
  }
  Bf16 value;
  std::memcpy(&value, plane + i * 2, 2);
  return static_cast<float>(value);
}

/// Element d of the key or value at `row` (0..63) of a block; with int4, of the rotated one.
[[nodiscard]] inline float key_in(const KvBlock& block, Index head_dim, Index row, Index d) noexcept {
  if (is_compressed(block.format)) return decode_compressed(block.format, head_dim, block.k, row, d);
  return decode_plain(block.format, block.k, row * head_dim + d);
}
[[nodiscard]] inline float value_in(const KvBlock& block, Index head_dim, Index row, Index d) noexcept {
  if (is_compressed(block.format)) return decode_compressed(block.format, head_dim, block.v, row, d);
  return decode_plain(block.format, block.v, (row / 2 * head_dim + d) * 2 + row % 2);
}

}  // namespace QWENLITE_ABI
}  // namespace qwenlite
