// SPDX-License-Identifier: Apache-2.0
//
// Matrix products on AVX-512 in float32. An output is one chain of fused multiply-adds in sixteen lanes along
// `in`, thirty-two elements a step, then one fixed tree over the lanes. Tiles of several rows by several
// columns run many chains at once to hide latency; no chain knows how many others there are, so its bits do
// not either.
//
// Of 32 bf16 weights one shift makes the even ones float32 and one mask the odd ones, so chains of bf16
// weights take a step's even elements first and the activations are packed in that order (split_f32).
// Up to 64 columns read the weights where they lie; more share a panel of rows decoded once.
#pragma once

#include <qwenlite/kernels/avx512_lanes.hpp>

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

// ---------------------------------------------------------------------------------- steps of 32

/// Thirty-two stored weights as two vectors, in the order in which chains take them; with n < 32 those beyond
/// the n-th are zero and not read.
struct StepBf16 {
  static constexpr Index bytes = 2;
  static __m512 even(__m512i raw) { return _mm512_castsi512_ps(_mm512_slli_epi32(raw, 16)); }
  static __m512 odd(__m512i raw) {
    return _mm512_castsi512_ps(_mm512_and_si512(raw, _mm512_set1_epi32(static_cast<int>(0xFFFF0000U))));
  }
  static __m512 first(const std::byte* p) { return even(_mm512_loadu_si512(p)); }
  static __m512 second(const std::byte* p) {
    asm("" : "+r"(p));  // load again: to keep what first() loaded takes a register for each row of a tile
    return odd(_mm512_loadu_si512(p));
  }
  static __m512i some(const std::byte* p, Index n) {
    return _mm512_maskz_loadu_epi16((__mmask32{1} << static_cast<unsigned>(n)) - 1U, p);
  }
  static __m512 first(const std::byte* p, Index n) { return even(some(p, n)); }
  static __m512 second(const std::byte* p, Index n) { return odd(some(p, n)); }
};

/// The same for formats whose elements keep their order.
template <class Load>
struct StepInOrder {
  static constexpr Index bytes = Load::bytes;
  static __m512 first(const std::byte* p) { return Load::all(p); }
  static __m512 second(const std::byte* p) { return Load::all(p + 16 * bytes); }
  static __m512 first(const std::byte* p, Index n) { return Load::some(p, first_lanes(n)); }
  static __m512 second(const std::byte* p, Index n) {
    return n > 16 ? Load::some(p + 16 * bytes, first_lanes(n - 16)) : _mm512_setzero_ps();
  }
};
using StepF16 = StepInOrder<LoadF16>;
using StepF32 = StepInOrder<LoadF32>;

/// Brings a row of activations, a multiple of 32, into the order of StepBf16.
inline void split_row(float* row, Index n) {
  const __m512i evens = _mm512_setr_epi32(0, 2, 4, 6, 8, 10, 12, 14, 16, 18, 20, 22, 24, 26, 28, 30);
  const __m512i odds = _mm512_setr_epi32(1, 3, 5, 7, 9, 11, 13, 15, 17, 19, 21, 23, 25, 27, 29, 31);
  for (Index i = 0; i < n; i += 32) {
    const __m512 low = _mm512_loadu_ps(row + i);
    const __m512 high = _mm512_loadu_ps(row + i + 16);
    _mm512_storeu_ps(row + i, _mm512_permutex2var_ps(low, evens, high));
    _mm512_storeu_ps(row + i + 16, _mm512_permutex2var_ps(low, odds, high));
  }
}

// ----------------------------------------------------------------------------------------- tiles

/// Cache lines that a tile asks for while it computes: in each of `streams` a line every 32 steps along `in`.
struct Ahead {
  const std::byte* from = nullptr;
  Index stride = 0;    ///< bytes between streams
  Index streams = 0;   ///< 0: none
  Index per_tile = 0;  ///< bytes by which the next tile's begin later
};

/// Where a tile reads and writes: R rows of w times C columns of x.
struct Tile {
  const std::byte* w = nullptr;
  Index w_stride = 0;  ///< bytes between rows
  const float* x = nullptr;
  Index x_stride = 0;  ///< elements between columns; columns are zero-padded to a multiple of 32
  Index in = 0;
  float* out = nullptr;
  Index out_stride = 0;
  bool accumulate = false;
  Ahead ahead{};
};

/// The running sums of a tile: one vector for each row and column.
template <int R, int C>
struct Sums {
  __m512 at[static_cast<std::size_t>(C)][static_cast<std::size_t>(R)];
};

template <int R, int C>
[[gnu::always_inline]] inline void begin_sums(Sums<R, C>& sum) {
#pragma GCC unroll 16
  for (int c = 0; c < C; ++c) {
#pragma GCC unroll 16
    for (int r = 0; r < R; ++r) sum.at[c][r] = _mm512_setzero_ps();
  }
}

/// Extends the chains of C columns by one vector of weights for each row.
template <int R, int C, class Weights>
[[gnu::always_inline]] inline void extend_chains(const Tile& t, Index i, const Weights& weights,
                                                 Sums<R, C>& sum) {
  __m512 x[static_cast<std::size_t>(C)];
#pragma GCC unroll 16
  for (int c = 0; c < C; ++c) x[c] = _mm512_loadu_ps(t.x + c * t.x_stride + i);
#pragma GCC unroll 16
  for (int r = 0; r < R; ++r) {
    const __m512 w = weights(t.w + r * t.w_stride);
#pragma GCC unroll 16
    for (int c = 0; c < C; ++c) sum.at[c][r] = _mm512_fmadd_ps(w, x[c], sum.at[c][r]);
  }
}

/// Between two steps: see in_order().
template <int R, int C>
[[gnu::always_inline]] inline void keep_order(Sums<R, C>& sum) {
#pragma GCC unroll 32
  for (int i = 0; i < R * C; ++i) sum.at[i / R][i % R] = in_order(sum.at[i / R][i % R]);
}

/// Finishes the sums of R rows of one column, each times its row's scale where there are scales.
template <int R>
[[gnu::always_inline]] inline void tile_store(const __m512* sum, float* out, bool accumulate,
                                              const float* scale = nullptr) {
  if constexpr (R % 4 == 0) {
#pragma GCC unroll 16
    for (int r = 0; r < R; r += 4) {
      __m128 four = sum_lanes({sum[r], sum[r + 1], sum[r + 2], sum[r + 3]});
      if (scale != nullptr) four = rounded(_mm_mul_ps(four, _mm_loadu_ps(scale + r)));
      if (accumulate) four = _mm_add_ps(_mm_loadu_ps(out + r), four);
      _mm_storeu_ps(out + r, four);
    }
  } else {
#pragma GCC unroll 16
    for (int r = 0; r < R; ++r) {
      float one = sum_lanes(sum[r]);
      if (scale != nullptr) one = rounded(one * scale[r]);
      out[r] = accumulate ? out[r] + one : one;
    }
  }
}

template <class Step, int R, int C>
inline void tile(const Tile& t) {
  constexpr Index bytes = Step::bytes;
  Sums<R, C> sum;
  begin_sums(sum);
  Index i = 0;
  for (; i + 32 <= t.in; i += 32) {
    for (Index s = 0; s < t.ahead.streams; ++s) prefetch(t.ahead.from + s * t.ahead.stride + i * 2);
    extend_chains(
        t, i, [&](const std::byte* row) { return Step::first(row + i * bytes); }, sum);
    if constexpr (C > 1) keep_order(sum);  // the vectors of a single column leave enough registers
    extend_chains(
        t, i + 16, [&](const std::byte* row) { return Step::second(row + i * bytes); }, sum);
  }
  if (i < t.in) {
    const Index n = t.in - i;
    extend_chains(
        t, i, [&](const std::byte* row) { return Step::first(row + i * bytes, n); }, sum);
    extend_chains(
        t, i + 16, [&](const std::byte* row) { return Step::second(row + i * bytes, n); }, sum);
  }
#pragma GCC unroll 16
  for (int c = 0; c < C; ++c) tile_store<R>(sum.at[c], t.out + c * t.out_stride, t.accumulate);
}

/// All rows by C columns: tiles of R rows, then single outputs.
template <class Step, int R, int C>
inline void tile_rows(Tile t, Index rows) {
  Index r = 0;
  for (; r + R <= rows; r += R) {
    tile<Step, R, C>(t);
    t.w += R * t.w_stride;
    t.out += R;
    t.ahead.from += t.ahead.per_tile;
  }
  t.ahead.streams = 0;
  for (; r < rows; ++r) {
    for (Index c = 0; c < C; ++c) {
      Tile one = t;
      one.x += c * t.x_stride;
      one.out += c * t.out_stride;
      tile<Step, 1, 1>(one);
    }
    t.w += t.w_stride;
    ++t.out;
  }
}

// ------------------------------------------------------------------------------ rows and columns

inline constexpr Index tile_columns = 6;     ///< most columns of a tile
inline constexpr Index direct_columns = 64;  ///< most columns for which bf16 weights are read where they lie

/// Rows of a tile of so many columns: eight chains at least, twenty-four at most.
[[nodiscard]] constexpr Index rows_of_tile(Index columns) {
  return columns == 1 ? 16 : columns == 2 ? 8 : 4;
}

/// All rows by 1 to 6 columns.
template <class Step>
inline void multiply_columns(const Tile& t, Index rows, Index columns) {
  switch (columns) {
    case 1: return tile_rows<Step, 16, 1>(t, rows);
    case 2: return tile_rows<Step, 8, 2>(t, rows);
    case 3: return tile_rows<Step, 4, 3>(t, rows);
    case 4: return tile_rows<Step, 4, 4>(t, rows);
    case 5: return tile_rows<Step, 4, 5>(t, rows);
    default: return tile_rows<Step, 4, 6>(t, rows);
  }
}

/// Calls f(column, columns) for runs of at most six columns, as equal as they can be.
template <class F>
inline void for_columns(Index columns, const F& f) {
  Index groups = (columns + tile_columns - 1) / tile_columns;
  for (Index c = 0; c < columns; --groups) {
    const Index n = (columns - c + groups - 1) / groups;
    f(c, n);
    c += n;
  }
}

[[nodiscard]] inline Tile from_column(Tile t, Index column) {
  t.x += column * t.x_stride;
  t.out += column * t.out_stride;
  return t;
}

/// One column, row after row: one forward stream, which the CPU's own prefetching follows. Several steps at a
/// time are few enough instructions for the next row's chain to begin while this one waits for its sums.
template <class Step>
inline void multiply_row_by_row(const Tile& t, Index rows) {
  for (Index r = 0; r < rows; ++r) {
    const std::byte* const w = t.w + r * t.w_stride;
    const auto step = [&](Index i, __m512 sum) {
      sum = _mm512_fmadd_ps(Step::first(w + i * Step::bytes), _mm512_loadu_ps(t.x + i), sum);
      return _mm512_fmadd_ps(Step::second(w + i * Step::bytes), _mm512_loadu_ps(t.x + i + 16), sum);
    };
    __m512 sum = _mm512_setzero_ps();
    Index i = 0;
    for (; i + 256 <= t.in; i += 256) {
#pragma GCC unroll 8
      for (Index j = 0; j < 256; j += 32) sum = step(i + j, sum);
    }
    for (; i + 32 <= t.in; i += 32) sum = step(i, sum);
    if (i < t.in) {
      const std::byte* const rest = w + i * Step::bytes;
      sum = _mm512_fmadd_ps(Step::first(rest, t.in - i), _mm512_loadu_ps(t.x + i), sum);
      sum = _mm512_fmadd_ps(Step::second(rest, t.in - i), _mm512_loadu_ps(t.x + i + 16), sum);
    }
    tile_store<1>(&sum, t.out + r, t.accumulate);
  }
}

/// Few columns, one tile wide: weights stream past once. The rows that follow are asked for in as many
/// streams as the tile has rows, where one forward stream would not make the memory deliver.
template <class Step>
inline void multiply_once(Tile t, Index rows, Index columns, bool one_stream = false) {
  if (one_stream && columns == 1) return multiply_row_by_row<Step>(t, rows);
  const Index step = rows_of_tile(columns);
  t.ahead = {t.w + step * t.w_stride, t.w_stride, step, step * t.w_stride};
  multiply_columns<Step>(t, rows, columns);
}

/// Up to 64 columns: sixteen rows at a time meet all columns while they are in the first-level cache. The
/// tiles of the first two runs of columns ask for two of their four rows each, one block further on.
inline void multiply_directly(const Tile& t, Index rows, Index columns) {
  constexpr Index block = 16;
  for (Index row = 0; row < rows; row += block) {
    Tile part = t;
    part.w += row * t.w_stride;
    part.out += row;
    const std::byte* const next = part.w + block * t.w_stride;
    const Index left = rows - row < block ? rows - row : block;
    Index run = 0;
    for_columns(columns, [&](Index column, Index n) {
      part.ahead = {next + 2 * run * t.w_stride, t.w_stride, run < 2 ? 2 : 0, 4 * t.w_stride};
      multiply_columns<StepBf16>(from_column(part, column), left, n);
      ++run;
    });
  }
}

/// All columns with float32 weights, each run of columns by all rows, whose tiles share out the asking for
/// the next run.
inline void multiply_f32(const Tile& t, Index rows, Index columns) {
  for_columns(columns, [&](Index column, Index n) {
    Tile part = from_column(t, column);
    const float* const next = part.x + n * t.x_stride;
    part.ahead = {reinterpret_cast<const std::byte*>(next), 0, column + n < columns ? 1 : 0, t.in * 2};
    multiply_columns<StepF32>(part, rows, n);
  });
}

/// Decodes the strip's rows into a panel and multiplies them.
template <class Step>
inline void multiply_panel(Tile t, const MatmulArgs& a) {
  auto* const panel = reinterpret_cast<float*>(a.scratch);
  const Index stride = t.x_stride + 16;
  for (Index r = 0; r < a.rows; ++r) {
    const std::byte* const w = a.weights + r * a.row_bytes;
    float* const row = panel + r * stride;
    Index i = 0;
    for (; i + 32 <= a.in; i += 32) {
      _mm512_store_ps(row + i, Step::first(w + i * Step::bytes));
      _mm512_store_ps(row + i + 16, Step::second(w + i * Step::bytes));
    }
    if (i < a.in) {
      _mm512_store_ps(row + i, Step::first(w + i * Step::bytes, a.in - i));
      _mm512_store_ps(row + i + 16, Step::second(w + i * Step::bytes, a.in - i));
    }
  }
  t.w = a.scratch;
  t.w_stride = stride * 4;
  t.in = t.x_stride;
  multiply_f32(t, a.rows, a.columns);
}

inline PackLayout layout(Format format, Precision precision) {
  if (takes_int8(format, precision)) return PackLayout::rows_int8;
  return format == Format::bf16 ? PackLayout::split_f32 : PackLayout::rows_f32;
}

inline Index matmul_scratch_bytes(Index rows, Index in, Index columns) {
  return columns > 1 ? rows * (round_up(in, 32) + 16) * 4 : 0;
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
      if (a.columns <= tile_columns) return multiply_once<StepBf16>(t, a.rows, a.columns, a.one_stream);
      if (a.columns <= direct_columns) return multiply_directly(t, a.rows, a.columns);
      return multiply_panel<StepBf16>(t, a);
    case Format::f16:
      if (a.columns == 1) return multiply_once<StepF16>(t, a.rows, 1, a.one_stream);
      return multiply_panel<StepF16>(t, a);
    case Format::f32: return multiply_f32(t, a.rows, a.columns);
    case Format::int8:
    case Format::int4:
    case Format::fp8: return;  // see matmul_quantised()
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
