// SPDX-License-Identifier: Apache-2.0
//
// Quantised weights at bf16 precision: an element is decoded to float32, rounded once to bf16, and takes part
// in the chain that avx512_bf16_matmul.hpp describes. That rounding is 2^-9 of an element at most: beside
// what int8 and narrower formats have lost it does not count.
//
// One column decodes elements in registers; more share rows decoded once, with the same values and so the
// same bits. Elements of int4 are not brought into their order: activations are packed in the order in which
// shifts by four bits find them (PackLayout::blocks_bf16).
#pragma once

#include <qwenlite/kernels/avx512_bf16_matmul.hpp>
#include <qwenlite/kernels/avx512_quantised.hpp>

#if defined(__clang__)
#pragma clang attribute push(                                                                          \
    __attribute__((target("avx512f,avx512bw,avx512dq,avx512vl,avx512vbmi,avx512bf16,avx2,fma,f16c"))), \
    apply_to = function)
#else
// GCC 12 warns inside its own 512-bit intrinsics (an "undefined" operand that is never read).
#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Wuninitialized"
#pragma GCC diagnostic ignored "-Wmaybe-uninitialized"
#pragma GCC push_options
#pragma GCC target("avx512f,avx512bw,avx512dq,avx512vl,avx512vbmi,avx512bf16,avx2,fma,f16c")
#endif

namespace qwenlite {
inline namespace QWENLITE_ABI {
namespace kernels::avx512_bf16 {

using avx512::GroupScales;
using avx512::TwoVectors;

/// Thirty-two decoded elements, rounded.
[[nodiscard]] inline __m512i to_bf16(const TwoVectors& two) {
  return to_bf16(two.first, two.second);
}

// ----------------------------------------------------------------------------------- int8 by rows

/// An int8 of a row with one scale, decoded: the integer itself.
struct Int8Number {
  [[nodiscard]] static __m512 sixteen(const std::byte* p) {
    const __m512i u = _mm512_cvtepu8_epi32(_mm_loadu_si128(reinterpret_cast<const __m128i*>(p)));
    return _mm512_cvtepi32_ps(_mm512_sub_epi32(u, _mm512_set1_epi32(128)));
  }
  [[nodiscard]] static TwoVectors decode(const std::byte* p, __m512 /*scale*/, __m512 /*shift*/) {
    return {sixteen(p), sixteen(p + 16)};
  }
};

/// The scales of rows [row, row + rows).
inline void row_scales(const WeightView& w, Index row, Index rows, float* out) {
  for (Index r = 0; r < rows; r += 16) {
    const __mmask16 m = avx512::first_lanes(rows - r);
    _mm512_mask_storeu_ps(out + r, m, avx512::LoadF16::some(w.planes.scales + 2 * (row + r), m));
  }
}

/// Both bytes of the bf16 of each integer, for permutations to look up.
struct Int8Bytes {
  alignas(64) std::uint8_t low[256];
  alignas(64) std::uint8_t high[256];
};
inline constexpr Int8Bytes int8_bytes = [] {
  Int8Bytes bytes{};
  for (int u = 0; u < 256; ++u) {
    const std::uint16_t bits = Bf16(static_cast<float>(u - 128)).bits;
    bytes.low[u] = static_cast<std::uint8_t>(bits & 255U);
    bytes.high[u] = static_cast<std::uint8_t>(bits >> 8U);
  }
  return bytes;
}();

/// A table of 256 bytes in registers.
struct ByteTable {
  __m512i part[4];

  explicit ByteTable(const std::uint8_t* bytes) {
    for (int i = 0; i < 4; ++i) part[i] = _mm512_load_si512(bytes + 64 * i);
  }
  /// The bytes at indices u; `upper`: which of them are 128 or more.
  [[nodiscard]] __m512i at(__m512i u, __mmask64 upper) const {
    return _mm512_mask_blend_epi8(upper, _mm512_permutex2var_epi8(part[0], u, part[1]),
                                  _mm512_permutex2var_epi8(part[2], u, part[3]));
  }
};

// ------------------------------------------------------------------------------------------- int4

/// The rounded values that an int4 can have in two groups, the second `offset` groups after the first: those
/// of the second in the upper half. Without zero points of their own (`Zeros`) groups need no shift.
template <bool Zeros>
[[nodiscard]] inline __m512i int4_values(const float* scale, const float* shift, Index offset) {
  if constexpr (Zeros) {
    return to_bf16(avx512::int4_values(_mm512_set1_ps(scale[0]), _mm512_set1_ps(shift[0])),
                   avx512::int4_values(_mm512_set1_ps(scale[offset]), _mm512_set1_ps(shift[offset])));
  } else {
    const __m512 numbers = _mm512_setr_ps(-8, -7, -6, -5, -4, -3, -2, -1, 0, 1, 2, 3, 4, 5, 6, 7);
    return to_bf16(_mm512_mul_ps(numbers, _mm512_set1_ps(scale[0])),
                   _mm512_mul_ps(numbers, _mm512_set1_ps(scale[offset])));
  }
}

/// The elements in the lowest four bits of each 16: even lanes are of the first group, odd ones of the
/// second.
[[nodiscard]] inline __m512i int4_elements(__m512i raw, __m512i values) {
  const __m512i low = _mm512_set1_epi16(15);
  const __m512i upper_half = _mm512_set1_epi32(0x00100000);
  return _mm512_permutexvar_epi16(_mm512_ternarylogic_epi32(raw, low, upper_half, 0xEA), values);
}

/// Calls use(part, elements) for the four parts of a block, whose scales begin at `scale`. Its halves are of
/// groups `offset` apart; in groups of 32 (`Tables` = 2) so are its second and fourth quarter.
template <int Tables, bool Zeros, class Use>
[[gnu::always_inline]] inline void for_int4_parts(__m512i raw, const float* scale, const float* shift,
                                                  Index offset, const Use& use) {
  __m512i values = int4_values<Zeros>(scale, shift, offset);
  use(0, int4_elements(raw, values));
  use(1, int4_elements(_mm512_srli_epi16(raw, 4), values));
  if constexpr (Tables == 2) values = int4_values<Zeros>(scale + 1, shift + 1, offset);
  use(2, int4_elements(_mm512_srli_epi16(raw, 8), values));
  use(3, int4_elements(_mm512_srli_epi16(raw, 12), values));
}

// ------------------------------------------------------------------------------------ one column

/// Rows whose sums are finished together.
inline constexpr int rows_together = 4;

/// Bytes that are asked for before those in use: rows are walked as one stream, and this is what arrives
/// while a cache line is on its way.
inline constexpr Index ahead_bytes = 8192;

/// R rows of int8, less their scales, by one column. Sixty-four elements a step: bytes of the looked-up
/// halves meet in the order of `in` because a permutation of quarters went before.
template <int R>
inline void int8_rows(const WeightView& w, Index row, const std::byte* x, __m512* sums) {
  const std::byte* const p = w.row(row);
  const Index stride = w.row_bytes();
  const ByteTable low(int8_bytes.low);
  const ByteTable high(int8_bytes.high);
  const __m512i quarters = _mm512_setr_epi64(0, 4, 1, 5, 2, 6, 3, 7);
  __m512 sum[static_cast<std::size_t>(R)];
#pragma GCC unroll 4
  for (int r = 0; r < R; ++r) sum[r] = _mm512_setzero_ps();
  for (Index i = 0; i < w.cols; i += 64) {
    const __m512i first = _mm512_load_si512(x + i * 2);
    const __m512i second = i + 32 < w.cols ? _mm512_load_si512(x + i * 2 + 64) : _mm512_setzero_si512();
#pragma GCC unroll 4
    for (int r = 0; r < R; ++r) {
      avx512::prefetch(p + ahead_bytes + i * R + 64 * r);
      const __m512i u = _mm512_permutexvar_epi64(quarters, _mm512_loadu_si512(p + r * stride + i));
      const __mmask64 upper = _mm512_movepi8_mask(u);
      const __m512i l = low.at(u, upper);
      const __m512i h = high.at(u, upper);
      sum[r] = add_products(sum[r], _mm512_unpacklo_epi8(l, h), first);
      sum[r] = add_products(sum[r], _mm512_unpackhi_epi8(l, h), second);
    }
  }
#pragma GCC unroll 4
  for (int r = 0; r < R; ++r) sums[r] = sum[r];
}

/// Up to four rows of int8 with row scales by one column.
inline void int8_rows(const WeightView& w, Index row, Index rows, const std::byte* x, __m512* sums) {
  Index r = 0;
  for (; r + 2 <= rows; r += 2) int8_rows<2>(w, row + r, x, sums + r);
  if (r < rows) int8_rows<1>(w, row + r, x, sums + r);
}

/// R rows of bytes by one column.
template <class Bytes, int R>
inline void byte_rows(const WeightView& w, Index row, const std::byte* x, __m512* sums) {
  const std::byte* const p = w.row(row);
  const Index stride = w.row_bytes();
  const Index steps = ceil_div(w.cols, 32);
  GroupScales groups;
  __m512 sum[static_cast<std::size_t>(R)];
  __m512 scale[static_cast<std::size_t>(R)];
  __m512 shift[static_cast<std::size_t>(R)];
#pragma GCC unroll 4
  for (int r = 0; r < R; ++r) sum[r] = _mm512_setzero_ps();
  for (Index g = 0, i = 0; i < steps; ++g) {
    if (g % 16 == 0) groups.load(w, row, R, g);
#pragma GCC unroll 4
    for (int r = 0; r < R; ++r) {
      scale[r] = _mm512_set1_ps(groups.scale[r][g % 16]);
      shift[r] = _mm512_set1_ps(groups.shift[r][g % 16]);
    }
    const Index group = w.planes.group / 32;
    const Index last = steps - i > group ? i + group : steps;
    for (; i < last; ++i) {
      avx512::prefetch_near(p + ahead_bytes + i * 32 * R);
      const __m512i v = _mm512_load_si512(x + i * 64);
#pragma GCC unroll 4
      for (int r = 0; r < R; ++r) {
        const __m512i elements = to_bf16(Bytes::decode(p + r * stride + i * 32, scale[r], shift[r]));
        sum[r] = add_products(sum[r], elements, v);
      }
    }
  }
#pragma GCC unroll 4
  for (int r = 0; r < R; ++r) sums[r] = sum[r];
}

/// Up to four rows of bytes by one column: pairs, whose cache lines come one at a step.
template <class Bytes>
inline void byte_rows(const WeightView& w, Index row, Index rows, const std::byte* x, __m512* sums) {
  Index r = 0;
  for (; r + 2 <= rows; r += 2) byte_rows<Bytes, 2>(w, row + r, x, sums + r);
  if (r < rows) byte_rows<Bytes, 1>(w, row + r, x, sums + r);
}

/// R rows of int4 by one column.
template <int R, int Tables, bool Zeros>
inline void int4_rows(const WeightView& w, Index row, const std::byte* x, __m512* sums) {
  const std::byte* const p = w.row(row);
  const Index stride = w.row_bytes();
  const Index offset = 64 / w.planes.group;
  GroupScales groups;
  __m512 sum[static_cast<std::size_t>(R)];
#pragma GCC unroll 4
  for (int r = 0; r < R; ++r) sum[r] = _mm512_setzero_ps();
  for (Index b = 0; b < stride / 64; ++b) {
    const Index group = b * quantised_block / w.planes.group;
    if (group % 16 == 0) groups.load(w, row, R, group);
    __m512i v[4];
#pragma GCC unroll 4
    for (int part = 0; part < 4; ++part) v[part] = _mm512_load_si512(x + b * 256 + part * 64);
#pragma GCC unroll 4
    for (int r = 0; r < R; ++r) {
      avx512::prefetch_near(p + ahead_bytes + (b * R + r) * 64);
      const __m512i raw = _mm512_loadu_si512(p + r * stride + b * 64);
      for_int4_parts<Tables, Zeros>(
          raw, groups.scale[r] + group % 16, groups.shift[r] + group % 16, offset,
          [&](int part, __m512i elements) { sum[r] = add_products(sum[r], elements, v[part]); });
    }
  }
#pragma GCC unroll 4
  for (int r = 0; r < R; ++r) sums[r] = sum[r];
}

/// Up to four rows of int4 by one column.
template <int Tables>
inline void int4_rows(const WeightView& w, Index row, Index rows, const std::byte* x, __m512* sums) {
  if (rows == rows_together && w.planes.zeros == nullptr) {
    return int4_rows<rows_together, Tables, false>(w, row, x, sums);
  }
  if (rows == rows_together) return int4_rows<rows_together, Tables, true>(w, row, x, sums);
  for (Index r = 0; r < rows; ++r) int4_rows<1, Tables, true>(w, row + r, x, sums + r);
}

/// Up to four rows by one column: what multiplies the matrix.
using MultiplyRows = void (*)(const WeightView& w, Index row, Index rows, const std::byte* x, __m512* sums);
[[nodiscard]] inline MultiplyRows rows_of(const WeightView& w) {
  if (w.format == Format::fp8) return byte_rows<avx512::Fp8>;
  if (has_row_scales(w)) return int8_rows;
  if (w.format == Format::int8) return byte_rows<avx512::Int8>;
  return w.planes.group == 32 ? int4_rows<2> : int4_rows<1>;
}

/// One column of a strip.
inline void multiply_stored(const WeightView& w, const std::byte* x, float* out, bool accumulate) {
  const MultiplyRows multiply = rows_of(w);
  float scales[rows_together];
  const float* const scale = has_row_scales(w) ? scales : nullptr;
  for (Index row = 0; row < w.rows; row += rows_together) {
    const Index rows = w.rows - row < rows_together ? w.rows - row : rows_together;
    __m512 sums[rows_together];
    multiply(w, row, rows, x, sums);
    if (scale != nullptr) row_scales(w, row, rows, scales);
    if (rows == rows_together) {
      avx512::tile_store<rows_together>(sums, out + row, accumulate, scale);
    } else {
      for (Index r = 0; r < rows; ++r) {
        avx512::tile_store<1>(sums + r, out + row + r, accumulate, scale != nullptr ? scale + r : nullptr);
      }
    }
  }
}

// ----------------------------------------------------------------------------------- more columns

/// Decodes a row of int4 in the order of PackLayout::blocks_bf16.
template <int Tables>
inline void decode_int4(const WeightView& w, Index row, std::byte* out) {
  const std::byte* const p = w.row(row);
  GroupScales groups;
  for (Index b = 0; b < w.row_bytes() / 64; ++b) {
    const Index group = b * quantised_block / w.planes.group;
    if (group % 16 == 0) groups.load(w, row, 1, group);
    for_int4_parts<Tables, true>(
        _mm512_loadu_si512(p + b * 64), groups.scale[0] + group % 16, groups.shift[0] + group % 16,
        64 / w.planes.group,
        [&](int part, __m512i elements) { _mm512_store_si512(out + b * 256 + part * 64, elements); });
  }
}

/// Calls store(i, elements [32 i, 32 i + 32) as bf16) for a row, without its scale if it has but one.
template <class Store>
inline void decode_steps(const WeightView& w, Index row, const Store& store) {
  const auto rounded = [&](Index i, const TwoVectors& two) { store(i, to_bf16(two)); };
  if (has_row_scales(w)) return avx512::decode_bytes<Int8Number>(w, row, rounded);
  avx512::decode_steps(w, row, rounded);
}

/// Decodes a row as its activations are packed.
inline void decode_row(const WeightView& w, Index row, std::byte* out) {
  if (w.format == Format::int4) {
    return w.planes.group == 32 ? decode_int4<2>(w, row, out) : decode_int4<1>(w, row, out);
  }
  decode_steps(w, row, [&](Index i, __m512i elements) { _mm512_store_si512(out + i * 64, elements); });
}

inline Index quantised_scratch_bytes(Index rows, Index in, Index columns) {
  const Index padded = round_up(in, quantised_block);
  const Index own = columns > 1 ? rows * (panel_stride(padded) + 4) : 0;
  const Index exact = avx512::quantised_scratch_bytes(rows, in, columns);
  return own > exact ? own : exact;
}

inline void matmul_quantised(const MatmulArgs& a) {
  if (keeps_f32(a.layout)) return avx512::matmul_quantised(a);
  const WeightView w = a.strip();
  if (a.columns == 1) return multiply_stored(w, a.packed, a.out, a.accumulate);
  const Index column_bytes = packed_bytes(a.layout, 1, a.in);
  Tile t{.w = a.scratch,
         .w_stride = panel_stride(column_bytes / 2),
         .x = a.packed,
         .x_stride = column_bytes,
         .in = column_bytes / 2,
         .out = a.out,
         .out_stride = a.out_stride,
         .accumulate = a.accumulate};
  auto* const scales = reinterpret_cast<float*>(a.scratch + a.rows * t.w_stride);
  const Index together = a.columns <= tile_columns ? 8 : a.rows;  // a few rows stay in the first-level cache
  for (Index row = 0; row < a.rows; row += together) {
    const Index rows = a.rows - row < together ? a.rows - row : together;
    for (Index r = 0; r < rows; ++r) decode_row(w, row + r, a.scratch + r * t.w_stride);
    if (has_row_scales(w)) {
      row_scales(w, row, rows, scales);
      t.scale = scales;
    }
    multiply_all(t, rows, a.columns);
    t.out += together;
  }
}

}  // namespace kernels::avx512_bf16
}  // namespace QWENLITE_ABI
}  // namespace qwenlite

#if defined(__clang__)
#pragma clang attribute pop
#else
#pragma GCC pop_options
#pragma GCC diagnostic pop
#endif
