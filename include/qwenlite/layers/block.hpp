// SPDX-License-Identifier: Apache-2.0
//
// Block: one decoder layer, as Qwen3DecoderLayer. Families differ in the mixer and the norm; a family with
// several kinds of layer lists them in an AnyBlock.
#pragma once

#include <string>
#include <utility>
#include <variant>

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

/// A layer of one of several kinds. The choice costs one branch per layer and forward.
template <class... Blocks>
class AnyBlock {
 public:
  template <class Kind>
  requires(std::is_same_v<Kind, Blocks> || ...) explicit AnyBlock(Kind block) : block_(std::move(block)) {}

  [[nodiscard]] FormatSet formats() const {
    return std::visit([](const auto& block) { return block.formats(); }, block_);
  }

  template <class Pass>
  void forward(const Pass& pass, const Matrix<float>& h) const {
    std::visit([&](const auto& block) { block.forward(pass, h); }, block_);
  }

 private:
  std::variant<Blocks...> block_;
};

}  // namespace QWENLITE_ABI
}  // namespace qwenlite
