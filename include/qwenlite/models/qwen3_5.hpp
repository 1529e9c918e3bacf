// SPDX-License-Identifier: Apache-2.0
//
// Qwen3.5, the hybrid family: three Gated DeltaNet layers for each layer of gated attention. The text part;
// as modeling_qwen3_5.py of transformers.
#pragma once

#include <optional>
#include <string>
#include <type_traits>
#include <vector>

#include <qwenlite/cache/delta_state.hpp>
#include <qwenlite/layers/block.hpp>
#include <qwenlite/layers/gated_attention.hpp>
#include <qwenlite/layers/gated_delta_net.hpp>
#include <qwenlite/layers/mlp.hpp>
#include <qwenlite/models/shape.hpp>

namespace qwenlite {
inline namespace QWENLITE_ABI {

/// The two decoder layers of Qwen3.5.
template <class Shape>
using Qwen3_5DeltaBlock = Block<OnePlusRmsNorm, GatedDeltaNet<Shape>, Mlp>;
template <class Shape>
using Qwen3_5AttentionBlock = Block<OnePlusRmsNorm, GatedAttention<Shape>, Mlp>;

/// What all sizes have in common.
struct Qwen3_5Family {
  static constexpr std::string_view model_type = "qwen3_5";

  template <class Shape>
  using Layer = AnyBlock<Qwen3_5DeltaBlock<Shape>, Qwen3_5AttentionBlock<Shape>>;
  using Norm = OnePlusRmsNorm;
  template <class Kv>
  using StateFor = std::conditional_t<Kv::retains, DeltaState<>, NoState>;

  template <class Shape>
  [[nodiscard]] static std::vector<Layer<Shape>> make_layers(const Weights& scope, const Shape& shape,
                                                             const ModelConfig& config) {
    std::vector<Layer<Shape>> layers;
    layers.reserve(static_cast<std::size_t>(config.num_hidden_layers));
    Index delta_layers = 0;
    Index attention_layers = 0;
    for (const LayerType type : config.layer_types) {
      const Weights layer = scope.scope(joined({"layers.", layers.size(), "."}));
      const float epsilon = config.rms_norm_eps;
      if (type == LayerType::linear_attention) {
        layers.emplace_back(Qwen3_5DeltaBlock<Shape>(layer, shape, delta_layers++, epsilon));
      } else {
        layers.emplace_back(Qwen3_5AttentionBlock<Shape>(layer, shape, attention_layers++, epsilon));
      }
    }
    return layers;
  }

  template <class Shape>
  static void bind_family_sizes(Shape& shape, const ModelConfig& config) {
    bind_size(shape.linear_num_key_heads, Shape::name, "linear_num_key_heads", config.linear_num_key_heads);
    bind_size(shape.linear_num_value_heads, Shape::name, "linear_num_value_heads",
              config.linear_num_value_heads);
    bind_size(shape.linear_key_head_dim, Shape::name, "linear_key_head_dim", config.linear_key_head_dim);
    bind_size(shape.linear_value_head_dim, Shape::name, "linear_value_head_dim",
              config.linear_value_head_dim);
    bind_size(shape.linear_conv_kernel_dim, Shape::name, "linear_conv_kernel_dim",
              config.linear_conv_kernel_dim);
  }

  [[nodiscard]] static Index attention_layers(const ModelConfig& config) {
    return config.layers_of(LayerType::full_attention);
  }

  template <class Shape>
  [[nodiscard]] static Index query_and_gate_width(const Shape& shape) {
    return 2 * shape.num_attention_heads * shape.head_dim;
  }

  template <class Shape>
  [[nodiscard]] static DeltaLayout delta_layout(const Shape& shape, const ModelConfig& config) {
    return {config.layers_of(LayerType::linear_attention), delta_sizes(shape)};
  }

  /// The model card's values for text, with thinking or without, which is the default of the small models.
  [[nodiscard]] static GenerationDefaults card_defaults(std::optional<bool> thinking = {}) {
    const bool thinks = thinking.value_or(false);
    GenerationDefaults card;
    card.do_sample = true;
    card.temperature = 1.0F;
    card.top_p = thinks ? 0.95F : 1.0F;
    card.top_k = 20;
    card.min_p = 0.0F;
    card.presence_penalty = thinks ? 1.5F : 2.0F;
    return card;
  }
};

/// Any Qwen3.5, sizes from config.json.
struct Qwen3_5 : Qwen3_5Family, RuntimeSizes {
  static constexpr std::string_view name = "Qwen3_5";
  Runtime linear_num_key_heads;
  Runtime linear_num_value_heads;
  Runtime linear_key_head_dim;
  Runtime linear_value_head_dim;
  Runtime linear_conv_kernel_dim;
};

/// What the released dense models have in common.
struct Qwen3_5Released : Qwen3_5Family {
  Fixed<256> head_dim;
  Fixed<248320> vocab_size;
  Fixed<16> linear_num_key_heads;
  Fixed<128> linear_key_head_dim;
  Fixed<128> linear_value_head_dim;
  Fixed<4> linear_conv_kernel_dim;
};

struct Qwen3_5_0_8B : Qwen3_5Released {
  static constexpr std::string_view name = "Qwen3_5_0_8B";
  Fixed<1024> hidden_size;
  Fixed<24> num_hidden_layers;
  Fixed<8> num_attention_heads;
  Fixed<2> num_key_value_heads;
  Fixed<3584> intermediate_size;
  Fixed<16> linear_num_value_heads;
};

struct Qwen3_5_2B : Qwen3_5Released {
  static constexpr std::string_view name = "Qwen3_5_2B";
  Fixed<2048> hidden_size;
  Fixed<24> num_hidden_layers;
  Fixed<8> num_attention_heads;
  Fixed<2> num_key_value_heads;
  Fixed<6144> intermediate_size;
  Fixed<16> linear_num_value_heads;
};

struct Qwen3_5_4B : Qwen3_5Released {
  static constexpr std::string_view name = "Qwen3_5_4B";
  Fixed<2560> hidden_size;
  Fixed<32> num_hidden_layers;
  Fixed<16> num_attention_heads;
  Fixed<4> num_key_value_heads;
  Fixed<9216> intermediate_size;
  Fixed<32> linear_num_value_heads;
};

struct Qwen3_5_9B : Qwen3_5Released {
  static constexpr std::string_view name = "Qwen3_5_9B";
  Fixed<4096> hidden_size;
  Fixed<32> num_hidden_layers;
  Fixed<16> num_attention_heads;
  Fixed<4> num_key_value_heads;
  Fixed<12288> intermediate_size;
  Fixed<32> linear_num_value_heads;
};

struct Qwen3_5_27B : Qwen3_5Released {
  static constexpr std::string_view name = "Qwen3_5_27B";
  Fixed<5120> hidden_size;
  Fixed<64> num_hidden_layers;
  Fixed<24> num_attention_heads;
  Fixed<4> num_key_value_heads;
  Fixed<17408> intermediate_size;
  Fixed<48> linear_num_value_heads;
};

}  // namespace QWENLITE_ABI
}  // namespace qwenlite
