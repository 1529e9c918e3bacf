// SPDX-License-Identifier: Apache-2.0
//
// Gated DeltaNet kernels on AVX2: convolution, unit keys and queries, the delta rule (formulas in delta.hpp).
// Every product, with the state, of keys and queries, with the chunk's values and of the state's update, is
// the same tile: an output is one chain of fused multiply-adds along the summed axis in ascending order,
// eight outputs a vector. Tiles of four rows by two vectors serve many rows, of one row of k and one of q by
// four vectors a single token; no chain knows its tile, so its bits do not depend on it.
#pragma once

#include <qwenlite/kernels/avx2_lanes.hpp>
#include <qwenlite/kernels/delta.hpp>

#if defined(__clang__)
#pragma clang attribute push(__attribute__((target("avx2,fma,f16c"))), apply_to = function)
#else
#pragma GCC push_options
#pragma GCC target("avx2,fma,f16c")
#endif

namespace qwenlite {
inline namespace QWENLITE_ABI {
namespace kernels::avx2 {

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
    // Inline, which clang must be told: n is then known but at the end.
    const auto convolve = [&](Index c, Index n) __attribute__((always_inline)) {
      __m256 sum = _mm256_setzero_ps();
#pragma GCC unroll 4
      for (Index j = 0; j < a.kernel; ++j) {
        sum = _mm256_fmadd_ps(load(a.taps + j * a.taps_stride + c, n), load(input[j] + c, n), sum);
      }
      const __m256 e = exp(_mm256_sub_ps(_mm256_setzero_ps(), sum));
      store(out + c, n, _mm256_div_ps(sum, _mm256_add_ps(_mm256_set1_ps(1.0F), e)));
    };
    for_lanes(a.channels, convolve);
  }
}

// ----------------------------------------------------------------------------------------- tiles

/// R rows of N vectors: the sums of a tile.
template <int R, std::size_t N>
struct Block {
  __m256 at[static_cast<std::size_t>(R)][N];
};

/// Where the columns of N vectors end: nowhere, or (of one vector) after `count`.
template <std::size_t N, bool Whole>
struct Lanes {
  static_assert(Whole || N == 1);
  Index count = 8;
};

template <std::size_t N, bool Whole>
inline void load_row(const float* from, const Lanes<N, Whole>& lanes, __m256 (&row)[N]) {
#pragma GCC unroll 8
  for (std::size_t n = 0; n < N; ++n)
    row[n] = Whole ? _mm256_loadu_ps(from + n * 8) : load(from, lanes.count);
}

template <std::size_t N, bool Whole>
inline void store_row(const __m256 (&row)[N], const Lanes<N, Whole>& lanes, float* to) {
#pragma GCC unroll 8
  for (std::size_t n = 0; n < N; ++n) {
    if constexpr (Whole) {
      _mm256_storeu_ps(to + n * 8, row[n]);
    } else {
      store(to, lanes.count, row[n]);
    }
  }
}

template <std::size_t N>
inline void multiply_row(float factor, __m256 (&row)[N]) {
#pragma GCC unroll 8
  for (std::size_t n = 0; n < N; ++n) row[n] = _mm256_mul_ps(_mm256_set1_ps(factor), row[n]);
}

/// sum += factor * row.
template <std::size_t N>
inline void add_multiple(float factor, const __m256 (&row)[N], __m256 (&sum)[N]) {
#pragma GCC unroll 8
  for (std::size_t n = 0; n < N; ++n) sum[n] = _mm256_fmadd_ps(_mm256_set1_ps(factor), row[n], sum[n]);
}

/// row = (what lies at `from`) - factor * row.
template <std::size_t N, bool Whole>
inline void subtract_from(const float* from, const Lanes<N, Whole>& lanes, float factor, __m256 (&row)[N]) {
  __m256 v[N];
  load_row(from, lanes, v);
#pragma GCC unroll 8
  for (std::size_t n = 0; n < N; ++n) row[n] = _mm256_fnmadd_ps(_mm256_set1_ps(factor), row[n], v[n]);
}

template <int R, std::size_t N>
[[nodiscard]] inline Block<R, N> zeros() {
  Block<R, N> block;
#pragma GCC unroll 8
  for (int r = 0; r < R; ++r) {
#pragma GCC unroll 8
    for (std::size_t n = 0; n < N; ++n) block.at[r][n] = _mm256_setzero_ps();
  }
  return block;
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
template <int R, std::size_t N, bool Whole>
[[gnu::always_inline]] inline void extend(const Factors& f, const Lanes<N, Whole>& lanes, Block<R, N>& sum) {
  const float* right = f.right;
  for (Index i = 0; i < f.inner; ++i, right += f.right_stride) {
    __m256 row[N];
    load_row(right, lanes, row);
#pragma GCC unroll 8
    for (int r = 0; r < R; ++r) add_multiple(f.left[r * f.left_stride + i], row, sum.at[r]);
  }
}

/// Calls f(column, lanes) for the columns from c on: tiles of N vectors of whole columns, then one vector at
/// a time.
template <std::size_t N, class F>
inline void for_columns(Index c, Index columns, const F& f) {
  constexpr Index width = static_cast<Index>(N) * 8;
  for (; c + width <= columns; c += width) f(c, Lanes<N, true>{});
  for (; c < columns; c += 8) f(c, Lanes<1, false>{smaller(columns - c, 8)});
}

// ------------------------------------------------------------------------------ keys and queries

/// out = x * (scale / length of x).
inline void scale_to_unit(const float* x, Index size, double scale, float* out) {
  __m256 squares = _mm256_setzero_ps();
  for_lanes(size, [&](Index i, Index n) {
    const __m256 v = load(x + i, n);
    squares = _mm256_fmadd_ps(v, v, squares);
  });
  const __m256 factor = _mm256_set1_ps(unit_factor(static_cast<double>(sum_lanes(squares)), scale));
  for_lanes(size, [&](Index i, Index n) { store(out + i, n, _mm256_mul_ps(load(x + i, n), factor)); });
}

/// left times right. Sums go in segments of 32, which are then added in ascending order: scores are sums of
/// terms of both signs, and shorter chains lose fewer digits.
template <int R, std::size_t N, bool Whole>
[[nodiscard]] inline Block<R, N> dot_products(const Factors& f, const Lanes<N, Whole>& lanes) {
  Block<R, N> total = zeros<R, N>();
  for (Index i = 0; i < f.inner; i += 32) {
    Block<R, N> sum = zeros<R, N>();
    const Index inner = f.inner - i < 32 ? f.inner - i : 32;
    extend({f.left + i, f.left_stride, f.right + i * f.right_stride, f.right_stride, inner}, lanes, sum);
#pragma GCC unroll 8
    for (int r = 0; r < R; ++r) {
#pragma GCC unroll 8
      for (std::size_t n = 0; n < N; ++n) total.at[r][n] = _mm256_add_ps(total.at[r][n], sum.at[r][n]);
    }
  }
  return total;
}

/// Scores of R rows, `row_step` apart (of k, of q, or a pair of both), with the chunk's first `keys` keys,
/// rounded up to whole vectors.
template <int R, std::size_t N>
inline void score(const DeltaKeysArgs& a, Index row, Index row_step, Index keys) {
  const Index end = smaller(round_up(keys, static_cast<Index>(N) * 8), chunk_rows);
  for (Index column = 0; column < end; column += static_cast<Index>(N) * 8) {
    const Lanes<N, true> lanes;
    const Factors f{a.unit + row * a.key_dim, row_step * a.key_dim, a.keys + column, chunk_rows, a.key_dim};
    const Block<R, N> sum = dot_products<R>(f, lanes);
#pragma GCC unroll 8
    for (int r = 0; r < R; ++r) {
      store_row(sum.at[r], lanes, a.scores + (row + r * row_step) * chunk_rows + column);
    }
  }
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
  for (; r + 4 <= a.rows; r += 4) {
    score<4, 2>(a, r, 1, a.first + r + 4);
    score<4, 2>(a, chunk_rows + r, 1, a.first + r + 4);
  }
  for (; r < a.rows; ++r) score<2, 4>(a, r, chunk_rows, a.first + r + 1);
}

// ----------------------------------------------------------------------------------------- rows

/// e^x for one number, with the bits it has in a vector.
[[nodiscard]] inline float exp_of(double x) {
  return _mm256_cvtss_f32(exp(_mm256_set1_ps(static_cast<float>(x))));
}

/// e^{minuend - g_j} for eight rows j.
[[nodiscard]] inline __m256 decays_from(double minuend, const double* g) {
  const __m256d top = _mm256_set1_pd(minuend);
  const __m128 low = _mm256_cvtpd_ps(_mm256_sub_pd(top, _mm256_loadu_pd(g)));
  const __m128 high = _mm256_cvtpd_ps(_mm256_sub_pd(top, _mm256_loadu_pd(g + 4)));
  return exp(_mm256_insertf128_ps(_mm256_castps128_ps256(low), high, 1));
}

/// Factors of v'_j in the sums of row i: -e^{g_i - g_j} (k_i . k_j) and e^{g_i - g_j} (q_i . k_j).
inline void weigh_scores(const DeltaRowsArgs& a) {
  const Index q_rows = chunk_rows * chunk_rows;
  for (Index r = 0; r < a.rows; ++r) {
    for (Index j = 0; j <= a.first + r; j += 8) {
      const Index at = r * chunk_rows + j;
      const __m256 weight = decays_from(a.decay[a.first + r], a.decay + j);
      const __m256 kk = _mm256_mul_ps(weight, _mm256_loadu_ps(a.scores + at));
      _mm256_storeu_ps(a.factors + at, _mm256_sub_ps(_mm256_setzero_ps(), kk));
      _mm256_storeu_ps(a.factors + q_rows + at,
                       _mm256_mul_ps(weight, _mm256_loadu_ps(a.scores + q_rows + at)));
    }
  }
}

/// One token: v' and o together, so that the state is read once.
template <std::size_t N, bool Whole>
inline void step_row(const DeltaRowsArgs& a, float whole, Index r, Index column,
                     const Lanes<N, Whole>& lanes) {
  const Index i = a.first + r;
  float* const values = a.values + column;
  Block<2, N> sum = zeros<2, N>();
  if (a.state != nullptr) {
    const Factors product{a.unit + r * a.key_dim, chunk_rows * a.key_dim, a.state + column, a.value_dim,
                          a.key_dim};
    extend(product, lanes, sum);
  }
  subtract_from(a.v + r * a.v_stride + column, lanes, whole, sum.at[0]);
  multiply_row(whole, sum.at[1]);
  const float* const factors = a.factors + r * chunk_rows;
  extend({factors, chunk_rows * chunk_rows, values, a.value_dim, i}, lanes, sum);
  multiply_row(a.beta[r], sum.at[0]);
  store_row(sum.at[0], lanes, values + i * a.value_dim);
  add_multiple(factors[chunk_rows * chunk_rows + i], sum.at[0], sum.at[1]);
  store_row(sum.at[1], lanes, a.out + r * a.out_stride + column);
}

/// v' of R rows from row r on: earlier rows by product, each other by substitution.
template <int R, std::size_t N, bool Whole>
inline void solve_rows(const DeltaRowsArgs& a, const float* whole, Index r, Index column,
                       const Lanes<N, Whole>& lanes) {
  const Index i = a.first + r;
  float* const values = a.values + column;
  const float* const factors = a.factors + r * chunk_rows;
  Block<R, N> sum = zeros<R, N>();
  if (a.state != nullptr) {
    extend({a.unit + r * a.key_dim, a.key_dim, a.state + column, a.value_dim, a.key_dim}, lanes, sum);
  }
#pragma GCC unroll 8
  for (int s = 0; s < R; ++s) {
    subtract_from(a.v + (r + s) * a.v_stride + column, lanes, whole[r + s], sum.at[s]);
  }
  extend({factors, chunk_rows, values, a.value_dim, i}, lanes, sum);
#pragma GCC unroll 8
  for (int s = 0; s < R; ++s) {
    multiply_row(a.beta[r + s], sum.at[s]);
    store_row(sum.at[s], lanes, values + (i + s) * a.value_dim);
#pragma GCC unroll 8
    for (int t = s + 1; t < R; ++t) add_multiple(factors[t * chunk_rows + i + s], sum.at[s], sum.at[t]);
  }
}

/// o of R rows whose v' are known.
template <int R, std::size_t N, bool Whole>
inline void read_rows(const DeltaRowsArgs& a, const float* whole, Index r, Index column,
                      const Lanes<N, Whole>& lanes) {
  const Index i = a.first + r;
  const float* const values = a.values + column;
  const float* const factors = a.factors + (chunk_rows + r) * chunk_rows;
  Block<R, N> sum = zeros<R, N>();
  if (a.state != nullptr) {
    const float* const q = a.unit + (chunk_rows + r) * a.key_dim;
    extend({q, a.key_dim, a.state + column, a.value_dim, a.key_dim}, lanes, sum);
  }
#pragma GCC unroll 8
  for (int s = 0; s < R; ++s) multiply_row(whole[r + s], sum.at[s]);
  extend({factors, chunk_rows, values, a.value_dim, i}, lanes, sum);
#pragma GCC unroll 8
  for (int s = 0; s < R; ++s) {
    __m256 v[N];
    load_row(values + (i + s) * a.value_dim, lanes, v);
#pragma GCC unroll 8
    for (int t = s; t < R; ++t) add_multiple(factors[t * chunk_rows + i + s], v, sum.at[t]);
  }
#pragma GCC unroll 8
  for (int s = 0; s < R; ++s) store_row(sum.at[s], lanes, a.out + (r + s) * a.out_stride + column);
}

inline void delta_rows(const DeltaRowsArgs& a) {
  extend_decay(a);
  weigh_scores(a);
  float whole[chunk_rows];  // e^{g_i} of the new rows
  for (Index r = 0; r < a.rows; ++r) whole[r] = exp_of(a.decay[a.first + r]);
  const Index tiled = a.rows / 4 * 4;
  const Index tiled_columns = a.value_dim / 16 * 16;
  for (Index column = 0; column < tiled_columns; column += 16) {
    for (Index r = 0; r < tiled; r += 4) {
      solve_rows<4>(a, whole, r, column, Lanes<2, true>{});
      read_rows<4>(a, whole, r, column, Lanes<2, true>{});
    }
  }
  for (Index r = 0; r < a.rows; ++r) {
    for_columns<4>(r < tiled ? tiled_columns : 0, a.value_dim,
                   [&](Index column, const auto& lanes) { step_row(a, whole[r], r, column, lanes); });
  }
}

// ---------------------------------------------------------------------------------- end of a chunk

/// Rows [d, d + R) of the next state.
template <int R, std::size_t N, bool Whole>
inline void close_rows(const DeltaCloseArgs& a, float whole, Index d, Index column,
                       const Lanes<N, Whole>& lanes) {
  const Index at = d * a.value_dim + column;
  Block<R, N> sum = zeros<R, N>();
  if (a.state != nullptr) {
#pragma GCC unroll 8
    for (int r = 0; r < R; ++r) {
      load_row(a.state + at + r * a.value_dim, lanes, sum.at[r]);
      multiply_row(whole, sum.at[r]);
    }
  }
  extend({a.keys + d * chunk_rows, chunk_rows, a.weighted + column, a.value_dim, chunk_rows}, lanes, sum);
#pragma GCC unroll 8
  for (int r = 0; r < R; ++r) store_row(sum.at[r], lanes, a.next + at + r * a.value_dim);
}

inline void delta_close(const DeltaCloseArgs& a) {
  const double last = a.decay[chunk_rows - 1];
  for (Index j = 0; j < chunk_rows; ++j) {
    const __m256 weight = _mm256_set1_ps(exp_of(last - a.decay[j]));
    for_lanes(a.value_dim, [&](Index e, Index n) {
      const Index at = j * a.value_dim + e;
      store(a.weighted + at, n, _mm256_mul_ps(weight, load(a.values + at, n)));
    });
  }
  const float whole = exp_of(last);
  const Index tiled = a.key_dim / 4 * 4;
  const Index tiled_columns = a.value_dim / 16 * 16;
  for (Index column = 0; column < tiled_columns; column += 16) {
    for (Index d = 0; d < tiled; d += 4) close_rows<4>(a, whole, d, column, Lanes<2, true>{});
  }
  for (Index d = 0; d < a.key_dim; ++d) {
    for_columns<2>(d < tiled ? tiled_columns : 0, a.value_dim,
                   [&](Index column, const auto& lanes) { close_rows<1>(a, whole, d, column, lanes); });
  }
}

}  // namespace kernels::avx2
}  // namespace QWENLITE_ABI
}  // namespace qwenlite

#if defined(__clang__)
#pragma clang attribute pop
#else
#pragma GCC pop_options
#endif
