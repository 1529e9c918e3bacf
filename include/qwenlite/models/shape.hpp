// SPDX-License-Identifier: Apache-2.0
//
// ModelShape: the sizes of a network as a type, each fixed at compile time or read at run time, and what
// its family adds: the type of a layer and how to make all of them.
#pragma once

#include <concepts>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include <qwenlite/cache/delta_state.hpp>
#include <qwenlite/checkpoint/model_config.hpp>
#include <qwenlite/checkpoint/weights.hpp>

namespace qwenlite {
inline namespace QWENLITE_ABI {

/// Each size is a Fixed<N> or a Runtime, under its name in config.json.
///
///   name                  for messages
///   model_type            that config.json must have
///   Layer<S>              forward(pass, h) on the residual stream h; formats() of its weights
///   Norm                  the norm before the output matrix
///   StateFor<Kv>          state policy that goes with a policy for keys and values
///   make_layers           all layers in order, from the tensors below "model."
///   bind_family_sizes     sets or checks sizes beyond those that all families have
///   attention_layers      how many layers keep keys and values
///   query_and_gate_width  of attention with an output gate, else 0
///   delta_layout          of the recurrent state; zeros without
///   card_defaults         sampling values of the model card, with thinking or without; unset: the family's
///   way
template <class S>
concept ModelShape = std::default_initializable<S> &&
    requires(S bound, const S shape, const Weights& weights, const ModelConfig& config) {
  { S::name } -> std::convertible_to<std::string_view>;
  { S::model_type } -> std::convertible_to<std::string_view>;
  { shape.hidden_size } -> std::convertible_to<Index>;
  { shape.num_hidden_layers } -> std::convertible_to<Index>;
  { shape.num_attention_heads } -> std::convertible_to<Index>;
  { shape.num_key_value_heads } -> std::convertible_to<Index>;
  { shape.head_dim } -> std::convertible_to<Index>;
  { shape.intermediate_size } -> std::convertible_to<Index>;
  { shape.vocab_size } -> std::convertible_to<Index>;
  { S::make_layers(weights, shape, config) } -> std::same_as<std::vector<typename S::template Layer<S>>>;
  S::bind_family_sizes(bound, config);
  { S::query_and_gate_width(shape) } -> std::convertible_to<Index>;
  { S::delta_layout(shape, config) } -> std::same_as<DeltaLayout>;
  { S::attention_layers(config) } -> std::convertible_to<Index>;
  { S::card_defaults(std::optional<bool>()) } -> std::same_as<GenerationDefaults>;
};

/// The sizes that all families have, for shapes that take them from config.json.
struct RuntimeSizes {
  Runtime hidden_size;
  Runtime num_hidden_layers;
  Runtime num_attention_heads;
  Runtime num_key_value_heads;
  Runtime head_dim;
  Runtime intermediate_size;
  Runtime vocab_size;
};

/// Sets a run-time size; a fixed one that config.json contradicts is an error.
template <class Size>
void bind_size(Size& size, std::string_view shape_name, const char* field, Index found) {
  if constexpr (Size::is_static) {
    if (size == found) return;
    throw Error(ErrorCode::bad_config, {"config.json: ", field}, found,
                {Index{size}, " (fixed by the type ", shape_name, ")"});
  } else {
    size.value = found;
  }
}

/// The shape of a checkpoint. Throws `bad_config` naming the first field that does not fit the type.
template <ModelShape S>
[[nodiscard]] S shape_of(const ModelConfig& config) {
  if (config.model_type != S::model_type) {
    throw Error(ErrorCode::bad_config, "config.json: model_type", config.model_type, S::model_type);
  }
  S shape;
  bind_size(shape.hidden_size, S::name, "hidden_size", config.hidden_size);
  bind_size(shape.num_hidden_layers, S::name, "num_hidden_layers", config.num_hidden_layers);
  bind_size(shape.num_attention_heads, S::name, "num_attention_heads", config.num_attention_heads);
  bind_size(shape.num_key_value_heads, S::name, "num_key_value_heads", config.num_key_value_heads);
  bind_size(shape.head_dim, S::name, "head_dim", config.head_dim);
  bind_size(shape.intermediate_size, S::name, "intermediate_size", config.intermediate_size);
  bind_size(shape.vocab_size, S::name, "vocab_size", config.vocab_size);
  S::bind_family_sizes(shape, config);
  return shape;
}

}  // namespace QWENLITE_ABI
}  // namespace qwenlite
