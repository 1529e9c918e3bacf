// SPDX-License-Identifier: Apache-2.0
//
// AMX tiles: our own assembly for the instructions (the compiler intrinsics of GCC 12 lose stores), the one
// configuration everything uses, and the product of up to 2 x 2 tiles that matrix products and attention
// share. Also the 16 x 16 transpose that brings data into and out of tile order.
//
// All eight tiles are always 16 rows of 64 bytes. Partial operands are copied and padded with zeros instead
// of being configured smaller, so an output's bits never depend on where it lies in a tile.
#pragma once

#include <immintrin.h>

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
namespace kernels::amx {

// ----------------------------------------------------------------------------------- instructions

/// The memory operand of ldtilecfg.
struct alignas(64) TileConfig {
  std::uint8_t palette = 0;
  std::uint8_t start_row = 0;
  std::uint8_t reserved[14] = {};
  std::uint16_t row_bytes[16] = {};
  std::uint8_t rows[16] = {};
};
static_assert(sizeof(TileConfig) == 64);

inline constexpr TileConfig full_tiles = [] {
  TileConfig config;
  config.palette = 1;
  for (int tile = 0; tile < 8; ++tile) {
    config.row_bytes[tile] = 64;
    config.rows[tile] = 16;
  }
  return config;
}();

/// Tiles are usable while one of these lives. Nothing else in the thread may rely on tile registers.
class TileScope {
 public:
  TileScope() { asm volatile("ldtilecfg %0" : : "m"(full_tiles)); }
  ~TileScope() { asm volatile("tilerelease"); }
  TileScope(const TileScope&) = delete;
  TileScope& operator=(const TileScope&) = delete;
};

template <int Tile>
inline void tile_zero() {
  asm volatile("tilezero %%tmm%c0" : : "i"(Tile));
}
template <int Tile>
inline void tile_load(const std::byte* first_row, Index stride) {
  asm volatile("tileloadd (%0,%1,1), %%tmm%c2" : : "r"(first_row), "r"(stride), "i"(Tile) : "memory");
}
template <int Tile>
inline void tile_store(float* first_row, Index stride) {
  asm volatile("tilestored %%tmm%c2, (%0,%1,1)" : : "r"(first_row), "r"(stride), "i"(Tile) : "memory");
}
/// Sum[m][n] += over pairs of Left[m][2k] Right[k][2n] and Left[m][2k+1] Right[k][2n+1].
template <int Sum, int Left, int Right>
inline void tile_multiply() {
  asm volatile("tdpbf16ps %%tmm%c2, %%tmm%c1, %%tmm%c0" : : "i"(Sum), "i"(Left), "i"(Right));
}

// ----------------------------------------------------------------------------------- vector helpers

using avx512::first_lanes;
using avx512::lanes_from;
using avx512_bf16::to_bf16;

/// Transposes 16 x 16 words of 32 bits.
inline void transpose(__m512i (&v)[16]) {
  __m512i pairs[16];
#pragma GCC unroll 16
  for (int i = 0; i < 16; i += 2) {
    pairs[i] = _mm512_unpacklo_epi32(v[i], v[i + 1]);
    pairs[i + 1] = _mm512_unpackhi_epi32(v[i], v[i + 1]);
  }
  __m512i quads[16];  // [4 g + j]: element 4 k + j of rows 4 g .. 4 g + 3, in 128-bit part k
#pragma GCC unroll 4
  for (int g = 0; g < 16; g += 4) {
    quads[g] = _mm512_unpacklo_epi64(pairs[g], pairs[g + 2]);
    quads[g + 1] = _mm512_unpackhi_epi64(pairs[g], pairs[g + 2]);
    quads[g + 2] = _mm512_unpacklo_epi64(pairs[g + 1], pairs[g + 3]);
    quads[g + 3] = _mm512_unpackhi_epi64(pairs[g + 1], pairs[g + 3]);
  }
#pragma GCC unroll 4
  for (int j = 0; j < 4; ++j) {
    const __m512i even_upper = _mm512_shuffle_i32x4(quads[j], quads[4 + j], 0x88);
    const __m512i odd_upper = _mm512_shuffle_i32x4(quads[j], quads[4 + j], 0xDD);
    const __m512i even_lower = _mm512_shuffle_i32x4(quads[8 + j], quads[12 + j], 0x88);
    const __m512i odd_lower = _mm512_shuffle_i32x4(quads[8 + j], quads[12 + j], 0xDD);
    v[j] = _mm512_shuffle_i32x4(even_upper, even_lower, 0x88);
    v[4 + j] = _mm512_shuffle_i32x4(odd_upper, odd_lower, 0x88);
    v[8 + j] = _mm512_shuffle_i32x4(even_upper, even_lower, 0xDD);
    v[12 + j] = _mm512_shuffle_i32x4(odd_upper, odd_lower, 0xDD);
  }
}

inline constexpr Index tile_bytes = 1024;

/// Copies `rows` (0..16) rows of up to 32 values of 16 bits into one tile; the rest of the tile is zero.
/// Nothing beyond the rows and values asked for is read.
inline void copy_tile(const std::byte* from, Index stride, Index rows, Index values, std::byte* to) {
  const __mmask32 mask = values >= 32 ? 0xFFFFFFFFU : (1U << static_cast<unsigned>(values)) - 1U;
  for (Index r = 0; r < 16; ++r) {
    const __m512i row = r < rows ? _mm512_maskz_loadu_epi16(mask, from + r * stride) : _mm512_setzero_si512();
    _mm512_store_si512(to + r * 64, row);
  }
}

// --------------------------------------------------------------------------------- product of tiles

/// Left operands of 16 rows: block b of 32 values along `in` at data + b * step. The last block may lie
/// elsewhere, padded; it does so for both operands of a product or for neither.
struct Left {
  const std::byte* data = nullptr;
  Index stride = 0;
  Index step = 0;
  const std::byte* tail = nullptr;  ///< last block as a tile of its own, or null
  Index ahead = 0;                  ///< prefetch rows this many bytes further on, unless 0
};

/// Right operands of 16 columns: part p of block b at data + b * step + p * 1024.
struct Right {
  const std::byte* data = nullptr;
  Index stride = 64;
  Index step = 0;
};

/// One block of 32 values: the parts of the right operand one after another into the same sums.
template <int Lefts, int Rights, int Parts>
inline void multiply_block(const std::byte* const* left, const Index* left_stride, const Right* right,
                           Index offset) {
  tile_load<4>(left[0], left_stride[0]);
  if constexpr (Lefts == 2) tile_load<5>(left[1], left_stride[1]);
  for (int part = 0; part < Parts; ++part) {
    const Index at = offset + part * tile_bytes;
    tile_load<6>(right[0].data + at, right[0].stride);
    tile_multiply<0, 4, 6>();
    if constexpr (Lefts == 2) tile_multiply<1, 5, 6>();
    if constexpr (Rights == 2) {
      tile_load<7>(right[1].data + at, right[1].stride);
      tile_multiply<2, 4, 7>();
      if constexpr (Lefts == 2) tile_multiply<3, 5, 7>();
    }
  }
}

/// sums[right][left] = [16 rows][16 columns] over all blocks along `in`: one chain per output, in order.
template <int Lefts, int Rights, int Parts>
inline void multiply_tiles(const Left* left, const Right* right, Index blocks, float* sums) {
  tile_zero<0>();
  tile_zero<1>();
  tile_zero<2>();
  tile_zero<3>();
  const Index whole = left[0].tail != nullptr ? blocks - 1 : blocks;
  const std::byte* data[2] = {left[0].data, left[Lefts - 1].data};
  const Index stride[2] = {left[0].stride, left[Lefts - 1].stride};
  for (Index b = 0; b < whole; ++b) {
    if (left[0].ahead != 0) {
      for (int i = 0; i < Lefts; ++i) {
        for (Index r = 0; r < 16; ++r) {
          _mm_prefetch(reinterpret_cast<const char*>(data[i] + r * stride[i] + left[i].ahead), _MM_HINT_T1);
        }
      }
    }
    multiply_block<Lefts, Rights, Parts>(data, stride, right, b * right[0].step);
    for (int i = 0; i < Lefts; ++i) data[i] += left[i].step;
  }
  if (whole < blocks) {
    const std::byte* tails[2] = {left[0].tail, left[Lefts - 1].tail};
    const Index dense[2] = {64, 64};
    multiply_block<Lefts, Rights, Parts>(tails, dense, right, whole * right[0].step);
  }
  tile_store<0>(sums, 64);
  if constexpr (Lefts == 2) tile_store<1>(sums + 256, 64);
  if constexpr (Rights == 2) tile_store<2>(sums + Lefts * 256, 64);
  if constexpr (Lefts == 2 && Rights == 2) tile_store<3>(sums + 768, 64);
}

}  // namespace kernels::amx
}  // namespace QWENLITE_ABI
}  // namespace qwenlite

#if defined(__clang__)
#pragma clang attribute pop
#else
#pragma GCC pop_options
#pragma GCC diagnostic pop
#endif
