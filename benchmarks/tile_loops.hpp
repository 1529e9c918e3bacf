// SPDX-License-Identifier: Apache-2.0
//
// What AMX tiles give: 2 x 2 tiles multiplied from registers (the peak), with every operand from the
// first-level cache, and in a plain kernel whose weights stream from memory while 512 columns of activations
// stay in the second-level cache (the fed rate, the roof over prefill). Operands are ordinary numbers: on
// zeros tiles run faster.
#pragma once

#include <qwenlite/kernels/table.hpp>

#if defined(__x86_64__)

#include <qwenlite/kernels/amx_tiles.hpp>

#if defined(__clang__)
#pragma clang attribute push(                                                               \
    __attribute__((target("avx512f,avx512bw,avx512dq,avx512vl,avx512bf16,avx2,fma,f16c"))), \
    apply_to = function)
#else
#pragma GCC push_options
#pragma GCC target("avx512f,avx512bw,avx512dq,avx512vl,avx512bf16,avx2,fma,f16c")
#endif

namespace bench {

inline constexpr double tile_multiply_flop = 16.0 * 16 * 32 * 2;

/// Four multiplications per round, operands in registers throughout. `operands`: four tiles.
inline void tiles_from_registers(qwenlite::Index rounds, const std::byte* operands, float* sums) {
  namespace amx = qwenlite::kernels::amx;
  const amx::TileScope scope;
  amx::tile_zero<0>();
  amx::tile_zero<1>();
  amx::tile_zero<2>();
  amx::tile_zero<3>();
  amx::tile_load<4>(operands, 64);
  amx::tile_load<5>(operands + 1024, 64);
  amx::tile_load<6>(operands + 2048, 64);
  amx::tile_load<7>(operands + 3072, 64);
  for (qwenlite::Index i = 0; i < rounds; ++i) {
    amx::tile_multiply<0, 4, 6>();
    amx::tile_multiply<1, 5, 6>();
    amx::tile_multiply<2, 4, 7>();
    amx::tile_multiply<3, 5, 7>();
  }
  amx::tile_store<0>(sums, 64);
}

/// The same with the four operands loaded in every round, from `operands`: sixteen tiles, 16 KiB.
inline void tiles_from_l1(qwenlite::Index rounds, const std::byte* operands, float* sums) {
  namespace amx = qwenlite::kernels::amx;
  const amx::TileScope scope;
  amx::tile_zero<0>();
  amx::tile_zero<1>();
  amx::tile_zero<2>();
  amx::tile_zero<3>();
  for (qwenlite::Index i = 0; i < rounds; ++i) {
    const std::byte* p = operands + i % 4 * 4096;
    amx::tile_load<4>(p, 64);
    amx::tile_load<6>(p + 1024, 64);
    amx::tile_multiply<0, 4, 6>();
    amx::tile_load<5>(p + 2048, 64);
    amx::tile_multiply<1, 5, 6>();
    amx::tile_load<7>(p + 3072, 64);
    amx::tile_multiply<2, 4, 7>();
    amx::tile_multiply<3, 5, 7>();
  }
  amx::tile_store<0>(sums, 64);
}

/// Sizes of the fed kernel: 32 rows of weights at a time, [rows, 1024], times [1024, 512].
inline constexpr qwenlite::Index fed_in = 1024;
inline constexpr qwenlite::Index fed_columns = 512;
inline constexpr qwenlite::Index fed_strip_bytes = 32 * fed_in * 2;
inline constexpr qwenlite::Index fed_activation_bytes = fed_columns * fed_in * 2;

/// Multiplies `strips` strips of 32 rows at `weights` with all columns; `sums` holds 1024 floats.
inline void tiles_fed(const std::byte* weights, qwenlite::Index strips, const std::byte* activations,
                      float* sums) {
  namespace amx = qwenlite::kernels::amx;
  const amx::TileScope scope;
  constexpr qwenlite::Index blocks = fed_in / 32;
  for (qwenlite::Index strip = 0; strip < strips; ++strip) {
    const std::byte* rows = weights + strip * fed_strip_bytes;
    for (qwenlite::Index pair = 0; pair < fed_columns / 32; ++pair) {
      const qwenlite::Index ahead = pair == 0 && strip + 1 < strips ? fed_strip_bytes : 0;
      const amx::Left left[2] = {
          {.data = rows, .stride = fed_in * 2, .step = 64, .ahead = ahead},
          {.data = rows + fed_strip_bytes / 2, .stride = fed_in * 2, .step = 64, .ahead = ahead}};
      const std::byte* columns = activations + pair * 2 * blocks * 1024;
      const amx::Right right[2] = {{.data = columns, .step = 1024},
                                   {.data = columns + blocks * 1024, .step = 1024}};
      amx::multiply_tiles<2, 2, 1>(left, right, blocks, sums);
    }
  }
}

}  // namespace bench

#if defined(__clang__)
#pragma clang attribute pop
#else
#pragma GCC pop_options
#endif

#endif
