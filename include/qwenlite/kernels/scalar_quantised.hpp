// SPDX-License-Identifier: Apache-2.0
//
// Products with quantised weights, element by element and with sums in double: what every other instruction
// set is tested against.
#pragma once

#include <qwenlite/kernels/table.hpp>

namespace qwenlite {
inline namespace QWENLITE_ABI {
namespace kernels::scalar {

inline void matmul_quantised(const MatmulArgs& a) {
  const WeightView w = a.strip();
  for (Index t = 0; t < a.columns; ++t) {
    const float* x = reinterpret_cast<const float*>(a.packed) + t * round_up(a.in, 32);
    for (Index r = 0; r < a.rows; ++r) {
      double sum = 0;
      for (Index i = 0; i < a.in; ++i)
        sum += static_cast<double>(decode(w, r, i)) * static_cast<double>(x[i]);
      float& out = a.out[t * a.out_stride + r];
      out = a.accumulate ? out + static_cast<float>(sum) : static_cast<float>(sum);
    }
  }
}

inline Index quantised_scratch_bytes(Index /*rows*/, Index /*in*/, Index /*columns*/) {
  return 0;
}

inline void decode_quantised(const WeightView& matrix, Index row, float* out) {
  for (Index i = 0; i < matrix.cols; ++i) out[i] = decode(matrix, row, i);
}

}  // namespace kernels::scalar
}  // namespace QWENLITE_ABI
}  // namespace qwenlite
