// SPDX-License-Identifier: Apache-2.0
//
// RmsNorm, as Qwen3RMSNorm: x * rsqrt(mean(x^2) + epsilon) * weight, all in float32. In front of a
// product it is fused into the packing of the input, so a layer mostly hands out its spec().
#pragma once

#include <string>
#include <string_view>

#include <qwenlite/checkpoint/weights.hpp>
#include <qwenlite/kernels/ops.hpp>

namespace qwenlite {
inline namespace QWENLITE_ABI {

class RmsNorm {
 public:
  /// Takes `NAME.weight` [size]. Throws as Weights::vector() does.
  RmsNorm(const Weights& scope, std::string_view name, Index size, float epsilon)
      : spec_{scope.vector(std::string(name) + ".weight", size), epsilon} {}

  [[nodiscard]] const NormSpec& spec() const noexcept { return spec_; }

  /// out[t] = norm(x[t]); x and out are [tokens, size].
  void forward(const Ops& ops, const ConstMatrix<float>& x, const Matrix<float>& out) const {
    ops.rms_norm(x, spec_, out);
  }

 private:
  NormSpec spec_;
};

}  // namespace QWENLITE_ABI
}  // namespace qwenlite
