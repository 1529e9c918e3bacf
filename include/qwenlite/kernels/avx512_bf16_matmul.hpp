// SPDX-License-Identifier: Apache-2.0
//
// Matrix products of bf16 weights and activations rounded once to bf16, by vdpbf16ps: sixteen lanes, each
// adding two products to its sum. An output is one chain of these along `in`, thirty-two elements a step,
// then the tree of avx512::sum_lanes(); a tile of rows and columns runs many chains at once, and no chain
// knows how many others there are.
//
// Weights need no decoding. Few columns read them where they lie; many copy a strip's rows into a panel,
// whose rows begin at cache lines and do not compete for the same places of the caches.
//
// The instruction takes denormal numbers for zero and flushes denormal sums: differences below 1e-36.
#pragma once

#include <qwenlite/kernels/avx512_bf16_pack.hpp>

#if defined(__clang__)
#pragma clang attribute push(                                                               \
    __attribute__((target("avx512f,avx512bw,avx512dq,avx512vl,avx512bf16,avx2,fma,f16c"))), \
    apply_to = function)
#else
// GCC 12 warns inside its own 512-bit intrinsics (an "undefined" operand that is never read).
#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Wuninitialized"
#pragma GCC diagnostic ignored "-Wmaybe-uninitialized"
#pragma GCC push_options
#pragma GCC target("avx512f,avx512bw,avx512dq,avx512vl,avx512bf16,avx2,fma,f16c")
#endif

namespace qwenlite {
inline namespace QWENLITE_ABI {
namespace kernels::avx512_bf16 {

using avx512::Ahead;
using avx512::for_columns;
using avx512::tile_columns;

/// sum[l] + w[2 l + 1] x[2 l + 1] + w[2 l] x[2 l] for each lane l.
[[nodiscard]] inline __m512 add_products(__m512 sum, __m512i w, __m512i x) {
  return _mm512_dpbf16_ps(sum, reinterpret_cast<__m512bh>(w), reinterpret_cast<__m512bh>(x));
}

/// Where a tile reads and writes: R rows of w times C columns of x, both bf16.
struct Tile {
  const std::byte* w = nullptr;
  Index w_stride = 0;  ///< bytes between rows
  const std::byte* x = nullptr;
  Index x_stride = 0;  ///< bytes between columns; columns are zero-padded to a multiple of 32 elements
  Index in = 0;
  float* out = nullptr;
  Index out_stride = 0;
  bool accumulate = false;
  const float* scale = nullptr;  ///< by which the sums of each row are multiplied, or none
  Ahead ahead{};
};

/// Extends all chains by 32 elements, of which `mask` says which weights exist.
template <int R, int C, class Weights>
[[gnu::always_inline]] inline void extend_chains(const Tile& t, Index i, const Weights& weights,
                                                 avx512::Sums<R, C>& sum) {
  __m512i x[static_cast<std::size_t>(C)];
#pragma GCC unroll 16
  for (int c = 0; c < C; ++c) x[c] = _mm512_load_si512(t.x + c * t.x_stride + i * 2);
#pragma GCC unroll 16
  for (int r = 0; r < R; ++r) {
    const __m512i w = weights(t.w + r * t.w_stride + i * 2);
#pragma GCC unroll 16
    for (int c = 0; c < C; ++c) sum.at[c][r] = add_products(sum.at[c][r], w, x[c]);
  }
}

template <int R, int C>
inline void tile(const Tile& t) {
  avx512::Sums<R, C> sum;
  avx512::begin_sums(sum);
  Index i = 0;
  for (; i + 32 <= t.in; i += 32) {
    for (Index s = 0; s < t.ahead.streams; ++s) avx512::prefetch(t.ahead.from + s * t.ahead.stride + i * 2);
    extend_chains(
        t, i, [&](const std::byte* w) { return _mm512_loadu_si512(w); }, sum);
  }
  if (i < t.in) {
    const __mmask32 mask = (__mmask32{1} << static_cast<unsigned>(t.in - i)) - 1U;
    extend_chains(
        t, i, [&](const std::byte* w) { return _mm512_maskz_loadu_epi16(mask, w); }, sum);
  }
#pragma GCC unroll 16
  for (int c = 0; c < C; ++c) {
    avx512::tile_store<R>(sum.at[c], t.out + c * t.out_stride, t.accumulate, t.scale);
  }
}

/// All rows by C columns: tiles of R rows, then of one.
template <int R, int C>
inline void tile_rows(Tile t, Index rows) {
  Index r = 0;
  for (; r + R <= rows; r += R) {
    tile<R, C>(t);
    t.w += R * t.w_stride;
    t.out += R;
    if (t.scale != nullptr) t.scale += R;
    t.ahead.from += t.ahead.per_tile;
  }
  t.ahead.streams = 0;
  for (; r < rows; ++r) {
    tile<1, C>(t);
    t.w += t.w_stride;
    ++t.out;
    if (t.scale != nullptr) ++t.scale;
  }
}

/// All rows by 1 to 6 columns.
inline void multiply_columns(const Tile& t, Index rows, Index columns) {
  switch (columns) {
    case 1: return tile_rows<16, 1>(t, rows);
    case 2: return tile_rows<8, 2>(t, rows);
    case 3: return tile_rows<4, 3>(t, rows);
    case 4: return tile_rows<4, 4>(t, rows);
    case 5: return tile_rows<4, 5>(t, rows);
    default: return tile_rows<4, 6>(t, rows);
  }
}

[[nodiscard]] inline Tile from_column(Tile t, Index column) {
  t.x += column * t.x_stride;
  t.out += column * t.out_stride;
  return t;
}

/// One column, row after row: one forward stream, which the CPU's own prefetching follows. Eight steps at a
/// time are few enough instructions for the next rows' chains to begin while this one waits for its sums.
inline void multiply_row_by_row(const Tile& t, Index rows) {
  for (Index r = 0; r < rows; ++r) {
    const std::byte* const w = t.w + r * t.w_stride;
    const auto step = [&](Index i, __m512 sum) {
      return add_products(sum, _mm512_loadu_si512(w + i * 2), _mm512_load_si512(t.x + i * 2));
    };
    __m512 sum = _mm512_setzero_ps();
    Index i = 0;
    for (; i + 256 <= t.in; i += 256) {
#pragma GCC unroll 8
      for (Index j = 0; j < 256; j += 32) sum = step(i + j, sum);
    }
    for (; i + 32 <= t.in; i += 32) sum = step(i, sum);
    if (i < t.in) {
      const __mmask32 mask = (__mmask32{1} << static_cast<unsigned>(t.in - i)) - 1U;
      sum = add_products(sum, _mm512_maskz_loadu_epi16(mask, w + i * 2), _mm512_load_si512(t.x + i * 2));
    }
    avx512::tile_store<1>(&sum, t.out + r, t.accumulate);
  }
}

/// Few columns, one tile wide: weights stream past once, in one stream or in as many as the tile has rows
/// (see avx512_matmul.hpp).
inline void multiply_once(Tile t, Index rows, Index columns, bool one_stream = false) {
  if (one_stream && columns == 1) return multiply_row_by_row(t, rows);
  const Index step = avx512::rows_of_tile(columns);
  t.ahead = {t.w + step * t.w_stride, t.w_stride, step, step * t.w_stride};
  multiply_columns(t, rows, columns);
}

/// Sixteen rows at a time meet all columns. The tiles of the first two runs of columns ask for two of their
/// four rows each, one block further on.
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
      multiply_columns(from_column(part, column), left, n);
      ++run;
    });
  }
}

/// Bytes from one row of a panel to the next: whole cache lines, and one more.
[[nodiscard]] constexpr Index panel_stride(Index in) noexcept {
  return round_up(in, 32) * 2 + 64;
}

/// Many columns by the rows of a panel, each run of columns by all rows before the next.
inline void multiply_all(const Tile& t, Index rows, Index columns) {
  for_columns(columns, [&](Index column, Index n) { multiply_columns(from_column(t, column), rows, n); });
}

/// The same with a panel copied from where the weights lie.
inline void multiply_panel(Tile t, const MatmulArgs& a) {
  t.w = a.scratch;
  t.w_stride = panel_stride(a.in);
  for (Index r = 0; r < a.rows; ++r) {
    std::memcpy(a.scratch + r * t.w_stride, a.weights + r * a.row_bytes, static_cast<std::size_t>(a.in * 2));
  }
  multiply_all(t, a.rows, a.columns);
}

inline Index matmul_scratch_bytes(Index rows, Index in, Index columns) {
  const Index weaker = avx512::matmul_scratch_bytes(rows, in, columns);  // other weights, exact precision
  const Index own = columns > 1 ? rows * panel_stride(in) : 0;
  return own > weaker ? own : weaker;
}

inline void matmul(const MatmulArgs& a) {
  if (a.layout != PackLayout::rows_bf16) return avx512::matmul(a);
  const Tile t{.w = a.weights,
               .w_stride = a.row_bytes,
               .x = a.packed,
               .x_stride = packed_bytes(PackLayout::rows_bf16, 1, a.in),
               .in = a.in,
               .out = a.out,
               .out_stride = a.out_stride,
               .accumulate = a.accumulate};
  if (a.columns <= tile_columns) return multiply_once(t, a.rows, a.columns, a.one_stream);
  if (a.columns <= avx512::direct_columns) return multiply_directly(t, a.rows, a.columns);
  multiply_panel(t, a);
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
