// SPDX-License-Identifier: Apache-2.0
//
// Checkpoint: a Hugging Face model directory, opened. Only JSON and tensor headers are read; weights
// stay where they are (mapped, by default) until a network computes on them, so opening takes
// milliseconds at any size. The tokenizer is not read here.
//
// Immutable after construction, and may be shared between threads.
#pragma once

#include <filesystem>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include <qwenlite/checkpoint/model_config.hpp>
#include <qwenlite/checkpoint/tensor_files.hpp>
#include <qwenlite/checkpoint/weights.hpp>

namespace qwenlite {
inline namespace QWENLITE_ABI {

/// How the weight files are opened.
struct CheckpointOptions {
  ReadMode read_mode = ReadMode::map;  ///< mapped and read on use, or read into memory at once
};

/// A checkpoint linked into a program or received over a wire. The JSON texts are copied from; the
/// bytes of `tensors` are used in place and must outlive the Checkpoint and every model made from it.
struct CheckpointMemory {
  std::string_view config;                  ///< text of config.json
  std::string_view generation_config = {};  ///< may be empty
  std::string_view tokenizer_config = {};   ///< may be empty
  std::span<const NamedBytes> tensors;      ///< one or more safetensors files
};

/// An opened model directory. Copies share the files.
class Checkpoint {
 public:
  /// Opens a directory. Throws `io` for what is missing or unreadable, `bad_file`, `bad_config` or
  /// `unsupported` for what is in it.
  explicit Checkpoint(const std::filesystem::path& directory, CheckpointOptions options = {});

  /// Opens files in memory. Throws as above.
  explicit Checkpoint(const CheckpointMemory& memory);

  /// The directory as given; empty when opened from memory.
  [[nodiscard]] const std::filesystem::path& directory() const noexcept { return directory_; }

  /// config.json.
  [[nodiscard]] const ModelConfig& config() const noexcept { return config_; }
  /// generation_config.json; all fields empty when it is absent.
  [[nodiscard]] const GenerationDefaults& generation_defaults() const noexcept { return defaults_; }

  /// All tensors, as the files have them.
  [[nodiscard]] const TensorFiles& tensors() const noexcept { return *tensors_; }

  /// Lookup over all tensors, with a fresh note of which were taken. Keeps the files open.
  [[nodiscard]] Weights weights() const { return Weights(tensors_, packed_); }

  /// Ids that end a reply: the union, without repeats and in this order, of what config.json,
  /// generation_config.json and tokenizer_config.json call the end of sequence.
  [[nodiscard]] std::span<const int> stop_ids() const noexcept { return stop_ids_; }

  /// 1 + the highest id among tokenizer_config.json's added tokens, where these are the last ids there are:
  /// rows of the embedding from there on are padding. Empty when the file is absent, lists none, or cannot
  /// mean that: when more rows than padding has would be left over, or an id that ends a reply among them.
  [[nodiscard]] std::optional<Index> token_count() const noexcept { return token_count_; }

  /// Oddities met while opening that did not stop it, one line each.
  [[nodiscard]] std::span<const std::string> warnings() const noexcept { return warnings_; }

  /// Bytes of weight files mapped (0 with ReadMode::read or from memory). Nothing is copied.
  [[nodiscard]] Index bytes_mapped() const noexcept { return tensors_->bytes_mapped(); }

 private:
  void read_configs(const JsonText& config, const JsonText& generation, const JsonText& tokenizer);
  void collect_stop_ids(const TokenizerFacts& tokenizer);
  [[nodiscard]] bool ends_vocabulary(Index tokens) const;
  void find_packed();

  std::filesystem::path directory_;
  std::vector<std::string> warnings_;
  ModelConfig config_;
  GenerationDefaults defaults_;
  std::vector<int> stop_ids_;
  std::optional<Index> token_count_;
  std::shared_ptr<const TensorFiles> tensors_;
  std::shared_ptr<const PackedTensors> packed_;  // null: no matrix is packed
};

}  // namespace QWENLITE_ABI
}  // namespace qwenlite

#ifndef QWENLITE_COMPILED
#include <qwenlite/checkpoint/checkpoint-inl.hpp>
#endif
