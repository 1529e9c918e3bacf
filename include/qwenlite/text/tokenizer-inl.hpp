// SPDX-License-Identifier: Apache-2.0
//
// Definitions of tokenizer.hpp: building the tables from the files with every cross-check, encoding and
// decoding.
#pragma once

#include <algorithm>
#include <filesystem>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <qwenlite/file_kind.hpp>
#include <qwenlite/in_quotes.hpp>
#include <qwenlite/text/tokenizer.hpp>
#include <qwenlite/text/tokenizer_file.hpp>
#include <qwenlite/text/tokenizer_sax.hpp>
#include <qwenlite/text/unicode.hpp>

namespace qwenlite {
inline namespace QWENLITE_ABI {
namespace tokenizer_build {

using tokenizer_file::shown;

/// The added tokens of both files by id: those of tokenizer_config.json join unless tokenizer.json has them.
/// Equal texts under two ids are found later, with those of the vocabulary.
inline std::vector<AddedToken> all_added(TokenizerFile& file, TokenizerConfig& config) {
  const std::size_t from_file = file.added.size();
  std::vector<AddedToken> all = std::move(file.added);
  for (AddedToken& token : config.added) all.push_back(std::move(token));
  const auto by_id = [](const AddedToken* a, const AddedToken* b) {
    return a->id != b->id ? a->id < b->id : a < b;  // the earlier one first
  };
  std::vector<AddedToken> kept;
  for (AddedToken* token : sorted(all, by_id)) {
    if (kept.empty() || kept.back().id != token->id) {
      kept.push_back(std::move(*token));
    } else if (kept.back().content != token->content) {
      const auto place = static_cast<std::size_t>(token - all.data());
      const std::string& source = place < from_file ? file.name : config.name;
      throw Error(ErrorCode::bad_file, {source, " added token \"", shown(token->content), "\""},
                  {"id ", token->id, ", which \"", shown(kept.back().content), "\" has"}, "an id of its own");
    }
  }
  return kept;
}

/// Tokens in the order of their ids. Throws unless ids are 0, 1, ... without a gap.
class IdOrder {
 public:
  IdOrder(const TokenizerFile& file, const std::vector<AddedToken>& added) : file_(file), added_(added) {
    sources_.assign(file.tokens.size() + added.size(), unused);
    for (std::size_t i = 0; i < file.ids.size(); ++i) place(file.ids[i], file.tokens[i], i);
    for (std::size_t i = 0; i < added.size(); ++i) {
      const auto id = static_cast<std::size_t>(added[i].id);
      const bool listed = id < sources_.size() && sources_[id] < file.tokens.size();
      if (listed && file.tokens[sources_[id]] == added[i].content) {  // in both lists: one id, one text
        ++repeated_;
      } else {
        place(added[i].id, added[i].content, file.tokens.size() + i);
      }
    }
    sources_.resize(sources_.size() - repeated_);
    for (std::size_t id = 0; id < sources_.size(); ++id) {
      if (sources_[id] == unused) fail("the ids of its tokens", {"no token with id ", id});
    }
  }

  [[nodiscard]] ByteStrings take() const {
    ByteStrings ordered;
    ordered.reserve(sources_.size(), file_.tokens.bytes());
    for (const std::size_t source : sources_) {
      const std::size_t listed = file_.tokens.size();
      ordered.push_back(source < listed ? file_.tokens[source]
                                        : std::string_view(added_[source - listed].content));
    }
    return ordered;
  }

 private:
  static constexpr std::size_t unused = static_cast<std::size_t>(-1);

  [[noreturn]] void fail(std::string_view field, const MessageText& found) const {
    throw Error(ErrorCode::bad_file, {file_.name, " ", field}, found,
                {"every id from 0 to ", sources_.size() - 1, " once"});
  }
  void place(int id, std::string_view text, std::size_t source) {
    const auto index = static_cast<std::size_t>(id);
    const bool inside = index < sources_.size();
    if (!inside || sources_[index] != unused) {
      fail(joined({"id of \"", shown(text), "\""}), {id, inside ? " a second time" : ""});
    }
    sources_[index] = source;
  }

  const TokenizerFile& file_;
  const std::vector<AddedToken>& added_;
  std::vector<std::size_t> sources_;  // by id: index into tokens, then into added
  std::size_t repeated_ = 0;
};

}  // namespace tokenizer_build

// ----------------------------------------------------------------------------------------- opening

QWENLITE_INLINE Tokenizer::Tokenizer(const std::filesystem::path& directory,
                                     const TokenizerOptions& options) {
  const std::filesystem::path root = root_of_links(directory);
  // What a file holds, if there is one; a link that leads nowhere is one that cannot be read.
  const auto shown = [&directory](const char* name) { return in_quotes((directory / name).string()); };
  const auto content = [&](const char* name, std::size_t most) -> std::optional<std::string> {
    const std::filesystem::path path = directory / name;
    std::error_code ignored;
    if (!std::filesystem::exists(std::filesystem::symlink_status(path, ignored))) return std::nullopt;
    static_cast<void>(resolve_inside(root, path));  // what is read keeps the name that the user knows
    return tokenizer_file::read(path, most);
  };
  using tokenizer_file::most_config_bytes, tokenizer_file::most_vocabulary_bytes;
  const char* const config_name = "tokenizer_config.json";
  TokenizerConfig config;
  if (const auto text = content(config_name, most_config_bytes)) {
    config = tokenizer_file::parse_config({*text, shown(config_name)});
  }
  // From a file of its own the template takes precedence over the one in tokenizer_config.json.
  std::string template_place = shown(config_name) + " chat_template";
  if (auto text = content("chat_template.jinja", most_config_bytes)) {
    config.chat_template = std::move(text);
    template_place = shown("chat_template.jinja");
  }
  const std::optional<std::string> template_text = std::move(config.chat_template);
  std::optional<std::string> vocabulary, merges;
  if (const auto text = content("tokenizer.json", most_vocabulary_bytes)) {
    build(tokenizer_file::parse({*text, shown("tokenizer.json")}), std::move(config));
  } else if ((vocabulary = content("vocab.json", most_vocabulary_bytes)) &&
             (merges = content("merges.txt", most_vocabulary_bytes))) {
    TokenizerFile file = tokenizer_file::parse_pair({*vocabulary, shown("vocab.json")},
                                                    {*merges, shown("merges.txt")}, config);
    build(std::move(file), std::move(config));
  } else {
    throw Error(ErrorCode::io, in_quotes(directory.string()), "no tokenizer",
                "tokenizer.json, or vocab.json and merges.txt");
  }
  choose_template(template_text, template_place, options);
}

QWENLITE_INLINE Tokenizer Tokenizer::from_json(std::string_view tokenizer_json,
                                               std::string_view tokenizer_config_json,
                                               const TokenizerOptions& options) {
  TokenizerConfig config;
  if (!tokenizer_config_json.empty()) {
    config = tokenizer_file::parse_config({tokenizer_config_json, config.name});
  }
  const std::optional<std::string> template_text = std::move(config.chat_template);
  Tokenizer tokenizer;
  tokenizer.build(tokenizer_file::parse({tokenizer_json, "tokenizer.json"}), std::move(config));
  tokenizer.choose_template(template_text, "tokenizer_config.json chat_template", options);
  return tokenizer;
}

QWENLITE_INLINE void Tokenizer::build(TokenizerFile file, TokenizerConfig config) {
  rule_ = file.rule;
  std::vector<AddedToken> added = tokenizer_build::all_added(file, config);
  build_vocabulary(file, added);
  added_ = AddedTokens(std::move(added));
  build_merges(file);
  build_special(file, config);
}

QWENLITE_INLINE void Tokenizer::build_vocabulary(TokenizerFile& file, const std::vector<AddedToken>& added) {
  vocabulary_ = Vocabulary(tokenizer_build::IdOrder(file, added).take());
  if (const int id = vocabulary_.duplicate(); id != Vocabulary::none) {
    throw Error(ErrorCode::bad_file, {file.name, " token \"", tokenizer_file::shown(vocabulary_[id]), "\""},
                {"ids ", vocabulary_.find(vocabulary_[id]), " and ", id}, "one id");
  }
  if (vocabulary_.crowded()) {
    throw Error(ErrorCode::bad_file, {file.name, " model.vocab"}, "tokens made to collide in a table",
                "those of a trained tokenizer");
  }
  file.tokens = ByteStrings();
  file.ids = {};
  for (int byte = 0; byte < 256; ++byte) {
    const char text = static_cast<char>(byte);
    const int id = vocabulary_.find({&text, 1});
    if (id == Vocabulary::none) {
      throw Error(ErrorCode::bad_file, {file.name, " model.vocab"}, {"no token for byte ", byte},
                  "a token for each of the 256 bytes");
    }
    byte_ids_[static_cast<std::size_t>(byte)] = id;
  }
}

QWENLITE_INLINE void Tokenizer::build_merges(const TokenizerFile& file) {
  const std::size_t count = file.merges.size() / 2;
  merges_ = MergeTable(count);
  std::vector<unsigned char> ordinary(vocabulary_.size());  // 1 for ids that ordinary text may get
  for (const int id : byte_ids_) ordinary[static_cast<std::size_t>(id)] = 1;
  std::string merged;
  for (std::size_t rank = 0; rank < count; ++rank) {
    const std::string_view left = file.merges[2 * rank], right = file.merges[2 * rank + 1];
    merged.assign(left).append(right);
    const std::array<std::string_view, 3> texts{left, right, merged};
    std::array<int, 3> ids{};
    for (std::size_t i = 0; i < 3; ++i) {
      ids[i] = vocabulary_.find(texts[i]);
      if (ids[i] != Vocabulary::none) continue;
      throw Error(ErrorCode::bad_file, {file.name, " merge ", rank},
                  {"\"", tokenizer_file::shown(texts[i]), "\", which is no token"},
                  "tokens of the vocabulary");
    }
    if (!merges_.insert(ids[0], ids[1], {static_cast<std::uint32_t>(rank), ids[2]})) {
      if (merges_.crowded()) {
        throw Error(ErrorCode::bad_file, {file.name, " merge ", rank}, "ids made to collide in a table",
                    "those of a trained tokenizer");
      }
      throw Error(ErrorCode::bad_file, {file.name, " merge ", rank},
                  {"\"", tokenizer_file::shown(merged), "\" from the same two parts as before"},
                  "each pair once");
    }
    ordinary[static_cast<std::size_t>(ids[2])] = 1;
  }
  for (const AddedToken& token : added_.all()) {
    if (ordinary[static_cast<std::size_t>(token.id)] == 0) continue;
    throw Error(ErrorCode::bad_file,
                {file.name, " added token \"", tokenizer_file::shown(token.content), "\""},
                "an id that ordinary text also gets", "an id that no merge makes");
  }
}

QWENLITE_INLINE void Tokenizer::build_special(const TokenizerFile& file, const TokenizerConfig& config) {
  special_ = std::vector<unsigned char>(vocabulary_.size());
  for (const AddedToken& token : added_.all()) special_[static_cast<std::size_t>(token.id)] = token.special;
  if (config.eos_token) {
    const int id = vocabulary_.find(*config.eos_token);
    if (id == Vocabulary::none) {
      throw Error(ErrorCode::bad_file, {config.name, " eos_token"},
                  {"\"", tokenizer_file::shown(*config.eos_token), "\""}, {"a token of ", file.name});
    }
    eos_ids_.push_back(id);
    return;
  }
  for (const std::string_view text : {"<|im_end|>", "<|endoftext|>"}) {
    if (const int id = vocabulary_.find(text); id != Vocabulary::none) eos_ids_.push_back(id);
  }
}

QWENLITE_INLINE void Tokenizer::choose_template(const std::optional<std::string>& text,
                                                std::string_view place, const TokenizerOptions& options) {
  if (options.family) {
    chat_template_ = ChatTemplate(*options.family);
  } else if (text) {
    chat_template_ = ChatTemplate::recognise(*text, place);
  } else {
    chat_template_ = ChatTemplate(rule_ == PreSplit::qwen3 ? ChatFamily::qwen3 : ChatFamily::qwen3_5);
  }
}

// ---------------------------------------------------------------------------------------- encoding

QWENLITE_INLINE std::vector<int> Tokenizer::encode(std::string_view text,
                                                   const EncodeOptions& options) const {
  std::vector<int> ids;
  ids.reserve(text.size() / 4 + 8);
  if (options.control_tokens) {
    const ByteRange whole{0, text.size()};
    encode_allowed(text, {&whole, 1}, ids, options.stats);
  } else {
    encode_ordinary(text, ids, options.stats);
  }
  return ids;
}

QWENLITE_INLINE std::vector<int> Tokenizer::encode_chat(const std::vector<Message>& messages,
                                                        const ChatOptions& options) const {
  return encode_segments(chat_template_.segments(messages, options));
}

QWENLITE_INLINE std::vector<int> Tokenizer::encode_segments(std::span<const ChatSegment> segments) const {
  constexpr std::string_view opening = "<|im_start|>";
  std::string text;
  std::vector<ByteRange> allowed;
  for (const ChatSegment& segment : segments) {
    if (segment.control) {
      if (segment.text.find(opening) != std::string::npos && !added_.find(opening, 0)) {
        throw Error(ErrorCode::bad_file, {"tokenizer: added token \"", opening, "\""}, "nothing",
                    "the token that begins a message of the chat template");
      }
      allowed.push_back({text.size(), text.size() + segment.text.size()});
    }
    text += segment.text;
  }
  std::vector<int> ids;
  encode_allowed(text, allowed, ids, nullptr);
  return ids;
}

/// Added tokens count inside one of the allowed ranges; everything between two of them is one run of
/// ordinary text, whatever segments it came from.
QWENLITE_INLINE void Tokenizer::encode_allowed(std::string_view text, std::span<const ByteRange> allowed,
                                               std::vector<int>& ids, EncodeStats* stats) const {
  std::size_t run = 0;  // where the ordinary text not yet encoded begins
  for (const ByteRange& range : allowed) {
    const std::string_view inside = text.substr(0, range.end);
    std::size_t from = std::max(range.begin, run);
    while (const auto match = added_.find(inside, from)) {
      const ByteRange taken = AddedTokens::stripped(text, *match, run);
      encode_ordinary(text.substr(run, taken.begin - run), ids, stats);
      ids.push_back(match->token->id);
      run = from = taken.end;
    }
  }
  encode_ordinary(text.substr(run), ids, stats);
}

QWENLITE_INLINE void Tokenizer::encode_ordinary(std::string_view text, std::vector<int>& ids,
                                                EncodeStats* stats) const {
  if (text.size() >= UINT32_MAX / 2) {
    throw Error(ErrorCode::bad_text, "text to encode", {text.size(), " bytes"}, "less than 2 GiB");
  }
  std::string changed;
  if (unicode::valid_prefix(text) != text.size()) {
    unicode::append_valid(changed, text);
    text = changed;
  }
  if (!unicode::is_surely_nfc(text)) {
    changed = unicode::nfc(text);
    text = changed;
  }
  bpe::LongPieces long_pieces;
  std::uint64_t pieces = 0;
  for (pre_split::Scanner scanner(text, rule_); !scanner.done(); ++pieces) {
    const std::string_view piece = scanner.next();
    if (piece.size() <= bpe::short_piece) {
      bpe::encode_short(piece, byte_ids_, merges_, ids);
    } else {
      long_pieces.encode(piece, byte_ids_, merges_, ids);
    }
  }
  if (stats == nullptr) return;
  stats->pieces += pieces;
  stats->queue_operations += long_pieces.queue_operations();
}

// ---------------------------------------------------------------------------------------- decoding

QWENLITE_INLINE std::string Tokenizer::decode(std::span<const int> ids, const DecodeOptions& options) const {
  std::string bytes;
  for (const int id : ids) {
    if (options.skip_special && is_special(id)) continue;
    bytes.append(token_bytes(id));
  }
  if (unicode::valid_prefix(bytes) == bytes.size()) return bytes;
  std::string text;
  unicode::append_valid(text, bytes);
  return text;
}

QWENLITE_INLINE std::optional<int> Tokenizer::token_to_id(std::string_view bytes) const noexcept {
  const int id = vocabulary_.find(bytes);
  return id == Vocabulary::none ? std::nullopt : std::optional<int>(id);
}

QWENLITE_INLINE bool Tokenizer::is_special(int id) const noexcept {
  return id >= 0 && static_cast<std::size_t>(id) < special_.size() &&
         special_[static_cast<std::size_t>(id)] != 0;
}

}  // namespace QWENLITE_ABI
}  // namespace qwenlite
