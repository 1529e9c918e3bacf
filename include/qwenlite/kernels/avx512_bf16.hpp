// SPDX-License-Identifier: Apache-2.0
//
// The table of CPUs with AVX512_BF16: at bf16 precision, which is its default, products of bf16 weights
// (avx512_bf16_matmul.hpp) and of quantised ones (avx512_bf16_quantised.hpp), and attention over bf16 caches
// (avx512_bf16_attention.hpp); the AVX-512 kernels with VNNI for everything else.
#pragma once

#include <qwenlite/kernels/avx512_bf16_attention.hpp>
#include <qwenlite/kernels/avx512_bf16_quantised.hpp>
#include <qwenlite/kernels/avx512_vnni.hpp>

namespace qwenlite {
inline namespace QWENLITE_ABI {
namespace kernels::avx512_bf16 {

inline PackLayout layout(Format format, Precision precision) {
  const bool rounds = precision == Precision::bf16 && (format == Format::bf16 || is_quantised(format));
  if (!rounds) return avx512::layout(format, precision);
  return format == Format::int4 ? PackLayout::blocks_bf16 : PackLayout::rows_bf16;
}

inline constexpr KernelTable table = [] {
  KernelTable t = avx512_vnni::table;
  t.name = "avx512_bf16";
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

}  // namespace kernels::avx512_bf16
}  // namespace QWENLITE_ABI
}  // namespace qwenlite
