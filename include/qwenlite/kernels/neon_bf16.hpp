// SPDX-License-Identifier: Apache-2.0
//
// The table of Arm CPUs with bf16 products: matrix products (neon_bf16_matmul.hpp) and attention
// (neon_bf16_attention.hpp) of bf16 weights and caches at bf16 precision, NEON kernels for everything else.
// Inputs of bf16 weights are rounded to bf16 unless the model asks for `exact`.
#pragma once

#include <qwenlite/kernels/neon.hpp>
#include <qwenlite/kernels/neon_bf16_attention.hpp>
#include <qwenlite/kernels/neon_bf16_matmul.hpp>

namespace qwenlite {
inline namespace QWENLITE_ABI {
namespace kernels::neon_bf16 {

inline PackLayout layout(Format format, Precision precision) {
  if (takes_int8(format, precision)) return PackLayout::rows_int8;
  const bool rounds = format == Format::bf16 && precision == Precision::bf16;
  return rounds ? PackLayout::pairs_bf16 : PackLayout::rows_f32;
}

inline constexpr KernelTable table = [] {
  KernelTable t = neon::table;
  t.name = "neon_bf16";
  t.default_precision = Precision::bf16;
  t.layout = layout;
  t.pack = pack;
  t.matmul = matmul;
  t.matmul_scratch_bytes = matmul_scratch_bytes;
  t.attend_span = attend_span;
  t.attend_scratch_bytes = attend_scratch_bytes;
  return t;
}();

}  // namespace kernels::neon_bf16
}  // namespace QWENLITE_ABI
}  // namespace qwenlite
