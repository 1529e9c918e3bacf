// SPDX-License-Identifier: Apache-2.0
//
// Matrix products on AVX2 with FMA. An output is one chain of fused multiply-adds in eight lanes along `in`
// (lane l takes elements 8 b + l in ascending b), then one fixed tree over the lanes. Tiles of several rows
// by several columns run many chains at once to hide latency; no chain knows how many others there are, so
// its bits do not either.
//
// Few columns read the weights where they lie and decode them on the way; more share a panel of rows decoded
// once, with the same values and so the same bits. Many columns walk a long `in` in parts that the caches
// hold, and keep the lanes of unfinished chains in memory between the parts: again the same bits.
#pragma once

#include <qwenlite/kernels/avx2_lanes.hpp>

#if defined(__clang__)
#pragma clang attribute push(__attribute__((target("avx2,fma,f16c"))), apply_to = function)
#else
#pragma GCC push_options
#pragma GCC target("avx2,fma,f16c")
#endif

namespace qwenlite {
inline namespace QWENLITE_ABI {
namespace kernels::avx2 {

inline constexpr Index direct_columns = 32;  ///< most columns that decode weights on the way
inline constexpr Index whole_columns = 16;   ///< most columns for which rows are decoded from end to end
inline constexpr Index panel_bytes = Index{1} << 18U;  ///< of such rows: they stay in a second-level cache

/// Elements of `in` that more columns walk at a time: four rows and three columns of so many stay in a
/// first-level cache, and the rows of a strip in a second-level one.
inline constexpr Index depth = 1024;
/// Columns whose sums are kept between parts of `in`. A multiple of three, as multiply() likes it; 512 are
/// two such runs.
inline constexpr Index kept_columns = 258;

/// Sums that the tiles of a strip take from memory or leave there, when `in` is walked in parts.
struct Carry {
  float* sums = nullptr;  ///< [columns][rows rounded up to 8][8 lanes], in the order of tiles
  bool resume = false;    ///< begin with what is in memory instead of zero
  bool suspend = false;   ///< leave the sums in memory instead of finishing them
};

/// Rows [rows][in] and columns [columns][in] of one product, and where its outputs go.
struct Strip {
  const std::byte* weights = nullptr;
  Index row_bytes = 0;
  Index rows = 0;
  Index in = 0;
  const float* x = nullptr;
  Index x_stride = 0;  ///< elements; every column is zero from `in` to the next multiple of 8
  float* out = nullptr;
  Index out_stride = 0;
  bool accumulate = false;
  Index ahead = 0;  ///< bytes from a row to what is prefetched meanwhile; 0: the rows one tile further on
  Carry carry{};
};

/// The running sums of a tile.
template <int Rows, int Columns>
struct Sums {
  __m256 at[static_cast<std::size_t>(Columns)][static_cast<std::size_t>(Rows)];
};

/// Begins with the sums that memory keeps, or with zero.
template <int Rows, int Columns>
[[gnu::always_inline]] inline void begin_sums(const float* from, Sums<Rows, Columns>& sums) {
#pragma GCC unroll 8
  for (int c = 0; c < Columns; ++c) {
#pragma GCC unroll 8
    for (int r = 0; r < Rows; ++r) {
      sums.at[c][r] = from != nullptr ? _mm256_loadu_ps(from + (c * Rows + r) * 8) : _mm256_setzero_ps();
    }
  }
}

template <int Rows, int Columns>
[[gnu::always_inline]] inline void keep_sums(const Sums<Rows, Columns>& sums, float* to) {
#pragma GCC unroll 8
  for (int c = 0; c < Columns; ++c) {
#pragma GCC unroll 8
    for (int r = 0; r < Rows; ++r) _mm256_storeu_ps(to + (c * Rows + r) * 8, sums.at[c][r]);
  }
}

/// Extends all chains of a tile by eight elements, or by the last n < 8.
template <class Load, int Rows, int Columns>
[[gnu::always_inline]] inline void tile_step(const std::byte* const* w, const float* const* x, Index i,
                                             Index n, Sums<Rows, Columns>& sums) {
  // 4 x 3 need all registers, and clang would convert the next row's weights ahead.
  constexpr bool needs_order = Rows * Columns > 8 && Load::bytes < 4;
  __m256 columns[static_cast<std::size_t>(Columns)];
#pragma GCC unroll 8
  for (int c = 0; c < Columns; ++c) columns[c] = _mm256_loadu_ps(x[c] + i);
#pragma GCC unroll 8
  for (int r = 0; r < Rows; ++r) {
    const __m256 weights = load_elements<Load>(w[r] + i * Load::bytes, n);
#pragma GCC unroll 8
    for (int c = 0; c < Columns; ++c) {
      const __m256 extended = _mm256_fmadd_ps(weights, columns[c], sums.at[c][r]);
      sums.at[c][r] = needs_order ? in_order(extended) : extended;
    }
  }
}

/// Stores the first n of four neighbouring outputs of one column.
inline void store_outputs(__m128 sums, Index n, float* out, bool accumulate) {
  if (n >= 4) {
    _mm_storeu_ps(out, accumulate ? _mm_add_ps(_mm_loadu_ps(out), sums) : sums);
    return;
  }
  alignas(16) float values[4];
  _mm_store_ps(values, sums);
  for (Index i = 0; i < n; ++i) out[i] = accumulate ? out[i] + values[i] : values[i];
}

/// One tile. Where the strip has fewer rows left than the tile, its last row is computed again and dropped.
/// Rows further on are prefetched if asked: a strip is read as several parallel streams. It then carries no
/// sums; where it does, columns are prefetched.
template <class Load, int Rows, int Columns, bool Prefetch>
inline void tile(const Strip& s, Index row, Index column) {
  const Index left = smaller(s.rows - row, Rows);
  const std::byte* w[static_cast<std::size_t>(Rows)];
  const float* x[static_cast<std::size_t>(Columns)];
  Sums<Rows, Columns> sums;
#pragma GCC unroll 8
  for (int r = 0; r < Rows; ++r) w[r] = s.weights + (row + smaller(r, left - 1)) * s.row_bytes;
#pragma GCC unroll 8
  for (int c = 0; c < Columns; ++c) x[c] = s.x + (column + c) * s.x_stride;
  const Index place = (column * round_up(s.rows, 8) + row * Columns) * 8;  // of the tile's sums
  begin_sums(!Prefetch && s.carry.resume ? s.carry.sums + place : nullptr, sums);
  // One of the columns that the rows meet next: a long `in` would leave them in memory until then.
  const bool asks = !Prefetch && (s.carry.resume || s.carry.suspend) && row < Rows * Columns;
  const float* const next = asks ? x[0] + (Columns + row / Rows) * s.x_stride : nullptr;
  const Index ahead = s.ahead != 0 ? s.ahead : Rows * s.row_bytes;
  Index i = 0;
  for (; i + 32 <= s.in; i += 32) {
    if (next != nullptr) {
      prefetch(next + i);
      prefetch(next + i + 16);
    }
    if constexpr (Prefetch) {
#pragma GCC unroll 8
      for (int r = 0; r < Rows; ++r) {
        prefetch(w[r] + ahead + i * Load::bytes);
      }
    }
#pragma GCC unroll 4
    for (int part = 0; part < 32; part += 8) tile_step<Load>(w, x, i + part, 8, sums);
  }
  for (; i + 8 <= s.in; i += 8) tile_step<Load>(w, x, i, 8, sums);
  if (i < s.in) tile_step<Load>(w, x, i, s.in - i, sums);
  if (!Prefetch && s.carry.suspend) return keep_sums(sums, s.carry.sums + place);
#pragma GCC unroll 8
  for (int c = 0; c < Columns; ++c) {
#pragma GCC unroll 8
    for (int r = 0; r < Rows; r += 4) {
      const auto& v = sums.at[c];
      store_outputs(sum_lanes(v[r], v[r + 1], v[r + 2], v[r + 3]), left - r,
                    s.out + (column + c) * s.out_stride + row + r, s.accumulate);
    }
  }
}

template <class Load, int Rows, int Columns, bool Prefetch>
inline void tile_rows(const Strip& s, Index column) {
  for (Index row = 0; row < s.rows; row += Rows) tile<Load, Rows, Columns, Prefetch>(s, row, column);
}

/// All columns of a strip, three at a time: 4 x 3 chains fill the sixteen registers. Four are two pairs,
/// since a single column of four rows would wait for its own sums.
template <class Load, bool Prefetch>
inline void multiply(const Strip& s, Index columns) {
  Index c = 0;
  for (; columns - c > 4 || columns - c == 3; c += 3) tile_rows<Load, 4, 3, Prefetch>(s, c);
  for (; columns - c >= 2; c += 2) tile_rows<Load, 4, 2, Prefetch>(s, c);
  if (c < columns) tile_rows<Load, 8, 1, Prefetch>(s, c);
}

/// Few columns: eight rows at a time meet all columns, so that weights come from memory once.
template <class Load>
inline void multiply_directly(const Strip& s, Index columns) {
  for (Index row = 0; row < s.rows; row += 8) {
    Strip part = s;
    part.weights = s.weights + row * s.row_bytes;
    part.rows = smaller(8, s.rows - row);
    part.out = s.out + row;
    multiply<Load, true>(part, columns);
  }
}

template <class Load>
inline void unpack_row(const std::byte* p, Index n, float* out) {
  for_lanes(n,
            [&](Index i, Index run) { store(out + i, run, load_elements<Load>(p + i * Load::bytes, run)); });
}

/// Elements between the rows of a panel: not a multiple of 4096 bytes, so that its rows do not compete for
/// the same cache sets.
[[nodiscard]] inline Index panel_stride(Index in) {
  return round_up(in, 16) + 16;
}

/// What is decoded and multiplied at a time. Few columns wait for memory, which delivers best in long
/// streams: they take as many whole rows as the panel holds. More columns take all rows, in parts of `in`.
struct PanelShape {
  Index rows = 0;
  Index depth = 0;    ///< elements of `in`
  Index stride = 0;   ///< floats between rows
  Index columns = 0;  ///< that meet all parts before the next columns do

  PanelShape(Index strip_rows, Index in, Index all_columns)
      : rows(round_up(strip_rows, 8)),
        depth(all_columns <= whole_columns ? in : smaller(in, avx2::depth)),
        stride(panel_stride(depth)),
        columns(depth == in ? all_columns : smaller(all_columns, kept_columns)) {
    if (all_columns > whole_columns) return;
    const Index fitting = panel_bytes / (stride * 4) / 4 * 4;
    rows = smaller(round_up(strip_rows, 4), fitting < 4 ? 4 : fitting);
  }
};

/// Grows with each of its arguments: memory made for the largest product is enough for all.
inline Index matmul_scratch_bytes(Index rows, Index in, Index columns) {
  if (columns <= 1) return 0;
  const Index row = panel_stride(in) * 4;
  const Index least = 4 * row;
  const Index whole = smaller(round_up(rows, 4) * row, least > panel_bytes ? least : panel_bytes);
  if (columns <= whole_columns) return whole;
  const PanelShape shape(rows, in, columns);
  const Index kept = in > depth ? shape.columns * 8 : 0;  // floats for each row
  const Index parts = shape.rows * (shape.stride + kept) * 4;
  return whole > parts ? whole : parts;
}

/// Two columns or more: decodes a panel, extends the chains of all columns by it, and goes on.
/// decode(row, first, n, out) decodes elements [first, first + n) of a row.
template <class Decode>
inline void multiply_by_panels(const Strip& s, Index columns, std::byte* scratch, const Decode& decode) {
  const PanelShape shape(s.rows, s.in, columns);
  auto* const panel = reinterpret_cast<float*>(scratch);
  const auto multiply_part = [&](Index row, Index column, Index first) {
    const Index n = smaller(shape.depth, s.in - first);
    const Index padded = round_up(n, 8);
    Strip part = s;
    part.weights = scratch;
    part.row_bytes = shape.stride * 4;
    part.rows = smaller(shape.rows, s.rows - row);
    part.in = padded;
    part.x += column * s.x_stride + first;
    part.out += column * s.out_stride + row;
    part.carry = {panel + shape.rows * shape.stride, first > 0, first + n < s.in};
    for (Index r = 0; r < part.rows; ++r) {
      decode(row + r, first, n, panel + r * shape.stride);
      for (Index i = n; i < padded; ++i) panel[r * shape.stride + i] = 0;
    }
    multiply<LoadF32, false>(part, smaller(shape.columns, columns - column));
  };
  for (Index column = 0; column < columns; column += shape.columns) {
    for (Index row = 0; row < s.rows; row += shape.rows) {
      for (Index first = 0; first < s.in; first += shape.depth) multiply_part(row, column, first);
    }
  }
}

/// The same for weights of a format that is not quantised.
template <class Load>
inline void multiply_by_panels(const Strip& s, Index columns, std::byte* scratch) {
  multiply_by_panels(s, columns, scratch, [&](Index row, Index first, Index n, float* out) {
    unpack_row<Load>(s.weights + row * s.row_bytes + first * Load::bytes, n, out);
  });
}

inline void matmul(const MatmulArgs& a) {
  const Strip strip{.weights = a.weights,
                    .row_bytes = a.row_bytes,
                    .rows = a.rows,
                    .in = a.in,
                    .x = reinterpret_cast<const float*>(a.packed),
                    .x_stride = round_up(a.in, 32),
                    .out = a.out,
                    .out_stride = a.out_stride,
                    .accumulate = a.accumulate};
  switch (a.format) {
    case Format::bf16:
      if (a.columns <= direct_columns) return multiply_directly<LoadBf16>(strip, a.columns);
      return multiply_by_panels<LoadBf16>(strip, a.columns, a.scratch);
    case Format::f16:
      if (a.columns == 1) return tile_rows<LoadF16, 8, 1, true>(strip, 0);
      return multiply_by_panels<LoadF16>(strip, a.columns, a.scratch);
    case Format::f32:
      // Nothing is decoded here: the copy to a panel pays later.
      if (a.columns <= 4 * whole_columns || a.in <= depth) return multiply<LoadF32, false>(strip, a.columns);
      return multiply_by_panels<LoadF32>(strip, a.columns, a.scratch);
    case Format::int8:
    case Format::int4:
    case Format::fp8: return;  // see matmul_quantised()
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
