// SPDX-License-Identifier: Apache-2.0
//
// Quantised weights on AVX-512: each element becomes its float32 in registers, then takes part in the chain
// of fused multiply-adds that avx512.hpp describes. Few columns read the weights where they lie, each on its
// own; more share rows decoded once, with the same values and so the same bits.
//
// An element of int8 or int4 is u * scale + shift, in one fused multiply-add, and exact: so few bits multiply
// a float16 scale. For int4 all sixteen values are computed at once, and a permutation looks them up. An fp8
// becomes a float16 on its way.
#pragma once

#include <qwenlite/kernels/avx512_matmul.hpp>

#if defined(__clang__)
#pragma clang attribute push(__attribute__((target("avx512f,avx512bw,avx512dq,avx512vl,avx2,fma,f16c"))), \
                             apply_to = function)
#else
// GCC 12 warns inside its own 512-bit intrinsics (an "undefined" operand that is never read).
#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Wuninitialized"
#pragma GCC diagnostic ignored "-Wmaybe-uninitialized"
#pragma GCC push_options
#pragma GCC target("avx512f,avx512bw,avx512dq,avx512vl,avx2,fma,f16c")
#endif

namespace qwenlite {
inline namespace QWENLITE_ABI {
namespace kernels::avx512 {

/// Rows that are read side by side.
inline constexpr int row_streams = 8;

/// Scale and shift of sixteen neighbouring groups of up to eight rows.
struct GroupScales {
  alignas(64) float scale[row_streams][16];
  alignas(64) float shift[row_streams][16];

  /// Those of groups [first, first + 16) of rows [row, row + rows), as far as there are so many groups.
  void load(const WeightView& w, Index row, Index rows, Index first) {
    const Index groups = ceil_div(w.cols, w.planes.group);
    const __mmask16 m = first_lanes(groups - first);
    if (w.format == Format::fp8) return load_blocks(w, row, rows, first, m);
    for (Index r = 0; r < rows; ++r) {
      const Index at = (row + r) * groups + first;
      const __m512 s = LoadF16::some(w.planes.scales + 2 * at, m);
      __m512 zero = _mm512_set1_ps(static_cast<float>(middle_value(w.format)));
      if (w.planes.zeros != nullptr) {
        zero = _mm512_cvtepi32_ps(_mm512_cvtepu8_epi32(_mm_maskz_loadu_epi8(m, w.planes.zeros + at)));
      }
      _mm512_store_ps(scale[r], s);
      _mm512_store_ps(shift[r], _mm512_mul_ps(s, _mm512_sub_ps(_mm512_setzero_ps(), zero)));
    }
  }

 private:
  /// fp8: 2^8 times the scales, see Fp8.
  void load_blocks(const WeightView& w, Index row, Index rows, Index first, __mmask16 m) {
    const Index groups = ceil_div(w.cols, w.planes.group);
    for (Index r = 0; r < rows; ++r) {
      const Index at = (w.planes.block_row + row + r) / quantised_block * groups + first;
      const __m512 s = LoadF32::some(w.planes.scales + 4 * at, m);
      _mm512_store_ps(scale[r], _mm512_mul_ps(s, _mm512_set1_ps(256.0F)));
    }
  }
};

/// Thirty-two decoded elements.
struct TwoVectors {
  __m512 first;
  __m512 second;
};

/// How bytes become elements: one type for each format of bytes.
struct Int8 {
  [[nodiscard]] static __m512 sixteen(const std::byte* p, __m512 scale, __m512 shift) {
    const __m512i u = _mm512_cvtepu8_epi32(_mm_loadu_si128(reinterpret_cast<const __m128i*>(p)));
    return _mm512_fmadd_ps(_mm512_cvtepi32_ps(u), scale, shift);
  }
  [[nodiscard]] static TwoVectors decode(const std::byte* p, __m512 scale, __m512 shift) {
    return {sixteen(p, scale, shift), sixteen(p + 16, scale, shift)};
  }
};
/// A float16 of the same sign, exponent and fraction is 2^8 times smaller. Adding 1 to the fraction carries
/// into the top bit of the exponent for the code of NaN alone; together with it that is a float16's NaN.
struct Fp8 {
  [[nodiscard]] static TwoVectors decode(const std::byte* p, __m512 scale, __m512 /*shift*/) {
    const __m256i codes = _mm256_loadu_si256(reinterpret_cast<const __m256i*>(p));
    const __m512i halves = _mm512_slli_epi16(_mm512_cvtepi8_epi16(codes), 7);  // the sign in both top bits
    const __m512i next = _mm512_add_epi16(halves, _mm512_set1_epi16(0x80));
    const __m512i top = _mm512_set1_epi16(0x4000);
    const __m512i h = _mm512_ternarylogic_epi32(halves, next, top, 0x78);  // halves ^ (next & top)
    const __m512 first = _mm512_cvtph_ps(_mm512_castsi512_si256(h));
    const __m512 second = _mm512_cvtph_ps(_mm512_extracti64x4_epi64(h, 1));
    return {_mm512_mul_ps(first, scale), _mm512_mul_ps(second, scale)};
  }
};

/// The sixteen values an int4 can have.
[[nodiscard]] inline __m512 int4_values(__m512 scale, __m512 shift) {
  const __m512 u = _mm512_setr_ps(0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15);
  return _mm512_fmadd_ps(u, scale, shift);
}

// ------------------------------------------------------------------------------------ one column

/// R rows of bytes by one column.
template <class Bytes, int R>
inline void byte_rows(const WeightView& w, Index row, const float* x, __m512* sums) {
  const std::byte* p = w.row(row);
  const Index stride = w.row_bytes();
  const Index steps = ceil_div(w.cols, 32);
  GroupScales groups;
  __m512 sum[static_cast<std::size_t>(R)];
  __m512 scale[static_cast<std::size_t>(R)];
  __m512 shift[static_cast<std::size_t>(R)];
#pragma GCC unroll 8
  for (int r = 0; r < R; ++r) sum[r] = _mm512_setzero_ps();
  for (Index g = 0, i = 0; i < steps; ++g) {
    if (g % 16 == 0) groups.load(w, row, R, g);
#pragma GCC unroll 8
    for (int r = 0; r < R; ++r) {
      scale[r] = _mm512_set1_ps(groups.scale[r][g % 16]);
      shift[r] = _mm512_set1_ps(groups.shift[r][g % 16]);
    }
    const Index group = w.planes.group / 32;
    const Index last = steps - i > group ? i + group : steps;
    for (; i < last; ++i) {
      if (i % 2 == 0) {  // the rows that follow, in as many streams as there are rows here
#pragma GCC unroll 8
        for (int r = 0; r < R; ++r) prefetch(p + (r + R) * stride + 32 * i);
      }
      const __m512 v = _mm512_loadu_ps(x + 32 * i);
      const __m512 u = _mm512_loadu_ps(x + 32 * i + 16);
#pragma GCC unroll 8
      for (int r = 0; r < R; ++r) {
        const TwoVectors elements = Bytes::decode(p + r * stride + 32 * i, scale[r], shift[r]);
        sum[r] = _mm512_fmadd_ps(elements.first, v, sum[r]);
        sum[r] = _mm512_fmadd_ps(elements.second, u, sum[r]);
      }
    }
  }
#pragma GCC unroll 8
  for (int r = 0; r < R; ++r) sums[r] = sum[r];
}

/// Up to eight rows of bytes by one column.
template <class Bytes>
inline void byte_rows(const WeightView& w, Index row, Index rows, const float* x, __m512* sums) {
  if (rows == row_streams) return byte_rows<Bytes, row_streams>(w, row, x, sums);
  for (Index r = 0; r < rows; ++r) byte_rows<Bytes, 1>(w, row + r, x, sums + r);
}

/// Extends a row's chain by the 128 elements of an int4 block, of which PerTable times sixteen share a scale.
template <int PerTable>
[[nodiscard]] inline __m512 int4_block(const std::byte* p, const float* scale, const float* shift,
                                       const float* x, __m512 sum) {
  __m512i raw = _mm512_loadu_si512(p);
  __m512 values = _mm512_setzero_ps();
#pragma GCC unroll 8
  for (int j = 0; j < 8; ++j) {
    if (j % PerTable == 0) {
      values = int4_values(_mm512_set1_ps(scale[j / PerTable]), _mm512_set1_ps(shift[j / PerTable]));
    }
    sum = _mm512_fmadd_ps(_mm512_permutexvar_ps(raw, values), _mm512_loadu_ps(x + 16 * j), sum);
    raw = _mm512_srli_epi32(raw, 4);
  }
  return sum;
}

/// The last block of a row, of which only so many steps have activations.
[[nodiscard]] inline __m512 int4_last_block(const std::byte* p, const float* scale, const float* shift,
                                            Index group, const float* x, Index steps, __m512 sum) {
  __m512i raw = _mm512_loadu_si512(p);
  for (Index j = 0; j < steps; ++j) {
    const Index g = 16 * j / group;
    const __m512 values = int4_values(_mm512_set1_ps(scale[g]), _mm512_set1_ps(shift[g]));
    sum = _mm512_fmadd_ps(_mm512_permutexvar_ps(raw, values), _mm512_loadu_ps(x + 16 * j), sum);
    raw = _mm512_srli_epi32(raw, 4);
  }
  return sum;
}

/// Up to eight rows of int4 by one column.
template <int PerTable>
inline void int4_rows(const WeightView& w, Index row, Index rows, const float* x, __m512* sums) {
  const std::byte* p = w.row(row);
  const Index stride = w.row_bytes();
  const Index steps = round_up(w.cols, 32) / 16;
  GroupScales groups;
  for (Index r = 0; r < rows; ++r) sums[r] = _mm512_setzero_ps();
  for (Index b = 0; 8 * b < steps; ++b) {
    const Index g = b * quantised_block / w.planes.group % 16;
    if (g == 0) groups.load(w, row, rows, b * quantised_block / w.planes.group);
    const bool whole = steps - 8 * b >= 8;
    for (Index r = 0; r < rows; ++r) {
      const std::byte* block = p + r * stride + 64 * b;
      const float* scale = groups.scale[r] + g;
      const float* shift = groups.shift[r] + g;
      prefetch(block + row_streams * stride);
      sums[r] =
          whole ? int4_block<PerTable>(block, scale, shift, x + 128 * b, sums[r])
                : int4_last_block(block, scale, shift, w.planes.group, x + 128 * b, steps - 8 * b, sums[r]);
    }
  }
}

/// Up to eight rows by one column: what multiplies the matrix.
using MultiplyRows = void (*)(const WeightView& w, Index row, Index rows, const float* x, __m512* sums);
[[nodiscard]] inline MultiplyRows rows_of(const WeightView& w) {
  if (w.format == Format::fp8) return byte_rows<Fp8>;
  if (w.format == Format::int8) return byte_rows<Int8>;
  return w.planes.group == 32 ? int4_rows<2> : w.planes.group == 64 ? int4_rows<4> : int4_rows<8>;
}

/// One column of a strip.
inline void multiply_stored(const WeightView& w, const float* x, float* out, bool accumulate) {
  const MultiplyRows multiply = rows_of(w);
  for (Index row = 0; row < w.rows; row += row_streams) {
    const Index rows = w.rows - row < row_streams ? w.rows - row : row_streams;
    __m512 sums[row_streams];
    multiply(w, row, rows, x, sums);
    if (rows == row_streams) {
      tile_store<row_streams>(sums, out + row, accumulate);
    } else {
      for (Index r = 0; r < rows; ++r) tile_store<1>(sums + r, out + row + r, accumulate);
    }
  }
}

// ----------------------------------------------------------------------------------- many columns

/// Sixteen int4 elements, step i of a row.
[[nodiscard]] inline __m512 decode_int4(const std::byte* row, Index i, __m512 values) {
  const auto step = static_cast<std::size_t>(i);  // unsigned numbers are quicker to divide
  const __m512i raw = _mm512_loadu_si512(row + step / 8 * 64);
  const __m512i bits = _mm512_set1_epi32(static_cast<int>(step % 8 * 4));
  return _mm512_permutexvar_ps(_mm512_srlv_epi32(raw, bits), values);
}

/// Calls store(i, elements [32 i, 32 i + 32)) for a whole row, the last ones padded with zeros.
/// elements(scale, shift) gives what decodes them within one group.
template <class Elements, class Store>
inline void decode_groups(const WeightView& w, Index row, const Elements& elements, const Store& store) {
  const Index steps = ceil_div(w.cols, 32);
  const Index group = w.planes.group / 32;
  GroupScales groups;
  for (Index g = 0, i = 0; i < steps; ++g) {
    if (g % 16 == 0) groups.load(w, row, 1, g);
    const auto decoded =
        elements(_mm512_set1_ps(groups.scale[0][g % 16]), _mm512_set1_ps(groups.shift[0][g % 16]));
    const Index last = steps - i > group ? i + group : steps;
    for (; i < last; ++i) store(i, decoded(i));
  }
}

template <class Bytes, class Store>
inline void decode_bytes(const WeightView& w, Index row, const Store& store) {
  decode_groups(
      w, row,
      [p = w.row(row)](__m512 scale, __m512 shift) {
        return [=](Index i) { return Bytes::decode(p + 32 * i, scale, shift); };
      },
      store);
}

/// Calls store(i, elements [32 i, 32 i + 32)) for a row of any quantised format.
template <class Store>
inline void decode_steps(const WeightView& w, Index row, const Store& store) {
  if (w.format == Format::fp8) return decode_bytes<Fp8>(w, row, store);
  if (w.format == Format::int8) return decode_bytes<Int8>(w, row, store);
  decode_groups(
      w, row,
      [p = w.row(row)](__m512 scale, __m512 shift) {
        return [p, values = int4_values(scale, shift)](Index i) {
          return TwoVectors{decode_int4(p, 2 * i, values), decode_int4(p, 2 * i + 1, values)};
        };
      },
      store);
}

/// Decodes a row to out[cols].
inline void decode_quantised(const WeightView& w, Index row, float* out) {
  decode_steps(w, row, [&](Index i, const TwoVectors& two) {
    const Index left = w.cols - 32 * i;
    if (left >= 32) {
      _mm512_storeu_ps(out + 32 * i, two.first);
      _mm512_storeu_ps(out + 32 * i + 16, two.second);
      return;
    }
    _mm512_mask_storeu_ps(out + 32 * i, first_lanes(left), two.first);
    if (left > 16) _mm512_mask_storeu_ps(out + 32 * i + 16, first_lanes(left - 16), two.second);
  });
}

/// Elements between decoded rows: not a multiple of 4096 bytes, so that rows do not compete for the same sets
/// of a cache.
[[nodiscard]] inline Index decoded_stride(Index in) {
  return round_up(in, 32) + 16;
}

/// Up to here, decoding a strip again for each column, when it is in cache, costs less than to write it down.
inline constexpr Index columns_from_cache = 3;

inline Index quantised_scratch_bytes(Index rows, Index in, Index columns) {
  return columns > columns_from_cache ? rows * decoded_stride(in) * 4 : 0;
}

inline void matmul_quantised(const MatmulArgs& a) {
  const WeightView w = a.strip();
  const auto* x = reinterpret_cast<const float*>(a.packed);
  if (a.columns <= columns_from_cache) {
    for (Index c = 0; c < a.columns; ++c) {
      multiply_stored(w, x + c * round_up(a.in, 32), a.out + c * a.out_stride, a.accumulate);
    }
    return;
  }
  const Index stride = decoded_stride(a.in);
  auto* panel = reinterpret_cast<float*>(a.scratch);
  const Index together = a.columns <= 6 ? 8 : a.rows;  // a few rows stay in the first-level cache
  for (Index row = 0; row < a.rows; row += together) {
    const Index rows = a.rows - row < together ? a.rows - row : together;
    for (Index r = 0; r < rows; ++r) decode_quantised(w, row + r, panel + r * stride);
    multiply_f32({.w = a.scratch,
                  .w_stride = stride * 4,
                  .x = x,
                  .x_stride = round_up(a.in, 32),
                  .in = a.in,
                  .out = a.out + row,
                  .out_stride = a.out_stride,
                  .accumulate = a.accumulate},
                 rows, a.columns);
  }
}

}  // namespace kernels::avx512
}  // namespace QWENLITE_ABI
}  // namespace qwenlite

#if defined(__clang__)
#pragma clang attribute pop
#else
#pragma GCC pop_options
#pragma GCC diagnostic pop
#endif
