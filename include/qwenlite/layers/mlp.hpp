// SPDX-License-Identifier: Apache-2.0
//
// Mlp, as Qwen3MLP: down(silu(gate x) * (up x)). Gate, up and their product are one pass over the packed
// input.
#pragma once

#include <array>

#include <qwenlite/layers/activations.hpp>
#include <qwenlite/layers/linear.hpp>

namespace qwenlite {
inline namespace QWENLITE_ABI {

class Mlp {
 public:
  /// Shape gives hidden_size and intermediate_size. Throws as Weights::matrix() does.
  template <class Shape>
  Mlp(const Weights& scope, const Shape& shape)
      : gate_proj_(scope, "gate_proj", shape.intermediate_size, shape.hidden_size),
        up_proj_(scope, "up_proj", shape.intermediate_size, shape.hidden_size),
        down_proj_(scope, "down_proj", shape.hidden_size, shape.intermediate_size) {}

  [[nodiscard]] FormatSet input_formats() const { return {gate_proj_.format(), up_proj_.format()}; }

  /// Of all weights.
  [[nodiscard]] FormatSet formats() const { return either(input_formats(), {down_proj_.format()}); }

  /// out [tokens, hidden_size] = (or +=) mlp(x).
  template <class Pass>
  void forward(const Pass& pass, const Packed& x, const Matrix<float>& out, bool accumulate) const {
    const Matrix<float> gated = pass.activations.gated(x.columns);  // [tokens, intermediate_size]
    pass.ops.gated_matmul(x, gate_proj_.weight(), up_proj_.weight(), gated, pass.scratch);

    const Packed down_in = pass.pack(gated, {down_proj_.format()});
    const std::array<Product, 1> down{down_proj_.into(out, accumulate)};
    pass.ops.matmul(down_in, down, pass.scratch);
  }

 private:
  Linear gate_proj_;  // [intermediate_size, hidden_size]
  Linear up_proj_;    // [intermediate_size, hidden_size]
  Linear down_proj_;  // [hidden_size, intermediate_size]
};

}  // namespace QWENLITE_ABI
}  // namespace qwenlite
