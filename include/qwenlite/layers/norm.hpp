// SPDX-License-Identifier: Apache-2.0
//
// RmsNorm, as Qwen3RMSNorm: x * rsqrt(mean(x^2) + epsilon) * weight, all in float32; and OnePlusRmsNorm, as
// Qwen3_5RMSNorm, whose weights are stored around 0 and count as 1 + weight. In front of a product a norm is
// fused into the packing of the input, so a layer mostly hands out its spec().
#pragma once

#include <string>
#include <string_view>

#include <qwenlite/checkpoint/weights.hpp>
#include <qwenlite/kernels/ops.hpp>

namespace qwenlite {
inline namespace QWENLITE_ABI {

/// `offset` is added to each weight, in float32.
class RmsNorm {
 public:
  /// Takes `NAME.weight` [size]. Throws as Weights::vector() does.
  RmsNorm(const Weights& scope, std::string_view name, Index size, float epsilon, float offset = 0)
      : spec_{scope.vector(std::string(name) + ".weight", size), epsilon} {
    spec_.weight.offset = offset;
  }

  [[nodiscard]] const NormSpec& spec() const noexcept { return spec_; }

  /// out[t] = norm(x[t]); x and out are [tokens, size].
  void forward(const Ops& ops, const ConstMatrix<float>& x, const Matrix<float>& out) const {
    ops.rms_norm(x, spec_, out);
  }

 private:
  NormSpec spec_;
};

class OnePlusRmsNorm : public RmsNorm {
 public:
  OnePlusRmsNorm(const Weights& scope, std::string_view name, Index size, float epsilon)
      : RmsNorm(scope, name, size, epsilon, 1) {}
};

}  // namespace QWENLITE_ABI
}  // namespace qwenlite
