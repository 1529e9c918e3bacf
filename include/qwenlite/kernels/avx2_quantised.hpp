// SPDX-License-Identifier: Apache-2.0
//
// Quantised weights on AVX2: each element becomes its float32 in registers, u * scale + shift in one fused
// multiply-add, an fp8 by way of float16, then takes part in the chain that avx2_matmul.hpp describes. One
// column reads the weights where they lie; more share a panel of decoded rows, with the same values and so
// the same bits.
#pragma once

#include <qwenlite/kernels/avx2_matmul.hpp>

#if defined(__clang__)
#pragma clang attribute push(__attribute__((target("avx2,fma,f16c"))), apply_to = function)
#else
#pragma GCC push_options
#pragma GCC target("avx2,fma,f16c")
#endif

namespace qwenlite {
inline namespace QWENLITE_ABI {
namespace kernels::avx2 {

/// The place of a row's first group in the planes.
[[nodiscard]] inline Index first_group(const WeightView& w, Index row) {
  const Index row_of_plane = w.format == Format::fp8 ? (w.planes.block_row + row) / quantised_block : row;
  return row_of_plane * ceil_div(w.cols, w.planes.group);
}

/// Scale and shift of the group at a place in the planes, in all lanes.
struct GroupScale {
  __m256 scale;
  __m256 shift;

  GroupScale() = default;
  GroupScale(const WeightView& w, Index at) {
    if (w.format == Format::fp8) {
      float stored;
      std::memcpy(&stored, w.planes.scales + 4 * at, 4);
      scale = _mm256_set1_ps(256.0F * stored);  // see decode_fp8()
      return;
    }
    std::uint16_t half;
    std::memcpy(&half, w.planes.scales + 2 * at, 2);
    const int zero =
        w.planes.zeros != nullptr ? std::to_integer<int>(w.planes.zeros[at]) : middle_value(w.format);
    const float s = _mm_cvtss_f32(_mm_cvtph_ps(_mm_cvtsi32_si128(half)));
    scale = _mm256_set1_ps(s);
    shift = _mm256_set1_ps(-static_cast<float>(zero) * s);
  }
};

/// Eight fp8: a float16 of the same sign, exponent and fraction is 2^8 times smaller. Adding 1 to the
/// fraction carries into the top bit of the exponent for the code of NaN alone; together with it that is a
/// NaN.
[[nodiscard]] inline __m256 decode_fp8(__m128i codes, __m256 scale) {
  const __m128i halves = _mm_slli_epi16(_mm_cvtepi8_epi16(codes), 7);  // the sign in both top bits
  const __m128i next = _mm_add_epi16(halves, _mm_set1_epi16(0x80));
  const __m128i h = _mm_xor_si128(halves, _mm_and_si128(next, _mm_set1_epi16(0x4000)));
  return _mm256_mul_ps(_mm256_cvtph_ps(h), scale);
}

/// Elements [8 i, 8 i + 8) of a row of values.
[[nodiscard]] inline __m256 decode_eight(Format format, const std::byte* row, Index i, const GroupScale& s) {
  __m256i u;
  if (format != Format::int4) {
    const __m128i bytes = _mm_loadl_epi64(reinterpret_cast<const __m128i*>(row + 8 * i));
    if (format == Format::fp8) return decode_fp8(bytes, s.scale);
    u = _mm256_cvtepu8_epi32(bytes);
  } else {
    const auto step = static_cast<std::size_t>(i);  // unsigned numbers are quicker to divide
    const std::byte* words = row + step / 16 * 64 + step % 2 * 32;
    const __m256i raw = _mm256_loadu_si256(reinterpret_cast<const __m256i*>(words));
    const __m256i bits = _mm256_set1_epi32(static_cast<int>(step % 16 / 2 * 4));
    u = _mm256_and_si256(_mm256_srlv_epi32(raw, bits), _mm256_set1_epi32(15));
  }
  return _mm256_fmadd_ps(_mm256_cvtepi32_ps(u), s.scale, s.shift);
}

/// The steps of eight elements that a row has, and those that end with group g.
[[nodiscard]] inline Index steps_until(const WeightView& w, Index g) {
  return smaller(ceil_div(w.cols, 8), (g + 1) * w.planes.group / 8);
}

/// R rows by one column.
template <Format format, int R>
inline void quantised_rows(const WeightView& w, Index row, const float* x, __m256* sums) {
  const std::byte* p = w.row(row);
  const Index stride = w.row_bytes();
  constexpr Index per_line = format == Format::int4 ? 16 : 8;  // steps of eight in 64 bytes
  __m256 sum[static_cast<std::size_t>(R)];
#pragma GCC unroll 4
  for (int r = 0; r < R; ++r) sum[r] = _mm256_setzero_ps();
  Index first[static_cast<std::size_t>(R)];
#pragma GCC unroll 4
  for (int r = 0; r < R; ++r) first[r] = first_group(w, row + r);
  GroupScale scales[static_cast<std::size_t>(R)];
  for (Index g = 0, i = 0; 8 * i < w.cols; ++g) {
#pragma GCC unroll 4
    for (int r = 0; r < R; ++r) {
      scales[r] = GroupScale(w, first[r] + g);
    }
    const Index last = steps_until(w, g);
#pragma GCC unroll 4
    for (; i < last; ++i) {
      if (i % per_line == 0) {  // the rows that follow, in as many streams as there are rows here
#pragma GCC unroll 4
        for (int r = 0; r < R; ++r) {
          prefetch(p + (r + R) * stride + i / per_line * 64);
        }
      }
      const __m256 v = _mm256_loadu_ps(x + 8 * i);
#pragma GCC unroll 4
      for (int r = 0; r < R; ++r) {
        sum[r] = in_order(_mm256_fmadd_ps(decode_eight(format, p + r * stride, i, scales[r]), v, sum[r]));
      }
    }
  }
#pragma GCC unroll 4
  for (int r = 0; r < R; ++r) sums[r] = sum[r];
}

/// One column of a strip.
template <Format format>
inline void multiply_quantised(const WeightView& w, const float* x, float* out, bool accumulate) {
  for (Index row = 0; row < w.rows; row += 4) {
    const Index rows = smaller(4, w.rows - row);
    __m256 sums[4] = {_mm256_setzero_ps(), _mm256_setzero_ps(), _mm256_setzero_ps(), _mm256_setzero_ps()};
    if (rows == 4) {
      quantised_rows<format, 4>(w, row, x, sums);
    } else {
      for (Index r = 0; r < rows; ++r) quantised_rows<format, 1>(w, row + r, x, sums + r);
    }
    store_outputs(sum_lanes(sums[0], sums[1], sums[2], sums[3]), rows, out + row, accumulate);
  }
}

/// Decodes `count` elements of a row from `begin` on, a multiple of 8, to out[count]. The view is a copy,
/// which stores to `out` cannot change: its members stay in registers.
template <Format format>
inline void decode_quantised(WeightView w, Index row, Index begin, Index count, float* out) {
  const std::byte* const p = w.row(row);
  const Index first = first_group(w, row);
  const Index end = begin + count;
  const auto at = static_cast<std::size_t>(begin);
  auto g = static_cast<Index>(at / static_cast<std::size_t>(w.planes.group));
  for (auto i = static_cast<Index>(at / 8); 8 * i < end; ++g) {
    const GroupScale scale(w, first + g);
    for (const Index last = smaller(ceil_div(end, 8), steps_until(w, g)); i < last; ++i) {
      store(out + 8 * i - begin, smaller(8, end - 8 * i), decode_eight(format, p, i, scale));
    }
  }
}

inline void decode_quantised(const WeightView& w, Index row, Index begin, Index count, float* out) {
  if (w.format == Format::int8) return decode_quantised<Format::int8>(w, row, begin, count, out);
  if (w.format == Format::fp8) return decode_quantised<Format::fp8>(w, row, begin, count, out);
  return decode_quantised<Format::int4>(w, row, begin, count, out);
}

/// Decodes a row to out[cols].
inline void decode_quantised(const WeightView& w, Index row, float* out) {
  decode_quantised(w, row, 0, w.cols, out);
}

inline Index quantised_scratch_bytes(Index rows, Index in, Index columns) {
  return matmul_scratch_bytes(rows, in, columns);
}

inline void matmul_quantised(const MatmulArgs& a) {
  const WeightView w = a.strip();
  const auto* x = reinterpret_cast<const float*>(a.packed);
  if (a.columns == 1) {
    if (a.format == Format::int8) return multiply_quantised<Format::int8>(w, x, a.out, a.accumulate);
    if (a.format == Format::fp8) return multiply_quantised<Format::fp8>(w, x, a.out, a.accumulate);
    return multiply_quantised<Format::int4>(w, x, a.out, a.accumulate);
  }
  const Strip strip{.rows = a.rows,
                    .in = a.in,
                    .x = x,
                    .x_stride = round_up(a.in, 32),
                    .out = a.out,
                    .out_stride = a.out_stride,
                    .accumulate = a.accumulate};
  multiply_by_panels(strip, a.columns, a.scratch, [&](Index row, Index first, Index n, float* out) {
    decode_quantised(w, row, first, n, out);
  });
}

}  // namespace kernels::avx2
}  // namespace QWENLITE_ABI
}  // namespace qwenlite

#if defined(__clang__)
#pragma clang attribute pop
#else
#pragma GCC pop_options
#endif
