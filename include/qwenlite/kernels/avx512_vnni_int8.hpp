// SPDX-License-Identifier: Apache-2.0
//
// Products of int8 activations (int8_activations.hpp) with AVX-512's dot products of bytes. Thirty-two weight
// rows at a time are rearranged so that a vector holds four consecutive elements of sixteen rows; each then
// meets four elements of a column in all lanes, and an output keeps its lane to the end. Few columns
// rearrange a block at a time, in the first-level cache; more share a panel of all blocks.
#pragma once

#include <qwenlite/kernels/avx512_int8.hpp>
#include <qwenlite/kernels/avx512_matmul.hpp>

#if defined(__clang__)
#pragma clang attribute push(                                                               \
    __attribute__((target("avx512f,avx512bw,avx512dq,avx512vl,avx512vnni,avx2,fma,f16c"))), \
    apply_to = function)
#else
// GCC 12 warns inside its own 512-bit intrinsics (an "undefined" operand that is never read).
#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Wuninitialized"
#pragma GCC diagnostic ignored "-Wmaybe-uninitialized"
#pragma GCC push_options
#pragma GCC target("avx512f,avx512bw,avx512dq,avx512vl,avx512vnni,avx2,fma,f16c")
#endif

namespace qwenlite {
inline namespace QWENLITE_ABI {
namespace kernels::avx512_vnni {

inline constexpr Index panel_rows = 32;                             ///< rows rearranged together
inline constexpr Index panel_step = 64;                             ///< bytes: four elements of sixteen rows
inline constexpr Index panel_block = quantised_block * panel_rows;  ///< bytes of a block of all rows
inline constexpr Index tile_columns = 12;                           ///< most columns of a tile

/// Thirty-two weight rows; beyond the last row of a strip it is taken again.
struct Rows {
  const std::byte* at[panel_rows];

  Rows(const WeightView& w, Index first) {
    for (Index r = 0; r < panel_rows; ++r) at[r] = w.row(first + r < w.rows ? first + r : w.rows - 1);
  }
};

/// Sixteen rows of four words of 32 bits become four vectors of the rows' first, second, ... words.
struct FourWords {
  __m512i v[4];

  FourWords(const std::byte* const* rows, Index offset) {
    const auto word = [&](int row) {
      return _mm_loadu_si128(reinterpret_cast<const __m128i*>(rows[row] + offset));
    };
#pragma GCC unroll 4
    for (int i = 0; i < 4; ++i) {
      __m512i part = _mm512_castsi128_si512(word(i));
      part = _mm512_inserti32x4(part, word(4 + i), 1);
      part = _mm512_inserti32x4(part, word(8 + i), 2);
      v[i] = _mm512_inserti32x4(part, word(12 + i), 3);
    }
  }

  void transpose() {
    const __m512i a = _mm512_unpacklo_epi32(v[0], v[1]);
    const __m512i b = _mm512_unpackhi_epi32(v[0], v[1]);
    const __m512i c = _mm512_unpacklo_epi32(v[2], v[3]);
    const __m512i d = _mm512_unpackhi_epi32(v[2], v[3]);
    v[0] = _mm512_unpacklo_epi64(a, c);
    v[1] = _mm512_unpackhi_epi64(a, c);
    v[2] = _mm512_unpacklo_epi64(b, d);
    v[3] = _mm512_unpackhi_epi64(b, d);
  }
};

/// Rearranges a block of sixteen rows: 32 steps of four elements. Asks for the same block of rows `ahead`
/// bytes further on, a few lines at a time, so that memory and arithmetic work together.
inline void rearrange_int8(const std::byte* const* rows, Index block, Index ahead, std::byte* out) {
  for (Index i = 0; i < quantised_block; i += 16) {
#pragma GCC unroll 4
    for (Index j = 0; j < 4; ++j) {
      avx512::prefetch(rows[i / 8 + j / 2] + ahead + block * quantised_block + j % 2 * 64);
    }
    FourWords words(rows, block * quantised_block + i);
    words.transpose();
#pragma GCC unroll 4
    for (int j = 0; j < 4; ++j) _mm512_store_si512(out + i * 16 + j * panel_step, words.v[j]);
  }
}

/// Byte k of word l holds elements 32 k + l and 32 k + 16 + l. Gathering the same bytes of four words makes
/// words of consecutive elements.
inline void rearrange_int4(const std::byte* const* rows, Index block, Index ahead, std::byte* out) {
  const __m512i same_bytes =
      _mm512_broadcast_i32x4(_mm_setr_epi8(0, 4, 8, 12, 1, 5, 9, 13, 2, 6, 10, 14, 3, 7, 11, 15));
  const __m512i low = _mm512_set1_epi8(15);
  for (Index q = 0; q < 4; ++q) {
#pragma GCC unroll 4
    for (Index j = 0; j < 4; ++j) {
      avx512::prefetch(rows[4 * q + j] + ahead + block * (quantised_block / 2));
    }
    FourWords words(rows, block * (quantised_block / 2) + q * 16);
#pragma GCC unroll 4
    for (int i = 0; i < 4; ++i) words.v[i] = _mm512_shuffle_epi8(words.v[i], same_bytes);
    words.transpose();
#pragma GCC unroll 4
    for (int k = 0; k < 4; ++k) {
      std::byte* const to = out + (8 * k + q) * panel_step;
      _mm512_store_si512(to, _mm512_and_si512(words.v[k], low));
      _mm512_store_si512(to + 4 * panel_step, _mm512_and_si512(_mm512_srli_epi16(words.v[k], 4), low));
    }
  }
}

/// Rearranges a block of all rows.
inline void rearrange(const WeightView& w, const Rows& rows, Index block, std::byte* out) {
  const auto half = w.format == Format::int8 ? rearrange_int8 : rearrange_int4;
  const Index ahead = panel_rows * w.row_bytes();
  half(rows.at, block, ahead, out);
  half(rows.at + 16, block, ahead, out + panel_block / 2);
}

/// What the groups of thirty-two rows have: [groups][32] float32 scales, and [groups][32] 32-bit numbers
/// whose lower half is minus the zero point, for products of 16 bits.
struct GroupPlane {
  float* scales;
  std::int32_t* zeros;
  GroupsOfBlock groups;

  GroupPlane(const WeightView& w, std::byte* memory)
      : scales(reinterpret_cast<float*>(memory)),
        zeros(reinterpret_cast<std::int32_t*>(memory + bytes(w.cols) / 2)),
        groups(w.planes.group) {}
  static constexpr Index bytes(Index in) { return round_up(in, quantised_block) / 32 * panel_rows * 8; }

  void load(const WeightView& w, Index first) const {
    for (Index g = 0; g < ceil_div(w.cols, groups.group); g += 16) {
      for (Index half = 0; half < 2; ++half) load(w, first + 16 * half, g, half);
    }
  }

 private:
  /// Sixteen groups of sixteen rows; beyond the last group, where its block goes on, scales are zero.
  void load(const WeightView& w, Index first, Index g, Index half) const {
    const Index count = ceil_div(w.cols, groups.group);
    const __mmask16 m = avx512::first_lanes(count - g);
    alignas(64) float row_scales[16][16];
    alignas(64) std::int32_t row_zeros[16][16];
    for (Index r = 0; r < 16; ++r) {
      const Index at = (first + r < w.rows ? first + r : w.rows - 1) * count + g;
      _mm512_store_ps(row_scales[r], avx512::LoadF16::some(w.planes.scales + 2 * at, m));
      __m512i zero = _mm512_set1_epi32(middle_value(w.format));
      if (w.planes.zeros != nullptr) {
        zero = _mm512_cvtepu8_epi32(_mm_maskz_loadu_epi8(m, w.planes.zeros + at));
      }
      const __m512i minus = _mm512_sub_epi32(_mm512_setzero_si512(), zero);
      _mm512_store_si512(row_zeros[r], _mm512_and_si512(minus, _mm512_set1_epi32(0xFFFF)));
    }
    const Index padded = round_up(count, groups.count) - g;
    const Index here = padded < 16 ? padded : 16;
    transpose(reinterpret_cast<const std::byte*>(row_scales), scales + g * panel_rows + 16 * half, here);
    transpose(reinterpret_cast<const std::byte*>(row_zeros), zeros + g * panel_rows + 16 * half, here);
  }
  template <class Word>
  static void transpose(const std::byte* from, Word* to, Index count) {
    const std::byte* rows[16];
    for (Index r = 0; r < 16; ++r) rows[r] = from + 64 * r;
    for (Index g = 0; g < count; g += 4) {
      FourWords words(rows, 4 * g);
      words.transpose();
      for (Index j = 0; j < 4 && g + j < count; ++j) {
        _mm512_store_si512(to + (g + j) * panel_rows, words.v[j]);
      }
    }
  }
};

/// Blocks [first, last) of thirty-two rows and of columns.
struct Tile {
  const std::byte* panel;  ///< of the first block
  const GroupPlane* plane;
  Index first;
  Index last;
  const std::byte* x;  ///< first column
  Int8Column parts;
  float* totals;  ///< [columns][32]
};

/// Thirty-two bits in all lanes, from any address.
[[nodiscard]] inline __m512i broadcast(const std::byte* p) {
  std::int32_t word;
  std::memcpy(&word, p, 4);
  return _mm512_set1_epi32(word);
}

/// _mm512_dpbusd_epi32() in place: compilers copy its operands about, and run out of registers.
[[gnu::always_inline]] inline void add_products(__m512i& sum, __m512i weights, __m512i codes) {
  asm("vpdpbusd %2, %1, %0" : "+v"(sum) : "v"(weights), "v"(codes));
}

/// The sums of a group: thirty-two rows by C columns.
template <int C>
struct Sums {
  __m512i upper[static_cast<std::size_t>(C)];
  __m512i lower[static_cast<std::size_t>(C)];

  /// Minus the zero point times the sum of codes, which is the lower half of the word at `at` in a column.
  [[gnu::always_inline]] void start(const Tile& t, Index plane, Index at) {
    const __m512i upper_zeros = _mm512_load_si512(t.plane->zeros + plane);
    const __m512i lower_zeros = _mm512_load_si512(t.plane->zeros + plane + 16);
#pragma GCC unroll 12
    for (int c = 0; c < C; ++c) {
      const __m512i codes = broadcast(t.x + c * t.parts.bytes() + at);
      upper[c] = _mm512_madd_epi16(upper_zeros, codes);
      lower[c] = _mm512_madd_epi16(lower_zeros, codes);
    }
  }
  [[gnu::always_inline]] void clear() {
#pragma GCC unroll 12
    for (int c = 0; c < C; ++c) upper[c] = lower[c] = _mm512_setzero_si512();
  }
  [[gnu::always_inline]] void add(const Sums& other) {
#pragma GCC unroll 12
    for (int c = 0; c < C; ++c) {
      upper[c] = _mm512_add_epi32(upper[c], other.upper[c]);
      lower[c] = _mm512_add_epi32(lower[c], other.lower[c]);
    }
  }
  /// Four elements.
  [[gnu::always_inline]] void add(const std::byte* w, const std::byte* x, Index stride) {
    const __m512i upper_weights = _mm512_load_si512(w);
    const __m512i lower_weights = _mm512_load_si512(w + panel_block / 2);
#pragma GCC unroll 12
    for (int c = 0; c < C; ++c) {
      const __m512i codes = broadcast(x + c * stride);
      add_products(upper[c], upper_weights, codes);
      add_products(lower[c], lower_weights, codes);
    }
  }
  /// Extends the chains; the block's scale is at `at` in a column.
  [[gnu::always_inline]] void finish(const Tile& t, Index plane, Index at) const {
    const __m512 upper_scales = _mm512_load_ps(t.plane->scales + plane);
    const __m512 lower_scales = _mm512_load_ps(t.plane->scales + plane + 16);
#pragma GCC unroll 12
    for (int c = 0; c < C; ++c) {
      const __m512 scale = _mm512_castsi512_ps(broadcast(t.x + c * t.parts.bytes() + at));
      float* const total = t.totals + c * panel_rows;
      const __m512 above = _mm512_mul_ps(_mm512_cvtepi32_ps(upper[c]), upper_scales);
      const __m512 below = _mm512_mul_ps(_mm512_cvtepi32_ps(lower[c]), lower_scales);
      _mm512_store_ps(total, _mm512_fmadd_ps(above, scale, _mm512_load_ps(total)));
      _mm512_store_ps(total + 16, _mm512_fmadd_ps(below, scale, _mm512_load_ps(total + 16)));
    }
  }
};

/// Extends the chains of C columns.
template <int C>
inline void multiply(const Tile& t) {
  // One column has two sums: four of each, over steps in turn, hide the latency of a product.
  constexpr int chains = C == 1 ? 4 : 1;
  const Index stride = t.parts.bytes();
  const GroupsOfBlock& groups = t.plane->groups;
  const Index steps = groups.elements / 4;
  const std::byte* w = t.panel;
  for (Index b = t.first; b < t.last; ++b, w += panel_block / 2) {
    for (Index g = 0; g < groups.count; ++g) {
      const Index plane = groups.of(b, g) * panel_rows;
      const std::byte* x = t.x + b * quantised_block + g * groups.elements;
      Sums<C> sum[static_cast<std::size_t>(chains)];
      sum[0].start(t, plane, t.parts.sums() + b * 16 + 2 * (first_sum(groups.count) + g));
#pragma GCC unroll 4
      for (int i = 1; i < chains; ++i) sum[i].clear();
      const std::byte* const end = w + steps * panel_step;
      do {
#pragma GCC unroll 4
        for (int k = 0; k < 4; ++k) sum[k % chains].add(w + k * panel_step, x + 4 * k, stride);
        w += 4 * panel_step;
        x += 16;
      } while (w != end);
#pragma GCC unroll 4
      for (int i = 1; i < chains; ++i) sum[0].add(sum[i]);
      sum[0].finish(t, plane, t.parts.scales() + b * 4);
    }
  }
}

/// Up to twelve columns, in tiles of twelve, four and one: more shapes take longer to compile than they save.
inline void multiply(Tile t, Index columns) {
  while (columns > 0) {
    const Index n = columns >= 12 ? 12 : columns >= 4 ? 4 : 1;
    switch (n) {
      case 12: multiply<12>(t); break;
      case 4: multiply<4>(t); break;
      default: multiply<1>(t); break;
    }
    t.x += n * t.parts.bytes();
    t.totals += n * panel_rows;
    columns -= n;
  }
}

/// Totals of the rows from `row` on and of columns from `column` on go to their places.
inline void store_totals(const MatmulArgs& a, Index row, Index column, Index columns, const float* totals) {
  for (Index c = 0; c < columns; ++c) {
    for (Index half = 0; half < 2; ++half) {
      const Index first = row + 16 * half;
      if (first >= a.rows) break;
      const __mmask16 m = avx512::first_lanes(a.rows - first);
      float* const out = a.out + (column + c) * a.out_stride + first;
      __m512 total = _mm512_load_ps(totals + c * panel_rows + 16 * half);
      if (a.accumulate) total = _mm512_add_ps(_mm512_maskz_loadu_ps(m, out), total);
      _mm512_mask_storeu_ps(out, m, total);
    }
  }
}

inline Index int8_scratch_bytes(Index /*rows*/, Index in, Index columns) {
  const Index blocks = columns > tile_columns ? ceil_div(in, quantised_block) : 1;
  return GroupPlane::bytes(in) + blocks * panel_block;
}

inline void matmul_int8(const MatmulArgs& a) {
  const WeightView w = a.strip();
  const GroupPlane plane(w, a.scratch);
  std::byte* const panel = a.scratch + GroupPlane::bytes(a.in);
  const Int8Column parts(a.in);
  alignas(64) float totals[tile_columns * panel_rows];
  for (Index row = 0; row < a.rows; row += panel_rows) {
    const Rows rows(w, row);
    plane.load(w, row);
    Tile t{panel, &plane, 0, parts.blocks, a.packed, parts, totals};
    if (a.columns <= tile_columns) {
      std::memset(totals, 0, sizeof totals);
      for (Index b = 0; b < parts.blocks; ++b) {
        rearrange(w, rows, b, panel);
        t.first = b;
        t.last = b + 1;
        multiply(t, a.columns);
      }
      store_totals(a, row, 0, a.columns, totals);
      continue;
    }
    for (Index b = 0; b < parts.blocks; ++b) rearrange(w, rows, b, panel + b * panel_block);
    for (Index column = 0; column < a.columns; column += tile_columns) {
      const Index columns = a.columns - column < tile_columns ? a.columns - column : tile_columns;
      std::memset(totals, 0, sizeof totals);
      t.x = a.packed + column * parts.bytes();
      multiply(t, columns);
      store_totals(a, row, column, columns, totals);
    }
  }
}

}  // namespace kernels::avx512_vnni
}  // namespace QWENLITE_ABI
}  // namespace qwenlite

#if defined(__clang__)
#pragma clang attribute pop
#else
#pragma GCC pop_options
#pragma GCC diagnostic pop
#endif
