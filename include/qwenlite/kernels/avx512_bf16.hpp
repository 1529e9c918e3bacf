// SPDX-License-Identifier: Apache-2.0
//
// The table of CPUs with AVX512_BF16: matrix products (avx512_bf16_matmul.hpp) and attention
// (avx512_bf16_attention.hpp) of bf16 weights and caches at bf16 precision, the AVX-512 kernels with VNNI for
// everything else. Inputs of bf16 weights are rounded to bf16 unless the model asks for `exact`.
#pragma once

#include <qwenlite/kernels/avx512_bf16_attention.hpp>
#include <qwenlite/kernels/avx512_bf16_matmul.hpp>
#include <qwenlite/kernels/avx512_vnni.hpp>

namespace qwenlite {
inline namespace QWENLITE_ABI {
namespace kernels::avx512_bf16 {

inline PackLayout layout(Format format, Precision precision) {
  const bool rounds = format == Format::bf16 && precision == Precision::bf16;
  return rounds ? PackLayout::rows_bf16 : avx512::layout(format, precision);
}

inline constexpr KernelTable table = [] {
  KernelTable t = avx512_vnni::table;
  t.name = "avx512_bf16";
  t.default_precision = Precision::bf16;
  t.layout = layout;
  t.pack = pack;
  t.matmul = matmul;
  t.matmul_scratch_bytes = matmul_scratch_bytes;
  t.attend_span = attend_span;
  t.attend_scratch_bytes = attend_scratch_bytes;
  return t;
}();

}  // namespace kernels::avx512_bf16
}  // namespace QWENLITE_ABI
}  // namespace qwenlite
