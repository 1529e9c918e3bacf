// SPDX-License-Identifier: Apache-2.0
//
// Block: one decoder layer, as Qwen3DecoderLayer. Families differ in the mixer.
#pragma once

#include <string>

#include <qwenlite/layers/activations.hpp>
#include <qwenlite/layers/linear.hpp>
#include <qwenlite/layers/norm.hpp>

namespace qwenlite {
inline namespace QWENLITE_ABI {

/// h += mixer(norm(h)); h += mlp(norm(h)).
template <class Norm, class Mixer, class Mlp>
class Block {
 public:
  /// `scope` is that of the layer ("model.layers.7."); `mixer_index` counts layers with this mixer.
  template <class Shape>
  Block(const Weights& scope, const Shape& shape, Index mixer_index, float epsilon)
      : prefix_(scope.prefix()),
        input_layernorm_(scope, "input_layernorm", shape.hidden_size, epsilon),
        mixer_(scope.scope(Mixer::scope_name), shape, mixer_index, epsilon),
        post_attention_layernorm_(scope, "post_attention_layernorm", shape.hidden_size, epsilon),
        mlp_(scope.scope("mlp."), shape) {}

  /// Formats of all weights.
  [[nodiscard]] FormatSet formats() const { return either(mixer_.formats(), mlp_.formats()); }

  /// h is the residual stream [tokens, hidden_size]. Norms are applied while the input of the products is
  /// packed, and the sums with h are taken inside the last product of mixer and mlp.
  template <class Pass>
  void forward(const Pass& pass, const Matrix<float>& h) const {
    pass.add_to(h, prefix_, "mixer", [&](const Matrix<float>& out, bool accumulate) {
      const Packed x = pass.pack_normed(h, input_layernorm_.spec(), mixer_.input_formats());
      mixer_.forward(pass, x, out, accumulate);
    });
    pass.add_to(h, prefix_, "mlp", [&](const Matrix<float>& out, bool accumulate) {
      const Packed x = pass.pack_normed(h, post_attention_layernorm_.spec(), mlp_.input_formats());
      mlp_.forward(pass, x, out, accumulate);
    });
    pass.record(prefix_, "output", h);
  }

 private:
  std::string prefix_;  // of tensor names, for observers
  Norm input_layernorm_;
  Mixer mixer_;
  Norm post_attention_layernorm_;
  Mlp mlp_;
};

}  // namespace QWENLITE_ABI
}  // namespace qwenlite
