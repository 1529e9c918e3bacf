// SPDX-License-Identifier: Apache-2.0
//
// Implementation of checkpoint.hpp.
#pragma once

#include <algorithm>
#include <utility>

#include <qwenlite/checkpoint/checkpoint.hpp>

namespace qwenlite {
inline namespace QWENLITE_ABI {

QWENLITE_INLINE Checkpoint::Checkpoint(const std::filesystem::path& directory, CheckpointOptions options)
    : directory_(directory) {
  constexpr Index max_json_bytes = 16'000'000;
  const ModelDirectory files(directory);
  const auto shown = [&](const char* name) { return (directory / name).string(); };
  const auto optional_text = [&](const char* name) {
    return files.has(name) ? files.read_text(name, max_json_bytes) : std::string();
  };
  const char* const config = "config.json";
  const char* const generation = "generation_config.json";
  const char* const tokenizer = "tokenizer_config.json";
  if (!files.has(config)) {
    throw Error(ErrorCode::io, in_quotes(directory.string()), "no config.json",
                "the directory of a checkpoint");
  }
  const std::string config_text = files.read_text(config, max_json_bytes);
  const std::string generation_text = optional_text(generation);
  const std::string tokenizer_text = optional_text(tokenizer);
  read_configs({config_text, shown(config)}, {generation_text, shown(generation)},
               {tokenizer_text, shown(tokenizer)});
  tensors_ = std::make_shared<const TensorFiles>(files, options.read_mode);
  find_packed();
}

QWENLITE_INLINE Checkpoint::Checkpoint(const CheckpointMemory& memory) {
  read_configs({memory.config, "config.json"}, {memory.generation_config, "generation_config.json"},
               {memory.tokenizer_config, "tokenizer_config.json"});
  tensors_ = std::make_shared<const TensorFiles>(memory.tensors);
  find_packed();
}

QWENLITE_INLINE void Checkpoint::find_packed() {
  if (config_.quantisation.method == QuantMethod::none) return;
  packed_ = std::make_shared<const PackedTensors>(tensors_, config_.quantisation);
}

QWENLITE_INLINE void Checkpoint::read_configs(const JsonText& config, const JsonText& generation,
                                              const JsonText& tokenizer) {
  config_ = parse_model_config(config, warnings_);
  if (!generation.text.empty()) defaults_ = parse_generation_config(generation);
  TokenizerFacts facts;
  if (!tokenizer.text.empty()) facts = parse_tokenizer_config(tokenizer, warnings_);
  collect_stop_ids(facts);
  token_count_ = facts.token_count;
  if (token_count_ && !ends_vocabulary(*token_count_)) {
    warnings_.push_back(
        joined({"the added tokens of tokenizer_config.json end at id ", *token_count_ - 1, " of ",
                config_.vocab_size, "; no row of the embedding is taken for padding"}));
    token_count_.reset();
  }
}

/// Whether what follows so many tokens can be padding. Published models have up to 267 rows of it.
QWENLITE_INLINE bool Checkpoint::ends_vocabulary(Index tokens) const {
  constexpr Index most_padding = 1024;
  if (config_.vocab_size - tokens > most_padding) return false;
  return std::all_of(stop_ids_.begin(), stop_ids_.end(), [&](int id) { return id < tokens; });
}

QWENLITE_INLINE void Checkpoint::collect_stop_ids(const TokenizerFacts& tokenizer) {
  const auto add = [this](int id) {
    if (id >= config_.vocab_size) {
      warnings_.push_back(
          joined({"end-of-sequence id ", id, " lies beyond vocab_size ", config_.vocab_size, "; ignored"}));
    } else if (std::find(stop_ids_.begin(), stop_ids_.end(), id) == stop_ids_.end()) {
      stop_ids_.push_back(id);
    }
  };
  for (const int id : config_.eos_token_ids) add(id);
  for (const int id : defaults_.eos_token_ids) add(id);
  if (tokenizer.eos_token_id) add(*tokenizer.eos_token_id);
}

}  // namespace QWENLITE_ABI
}  // namespace qwenlite
