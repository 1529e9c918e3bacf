// SPDX-License-Identifier: Apache-2.0
//
// Products of int8 activations (int8_activations.hpp) on AVX2. Its products of bytes would saturate, so
// weights less their zero points and codes become 16 bits, whose products in pairs are exact. Sixteen weight
// rows at a time are rearranged so that a vector holds two consecutive elements of eight rows.
#pragma once

#include <qwenlite/kernels/avx2_lanes.hpp>
#include <qwenlite/kernels/scalar_int8.hpp>

#if defined(__clang__)
#pragma clang attribute push(__attribute__((target("avx2,fma,f16c"))), apply_to = function)
#else
#pragma GCC push_options
#pragma GCC target("avx2,fma,f16c")
#endif

namespace qwenlite {
inline namespace QWENLITE_ABI {
namespace kernels::avx2 {

inline constexpr Index int8_rows = 16;                                ///< rows rearranged together
inline constexpr Index int8_block = quantised_block * int8_rows * 2;  ///< bytes of a block of all rows
inline constexpr Index int8_columns = 4;                              ///< most columns of a tile

/// Sixteen elements of a row less their zero point, from element i (a multiple of 16) on.
[[nodiscard]] inline __m256i sixteen_weights(Format format, const std::byte* row, Index i, __m256i zero) {
  if (format == Format::int8) {
    const __m128i bytes = _mm_loadu_si128(reinterpret_cast<const __m128i*>(row + i));
    return _mm256_sub_epi16(_mm256_cvtepu8_epi16(bytes), zero);
  }
  const auto* words = reinterpret_cast<const __m256i*>(row + i / quantised_block * 64);
  const __m128i bits = _mm_cvtsi32_si128(static_cast<int>(i % quantised_block / 4));
  const __m256i low = _mm256_set1_epi32(15);
  const __m256i first = _mm256_and_si256(_mm256_srl_epi32(_mm256_loadu_si256(words), bits), low);
  const __m256i second = _mm256_and_si256(_mm256_srl_epi32(_mm256_loadu_si256(words + 1), bits), low);
  const __m256i both = _mm256_permute4x64_epi64(_mm256_packus_epi32(first, second), 0xD8);
  return _mm256_sub_epi16(both, zero);
}

/// Transposes 8 x 8 words of 32 bits and stores them 64 bytes apart.
inline void store_transposed(const __m256i (&v)[8], std::byte* out) {
  __m256i pairs[8];
  __m256i quads[8];
#pragma GCC unroll 4
  for (int i = 0; i < 8; i += 2) {
    pairs[i] = _mm256_unpacklo_epi32(v[i], v[i + 1]);
    pairs[i + 1] = _mm256_unpackhi_epi32(v[i], v[i + 1]);
  }
#pragma GCC unroll 2
  for (int i = 0; i < 8; i += 4) {
    quads[i] = _mm256_unpacklo_epi64(pairs[i], pairs[i + 2]);
    quads[i + 1] = _mm256_unpackhi_epi64(pairs[i], pairs[i + 2]);
    quads[i + 2] = _mm256_unpacklo_epi64(pairs[i + 1], pairs[i + 3]);
    quads[i + 3] = _mm256_unpackhi_epi64(pairs[i + 1], pairs[i + 3]);
  }
#pragma GCC unroll 4
  for (int i = 0; i < 4; ++i) {
    const __m256i low = _mm256_permute2x128_si256(quads[i], quads[i + 4], 0x20);
    const __m256i high = _mm256_permute2x128_si256(quads[i], quads[i + 4], 0x31);
    _mm256_store_si256(reinterpret_cast<__m256i*>(out + i * 64), low);
    _mm256_store_si256(reinterpret_cast<__m256i*>(out + (i + 4) * 64), high);
  }
}

/// Rearranges a block of sixteen rows from `first` on, the last row of the strip standing in for missing
/// ones: [64 pairs][16 rows][2] 16-bit weights less their zero points; and the scales of its groups:
/// [groups][16].
inline void rearrange(const WeightView& w, Index first, Index block, std::byte* out, float* scales) {
  const GroupsOfBlock groups(w.planes.group);
  const Index groups_of_row = ceil_div(w.cols, w.planes.group);
  const Index stride = w.row_bytes();
  for (Index half = 0; half < int8_rows; half += 8) {
    for (Index i = 0; i < quantised_block; i += 16) {
      const Index g = groups.of(block, i / groups.elements);
      __m256i v[8];
      for (Index r = 0; r < 8; ++r) {
        const Index row = first + half + r < w.rows ? first + half + r : w.rows - 1;
        const bool exists = g < groups_of_row;  // padding may go on where there are no more groups
        const Index at = row * groups_of_row + g;
        const int zero = w.planes.zeros != nullptr && exists ? std::to_integer<int>(w.planes.zeros[at])
                                                             : middle_value(w.format);
        v[r] = sixteen_weights(w.format, w.data + row * stride, block * quantised_block + i,
                               _mm256_set1_epi16(static_cast<short>(zero)));
        if (i % groups.elements != 0) continue;
        F16 scale;
        if (exists) std::memcpy(&scale, w.planes.scales + 2 * at, 2);
        scales[i / groups.elements * int8_rows + half + r] = exists ? static_cast<float>(scale) : 0.0F;
      }
      store_transposed(v, out + i / 2 * 64 + half * 4);
    }
  }
}

/// Blocks [first, last) of sixteen rows and of columns.
struct Int8Tile {
  const std::byte* panel = nullptr;  ///< of the first block
  const float* scales = nullptr;     ///< of the first block: [blocks][4][16]
  GroupsOfBlock groups;
  Index first = 0;
  Index last = 0;
  const std::byte* column = nullptr;    ///< the first one, packed
  const std::int16_t* codes = nullptr;  ///< of the first block: [columns][128 of each block]
  Index code_stride = 0;
  Int8Column parts;
  float* totals = nullptr;  ///< [columns][16]
};

/// Extends the chains of C columns.
template <int C>
inline void multiply_int8(const Int8Tile& t) {
  const std::byte* w = t.panel;
  const float* scales = t.scales;
  const Index stride = t.parts.bytes();
  for (Index b = t.first; b < t.last; ++b, scales += 4 * int8_rows) {
    for (Index g = 0; g < t.groups.count; ++g) {
      const std::int16_t* x = t.codes + (b - t.first) * quantised_block + g * t.groups.elements;
      __m256i sum[static_cast<std::size_t>(2 * C)];
#pragma GCC unroll 8
      for (int i = 0; i < 2 * C; ++i) sum[i] = _mm256_setzero_si256();
      for (Index s = 0; s < t.groups.elements; s += 2, w += 64) {
        const __m256i upper = _mm256_load_si256(reinterpret_cast<const __m256i*>(w));
        const __m256i lower = _mm256_load_si256(reinterpret_cast<const __m256i*>(w + 32));
#pragma GCC unroll 4
        for (int c = 0; c < C; ++c) {
          std::int32_t pair;
          std::memcpy(&pair, x + c * t.code_stride + s, 4);
          const __m256i codes = _mm256_set1_epi32(pair);
          sum[2 * c] = _mm256_add_epi32(sum[2 * c], _mm256_madd_epi16(upper, codes));
          sum[2 * c + 1] = _mm256_add_epi32(sum[2 * c + 1], _mm256_madd_epi16(lower, codes));
        }
      }
#pragma GCC unroll 8
      for (int i = 0; i < 2 * C; ++i) {
        float scale;
        std::memcpy(&scale, t.column + t.parts.scales() + i / 2 * stride + b * 4, 4);
        const __m256 row_scales = _mm256_loadu_ps(scales + g * int8_rows + i % 2 * 8);
        const __m256 scaled = _mm256_mul_ps(_mm256_cvtepi32_ps(sum[i]), row_scales);
        float* const total = t.totals + i * 8;
        _mm256_storeu_ps(total, _mm256_fmadd_ps(scaled, _mm256_set1_ps(scale), _mm256_loadu_ps(total)));
      }
    }
  }
}

/// Blocks [first, last) of a column's codes as 16 bits.
inline void widen_codes(const std::byte* column, Index first, Index last, std::int16_t* out) {
  for (Index i = first * quantised_block; i < last * quantised_block; i += 16, out += 16) {
    const __m128i bytes = _mm_loadu_si128(reinterpret_cast<const __m128i*>(column + i));
    _mm256_storeu_si256(reinterpret_cast<__m256i*>(out), _mm256_cvtepi8_epi16(bytes));
  }
}

/// Scratch of one product: [blocks] panel, [blocks][4][16] scales, [columns][blocks] codes of 16 bits.
struct Int8Scratch {
  Index blocks;

  Int8Scratch(Index in, Index columns) : blocks(columns > int8_columns ? ceil_div(in, quantised_block) : 1) {}
  [[nodiscard]] Index scales() const { return blocks * int8_block; }
  [[nodiscard]] Index codes() const { return scales() + blocks * 4 * int8_rows * 4; }
  [[nodiscard]] Index bytes() const { return codes() + int8_columns * blocks * quantised_block * 2; }
};

inline Index int8_scratch_bytes(Index /*rows*/, Index in, Index columns) {
  return Int8Scratch(in, columns).bytes();
}

/// Up to four columns of the tile.
inline void multiply_int8(Int8Tile t, Index columns, std::int16_t* codes) {
  for (Index c = 0; c < columns; ++c) {
    widen_codes(t.column + c * t.parts.bytes(), t.first, t.last, codes + c * t.code_stride);
  }
  t.codes = codes;
  if (columns == 4) return multiply_int8<4>(t);
  for (Index c = 0; c < columns; ++c) {
    multiply_int8<1>(t);
    t.column += t.parts.bytes();
    t.codes += t.code_stride;
    t.totals += int8_rows;
  }
}

inline void store_totals(const MatmulArgs& a, Index row, Index column, Index columns, const float* totals) {
  const Index rows = smaller(int8_rows, a.rows - row);
  for (Index c = 0; c < columns; ++c) {
    float* const out = a.out + (column + c) * a.out_stride + row;
    for (Index r = 0; r < rows; ++r) {
      out[r] = a.accumulate ? out[r] + totals[c * int8_rows + r] : totals[c * int8_rows + r];
    }
  }
}

inline void matmul_int8(const MatmulArgs& a) {
  const WeightView w = a.strip();
  const Int8Scratch memory(a.in, a.columns);
  auto* const scales = reinterpret_cast<float*>(a.scratch + memory.scales());
  auto* const codes = reinterpret_cast<std::int16_t*>(a.scratch + memory.codes());
  const Int8Column parts(a.in);
  Int8Tile t{.panel = a.scratch,
             .scales = scales,
             .groups = GroupsOfBlock(w.planes.group),
             .code_stride = memory.blocks * quantised_block,
             .parts = parts};
  for (Index row = 0; row < a.rows; row += int8_rows) {
    float totals[int8_columns * int8_rows];
    t.totals = totals;
    const bool few = a.columns <= int8_columns;  // then a block at a time
    for (Index b = 0; b < parts.blocks && !few; ++b) {
      rearrange(w, row, b, a.scratch + b * int8_block, scales + b * 4 * int8_rows);
    }
    for (Index column = 0; column < a.columns; column += int8_columns) {
      const Index columns = smaller(int8_columns, a.columns - column);
      std::memset(totals, 0, sizeof totals);
      t.column = a.packed + column * parts.bytes();
      for (Index b = 0; b < parts.blocks; b = t.last) {
        t.first = b;
        t.last = few ? b + 1 : parts.blocks;
        if (few) rearrange(w, row, b, a.scratch, scales);
        multiply_int8(t, columns, codes);
      }
      store_totals(a, row, column, columns, totals);
    }
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
