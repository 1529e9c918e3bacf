// SPDX-License-Identifier: Apache-2.0
//
// The AMX table: tile products (amx_matmul.hpp) of bf16 weights and, at bf16 precision, of quantised ones,
// and tile attention (amx_attention.hpp) over bf16 caches; the AVX-512 kernels with VNNI for everything else.
// Inputs are rounded to bf16 unless the model asks for `exact`.
#pragma once

#include <qwenlite/kernels/amx_attention.hpp>
#include <qwenlite/kernels/amx_matmul.hpp>
#include <qwenlite/kernels/avx512_vnni.hpp>

namespace qwenlite {
inline namespace QWENLITE_ABI {
namespace kernels::amx {

/// Weights of float16 and float32, and quantised ones at `exact`, do not fit a tile without loss: they stay
/// with float32 products.
inline PackLayout layout(Format format, Precision precision) {
  if (takes_int8(format, precision)) return PackLayout::rows_int8;
  if (precision == Precision::bf16 && (format == Format::bf16 || is_quantised(format))) {
    return PackLayout::tiles_bf16;
  }
  return format == Format::bf16 ? PackLayout::tiles_bf16x3 : PackLayout::rows_f32;
}

inline constexpr KernelTable table = [] {
  KernelTable t = avx512_vnni::table;
  t.name = "amx";
  t.default_precision = Precision::bf16;
  t.layout = layout;
  t.pack = pack;
  t.matmul = matmul;
  t.matmul_scratch_bytes = matmul_scratch_bytes;
  t.matmul_quantised = matmul_quantised;
  t.quantised_scratch_bytes = quantised_scratch_bytes;
  t.attend_span = attend_span;
  t.attend_scratch_bytes = attend_scratch_bytes;
  return t;
}();

}  // namespace kernels::amx
}  // namespace QWENLITE_ABI
}  // namespace qwenlite
