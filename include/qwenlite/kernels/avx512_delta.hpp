// SPDX-License-Identifier: Apache-2.0
//
// Gated DeltaNet kernels on AVX-512: convolution, unit keys and queries, the delta rule (formulas in
// delta.hpp). Every product, with the state, of keys and queries, with the chunk's values and of the state's
// update, is the same tile: an output is one chain of fused multiply-adds along the summed axis in ascending
// order, sixteen outputs a vector. Tiles of eight rows by two vectors serve many rows, of one row of k and
// one of q by eight vectors a single token; no chain knows its tile, so its bits do not depend on it.
#pragma once

#include <qwenlite/kernels/avx512_lanes.hpp>
#include <qwenlite/kernels/delta.hpp>

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

// ---------------------------------------------------------------------------------- convolution

/// Later rows first: a row's inputs are it and earlier ones, which are then still as they came.
inline void conv1d(const Conv1dArgs& a) {
  const float* input[chunk_rows];  // by tap
  for (Index t = a.rows - 1; t >= 0; --t) {
    for (Index j = 0; j < a.kernel; ++j) {
      const Index from = t - a.kernel + 1 + j;
      input[j] = from < 0 ? a.history + (from + a.kernel - 1) * a.channels : a.x + from * a.stride;
    }
    float* const out = a.x + t * a.stride;
    const float* const ahead = a.x + (t < 12 ? 0 : t - 12) * a.stride;  // rows lie pages apart
    for_lanes(a.channels, [&](Index c, __mmask16 m) {
      prefetch_near(ahead + c);
      __m512 sum = _mm512_setzero_ps();
#pragma GCC unroll 4
      for (Index j = 0; j < a.kernel; ++j) {
        sum = _mm512_fmadd_ps(_mm512_maskz_loadu_ps(m, a.taps + j * a.taps_stride + c),
                              _mm512_maskz_loadu_ps(m, input[j] + c), sum);
      }
      const __m512 e = exp(_mm512_sub_ps(_mm512_setzero_ps(), sum));
      _mm512_mask_storeu_ps(out + c, m, _mm512_div_ps(sum, _mm512_add_ps(_mm512_set1_ps(1.0F), e)));
    });
  }
}

// ----------------------------------------------------------------------------------------- tiles

/// R rows of N vectors: the sums of a tile, its columns being those under `lanes`.
template <int R, std::size_t N>
struct Block {
  __m512 at[static_cast<std::size_t>(R)][N];
};

/// Which of N vectors' lanes are columns, when `left` columns are left.
template <std::size_t N>
struct Lanes {
  __mmask16 at[N];

  explicit Lanes(Index left) {
#pragma GCC unroll 16
    for (std::size_t n = 0; n < N; ++n) {
      const Index here = left - static_cast<Index>(n) * 16;
      at[n] = here > 0 ? first_lanes(here) : __mmask16{0};
    }
  }
};

template <int R, std::size_t N>
[[nodiscard]] inline Block<R, N> zeros() {
  Block<R, N> block;
#pragma GCC unroll 16
  for (int r = 0; r < R; ++r) {
#pragma GCC unroll 16
    for (std::size_t n = 0; n < N; ++n) block.at[r][n] = _mm512_setzero_ps();
  }
  return block;
}

template <std::size_t N>
inline void load_row(const float* from, const Lanes<N>& lanes, __m512 (&row)[N]) {
#pragma GCC unroll 16
  for (std::size_t n = 0; n < N; ++n) row[n] = _mm512_maskz_loadu_ps(lanes.at[n], from + n * 16);
}

template <std::size_t N>
inline void store_row(const __m512 (&row)[N], const Lanes<N>& lanes, float* to) {
#pragma GCC unroll 16
  for (std::size_t n = 0; n < N; ++n) _mm512_mask_storeu_ps(to + n * 16, lanes.at[n], row[n]);
}

template <std::size_t N>
inline void multiply_row(float factor, __m512 (&row)[N]) {
#pragma GCC unroll 16
  for (std::size_t n = 0; n < N; ++n) row[n] = _mm512_mul_ps(_mm512_set1_ps(factor), row[n]);
}

/// sum += factor * row.
template <std::size_t N>
inline void add_multiple(float factor, const __m512 (&row)[N], __m512 (&sum)[N]) {
#pragma GCC unroll 16
  for (std::size_t n = 0; n < N; ++n) sum[n] = _mm512_fmadd_ps(_mm512_set1_ps(factor), row[n], sum[n]);
}

/// row = (what lies at `from`) - factor * row.
template <std::size_t N>
inline void subtract_from(const float* from, const Lanes<N>& lanes, float factor, __m512 (&row)[N]) {
#pragma GCC unroll 16
  for (std::size_t n = 0; n < N; ++n) {
    const __m512 v = _mm512_maskz_loadu_ps(lanes.at[n], from + n * 16);
    row[n] = _mm512_fnmadd_ps(_mm512_set1_ps(factor), row[n], v);
  }
}

/// The two matrices of a product: left [R][inner], right [inner][columns].
struct Factors {
  const float* left;
  Index left_stride;
  const float* right;
  Index right_stride;
  Index inner;
};

/// sum[r] += sum_i left[r][i] * right[i], i ascending.
template <int R, std::size_t N>
[[gnu::always_inline]] inline void extend(const Factors& f, const Lanes<N>& lanes, Block<R, N>& sum) {
  const float* right = f.right;
  for (Index i = 0; i < f.inner; ++i, right += f.right_stride) {
    __m512 row[N];
    load_row(right, lanes, row);
#pragma GCC unroll 16
    for (int r = 0; r < R; ++r) add_multiple(f.left[r * f.left_stride + i], row, sum.at[r]);
  }
}

// ------------------------------------------------------------------------------ keys and queries

/// out = x * (scale / length of x).
inline void scale_to_unit(const float* x, Index size, double scale, float* out) {
  __m512 squares = _mm512_setzero_ps();
  for_lanes(size, [&](Index i, __mmask16 m) {
    const __m512 v = _mm512_maskz_loadu_ps(m, x + i);
    squares = _mm512_fmadd_ps(v, v, squares);
  });
  const __m512 factor = _mm512_set1_ps(unit_factor(static_cast<double>(sum_lanes(squares)), scale));
  for_lanes(size, [&](Index i, __mmask16 m) {
    _mm512_mask_storeu_ps(out + i, m, _mm512_mul_ps(_mm512_maskz_loadu_ps(m, x + i), factor));
  });
}

/// left times right. Sums go in segments of 32, which are then added in ascending order: scores are sums of
/// terms of both signs, and shorter chains lose fewer digits.
template <int R, std::size_t N>
[[nodiscard]] inline Block<R, N> dot_products(const Factors& f, const Lanes<N>& lanes) {
  Block<R, N> total = zeros<R, N>();
  for (Index i = 0; i < f.inner; i += 32) {
    Block<R, N> sum = zeros<R, N>();
    const Index inner = f.inner - i < 32 ? f.inner - i : 32;
    extend({f.left + i, f.left_stride, f.right + i * f.right_stride, f.right_stride, inner}, lanes, sum);
#pragma GCC unroll 16
    for (int r = 0; r < R; ++r) {
#pragma GCC unroll 16
      for (std::size_t n = 0; n < N; ++n) total.at[r][n] = _mm512_add_ps(total.at[r][n], sum.at[r][n]);
    }
  }
  return total;
}

/// Scores of R rows (of k, of q, or a pair of both) with N * 16 keys from `column` on, as far as there are.
template <int R, std::size_t N>
inline void score(const DeltaKeysArgs& a, Index row, Index row_step, Index column, Index end) {
  const Lanes<N> lanes(end - column);
  const Block<R, N> sum = dot_products<R>({.left = a.unit + row * a.key_dim,
                                           .left_stride = row_step * a.key_dim,
                                           .right = a.keys + column,
                                           .right_stride = chunk_rows,
                                           .inner = a.key_dim},
                                          lanes);
#pragma GCC unroll 16
  for (int r = 0; r < R; ++r)
    store_row(sum.at[r], lanes, a.scores + (row + r * row_step) * chunk_rows + column);
}

inline void delta_keys(const DeltaKeysArgs& a) {
  const double q_scale = 1.0 / __builtin_sqrt(static_cast<double>(a.key_dim));
  for (Index r = 0; r < a.rows; ++r) {
    scale_to_unit(a.k + r * a.stride, a.key_dim, 1.0, a.unit + r * a.key_dim);
    scale_to_unit(a.q + r * a.stride, a.key_dim, q_scale, a.unit + (chunk_rows + r) * a.key_dim);
  }
  for (Index d = 0; d < a.key_dim; ++d) {
    float* const column = a.keys + d * chunk_rows + a.first;
    for (Index r = 0; r < a.rows; ++r) column[r] = a.unit[r * a.key_dim + d];
  }
  Index r = 0;
  for (; r + 8 <= a.rows; r += 8) {
    const Index end = a.first + r + 8;
    for (Index column = 0; column < end; column += 32) {
      score<8, 2>(a, r, 1, column, end);
      score<8, 2>(a, chunk_rows + r, 1, column, end);
    }
  }
  for (; r < a.rows; ++r) score<2, 4>(a, r, chunk_rows, 0, a.first + r + 1);
}

// ----------------------------------------------------------------------------------------- rows

/// What e^{g} of differences needs: (float) (minuend - g_j) for sixteen rows j.
[[nodiscard]] inline __m512 decays_from(double minuend, const double* g) {
  const __m512d top = _mm512_set1_pd(minuend);
  const __m256 low = _mm512_cvtpd_ps(_mm512_sub_pd(top, _mm512_loadu_pd(g)));
  const __m256 high = _mm512_cvtpd_ps(_mm512_sub_pd(top, _mm512_loadu_pd(g + 8)));
  return exp(_mm512_insertf32x8(_mm512_castps256_ps512(low), high, 1));
}

/// e^x for one number, with the bits it has in a vector.
[[nodiscard]] inline float exp_of(double x) {
  return _mm512_cvtss_f32(exp(_mm512_set1_ps(static_cast<float>(x))));
}

/// factors of v'_j in the sums of row i: -e^{g_i - g_j} (k_i . k_j) and e^{g_i - g_j} (q_i . k_j).
inline void weigh_scores(const DeltaRowsArgs& a) {
  const Index q_rows = chunk_rows * chunk_rows;
  for (Index r = 0; r < a.rows; ++r) {
    for (Index j = 0; j <= a.first + r; j += 16) {
      const Index at = r * chunk_rows + j;
      const __m512 weight = decays_from(a.decay[a.first + r], a.decay + j);
      const __m512 kk = _mm512_mul_ps(weight, _mm512_loadu_ps(a.scores + at));
      const __m512 qk = _mm512_mul_ps(weight, _mm512_loadu_ps(a.scores + q_rows + at));
      _mm512_storeu_ps(a.factors + at, _mm512_sub_ps(_mm512_setzero_ps(), kk));
      _mm512_storeu_ps(a.factors + q_rows + at, qk);
    }
  }
}

/// One token: v' and o together, so that the state is read once.
template <std::size_t N>
inline void step_row(const DeltaRowsArgs& a, const float* whole, Index r, Index column) {
  const Lanes<N> lanes(a.value_dim - column);
  const Index i = a.first + r;
  float* const values = a.values + column;
  Block<2, N> sum = zeros<2, N>();
  if (a.state != nullptr) {
    const Factors product{a.unit + r * a.key_dim, chunk_rows * a.key_dim, a.state + column, a.value_dim,
                          a.key_dim};
    extend(product, lanes, sum);
  }
  subtract_from(a.v + r * a.v_stride + column, lanes, whole[r], sum.at[0]);
  multiply_row(whole[r], sum.at[1]);
  const float* const factors = a.factors + r * chunk_rows;
  extend({factors, chunk_rows * chunk_rows, values, a.value_dim, i}, lanes, sum);
  multiply_row(a.beta[r], sum.at[0]);
  store_row(sum.at[0], lanes, values + i * a.value_dim);
  add_multiple(factors[chunk_rows * chunk_rows + i], sum.at[0], sum.at[1]);
  store_row(sum.at[1], lanes, a.out + r * a.out_stride + column);
}

/// v' of R rows from row r on: earlier rows by product, each other by substitution.
template <int R, std::size_t N>
inline void solve_rows(const DeltaRowsArgs& a, const float* whole, Index r, Index column,
                       const Lanes<N>& lanes) {
  const Index i = a.first + r;
  float* const values = a.values + column;
  const float* const factors = a.factors + r * chunk_rows;
  Block<R, N> sum = zeros<R, N>();
  if (a.state != nullptr) {
    extend({a.unit + r * a.key_dim, a.key_dim, a.state + column, a.value_dim, a.key_dim}, lanes, sum);
  }
#pragma GCC unroll 16
  for (int s = 0; s < R; ++s) {
    subtract_from(a.v + (r + s) * a.v_stride + column, lanes, whole[r + s], sum.at[s]);
  }
  extend({factors, chunk_rows, values, a.value_dim, i}, lanes, sum);
#pragma GCC unroll 16
  for (int s = 0; s < R; ++s) {
    multiply_row(a.beta[r + s], sum.at[s]);
    store_row(sum.at[s], lanes, values + (i + s) * a.value_dim);
#pragma GCC unroll 16
    for (int t = s + 1; t < R; ++t) add_multiple(factors[t * chunk_rows + i + s], sum.at[s], sum.at[t]);
  }
}

/// o of R rows whose v' are known.
template <int R, std::size_t N>
inline void read_rows(const DeltaRowsArgs& a, const float* whole, Index r, Index column,
                      const Lanes<N>& lanes) {
  const Index i = a.first + r;
  const float* const values = a.values + column;
  const float* const factors = a.factors + (chunk_rows + r) * chunk_rows;
  Block<R, N> sum = zeros<R, N>();
  if (a.state != nullptr) {
    const float* const q = a.unit + (chunk_rows + r) * a.key_dim;
    extend({q, a.key_dim, a.state + column, a.value_dim, a.key_dim}, lanes, sum);
  }
#pragma GCC unroll 16
  for (int s = 0; s < R; ++s) multiply_row(whole[r + s], sum.at[s]);
  extend({factors, chunk_rows, values, a.value_dim, i}, lanes, sum);
#pragma GCC unroll 16
  for (int s = 0; s < R; ++s) {
    __m512 v[N];
    load_row(values + (i + s) * a.value_dim, lanes, v);
#pragma GCC unroll 16
    for (int t = s; t < R; ++t) add_multiple(factors[t * chunk_rows + i + s], v, sum.at[t]);
  }
#pragma GCC unroll 16
  for (int s = 0; s < R; ++s) store_row(sum.at[s], lanes, a.out + (r + s) * a.out_stride + column);
}

inline void delta_rows(const DeltaRowsArgs& a) {
  extend_decay(a);
  weigh_scores(a);
  float whole[chunk_rows];  // e^{g_i} of the new rows
  for (Index r = 0; r < a.rows; ++r) whole[r] = exp_of(a.decay[a.first + r]);
  const Index tiled = a.rows / 8 * 8;
  for (Index column = 0; column < a.value_dim && tiled > 0; column += 32) {
    const Lanes<2> lanes(a.value_dim - column);
    for (Index r = 0; r < tiled; r += 8) {
      solve_rows<8, 2>(a, whole, r, column, lanes);
      read_rows<8, 2>(a, whole, r, column, lanes);
    }
  }
  for (Index r = tiled; r < a.rows; ++r) {
    for (Index column = 0; column < a.value_dim; column += 128) step_row<8>(a, whole, r, column);
  }
}

// ---------------------------------------------------------------------------------- end of a chunk

/// Rows [d, d + R) of the next state.
template <int R, std::size_t N>
inline void close_rows(const DeltaCloseArgs& a, float whole, Index d, Index column) {
  const Lanes<N> lanes(a.value_dim - column);
  const Index at = d * a.value_dim + column;
  Block<R, N> sum = zeros<R, N>();
  if (a.state != nullptr) {
#pragma GCC unroll 16
    for (int r = 0; r < R; ++r) {
      load_row(a.state + at + r * a.value_dim, lanes, sum.at[r]);
      multiply_row(whole, sum.at[r]);
    }
  }
  extend({a.keys + d * chunk_rows, chunk_rows, a.weighted + column, a.value_dim, chunk_rows}, lanes, sum);
#pragma GCC unroll 16
  for (int r = 0; r < R; ++r) store_row(sum.at[r], lanes, a.next + at + r * a.value_dim);
}

inline void delta_close(const DeltaCloseArgs& a) {
  const double last = a.decay[chunk_rows - 1];
  for (Index j = 0; j < chunk_rows; ++j) {
    const __m512 weight = _mm512_set1_ps(exp_of(last - a.decay[j]));
    for_lanes(a.value_dim, [&](Index e, __mmask16 m) {
      const Index at = j * a.value_dim + e;
      _mm512_mask_storeu_ps(a.weighted + at, m,
                            _mm512_mul_ps(weight, _mm512_maskz_loadu_ps(m, a.values + at)));
    });
  }
  const float whole = exp_of(last);
  const Index tiled = a.key_dim / 8 * 8;
  for (Index column = 0; column < a.value_dim; column += 32) {
    for (Index d = 0; d < tiled; d += 8) close_rows<8, 2>(a, whole, d, column);
    for (Index d = tiled; d < a.key_dim; ++d) close_rows<1, 2>(a, whole, d, column);
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
