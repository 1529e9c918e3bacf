// SPDX-License-Identifier: Apache-2.0
//
// The reference kernels of Gated DeltaNet layers: the formulas of delta.hpp row by row, sums in double.
#pragma once

#include <cmath>

#include <qwenlite/kernels/delta.hpp>

namespace qwenlite {
inline namespace QWENLITE_ABI {
namespace kernels::scalar {

/// Later rows first: a row's inputs are it and earlier ones, which are then still as they came.
inline void conv1d(const Conv1dArgs& a) {
  for (Index t = a.rows - 1; t >= 0; --t) {
    for (Index c = 0; c < a.channels; ++c) {
      double sum = 0;
      for (Index j = 0; j < a.kernel; ++j) {
        const Index from = t - a.kernel + 1 + j;
        const float x =
            from < 0 ? a.history[(from + a.kernel - 1) * a.channels + c] : a.x[from * a.stride + c];
        sum += static_cast<double>(a.taps[j * a.taps_stride + c]) * static_cast<double>(x);
      }
      a.x[t * a.stride + c] = static_cast<float>(sum / (1.0 + std::exp(-sum)));
    }
  }
}

/// out = x * (scale / length of x).
inline void scale_to_unit(const float* x, Index size, double scale, float* out) {
  double squares = 0;
  for (Index d = 0; d < size; ++d) squares += static_cast<double>(x[d]) * static_cast<double>(x[d]);
  const float factor = unit_factor(squares, scale);
  for (Index d = 0; d < size; ++d) out[d] = x[d] * factor;
}

inline void delta_keys(const DeltaKeysArgs& a) {
  float* const unit_q = a.unit + chunk_rows * a.key_dim;
  for (Index r = 0; r < a.rows; ++r) {
    float* const k = a.unit + r * a.key_dim;
    scale_to_unit(a.k + r * a.stride, a.key_dim, 1.0, k);
    scale_to_unit(a.q + r * a.stride, a.key_dim, 1.0 / std::sqrt(static_cast<double>(a.key_dim)),
                  unit_q + r * a.key_dim);
    for (Index d = 0; d < a.key_dim; ++d) a.keys[d * chunk_rows + a.first + r] = k[d];
  }
  for (Index r = 0; r < a.rows; ++r) {
    for (Index j = 0; j <= a.first + r; ++j) {
      double kk = 0;
      double qk = 0;
      for (Index d = 0; d < a.key_dim; ++d) {
        const auto key = static_cast<double>(a.keys[d * chunk_rows + j]);
        kk += static_cast<double>(a.unit[r * a.key_dim + d]) * key;
        qk += static_cast<double>(unit_q[r * a.key_dim + d]) * key;
      }
      a.scores[r * chunk_rows + j] = static_cast<float>(kk);
      a.scores[(chunk_rows + r) * chunk_rows + j] = static_cast<float>(qk);
    }
  }
}

/// sum_d x[d] S[d][e]; zero without a state.
[[nodiscard]] inline double read_state(const DeltaRowsArgs& a, const float* x, Index e) {
  double sum = 0;
  if (a.state == nullptr) return sum;
  for (Index d = 0; d < a.key_dim; ++d) {
    sum += static_cast<double>(x[d]) * static_cast<double>(a.state[d * a.value_dim + e]);
  }
  return sum;
}

inline void delta_rows(const DeltaRowsArgs& a) {
  extend_decay(a);
  double weight[chunk_rows];  // e^{g_i - g_j}
  for (Index r = 0; r < a.rows; ++r) {
    const Index i = a.first + r;
    const float* const kk = a.scores + r * chunk_rows;
    const float* const qk = kk + chunk_rows * chunk_rows;
    const double whole = std::exp(a.decay[i]);
    for (Index j = 0; j <= i; ++j) weight[j] = std::exp(a.decay[i] - a.decay[j]);
    for (Index e = 0; e < a.value_dim; ++e) {
      double value =
          static_cast<double>(a.v[r * a.v_stride + e]) - whole * read_state(a, a.unit + r * a.key_dim, e);
      double out = whole * read_state(a, a.unit + (chunk_rows + r) * a.key_dim, e);
      for (Index j = 0; j < i; ++j) {
        const auto earlier = static_cast<double>(a.values[j * a.value_dim + e]);
        value -= weight[j] * static_cast<double>(kk[j]) * earlier;
        out += weight[j] * static_cast<double>(qk[j]) * earlier;
      }
      const auto stored = static_cast<float>(static_cast<double>(a.beta[r]) * value);
      a.values[i * a.value_dim + e] = stored;
      out += static_cast<double>(qk[i]) * static_cast<double>(stored);
      a.out[r * a.out_stride + e] = static_cast<float>(out);
    }
  }
}

inline void delta_close(const DeltaCloseArgs& a) {
  const double last = a.decay[chunk_rows - 1];
  double weight[chunk_rows];
  for (Index j = 0; j < chunk_rows; ++j) weight[j] = std::exp(last - a.decay[j]);
  const double whole = std::exp(last);
  for (Index d = 0; d < a.key_dim; ++d) {
    for (Index e = 0; e < a.value_dim; ++e) {
      const Index at = d * a.value_dim + e;
      double sum = a.state == nullptr ? 0.0 : whole * static_cast<double>(a.state[at]);
      for (Index j = 0; j < chunk_rows; ++j) {
        sum += weight[j] * static_cast<double>(a.keys[d * chunk_rows + j]) *
               static_cast<double>(a.values[j * a.value_dim + e]);
      }
      a.next[at] = static_cast<float>(sum);
    }
  }
}

}  // namespace kernels::scalar
}  // namespace QWENLITE_ABI
}  // namespace qwenlite
