// SPDX-License-Identifier: Apache-2.0
//
// What config.json and generation_config.json say, in Hugging Face words, checked.
//
// A ModelConfig that exists describes a dense Qwen3 or Qwen3.5 network this library runs: sizes are positive
// and bounded (see the limits), head counts divide, and every product of sizes fits Index. Both places for
// text fields are read (top level, or under `text_config`), and both for rotary parameters.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include <qwenlite/checkpoint/quantisation_config.hpp>
#include <qwenlite/checkpoint/rope_parameters.hpp>
#include <qwenlite/checkpoint/size_limits.hpp>
#include <qwenlite/tensor.hpp>

namespace qwenlite {
inline namespace QWENLITE_ABI {

/// What mixes the tokens in a layer: softmax attention, or the delta rule of a Gated DeltaNet.
enum class LayerType : std::uint8_t { full_attention, linear_attention };

/// The fields of config.json that a network is built from.
struct ModelConfig {
  std::string model_type;  ///< "qwen3", or "qwen3_5" for the text part of either form of its files
  Index hidden_size = 0;   ///< width of the residual stream
  Index num_hidden_layers = 0;
  Index num_attention_heads = 0;
  Index num_key_value_heads = 0;  ///< num_attention_heads when the file does not say
  Index head_dim = 0;             ///< hidden_size / num_attention_heads when the file does not say
  Index intermediate_size = 0;    ///< width of the MLP
  Index vocab_size = 0;           ///< rows of the embedding, padding included
  float rms_norm_eps = 0;
  Index max_position_embeddings = 0;  ///< tokens; see context_limit()
  bool tie_word_embeddings = false;   ///< the output matrix is the embedding
  RopeParameters rope;
  std::vector<LayerType> layer_types;  ///< [num_hidden_layers]

  // Qwen3.5 only, else 0: the sizes of Gated DeltaNet layers, and layers of the multi-token-prediction head.
  Index linear_num_key_heads = 0;
  Index linear_num_value_heads = 0;
  Index linear_key_head_dim = 0;
  Index linear_value_head_dim = 0;
  Index linear_conv_kernel_dim = 0;
  Index mtp_num_hidden_layers = 0;
  bool mtp_use_dedicated_embeddings = false;

  std::vector<int> eos_token_ids;  ///< scalar or list in the file; none when absent
  std::optional<int> bos_token_id;
  std::optional<int> pad_token_id;

  QuantisationConfig quantisation;  ///< how matrices are packed, if they are

  [[nodiscard]] Index layers_of(LayerType type) const noexcept {
    Index count = 0;
    for (const LayerType each : layer_types) count += each == type ? 1 : 0;
    return count;
  }

  /// Positions the rotary embedding was made for: YaRN's factor x original where that is more.
  [[nodiscard]] Index context_limit() const noexcept {
    const double stretched = rope.factor * static_cast<double>(rope.original_max_position_embeddings);
    const auto limit = static_cast<double>(size_limits::max_position_embeddings);
    if (rope.rope_type != RopeType::yarn || !(stretched > 0)) return max_position_embeddings;
    const auto positions = static_cast<Index>(stretched < limit ? stretched : limit);
    return positions > max_position_embeddings ? positions : max_position_embeddings;
  }
};

/// Sampling fields of generation_config.json, in the ranges of SamplingOptions; one that the file does not
/// have is empty.
struct GenerationDefaults {
  std::optional<bool> do_sample;
  std::optional<float> temperature;
  std::optional<int> top_k;
  std::optional<float> top_p;
  std::optional<float> min_p;
  std::optional<float> repetition_penalty;
  std::optional<float> presence_penalty;
  std::vector<int> eos_token_ids;
};

/// What tokenizer_config.json says about ids; the tokenizer itself is read elsewhere.
struct TokenizerFacts {
  std::optional<int> eos_token_id;   ///< `eos_token` looked up among the added tokens
  std::optional<Index> token_count;  ///< 1 + the highest added id
};

/// The text of a JSON file and the name to call it in messages.
struct JsonText {
  std::string_view text;
  std::string name;
};

/// Each reads one file. Oddities that do not stop anything are added to `warnings`. They throw
/// `bad_file` for text that is no JSON, `bad_config` for values that are impossible or of the wrong
/// type, `unsupported` for a network this library does not run; all name file and field.
[[nodiscard]] ModelConfig parse_model_config(const JsonText& file, std::vector<std::string>& warnings);
[[nodiscard]] GenerationDefaults parse_generation_config(const JsonText& file);
[[nodiscard]] TokenizerFacts parse_tokenizer_config(const JsonText& file, std::vector<std::string>& warnings);

}  // namespace QWENLITE_ABI
}  // namespace qwenlite

#ifndef QWENLITE_COMPILED
#include <qwenlite/checkpoint/model_config-inl.hpp>
#endif
