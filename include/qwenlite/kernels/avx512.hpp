// SPDX-License-Identifier: Apache-2.0
//
// AVX-512 kernels (F, BW, DQ, VL) in float32, except attention, which is in avx512_attention.hpp.
//
// A product's output is one chain of fused multiply-adds in sixteen lanes along `in` (lane l takes elements
// 16 b + l in ascending b), then one fixed tree over the lanes. Tiles of several rows by several columns run
// many chains at once to hide latency; no chain knows how many others there are, so its bits do not either.
#pragma once

#include <qwenlite/kernels/avx512_lanes.hpp>
#include <qwenlite/kernels/scalar.hpp>

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

// ------------------------------------------------------------------------------- matrix products

/// Asks for a cache line that will be needed soon; any address is allowed.
inline void prefetch(const void* p) {
  _mm_prefetch(static_cast<const char*>(p), _MM_HINT_T0);
}

/// Where a tile reads and writes: R rows of w times C columns of x.
struct Tile {
  const std::byte* w = nullptr;
  Index w_stride = 0;  ///< bytes between rows
  const float* x = nullptr;
  Index x_stride = 0;  ///< elements between columns; columns are zero-padded to a multiple of 16
  Index in = 0;
  float* out = nullptr;
  Index out_stride = 0;
  bool accumulate = false;
  const float* next_x = nullptr;  ///< with Ahead::columns: the columns that come after these
};

/// What a tile prefetches while it computes. Rows: the weights of the rows that follow, in as many streams as
/// the tile has rows, which one forward stream would not make the memory deliver. Columns: a share of the
/// activations of the columns that follow, when the rows are in cache already.
enum class Ahead { nothing, rows, columns };

/// The running sums of a tile: one vector for each row and column.
template <int R, int C>
struct Sums {
  __m512 at[static_cast<std::size_t>(C)][static_cast<std::size_t>(R)];
};

/// One step of sixteen elements along `in`.
template <class Load, int R, int C, bool Whole>
inline void tile_step(const Tile& t, Index i, __mmask16 lanes, Sums<R, C>& sum) {
  __m512 x[static_cast<std::size_t>(C)];
#pragma GCC unroll 16
  for (int c = 0; c < C; ++c) x[c] = _mm512_loadu_ps(t.x + c * t.x_stride + i);
#pragma GCC unroll 16
  for (int r = 0; r < R; ++r) {
    const std::byte* p = t.w + r * t.w_stride + i * Load::bytes;
    const __m512 w = Whole ? Load::all(p) : Load::some(p, lanes);
#pragma GCC unroll 16
    for (int c = 0; c < C; ++c) sum.at[c][r] = _mm512_fmadd_ps(w, x[c], sum.at[c][r]);
  }
}

template <int R>
inline void tile_store(const __m512* sum, float* out, bool accumulate) {
  if constexpr (R % 4 == 0) {
#pragma GCC unroll 16
    for (int r = 0; r < R; r += 4) {
      __m128 four = sum_lanes({sum[r], sum[r + 1], sum[r + 2], sum[r + 3]});
      if (accumulate) four = _mm_add_ps(_mm_loadu_ps(out + r), four);
      _mm_storeu_ps(out + r, four);
    }
  } else {
#pragma GCC unroll 16
    for (int r = 0; r < R; ++r) out[r] = accumulate ? out[r] + sum_lanes(sum[r]) : sum_lanes(sum[r]);
  }
}

template <class Load, int R, int C, Ahead ahead>
inline void tile(const Tile& t) {
  Sums<R, C> sum;
#pragma GCC unroll 16
  for (int c = 0; c < C; ++c) {
#pragma GCC unroll 16
    for (int r = 0; r < R; ++r) sum.at[c][r] = _mm512_setzero_ps();
  }
  Index i = 0;
  for (; i + 32 <= t.in; i += 32) {
    if constexpr (ahead == Ahead::rows) {
#pragma GCC unroll 16
      for (int r = 0; r < R; ++r) prefetch(t.w + (r + R) * t.w_stride + i * Load::bytes);
    } else if constexpr (ahead == Ahead::columns) {
      prefetch(t.next_x + i / 2);
    }
    tile_step<Load, R, C, true>(t, i, 0, sum);
    tile_step<Load, R, C, true>(t, i + 16, 0, sum);
  }
  for (; i + 16 <= t.in; i += 16) tile_step<Load, R, C, true>(t, i, 0, sum);
  if (i < t.in) tile_step<Load, R, C, false>(t, i, first_lanes(t.in - i), sum);
#pragma GCC unroll 16
  for (int c = 0; c < C; ++c) tile_store<R>(sum.at[c], t.out + c * t.out_stride, t.accumulate);
}

/// All rows by C columns: tiles of R rows, then single outputs.
template <class Load, int R, int C, Ahead ahead>
inline void tile_rows(Tile t, Index rows) {
  Index r = 0;
  for (; r + R <= rows; r += R) {
    tile<Load, R, C, ahead>(t);
    t.w += R * t.w_stride;
    t.out += R;
    if constexpr (ahead == Ahead::columns) t.next_x += t.in / 2;  // sixteen elements each 32 steps
  }
  for (; r < rows; ++r) {
    for (Index c = 0; c < C; ++c) {
      Tile one = t;
      one.x += c * t.x_stride;
      one.out += c * t.out_stride;
      tile<Load, 1, 1, Ahead::nothing>(one);
    }
    t.w += t.w_stride;
    ++t.out;
  }
}

/// All rows by 1 to 6 columns. Three and five are done in two parts: each shape of tile costs every user
/// compile time, and the strip's weights are in cache when they are read again.
template <class Load>
inline void tile_columns(Tile t, Index rows, Index columns) {
  if (columns == 6) return tile_rows<Load, 4, 6, Ahead::rows>(t, rows);
  const auto advance = [&t](Index done) {
    t.x += done * t.x_stride;
    t.out += done * t.out_stride;
  };
  if (columns >= 4) {
    tile_rows<Load, 4, 4, Ahead::rows>(t, rows);
    advance(4);
  } else if (columns >= 2) {
    tile_rows<Load, 8, 2, Ahead::rows>(t, rows);
    advance(2);
  }
  if (columns % 2 != 0) tile_rows<Load, 16, 1, Ahead::rows>(t, rows);
}

template <class Load>
inline void unpack_row(const std::byte* p, Index n, float* out) {
  Index i = 0;
  for (; i + 16 <= n; i += 16) _mm512_storeu_ps(out + i, Load::all(p + i * Load::bytes));
  if (i < n)
    _mm512_mask_storeu_ps(out + i, first_lanes(n - i), Load::some(p + i * Load::bytes, first_lanes(n - i)));
}

/// Up to here weights are decoded on the fly, above once per strip.
inline constexpr Index few_columns = 6;

inline Index matmul_scratch_bytes(Index rows, Index in, Index columns) {
  return columns > 1 ? rows * round_up(in, 32) * 4 : 0;
}

/// All columns with the weights as float32 rows, read where they lie or in a panel.
inline void multiply_f32(Tile t, Index rows, Index columns) {
  Index c = 0;
  for (; c + 6 <= columns; c += 6) {
    t.next_x = t.x + 6 * t.x_stride;
    tile_rows<LoadF32, 4, 6, Ahead::columns>(t, rows);
    t.x += 6 * t.x_stride;
    t.out += 6 * t.out_stride;
  }
  if (c < columns) tile_columns<LoadF32>(t, rows, columns - c);
}

/// Decodes the strip's rows into the panel and multiplies them.
template <class Load>
inline void multiply_panel(Tile t, const MatmulArgs& a) {
  auto* panel = reinterpret_cast<float*>(a.scratch);
  for (Index r = 0; r < a.rows; ++r)
    unpack_row<Load>(a.weights + r * a.row_bytes, a.in, panel + r * t.x_stride);
  t.w = a.scratch;
  t.w_stride = t.x_stride * 4;
  multiply_f32(t, a.rows, a.columns);
}

inline void matmul(const MatmulArgs& a) {
  const Tile t{.w = a.weights,
               .w_stride = a.row_bytes,
               .x = reinterpret_cast<const float*>(a.packed),
               .x_stride = round_up(a.in, 32),
               .in = a.in,
               .out = a.out,
               .out_stride = a.out_stride,
               .accumulate = a.accumulate};
  switch (a.format) {
    case Format::bf16:
      if (a.columns <= few_columns) return tile_columns<LoadBf16>(t, a.rows, a.columns);
      return multiply_panel<LoadBf16>(t, a);
    case Format::f16:
      if (a.columns == 1) return tile_rows<LoadF16, 16, 1, Ahead::rows>(t, a.rows);
      return multiply_panel<LoadF16>(t, a);
    case Format::f32: return multiply_f32(t, a.rows, a.columns);
  }
}

// ----------------------------------------------------------------------------------- elementwise

template <class Load>
inline void scale_by_weight(const float* x, float scale, VectorView weight, float* out) {
  for_lanes(weight.size, [&](Index i, __mmask16 m) {
    const __m512 normed = _mm512_mul_ps(_mm512_maskz_loadu_ps(m, x + i), _mm512_set1_ps(scale));
    const __m512 stored = Load::some(weight.data + i * Load::bytes, m);
    const __m512 w = _mm512_add_ps(stored, _mm512_set1_ps(weight.offset));
    _mm512_mask_storeu_ps(out + i, m, _mm512_mul_ps(normed, w));
  });
}

inline void rms_norm(const float* x, VectorView weight, float epsilon, float* out) {
  __m512 squares = _mm512_setzero_ps();
  for_lanes(weight.size, [&](Index i, __mmask16 m) {
    const __m512 v = _mm512_maskz_loadu_ps(m, x + i);
    squares = _mm512_fmadd_ps(v, v, squares);
  });
  const float mean = sum_lanes(squares) / static_cast<float>(weight.size);
  const float scale = 1.0F / __builtin_sqrtf(mean + epsilon);
  switch (weight.format) {
    case Format::bf16: return scale_by_weight<LoadBf16>(x, scale, weight, out);
    case Format::f16: return scale_by_weight<LoadF16>(x, scale, weight, out);
    case Format::f32: return scale_by_weight<LoadF32>(x, scale, weight, out);
  }
}

inline void pack(const PackArgs& a) {
  const Index stride = round_up(a.in, 32);
  for (Index t = a.first; t < a.last; ++t) {
    const float* x = a.x + t * a.x_stride;
    float* row = reinterpret_cast<float*>(a.out) + t * stride;
    if (a.norm_weight.data != nullptr) {
      rms_norm(x, a.norm_weight, a.epsilon, row);
    } else {
      unpack_row<LoadF32>(reinterpret_cast<const std::byte*>(x), a.in, row);
    }
    for (Index i = a.in; i < stride; ++i) row[i] = 0;
  }
}

inline void rope(float* x, Index rotary_dim, const float* cos, const float* sin) {
  float* y = x + rotary_dim / 2;
  for_lanes(rotary_dim / 2, [&](Index i, __mmask16 m) {
    const __m512 a = _mm512_maskz_loadu_ps(m, x + i);
    const __m512 b = _mm512_maskz_loadu_ps(m, y + i);
    const __m512 c = _mm512_maskz_loadu_ps(m, cos + i);
    const __m512 s = _mm512_maskz_loadu_ps(m, sin + i);
    _mm512_mask_storeu_ps(x + i, m, _mm512_fmsub_ps(a, c, _mm512_mul_ps(b, s)));
    _mm512_mask_storeu_ps(y + i, m, _mm512_fmadd_ps(b, c, _mm512_mul_ps(a, s)));
  });
}

inline void silu_mul(const float* gate, const float* up, float* out, Index n) {
  for_lanes(n, [&](Index i, __mmask16 m) {
    const __m512 g = _mm512_maskz_loadu_ps(m, gate + i);
    const __m512 u = _mm512_maskz_loadu_ps(m, up + i);
    const __m512 e = exp(_mm512_sub_ps(_mm512_setzero_ps(), g));
    const __m512 silu = _mm512_div_ps(g, _mm512_add_ps(_mm512_set1_ps(1.0F), e));
    _mm512_mask_storeu_ps(out + i, m, _mm512_mul_ps(silu, u));
  });
}

inline void sigmoid_mul(const float* gate, const float* x, float* out, Index n) {
  for_lanes(n, [&](Index i, __mmask16 m) {
    const __m512 e = exp(_mm512_sub_ps(_mm512_setzero_ps(), _mm512_maskz_loadu_ps(m, gate + i)));
    const __m512 below = _mm512_add_ps(_mm512_set1_ps(1.0F), e);
    _mm512_mask_storeu_ps(out + i, m, _mm512_div_ps(_mm512_maskz_loadu_ps(m, x + i), below));
  });
}

inline void decode_row(Format format, const std::byte* row, Index n, float* out) {
  switch (format) {
    case Format::bf16: return unpack_row<LoadBf16>(row, n, out);
    case Format::f16: return unpack_row<LoadF16>(row, n, out);
    case Format::f32: return unpack_row<LoadF32>(row, n, out);
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

#include <qwenlite/kernels/avx512_attention.hpp>
