// SPDX-License-Identifier: Apache-2.0
//
// Implementation of model_config.hpp. Each reader turns one JSON file into a checked struct; whatever
// this library would compute wrongly (another family, experts, biases, windows, other packed weights) is
// refused here, by name, and not discovered later as a shape that does not fit.
#pragma once

#include <algorithm>
#include <charconv>
#include <cmath>
#include <limits>
#include <system_error>

#include <qwenlite/checkpoint/json_fields-inl.hpp>
#include <qwenlite/checkpoint/model_config.hpp>
#include <qwenlite/checkpoint/quantisation_fields-inl.hpp>
#include <qwenlite/checkpoint/rope_config-inl.hpp>
#include <qwenlite/sampling_ranges.hpp>

namespace qwenlite {
inline namespace QWENLITE_ABI {

namespace config_fields {

using json_text::describe;
using json_text::is_text;
using json_text::Json;

inline constexpr Index max_token_id = std::numeric_limits<int>::max();

/// The family, under whichever of its names; refuses others.
[[nodiscard]] inline std::string family_of(const Fields& root, const Fields& text) {
  const auto type = text.string("model_type");
  const char* const families = "'qwen3', 'qwen3_5' or 'qwen3_5_text'";
  if (!type) text.reject("model_type", "nothing", families);
  const bool hybrid = type == "qwen3_5" || type == "qwen3_5_text";
  if (!hybrid && type != "qwen3") {
    text.reject("model_type", in_quotes(*type), families, ErrorCode::unsupported);
  }
  if (const Json* names = root.find("architectures")) {
    const auto known = [hybrid](const Json& name) {
      if (!hybrid) return is_text(name, "Qwen3ForCausalLM") || is_text(name, "Qwen3Model");
      return is_text(name, "Qwen3_5ForConditionalGeneration") || is_text(name, "Qwen3_5ForCausalLM") ||
             is_text(name, "Qwen3_5Model") || is_text(name, "Qwen3_5TextModel");
    };
    if (!names->is_array()) root.reject("architectures", describe(*names), "a list of names");
    if (!names->empty() && std::none_of(names->begin(), names->end(), known)) {
      root.reject("architectures", describe(names->front()),
                  hybrid ? "'Qwen3_5ForConditionalGeneration' or 'Qwen3_5ForCausalLM'" : "'Qwen3ForCausalLM'",
                  ErrorCode::unsupported);
    }
  }
  return hybrid ? "qwen3_5" : "qwen3";
}

/// Refuses variations of the family that would change what is computed.
inline void check_variations(const Fields& text) {
  for (const char* name :
       {"num_experts", "num_local_experts", "num_experts_per_tok", "moe_intermediate_size"}) {
    const Json* value = text.find(name);
    if (value != nullptr && !(value->is_number() && value->get<double>() == 0)) {
      text.reject(name, describe(*value), "a dense network, without experts", ErrorCode::unsupported);
    }
  }
  const auto act = text.string("hidden_act");
  if (act && act != "silu") text.reject("hidden_act", in_quotes(*act), "'silu'", ErrorCode::unsupported);
  for (const char* name : {"attention_bias", "use_sliding_window"}) {
    if (text.boolean(name).value_or(false)) text.reject(name, "true", "false", ErrorCode::unsupported);
  }
}

inline void read_sizes(const Fields& text, ModelConfig& config) {
  namespace limits = size_limits;
  config.hidden_size = text.required_integer("hidden_size", {1, limits::hidden_size});
  config.num_hidden_layers = text.required_integer("num_hidden_layers", {1, limits::num_hidden_layers});
  config.num_attention_heads = text.required_integer("num_attention_heads", {1, limits::num_attention_heads});
  config.num_key_value_heads = text.integer("num_key_value_heads", {1, limits::num_attention_heads})
                                   .value_or(config.num_attention_heads);
  config.intermediate_size = text.required_integer("intermediate_size", {1, limits::intermediate_size});
  config.vocab_size = text.required_integer("vocab_size", {1, limits::vocab_size});
  config.max_position_embeddings =
      text.required_integer("max_position_embeddings", {1, limits::max_position_embeddings});

  const Index heads = config.num_attention_heads;
  if (heads % config.num_key_value_heads != 0) {
    text.reject("num_key_value_heads", {config.num_key_value_heads},
                {"a divisor of num_attention_heads, ", heads});
  }
  const auto head_dim = text.integer("head_dim", {1, limits::head_dim});
  if (!head_dim && config.hidden_size % heads != 0) {
    text.reject("head_dim", "nothing",
                {"a value, since hidden_size ", config.hidden_size, " is no multiple of num_attention_heads ",
                 heads});
  }
  config.head_dim = head_dim.value_or(config.hidden_size / heads);
  if (config.head_dim % 2 != 0 || config.head_dim > limits::head_dim) {
    text.reject("head_dim", {config.head_dim},
                {"an even number of at most ", limits::head_dim, " (dimensions turn in pairs)"});
  }
}

inline void read_eps(const Fields& text, ModelConfig& config) {
  const double eps = text.required_number("rms_norm_eps", {.least = 0, .most = 1, .open_below = true});
  config.rms_norm_eps = static_cast<float>(eps);
  if (!(config.rms_norm_eps > 0)) {
    text.reject("rms_norm_eps", json_text::number_text(eps), "a number above 0 in float32");
  }
}

// ------------------------------------------------------------------------------------- Qwen3.5

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

/// The kind of each layer: of Qwen3.5 every full_attention_interval-th is attention, of Qwen3 all are. Where
/// they are listed too, both must say the same.
[[nodiscard]] inline std::vector<LayerType> layer_types(const Fields& text, const ModelConfig& config) {
  const Json* const list = text.find("layer_types");
  std::vector<LayerType> listed;
  if (list != nullptr) listed = listed_layer_types(text, *list, config);
  const char* const name = "full_attention_interval";
  const bool hybrid = config.model_type == "qwen3_5";
  if (list != nullptr && (!hybrid || text.find(name) == nullptr)) return listed;
  std::vector<LayerType> types(static_cast<std::size_t>(config.num_hidden_layers), LayerType::full_attention);
  if (!hybrid) return types;
  const Index interval = text.required_integer(name, {1, size_limits::num_hidden_layers});
  for (Index i = 0; i < std::ssize(types); ++i) {
    if ((i + 1) % interval != 0) types[static_cast<std::size_t>(i)] = LayerType::linear_attention;
  }
  if (list != nullptr && types != listed) text.reject(name, {interval}, "what 'layer_types' lists");
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
  check_mrope_section(text, turning / 2);
}

// -------------------------------------------------------------------------------------- tokens

/// Token ids of a field that is one id, a list or absent.
[[nodiscard]] inline std::vector<int> token_ids(const Fields& fields, const char* name) {
  std::vector<int> ids;
  const Json* value = fields.find(name);
  if (value == nullptr) return ids;
  const auto add = [&](const Json& id) {
    const int token = static_cast<int>(fields.to_integer(id, name, {0, max_token_id}));
    if (std::find(ids.begin(), ids.end(), token) == ids.end()) ids.push_back(token);
  };
  if (value->is_array()) {
    for (const Json& id : *value) add(id);
  } else if (value->is_number()) {
    add(*value);
  } else {
    fields.reject(name, describe(*value), "a token id or a list of them");
  }
  return ids;
}

/// The single id of a field; a negative one is how some files say "none".
[[nodiscard]] inline std::optional<int> token_id(const Fields& fields, const char* name) {
  const auto id = fields.integer(name, {std::numeric_limits<int>::min(), max_token_id});
  if (!id || *id < 0) return std::nullopt;
  return static_cast<int>(*id);
}

/// The first of two places that has the field: text fields may stand at top level or in `text_config`.
[[nodiscard]] inline const Fields& place_of(const char* name, const Fields& text, const Fields& root) {
  return text.find(name) != nullptr ? text : root;
}

inline void read_tokens(const Fields& root, const Fields& text, ModelConfig& config) {
  config.eos_token_ids = token_ids(place_of("eos_token_id", text, root), "eos_token_id");
  config.bos_token_id = token_id(place_of("bos_token_id", text, root), "bos_token_id");
  config.pad_token_id = token_id(place_of("pad_token_id", text, root), "pad_token_id");
}

/// A number that SamplingOptions takes, in float32 too: 0.01 as a float is less than 0.01.
[[nodiscard]] inline std::optional<float> sampling_number(const Fields& fields, const char* name,
                                                          SamplingRange range) {
  const auto value = fields.number(name, {.least = range.least, .most = range.most});
  if (!value) return std::nullopt;
  const auto rounded = static_cast<float>(*value);
  return static_cast<double>(rounded) < range.least
             ? std::nextafter(rounded, std::numeric_limits<float>::max())
             : rounded;
}

}  // namespace config_fields

QWENLITE_INLINE ModelConfig parse_model_config(const JsonText& file, std::vector<std::string>& warnings) {
  namespace fields = config_fields;
  const std::string name = in_quotes(file.name);
  const json_text::Json json = json_text::parse_object(file.text, name);
  const json_text::Fields root(json, name);
  const json_text::Fields text = root.object("text_config").value_or(root);

  ModelConfig config;
  config.model_type = fields::family_of(root, text);
  fields::check_variations(text);
  fields::read_sizes(text, config);
  config.layer_types = fields::layer_types(text, config);
  if (config.model_type == "qwen3_5") fields::read_hybrid(text, config);
  fields::read_eps(text, config);
  const char* tie = "tie_word_embeddings";
  config.tie_word_embeddings = fields::place_of(tie, text, root).boolean(tie).value_or(false);
  config.rope = fields::read_rope(text, config.max_position_embeddings, warnings);
  fields::check_rotation(text, config);
  fields::read_tokens(root, text, config);
  config.quantisation =
      quantisation_fields::read(fields::place_of("quantization_config", text, root), warnings);
  return config;
}

QWENLITE_INLINE GenerationDefaults parse_generation_config(const JsonText& file) {
  namespace fields = config_fields;
  const std::string name = in_quotes(file.name);
  const json_text::Json json = json_text::parse_object(file.text, name);
  const json_text::Fields root(json, name);
  namespace ranges = sampling_ranges;
  GenerationDefaults defaults;
  defaults.do_sample = root.boolean("do_sample");
  defaults.temperature = fields::sampling_number(root, "temperature", ranges::temperature);
  if (const auto k = root.integer("top_k", {0, fields::max_token_id})) defaults.top_k = static_cast<int>(*k);
  defaults.top_p = fields::sampling_number(root, "top_p", ranges::top_p);
  defaults.min_p = fields::sampling_number(root, "min_p", ranges::min_p);
  defaults.repetition_penalty =
      fields::sampling_number(root, "repetition_penalty", ranges::repetition_penalty);
  defaults.presence_penalty = fields::sampling_number(root, "presence_penalty", ranges::presence_penalty);
  defaults.eos_token_ids = fields::token_ids(root, "eos_token_id");
  return defaults;
}

QWENLITE_INLINE TokenizerFacts parse_tokenizer_config(const JsonText& file,
                                                      std::vector<std::string>& warnings) {
  const std::string name = in_quotes(file.name);
  const json_text::Json json = json_text::parse_object(file.text, name);
  const json_text::Fields root(json, name);

  std::optional<std::string> eos;
  if (const json_text::Json* value = root.find("eos_token")) {
    eos = value->is_object() ? root.object("eos_token")->string("content") : root.string("eos_token");
  }
  TokenizerFacts facts;
  const auto added = root.object("added_tokens_decoder");
  if (!added) return facts;
  for (const auto& [key, value] : added->json().get_ref<const json_text::Json::object_t&>()) {
    int id = -1;
    const auto [end, error] = std::from_chars(key.data(), key.data() + key.size(), id);
    if (error != std::errc() || end != key.data() + key.size() || id < 0) {
      root.reject("added_tokens_decoder", {"the key ", in_quotes(key)}, "token ids");
    }
    facts.token_count = std::max(facts.token_count.value_or(0), static_cast<Index>(id) + 1);
    if (!value.is_object()) added->reject(key, json_text::describe(value), "an object");
    const json_text::Json* content = json_text::member(value, "content");
    if (eos && content != nullptr && json_text::is_text(*content, *eos)) facts.eos_token_id = id;
  }
  if (eos && !facts.eos_token_id) {
    warnings.push_back(
        joined({root.where("eos_token"), ": ", in_quotes(*eos), " is not among the added tokens; ignored"}));
  }
  return facts;
}

}  // namespace QWENLITE_ABI
}  // namespace qwenlite
