// SPDX-License-Identifier: Apache-2.0
//
// The table of CPUs with AVX-512 and its dot products of bytes (VNNI): those of avx512.hpp but for int8
// activations (avx512_vnni_int8.hpp).
#pragma once

#include <qwenlite/kernels/avx512.hpp>
#include <qwenlite/kernels/avx512_vnni_int8.hpp>

namespace qwenlite {
inline namespace QWENLITE_ABI {
namespace kernels::avx512_vnni {

inline constexpr KernelTable table = [] {
  KernelTable t = avx512::table;
  t.name = "avx512_vnni";
  t.matmul_int8 = matmul_int8;
  t.int8_scratch_bytes = int8_scratch_bytes;
  return t;
}();

}  // namespace kernels::avx512_vnni
}  // namespace QWENLITE_ABI
}  // namespace qwenlite
