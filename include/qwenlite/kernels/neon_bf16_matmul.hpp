// SPDX-License-Identifier: Apache-2.0
//
// Matrix products of bf16 weights and activations rounded once to bf16, on Arm CPUs that multiply bf16
// matrices of 2 x 4 by 4 x 2 in one instruction. An output is one chain of such products along `in` in steps
// of four, whatever tile it is part of, so its bits do not depend on the tile.
//
// Activations are packed as right operands, two columns side by side. Few columns zip rows of weights, as
// they lie in the file, into left operands on the way; many columns share a panel of rows zipped once.
//
// Clang 14 declares the intrinsics only under flags that a header cannot set: three lines of assembly do.
#pragma once

#include <qwenlite/kernels/neon.hpp>

#if defined(__clang__)
#pragma clang attribute push(__attribute__((target("bf16"))), apply_to = function)
#else
#pragma GCC push_options
#pragma GCC target("arch=armv8.2-a+bf16")
#endif

namespace qwenlite {
inline namespace QWENLITE_ABI {
namespace kernels::neon_bf16 {

using neon::panel_bytes;
using neon::smaller;
using neon::tile_rows;

/// sums [2][2] += left [2][4] * right, which holds [2 columns][4].
[[nodiscard]] inline float32x4_t multiply_2x2(float32x4_t sums, uint16x8_t left, uint16x8_t right) {
  asm("bfmmla %0.4s, %1.8h, %2.8h" : "+w"(sums) : "w"(left), "w"(right));
  return sums;
}

/// Eight values rounded to bf16, to nearest and even.
[[nodiscard]] inline uint16x8_t to_bf16(float32x4_t low, float32x4_t high) {
  uint16x8_t rounded;
  asm("bfcvtn %0.4h, %1.4s" : "=w"(rounded) : "w"(low));
  asm("bfcvtn2 %0.8h, %1.4s" : "+w"(rounded) : "w"(high));
  return rounded;
}

/// n (1..8) stored bf16, the rest zero.
[[nodiscard]] inline uint16x8_t load_raw(const std::byte* p, Index n) {
  if (n >= 8) return neon::load_bytes<uint16x8_t>(p);
  alignas(16) std::byte copy[16] = {};
  std::memcpy(copy, p, static_cast<std::size_t>(n * 2));
  return neon::load_bytes<uint16x8_t>(copy);
}

/// Elements 0..3 and 4..7 of two rows side by side: two operands.
[[nodiscard]] inline uint16x8_t zip_low(uint16x8_t a, uint16x8_t b) {
  return vreinterpretq_u16_u64(vzip1q_u64(vreinterpretq_u64_u16(a), vreinterpretq_u64_u16(b)));
}
[[nodiscard]] inline uint16x8_t zip_high(uint16x8_t a, uint16x8_t b) {
  return vreinterpretq_u16_u64(vzip2q_u64(vreinterpretq_u64_u16(a), vreinterpretq_u64_u16(b)));
}

// ---------------------------------------------------------------------------------------- packing

[[nodiscard]] inline Index pair_bytes(Index in) {
  return packed_bytes(PackLayout::pairs_bf16, 2, in);
}

/// Rounds one column into its half of a pair that starts at `pair`. value(i, n) gives four numbers of it, of
/// which the first n count.
template <class Value>
inline void pack_column(Index in, std::byte* pair, Index half, const Value& value) {
  std::byte* out = pair + half * 8;
  for (Index i = 0; i < round_up(in, 32); i += 8, out += 32) {
    const float32x4_t low = i < in ? value(i, smaller(in - i, 4)) : vdupq_n_f32(0);
    const float32x4_t high = i + 4 < in ? value(i + 4, smaller(in - i - 4, 4)) : vdupq_n_f32(0);
    const uint16x8_t rounded = to_bf16(low, high);
    std::memcpy(out, &rounded, 8);
    std::memcpy(out + 16, reinterpret_cast<const std::byte*>(&rounded) + 8, 8);
  }
}

template <class Load>
inline void pack_normed(const PackArgs& a, const float* x, std::byte* pair, Index half) {
  const float32x4_t scale = vdupq_n_f32(neon::norm_scale(x, a.in, a.epsilon));
  const float32x4_t offset = vdupq_n_f32(a.norm_weight.offset);
  pack_column(a.in, pair, half, [&](Index i, Index n) {
    const float32x4_t stored = neon::load_elements<Load>(a.norm_weight.data + i * Load::bytes, n);
    return vmulq_f32(vmulq_f32(neon::load(x + i, n), scale), vaddq_f32(stored, offset));
  });
}

inline void pack_plain(const float* x, Index in, std::byte* pair, Index half) {
  pack_column(in, pair, half, [&](Index i, Index n) { return neon::load(x + i, n); });
}

inline void pack(const PackArgs& a) {
  if (a.layout != PackLayout::pairs_bf16) return neon::pack(a);
  for (Index t = a.first; t < a.last; ++t) {
    const float* x = a.x + t * a.x_stride;
    std::byte* const pair = a.out + t / 2 * pair_bytes(a.in);
    if (a.norm_weight.data == nullptr) {
      pack_plain(x, a.in, pair, t % 2);
    } else if (a.norm_weight.format == Format::bf16) {
      pack_normed<neon::LoadBf16>(a, x, pair, t % 2);
    } else if (a.norm_weight.format == Format::f16) {
      pack_normed<neon::LoadF16>(a, x, pair, t % 2);
    } else {
      pack_normed<neon::LoadF32>(a, x, pair, t % 2);
    }
  }
  if (a.last % 2 != 0) {  // the second column of the last pair
    pack_column(a.in, a.out + a.last / 2 * pair_bytes(a.in), 1,
                [](Index /*i*/, Index /*n*/) { return vdupq_n_f32(0); });
  }
}

// --------------------------------------------------------------------------------------- products

inline constexpr Index tile_columns = 8;                ///< most in a tile: with 8 rows 16 sums of 2 x 2
inline constexpr Index panel_step = tile_rows * 8 * 2;  ///< bytes of eight elements of a tile's rows

/// Left operands of a tile's rows: [elements 0..3, 4..7 of a step][pairs of rows].
struct Left {
  uint16x8_t at[2][4];
};

/// Eight rows as they lie in the file; where fewer are left, the last again.
struct StoredRows {
  const std::byte* row[tile_rows];
  Index ahead;  ///< from a row to the one a tile further on

  StoredRows(const std::byte* first, Index row_bytes, Index left) : ahead(tile_rows * row_bytes) {
#pragma GCC unroll 8
    for (Index r = 0; r < tile_rows; ++r) row[r] = first + smaller(r, left - 1) * row_bytes;
  }
  void prefetch(Index i) const {
#pragma GCC unroll 8
    for (Index r = 0; r < tile_rows; ++r) __builtin_prefetch(row[r] + ahead + i * 2);
  }
  void load(Index i, Index n, Left& left) const {
#pragma GCC unroll 4
    for (int r = 0; r < 4; ++r) {
      const uint16x8_t even = load_raw(row[2 * r] + i * 2, n);
      const uint16x8_t odd = load_raw(row[2 * r + 1] + i * 2, n);
      left.at[0][r] = zip_low(even, odd);
      left.at[1][r] = zip_high(even, odd);
    }
  }
};

/// Eight rows zipped before: a panel of [in/8][2][4] operands.
struct ZippedRows {
  const std::byte* panel;

  void prefetch(Index /*i*/) const {}
  void load(Index i, Index /*n*/, Left& left) const {
    const std::byte* p = panel + i / 8 * panel_step;
#pragma GCC unroll 2
    for (int half = 0; half < 2; ++half) {
#pragma GCC unroll 4
      for (int r = 0; r < 4; ++r) left.at[half][r] = neon::load_bytes<uint16x8_t>(p + (half * 4 + r) * 16);
    }
  }
};

/// Extends all chains of a tile by eight elements, or by the last n < 8.
template <int Pairs, class Rows>
[[gnu::always_inline]] inline void tile_step(const Rows& rows, const std::byte* const* x, Index i, Index n,
                                             float32x4_t (*sums)[4]) {
  Left left;
  rows.load(i, n, left);
#pragma GCC unroll 4
  for (int p = 0; p < Pairs; ++p) {
#pragma GCC unroll 2
    for (int half = 0; half < 2; ++half) {
      const auto right = neon::load_bytes<uint16x8_t>(x[p] + i * 4 + half * 16);
#pragma GCC unroll 4
      for (int r = 0; r < 4; ++r) sums[p][r] = multiply_2x2(sums[p][r], left.at[half][r], right);
    }
  }
}

/// Writes the sums of one pair of columns: `left` rows from `row` on, one column if it is the last.
inline void store_pair(const MatmulArgs& a, const float32x4_t (&sums)[4], Index row, Index column) {
  const Index left = a.rows - row;
  float* out = a.out + column * a.out_stride + row;
  neon::store_outputs(vuzp1q_f32(sums[0], sums[1]), left, out, a.accumulate);
  neon::store_outputs(vuzp1q_f32(sums[2], sums[3]), left - 4, out + 4, a.accumulate);
  if (column + 1 == a.columns) return;
  out += a.out_stride;
  neon::store_outputs(vuzp2q_f32(sums[0], sums[1]), left, out, a.accumulate);
  neon::store_outputs(vuzp2q_f32(sums[2], sums[3]), left - 4, out + 4, a.accumulate);
}

/// One tile: eight rows from `row` on by pairs of columns from `column` on.
template <int Pairs, class Rows>
inline void tile(const MatmulArgs& a, const Rows& rows, Index row, Index column) {
  const std::byte* x[static_cast<std::size_t>(Pairs)];
  float32x4_t sums[static_cast<std::size_t>(Pairs)][4];
#pragma GCC unroll 4
  for (int p = 0; p < Pairs; ++p) {
    x[p] = a.packed + (column / 2 + p) * pair_bytes(a.in);
#pragma GCC unroll 4
    for (int r = 0; r < 4; ++r) sums[p][r] = vdupq_n_f32(0);
  }
  Index i = 0;
  for (; i + 32 <= a.in; i += 32) {
    rows.prefetch(i);
#pragma GCC unroll 4
    for (int part = 0; part < 32; part += 8) tile_step<Pairs>(rows, x, i + part, 8, sums);
  }
  for (; i < a.in; i += 8) tile_step<Pairs>(rows, x, i, a.in - i, sums);
#pragma GCC unroll 4
  for (int p = 0; p < Pairs; ++p) store_pair(a, sums[p], row, column + 2 * p);
}

/// Eight rows by the columns of one tile.
template <class Rows>
inline void multiply_rows(const MatmulArgs& a, const Rows& rows, Index row, Index column) {
  switch (ceil_div(smaller(a.columns - column, tile_columns), 2)) {
    case 1: return tile<1>(a, rows, row, column);
    case 2: return tile<2>(a, rows, row, column);
    case 3: return tile<3>(a, rows, row, column);
    default: return tile<4>(a, rows, row, column);
  }
}

[[nodiscard]] inline StoredRows rows_from(const MatmulArgs& a, Index row) {
  return {a.weights + row * a.row_bytes, a.row_bytes, smaller(a.rows - row, tile_rows)};
}

/// Zips eight rows into a panel.
inline void zip_rows(const StoredRows& rows, Index in, std::byte* panel) {
  for (Index i = 0; i < in; i += 8, panel += panel_step) {
    Left left;
    rows.load(i, in - i, left);
    std::memcpy(panel, &left, sizeof left);
  }
}

/// Bytes of eight zipped rows.
[[nodiscard]] inline Index zipped_bytes(Index in) {
  return ceil_div(in, 8) * panel_step;
}

/// Many columns: zips as many rows as fit the panel, multiplies them by all columns, and goes on.
inline void multiply_by_panels(const MatmulArgs& a) {
  const Index group = zipped_bytes(a.in);
  const Index fitting = panel_bytes / group * tile_rows;
  const Index step = fitting < tile_rows ? tile_rows : fitting;
  for (Index first = 0; first < a.rows; first += step) {
    const Index end = smaller(first + step, a.rows);
    std::byte* panel = a.scratch;
    for (Index row = first; row < end; row += tile_rows, panel += group) {
      zip_rows(rows_from(a, row), a.in, panel);
    }
    for (Index column = 0; column < a.columns; column += tile_columns) {
      panel = a.scratch;
      for (Index row = first; row < end; row += tile_rows, panel += group) {
        multiply_rows(a, ZippedRows{panel}, row, column);
      }
    }
  }
}

inline Index matmul_scratch_bytes(Index rows, Index in, Index columns) {
  const Index weaker = neon::matmul_scratch_bytes(rows, in, columns);  // other weights, exact precision
  if (columns <= tile_columns) return weaker;
  const Index group = zipped_bytes(in);
  const Index most = group > panel_bytes ? group : panel_bytes;
  const Index own = smaller(ceil_div(rows, tile_rows) * group, most);
  return own > weaker ? own : weaker;
}

inline void matmul(const MatmulArgs& a) {
  if (a.layout != PackLayout::pairs_bf16) return neon::matmul(a);
  if (a.columns > tile_columns) return multiply_by_panels(a);
  for (Index row = 0; row < a.rows; row += tile_rows) multiply_rows(a, rows_from(a, row), row, 0);
}

}  // namespace kernels::neon_bf16
}  // namespace QWENLITE_ABI
}  // namespace qwenlite

#if defined(__clang__)
#pragma clang attribute pop
#else
#pragma GCC pop_options
#endif
