// SPDX-License-Identifier: Apache-2.0
//
// The fields of config.json that only Qwen3.5 has: which layers are Gated DeltaNet layers, and their sizes.
// Nothing is guessed that would change what is computed.
#pragma once

#include <algorithm>
#include <vector>

#include <qwenlite/checkpoint/json_fields-inl.hpp>
#include <qwenlite/checkpoint/model_config.hpp>
#include <qwenlite/checkpoint/size_limits.hpp>

namespace qwenlite {
inline namespace QWENLITE_ABI {
namespace config_fields {

using json_text::describe;
using json_text::Fields;
using json_text::is_text;
using json_text::Json;

/// `layer_types`, which must name a kind that the family has once per layer.
[[nodiscard]] inline std::vector<LayerType> listed_layer_types(const Fields& text, const Json& listed,
                                                               const ModelConfig& config) {
  const Index layers = config.num_hidden_layers;
  if (!listed.is_array() || std::ssize(listed) != layers) {
    text.reject("layer_types", describe(listed), {"a list of ", layers, " (num_hidden_layers)"});
  }
  const bool hybrid = config.model_type == "qwen3_5";
  std::vector<LayerType> types;
  for (const Json& type : listed) {
    const bool linear = hybrid && is_text(type, "linear_attention");
    if (!linear && !is_text(type, "full_attention")) {
      text.reject("layer_types", describe(type),
                  hybrid ? "'linear_attention' or 'full_attention'" : "'full_attention'",
                  ErrorCode::unsupported);
    }
    types.push_back(linear ? LayerType::linear_attention : LayerType::full_attention);
  }
  return types;
}

/// The kind of each layer: listed; else every full_attention_interval-th layer of Qwen3.5, all of Qwen3.
[[nodiscard]] inline std::vector<LayerType> layer_types(const Fields& text, const ModelConfig& config) {
  if (const Json* listed = text.find("layer_types")) return listed_layer_types(text, *listed, config);
  std::vector<LayerType> types(static_cast<std::size_t>(config.num_hidden_layers), LayerType::full_attention);
  if (config.model_type != "qwen3_5") return types;
  const Index interval =
      text.required_integer("full_attention_interval", {1, size_limits::num_hidden_layers});
  for (Index i = 0; i < std::ssize(types); ++i) {
    if ((i + 1) % interval != 0) types[static_cast<std::size_t>(i)] = LayerType::linear_attention;
  }
  return types;
}

/// Sizes of Gated DeltaNet layers.
inline void read_linear_sizes(const Fields& text, ModelConfig& config) {
  namespace limits = size_limits;
  config.linear_num_key_heads =
      text.required_integer("linear_num_key_heads", {1, limits::num_attention_heads});
  config.linear_num_value_heads =
      text.required_integer("linear_num_value_heads", {1, limits::num_attention_heads});
  config.linear_key_head_dim = text.required_integer("linear_key_head_dim", {1, limits::head_dim});
  config.linear_value_head_dim = text.required_integer("linear_value_head_dim", {1, limits::head_dim});
  config.linear_conv_kernel_dim =
      text.required_integer("linear_conv_kernel_dim", {1, limits::linear_conv_kernel_dim});
  if (config.linear_num_value_heads % config.linear_num_key_heads != 0) {
    text.reject("linear_num_value_heads", {config.linear_num_value_heads},
                {"a multiple of linear_num_key_heads, ", config.linear_num_key_heads});
  }
}

/// Everything that makes a Qwen3.5 of a checked dense configuration.
inline void read_hybrid(const Fields& text, ModelConfig& config) {
  read_linear_sizes(text, config);
  for (const LayerType type : {LayerType::linear_attention, LayerType::full_attention}) {
    if (std::count(config.layer_types.begin(), config.layer_types.end(), type) > 0) continue;
    text.reject("layer_types", "layers of one kind", "both 'linear_attention' and 'full_attention'",
                ErrorCode::unsupported);
  }
  if (!text.boolean("attn_output_gate").value_or(true)) {
    text.reject("attn_output_gate", "false", "true", ErrorCode::unsupported);
  }
  if (const Json* moe = text.find("mlp_only_layers"); moe != nullptr && !moe->empty()) {
    text.reject("mlp_only_layers", describe(*moe), "an empty list", ErrorCode::unsupported);
  }
  config.mtp_num_hidden_layers =
      text.integer("mtp_num_hidden_layers", {0, size_limits::num_hidden_layers}).value_or(0);
  config.mtp_use_dedicated_embeddings = text.boolean("mtp_use_dedicated_embeddings").value_or(false);
}

/// Whether the file says how much of a head turns.
[[nodiscard]] inline bool states_rotation(const Fields& text) {
  for (const char* place : {"rope_parameters", "rope_scaling"}) {
    const auto nested = text.object(place);
    if (nested && nested->find("partial_rotary_factor") != nullptr) return true;
  }
  return text.find("partial_rotary_factor") != nullptr;
}

/// How much of a head turns: all of it in Qwen3; in Qwen3.5 an even number of dimensions, which must be said.
inline void check_rotation(const Fields& text, const ModelConfig& config) {
  const double part = config.rope.partial_rotary_factor;
  const char* const name = "partial_rotary_factor";
  if (config.model_type == "qwen3") {
    if (part == 1) return;
    text.reject(name, json_text::number_text(part), "1: every dimension turns in Qwen3",
                ErrorCode::unsupported);
  }
  if (!states_rotation(text)) text.reject(name, "nothing", "a value, here or in 'rope_parameters'");
  const auto turning = static_cast<Index>(static_cast<double>(config.head_dim) * part);
  if (turning < 2 || turning % 2 != 0) {
    text.reject(name, json_text::number_text(part),
                {"a part of head_dim, ", config.head_dim, ", that is a positive even number of dimensions"});
  }
}

}  // namespace config_fields
}  // namespace QWENLITE_ABI
}  // namespace qwenlite
