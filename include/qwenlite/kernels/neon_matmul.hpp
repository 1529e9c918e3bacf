// SPDX-License-Identifier: Apache-2.0
//
// Matrix products on NEON. An output is one chain of fused multiply-adds in four lanes along `in` (lane l
// takes elements 4 b + l in ascending b), then one fixed tree over the lanes. Tiles of eight rows by up to
// three columns run many chains at once to hide latency; no chain knows how many others there are, so its
// bits do not either.
//
// Few columns read the weights where they lie and decode them on the way; many columns share a panel of
// rows decoded once, with the same values and so the same bits.
#pragma once

#include <qwenlite/kernels/neon_lanes.hpp>

namespace qwenlite {
inline namespace QWENLITE_ABI {
namespace kernels::neon {

inline constexpr Index tile_rows = 8;
inline constexpr Index direct_columns = 6;             ///< most columns that decode weights on the way
inline constexpr Index panel_bytes = Index{1} << 18U;  ///< of decoded rows: they stay in a second-level cache

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
};

/// The running sums of a tile.
template <int Columns>
struct Sums {
  float32x4_t at[static_cast<std::size_t>(Columns)][tile_rows];
};

/// Extends all chains of a tile by eight elements, or by the last n < 8.
template <class Load, int Columns>
[[gnu::always_inline]] inline void tile_step(const std::byte* const* w, const float* const* x, Index i,
                                             Index n, Sums<Columns>& sums) {
  float32x4_t columns[static_cast<std::size_t>(Columns)][2];
#pragma GCC unroll 8
  for (int c = 0; c < Columns; ++c) {
    columns[c][0] = vld1q_f32(x[c] + i);
    columns[c][1] = vld1q_f32(x[c] + i + 4);
  }
#pragma GCC unroll 8
  for (int r = 0; r < tile_rows; ++r) {
    float32x4_t weights[2];
    load_eight<Load>(w[r] + i * Load::bytes, n, weights);
#pragma GCC unroll 8
    for (int c = 0; c < Columns; ++c) {
      sums.at[c][r] = vfmaq_f32(sums.at[c][r], weights[0], columns[c][0]);
      sums.at[c][r] = vfmaq_f32(sums.at[c][r], weights[1], columns[c][1]);
    }
  }
}

/// Stores the first n of four neighbouring outputs of one column.
inline void store_outputs(float32x4_t sums, Index n, float* out, bool accumulate) {
  if (n <= 0) return;
  if (accumulate) sums = vaddq_f32(load(out, n), sums);
  store(out, smaller(n, 4), sums);
}

/// One tile. Where the strip has fewer rows left than the tile, its last row is computed again and dropped.
/// Rows one tile further on are prefetched if asked: a strip is read as several parallel streams.
template <class Load, int Columns, bool Prefetch>
inline void tile(const Strip& s, Index row, Index column) {
  const Index left = smaller(s.rows - row, tile_rows);
  const std::byte* w[tile_rows];
  const float* x[static_cast<std::size_t>(Columns)];
  Sums<Columns> sums;
#pragma GCC unroll 8
  for (int r = 0; r < tile_rows; ++r) w[r] = s.weights + (row + smaller(r, left - 1)) * s.row_bytes;
#pragma GCC unroll 8
  for (int c = 0; c < Columns; ++c) {
    x[c] = s.x + (column + c) * s.x_stride;
#pragma GCC unroll 8
    for (int r = 0; r < tile_rows; ++r) sums.at[c][r] = vdupq_n_f32(0);
  }
  Index i = 0;
  for (; i + 32 <= s.in; i += 32) {
    if constexpr (Prefetch) {
#pragma GCC unroll 8
      for (int r = 0; r < tile_rows; ++r) {
        __builtin_prefetch(w[r] + tile_rows * s.row_bytes + i * Load::bytes);
      }
    }
#pragma GCC unroll 4
    for (int part = 0; part < 32; part += 8) tile_step<Load>(w, x, i + part, 8, sums);
  }
  for (; i + 8 <= s.in; i += 8) tile_step<Load>(w, x, i, 8, sums);
  if (i < s.in) tile_step<Load>(w, x, i, s.in - i, sums);
#pragma GCC unroll 8
  for (int c = 0; c < Columns; ++c) {
    const auto& v = sums.at[c];
    float* const out = s.out + (column + c) * s.out_stride + row;
    store_outputs(sum_lanes(v[0], v[1], v[2], v[3]), left, out, s.accumulate);
    store_outputs(sum_lanes(v[4], v[5], v[6], v[7]), left - 4, out + 4, s.accumulate);
  }
}

template <class Load, int Columns, bool Prefetch>
inline void multiply_rows(const Strip& s, Index column) {
  for (Index row = 0; row < s.rows; row += tile_rows) tile<Load, Columns, Prefetch>(s, row, column);
}

/// All columns of a strip, three at a time: 8 x 3 chains and what they read fill the 32 registers. Four are
/// two pairs, since eight chains alone would wait for their own sums.
template <class Load, bool Prefetch>
inline void multiply(const Strip& s, Index columns) {
  Index c = 0;
  for (; columns - c > 4 || columns - c == 3; c += 3) multiply_rows<Load, 3, Prefetch>(s, c);
  for (; columns - c >= 2; c += 2) multiply_rows<Load, 2, Prefetch>(s, c);
  if (c < columns) multiply_rows<Load, 1, Prefetch>(s, c);
}

/// Few columns: a tile's rows at a time meet all columns, so that weights come from memory once.
template <class Load>
inline void multiply_directly(const Strip& s, Index columns) {
  for (Index row = 0; row < s.rows; row += tile_rows) {
    Strip part = s;
    part.weights = s.weights + row * s.row_bytes;
    part.rows = smaller(tile_rows, s.rows - row);
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

inline Index matmul_scratch_bytes(Index rows, Index in, Index columns) {
  if (columns <= 1) return 0;
  const Index row = panel_stride(in) * 4;
  const Index least = tile_rows * row;
  return smaller(round_up(rows, tile_rows) * row, least > panel_bytes ? least : panel_bytes);
}

/// Many columns: decodes as many rows as fit the panel, multiplies them by all columns, and goes on.
template <class Load>
inline void multiply_by_panels(const Strip& s, Index columns, float* panel) {
  const Index stride = panel_stride(s.in);
  const Index fitting = panel_bytes / (stride * 4) / tile_rows * tile_rows;
  const Index step = fitting < tile_rows ? tile_rows : fitting;
  for (Index row = 0; row < s.rows; row += step) {
    Strip part = s;
    part.rows = smaller(step, s.rows - row);
    for (Index r = 0; r < part.rows; ++r) {
      unpack_row<Load>(s.weights + (row + r) * s.row_bytes, s.in, panel + r * stride);
      for (Index i = s.in; i < round_up(s.in, 8); ++i) panel[r * stride + i] = 0;
    }
    part.weights = reinterpret_cast<const std::byte*>(panel);
    part.row_bytes = stride * 4;
    part.in = round_up(s.in, 8);
    part.out = s.out + row;
    multiply<LoadF32, false>(part, columns);
  }
}

template <class Load>
inline void multiply_stored(const Strip& s, Index columns, float* panel) {
  if (columns <= direct_columns) return multiply_directly<Load>(s, columns);
  multiply_by_panels<Load>(s, columns, panel);
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
  auto* panel = reinterpret_cast<float*>(a.scratch);
  switch (a.format) {
    case Format::bf16: return multiply_stored<LoadBf16>(strip, a.columns, panel);
    case Format::f16: return multiply_stored<LoadF16>(strip, a.columns, panel);
    case Format::f32: return multiply<LoadF32, false>(strip, a.columns);
    case Format::int8:
    case Format::int4:
    case Format::fp8: return;  // see matmul_quantised()
  }
}

}  // namespace kernels::neon
}  // namespace QWENLITE_ABI
}  // namespace qwenlite
