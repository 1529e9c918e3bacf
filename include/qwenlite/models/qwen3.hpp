// SPDX-License-Identifier: Apache-2.0
//
// Qwen3, the dense family: sizes of the released models and the one kind of layer they have.
// As modeling_qwen3.py of transformers.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include <qwenlite/cache/delta_state.hpp>
#include <qwenlite/cache/stateless.hpp>
#include <qwenlite/layers/attention.hpp>
#include <qwenlite/layers/block.hpp>
#include <qwenlite/layers/mlp.hpp>
#include <qwenlite/models/shape.hpp>

namespace qwenlite {
inline namespace QWENLITE_ABI {

/// A decoder layer of Qwen3.
template <class Shape>
using Qwen3Block = Block<RmsNorm, Attention<Shape>, Mlp>;

/// What all sizes have in common.
struct Qwen3Family {
  static constexpr std::string_view model_type = "qwen3";

  template <class Shape>
  using Layer = Qwen3Block<Shape>;
  using Norm = RmsNorm;
  template <class Kv>
  using StateFor = Stateless;

  template <class Shape>
  [[nodiscard]] static std::vector<Qwen3Block<Shape>> make_layers(const Weights& scope, const Shape& shape,
                                                                  const ModelConfig& config) {
    std::vector<Qwen3Block<Shape>> layers;
    layers.reserve(static_cast<std::size_t>(config.num_hidden_layers));
    for (Index i = 0; i < config.num_hidden_layers; ++i) {
      layers.emplace_back(scope.scope(joined({"layers.", i, "."})), shape, i, config.rms_norm_eps);
    }
    return layers;
  }

  template <class Shape>
  static void bind_family_sizes(Shape& /*shape*/, const ModelConfig& /*config*/) {}

  template <class Shape>
  [[nodiscard]] static Index query_and_gate_width(const Shape& /*shape*/) {
    return 0;
  }

  template <class Shape>
  [[nodiscard]] static DeltaLayout delta_layout(const Shape& /*shape*/, const ModelConfig& /*config*/) {
    return {};
  }

  [[nodiscard]] static Index attention_layers(const ModelConfig& config) { return config.num_hidden_layers; }

  /// The model card's values, with thinking, which is the default, or without.
  [[nodiscard]] static GenerationDefaults card_defaults(std::optional<bool> thinking = {}) {
    const bool thinks = thinking.value_or(true);
    GenerationDefaults card;
    card.do_sample = true;
    card.temperature = thinks ? 0.6F : 0.7F;
    card.top_p = thinks ? 0.95F : 0.8F;
    card.top_k = 20;
    card.min_p = 0.0F;
    return card;
  }
};

/// Any Qwen3, sizes from config.json.
struct Qwen3 : Qwen3Family, RuntimeSizes {
  static constexpr std::string_view name = "Qwen3";
};

struct Qwen3_0_6B : Qwen3Family {
  static constexpr std::string_view name = "Qwen3_0_6B";
  Fixed<1024> hidden_size;
  Fixed<28> num_hidden_layers;
  Fixed<16> num_attention_heads;
  Fixed<8> num_key_value_heads;
  Fixed<128> head_dim;
  Fixed<3072> intermediate_size;
  Fixed<151936> vocab_size;
};

struct Qwen3_1_7B : Qwen3Family {
  static constexpr std::string_view name = "Qwen3_1_7B";
  Fixed<2048> hidden_size;
  Fixed<28> num_hidden_layers;
  Fixed<16> num_attention_heads;
  Fixed<8> num_key_value_heads;
  Fixed<128> head_dim;
  Fixed<6144> intermediate_size;
  Fixed<151936> vocab_size;
};

struct Qwen3_4B : Qwen3Family {
  static constexpr std::string_view name = "Qwen3_4B";
  Fixed<2560> hidden_size;
  Fixed<36> num_hidden_layers;
  Fixed<32> num_attention_heads;
  Fixed<8> num_key_value_heads;
  Fixed<128> head_dim;
  Fixed<9728> intermediate_size;
  Fixed<151936> vocab_size;
};

struct Qwen3_8B : Qwen3Family {
  static constexpr std::string_view name = "Qwen3_8B";
  Fixed<4096> hidden_size;
  Fixed<36> num_hidden_layers;
  Fixed<32> num_attention_heads;
  Fixed<8> num_key_value_heads;
  Fixed<128> head_dim;
  Fixed<12288> intermediate_size;
  Fixed<151936> vocab_size;
};

struct Qwen3_14B : Qwen3Family {
  static constexpr std::string_view name = "Qwen3_14B";
  Fixed<5120> hidden_size;
  Fixed<40> num_hidden_layers;
  Fixed<40> num_attention_heads;
  Fixed<8> num_key_value_heads;
  Fixed<128> head_dim;
  Fixed<17408> intermediate_size;
  Fixed<151936> vocab_size;
};

struct Qwen3_32B : Qwen3Family {
  static constexpr std::string_view name = "Qwen3_32B";
  Fixed<5120> hidden_size;
  Fixed<64> num_hidden_layers;
  Fixed<64> num_attention_heads;
  Fixed<8> num_key_value_heads;
  Fixed<128> head_dim;
  Fixed<25600> intermediate_size;
  Fixed<151936> vocab_size;
};

}  // namespace QWENLITE_ABI
}  // namespace qwenlite
