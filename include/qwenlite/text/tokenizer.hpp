// SPDX-License-Identifier: Apache-2.0
//
// Tokenizer: text to token ids and back, and chat messages to a prompt.
//
// Opens the tokenizer files of a Hugging Face directory as downloaded. Encoding is: replace invalid
// UTF-8, cut at added tokens where those are allowed, NFC, pre-split, byte-level BPE. All of it is
// linear or n log n in the text, needs little stack, and may run in any number of threads at once: a
// Tokenizer is constant after construction.
//
// Text typed by a user never becomes a control token unless the caller asks for it.
#pragma once

#include <array>
#include <cstdint>
#include <filesystem>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include <qwenlite/error.hpp>
#include <qwenlite/text/added_tokens.hpp>
#include <qwenlite/text/bpe.hpp>
#include <qwenlite/text/chat_template.hpp>
#include <qwenlite/text/pre_split.hpp>
#include <qwenlite/text/tokenizer_file.hpp>
#include <qwenlite/text/vocabulary.hpp>

namespace qwenlite {
inline namespace QWENLITE_ABI {

/// How a text is encoded.
struct EncodeOptions {
  /// True: added tokens written in the text become their ids, as Hugging Face's tokenizers do by default.
  /// False: such text is ordinary text.
  bool control_tokens = false;
  EncodeStats* stats = nullptr;  ///< counts are added to it
};

/// How token ids are decoded.
struct DecodeOptions {
  /// Leaves out tokens flagged special. Added tokens without that flag (`</think>`) are always rendered.
  bool skip_special = false;
};

/// How a tokenizer is opened.
struct TokenizerOptions {
  /// Renders chats as this family, whatever template the directory brings: needed for one that is not known.
  std::optional<ChatFamily> family{};
};

/// The tokenizer and the chat template of a checkpoint. Constant; may be shared between threads.
class Tokenizer {
 public:
  /// Opens tokenizer.json, or vocab.json and merges.txt; with tokenizer_config.json and chat_template.jinja
  /// when present. Throws `io`, `bad_file`, or `unsupported` for anything but byte-level BPE with the
  /// pre-split rule of Qwen3 or Qwen3.5.
  explicit Tokenizer(const std::filesystem::path& directory, const TokenizerOptions& options = {});

  /// The same from the contents of tokenizer.json and, unless empty, tokenizer_config.json.
  [[nodiscard]] static Tokenizer from_json(std::string_view tokenizer_json,
                                           std::string_view tokenizer_config_json = {},
                                           const TokenizerOptions& options = {});

  /// Token ids of a text. No token is added before or after it. Invalid UTF-8 counts as U+FFFD.
  [[nodiscard]] std::vector<int> encode(std::string_view text, const EncodeOptions& options = {}) const;

  /// Text of token ids, always valid UTF-8 (bytes that are not become U+FFFD); NFC, as encoding made it.
  /// Ids without text give nothing.
  [[nodiscard]] std::string decode(std::span<const int> ids, const DecodeOptions& options = {}) const;

  /// The prompt of a conversation. Control tokens come from the template only, never from the messages;
  /// without control tokens in the messages the ids equal those of the rendered text encoded as a whole.
  /// Throws as ChatTemplate::segments() does.
  [[nodiscard]] std::vector<int> encode_chat(const std::vector<Message>& messages,
                                             const ChatOptions& options = {}) const;

  /// Ids of a prompt given in segments: added tokens count only inside one segment that is `control`.
  [[nodiscard]] std::vector<int> encode_segments(std::span<const ChatSegment> segments) const;

  /// Number of ids: one more than the highest with text.
  [[nodiscard]] int vocab_size() const noexcept { return static_cast<int>(vocabulary_.size()); }
  /// The bytes of a token; they may be part of a character. Empty for ids without text.
  [[nodiscard]] std::string_view token_bytes(int id) const noexcept { return vocabulary_[id]; }
  /// The id of exactly these bytes.
  [[nodiscard]] std::optional<int> token_to_id(std::string_view bytes) const noexcept;
  /// Whether decoding with skip_special leaves this token out.
  [[nodiscard]] bool is_special(int id) const noexcept;
  /// Ids that end a reply: tokenizer_config's eos_token, else <|im_end|> and <|endoftext|> where known.
  [[nodiscard]] const std::vector<int>& eos_ids() const noexcept { return eos_ids_; }
  /// What encode_chat() renders with.
  [[nodiscard]] const ChatTemplate& chat_template() const noexcept { return chat_template_; }
  /// How a text is cut before the merges: by the family's rule.
  [[nodiscard]] PreSplit pre_split_rule() const noexcept { return rule_; }

 private:
  Tokenizer() = default;

  void build(TokenizerFile file, TokenizerConfig config);
  void build_vocabulary(TokenizerFile& file, const std::vector<AddedToken>& added);
  void build_merges(const TokenizerFile& file);
  void build_special(const TokenizerFile& file, const TokenizerConfig& config);
  void choose_template(const std::optional<std::string>& text, std::string_view place,
                       const TokenizerOptions& options);

  void encode_allowed(std::string_view text, std::span<const ByteRange> allowed, std::vector<int>& ids,
                      EncodeStats* stats) const;
  void encode_ordinary(std::string_view text, std::vector<int>& ids, EncodeStats* stats) const;

  Vocabulary vocabulary_;
  MergeTable merges_;
  std::array<int, 256> byte_ids_{};
  AddedTokens added_;
  std::vector<unsigned char> special_;  // 1 or 0, by id
  std::vector<int> eos_ids_;
  PreSplit rule_ = PreSplit::qwen3;
  ChatTemplate chat_template_;
};

}  // namespace QWENLITE_ABI
}  // namespace qwenlite

#ifndef QWENLITE_COMPILED
#include <qwenlite/text/tokenizer-inl.hpp>
#endif
