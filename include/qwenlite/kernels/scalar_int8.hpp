// SPDX-License-Identifier: Apache-2.0
//
// Products of int8 activations as int8_activations.hpp defines them, element by element; and their packing
// for every table that has no faster way, around the table's own norm.
#pragma once

#include <cmath>
#include <type_traits>

#include <qwenlite/kernels/table.hpp>

namespace qwenlite {
inline namespace QWENLITE_ABI {
namespace kernels {

/// Packs columns into rows_int8 with a table's own norm: norm_scale(x, size, epsilon) is what it multiplies a
/// column by, and scale_by_weight(x, scale, weight, out) multiplies a part of it by that and the weights.
/// quantise does what quantise_block() does.
template <class Scale, class Quantise>
inline void pack_int8(const PackArgs& a, Scale (*norm_scale)(const float*, Index, float),
                      void (*scale_by_weight)(const float*, std::type_identity_t<Scale>, VectorView, float*),
                      const Quantise& quantise) {
  const Int8Column parts(a.in);
  for (Index t = a.first; t < a.last; ++t) {
    const float* const x = a.x + t * a.x_stride;
    Scale scale{};
    if (a.norm_weight.data != nullptr) scale = norm_scale(x, a.in, a.epsilon);
    for (Index b = 0; b < parts.blocks; ++b) {
      const Index first = b * quantised_block;
      const Index count = a.in - first < quantised_block ? a.in - first : quantised_block;
      float values[quantised_block] = {};
      if (a.norm_weight.data != nullptr) {
        VectorView weight = a.norm_weight;
        weight.data += first * element_bytes(weight.format);
        weight.size = count;
        scale_by_weight(x + first, scale, weight, values);
      } else {
        std::memcpy(values, x + first, static_cast<std::size_t>(count) * sizeof(float));
      }
      quantise(values, parts, b, a.out + t * parts.bytes());
    }
  }
}

namespace scalar {

/// Weight row r of a strip by one packed column.
[[nodiscard]] inline float multiply_int8(const WeightView& w, Index r, const std::byte* column) {
  const Int8Column parts(w.cols);
  const GroupsOfBlock groups(w.planes.group);
  const Index groups_of_row = ceil_div(w.cols, w.planes.group);
  float total = 0;
  for (Index i = 0; i < w.cols; i += groups.elements) {
    const Index at = r * groups_of_row + i / w.planes.group;
    const int zero =
        w.planes.zeros != nullptr ? std::to_integer<int>(w.planes.zeros[at]) : middle_value(w.format);
    int sum = 0;
    for (Index j = i; j < i + groups.elements && j < w.cols; ++j) {
      const auto code = static_cast<std::int8_t>(std::to_integer<std::uint8_t>(column[j]));
      sum += (stored_value(w.format, w.row(r), j) - zero) * code;
    }
    F16 weight_scale;
    float block_scale = 0;
    std::memcpy(&weight_scale, w.planes.scales + 2 * at, 2);
    std::memcpy(&block_scale, column + parts.scales() + i / quantised_block * 4, 4);
    total = std::fma(static_cast<float>(sum) * static_cast<float>(weight_scale), block_scale, total);
  }
  return total;
}

inline void matmul_int8(const MatmulArgs& a) {
  const WeightView w = a.strip();
  for (Index t = 0; t < a.columns; ++t) {
    for (Index r = 0; r < a.rows; ++r) {
      const float total = multiply_int8(w, r, a.packed + t * int8_column_bytes(a.in));
      float& out = a.out[t * a.out_stride + r];
      out = a.accumulate ? out + total : total;
    }
  }
}

inline Index int8_scratch_bytes(Index /*rows*/, Index /*in*/, Index /*columns*/) {
  return 0;
}

}  // namespace scalar
}  // namespace kernels
}  // namespace QWENLITE_ABI
}  // namespace qwenlite
