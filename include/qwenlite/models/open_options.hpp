// SPDX-License-Identifier: Apache-2.0
//
// OpenOptions, and the decisions made while a network is opened: threads, kernels, where in the checkpoint
// the text network lies, and which sampling values it suggests.
#pragma once

#include <array>
#include <memory>
#include <optional>
#include <string>

#include <qwenlite/checkpoint/checkpoint.hpp>
#include <qwenlite/kernels/dispatch.hpp>
#include <qwenlite/kernels/ops.hpp>

namespace qwenlite {
inline namespace QWENLITE_ABI {

/// How a network runs. None of it changes results, except `precision`, `kernels` and `kv`.
struct OpenOptions {
  /// Threads of the built-in pool, the caller included; 0: as many as the process may use.
  int threads = 0;
  /// Where to run instead: a ThreadPool shared between models, or a class of your own.
  std::shared_ptr<Executor> executor = nullptr;
  /// What matrix products round their inputs to; empty: the default of the kernels. The output matrix is
  /// always exact.
  std::optional<Precision> precision = {};
  /// Null: kernels::active().
  const kernels::KernelTable* kernels = nullptr;
  /// Storage of keys and values; empty: that of the cache's type, or bf16.
  std::optional<KvFormat> kv = {};
  /// Most rows that pass through the network together: scratch memory grows with it, and the weights are
  /// read once per so many tokens of a prompt.
  Index chunk = 512;
};

[[nodiscard]] inline const kernels::KernelTable& chosen_kernels(const OpenOptions& options) {
  return options.kernels != nullptr ? *options.kernels : kernels::active();
}

[[nodiscard]] inline std::shared_ptr<Executor> chosen_executor(const OpenOptions& options) {
  require(options.threads >= 0, "threads: 0 (automatic) or a positive number");
  if (options.executor == nullptr) return std::make_shared<ThreadPool>(options.threads);
  require(options.threads == 0, "threads and executor exclude each other");
  return options.executor;
}

[[nodiscard]] inline Index checked_chunk(Index chunk) {
  if (chunk >= 1 && chunk <= size_limits::max_position_embeddings) return chunk;
  throw Error(ErrorCode::bad_argument, "chunk", std::to_string(chunk), "a positive number of tokens");
}

/// The tensors of the text network. Their prefix differs: "model." in text checkpoints,
/// "model.language_model." in those with a vision part, none in embedding checkpoints.
[[nodiscard]] inline Weights text_scope(const Weights& all) {
  for (const char* prefix : {"model.", "model.language_model.", ""}) {
    Weights text = all.scope(prefix);
    if (text.contains("embed_tokens.weight")) return text;
  }
  return all.scope("model.");  // taking the embedding from it then says what is missing
}

/// Fields that `file` leaves open, from the model card.
[[nodiscard]] inline GenerationDefaults with_card_values(GenerationDefaults file,
                                                         const GenerationDefaults& card) {
  const auto fill = [](auto& field, const auto& value) {
    if (!field) field = value;
  };
  if (file.do_sample == false) file.temperature = 0.0F;  // greedy, whatever else the file says
  fill(file.do_sample, card.do_sample);
  fill(file.temperature, card.temperature);
  fill(file.top_k, card.top_k);
  fill(file.top_p, card.top_p);
  fill(file.min_p, card.min_p);
  return file;
}

}  // namespace QWENLITE_ABI
}  // namespace qwenlite
