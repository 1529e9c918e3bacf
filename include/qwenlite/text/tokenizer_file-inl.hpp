// SPDX-License-Identifier: Apache-2.0
//
// Definitions of tokenizer_file.hpp but for the streaming reader of tokenizer.json, which is
// tokenizer_sax.hpp: reading files, merges.txt, tokenizer_config.json.
#pragma once

#include <array>
#include <cerrno>
#include <charconv>
#include <cstdio>
#include <filesystem>
#include <memory>
#include <string>
#include <string_view>
#include <system_error>
#include <utility>

#include <qwenlite/text/python_json.hpp>
#include <qwenlite/text/tokenizer_file.hpp>
#include <qwenlite/text/tokenizer_sax.hpp>

namespace qwenlite {
inline namespace QWENLITE_ABI {
namespace tokenizer_file {

QWENLITE_INLINE std::string read(const std::filesystem::path& path) {
  std::error_code failure;
  const auto size = std::filesystem::file_size(path, failure);
  const auto close = [](std::FILE* file) { std::fclose(file); };
  const std::unique_ptr<std::FILE, decltype(close)> file(std::fopen(path.c_str(), "rb"));
  if (failure || !file) {
    const std::string why = std::generic_category().message(errno);
    throw Error(ErrorCode::io, path.string(), {"no readable file (", why, ")"}, "a tokenizer file");
  }
  std::string text(static_cast<std::size_t>(size), '\0');
  const std::size_t count = std::fread(text.data(), 1, text.size(), file.get());
  if (count != text.size()) {
    throw Error(ErrorCode::io, path.string(), {count, " bytes could be read"}, {text.size()});
  }
  if (text.compare(0, 26, "version https://git-lfs.gi") == 0) {
    throw Error(ErrorCode::bad_file, path.string(), "a git-lfs pointer",
                "the file itself (git lfs pull fetches it)");
  }
  return text;
}

QWENLITE_INLINE TokenizerFile parse(std::string_view json, std::string name) {
  SaxReader reader(std::move(name), SaxReader::Document::tokenizer_json, json.size());
  json_text::read_events(json, reader);
  return reader.take();
}

/// Reads merges.txt: "left right" on each line, a first line "#version: ..." allowed.
inline void parse_merges(std::string_view text, TokenizerFile& file) {
  std::size_t number = 0;
  while (!text.empty()) {
    const std::size_t length = std::min(text.find('\n'), text.size());
    std::string_view line = text.substr(0, length);
    text.remove_prefix(std::min(length + 1, text.size()));
    ++number;
    if (!line.empty() && line.back() == '\r') line.remove_suffix(1);
    if (line.empty() || (number == 1 && line.substr(0, 8) == "#version")) continue;
    if (!append_merge(file.merges, line)) {
      throw Error(ErrorCode::bad_file, {"merges.txt line ", number}, {"\"", shown(line), "\""},
                  "two parts in the byte alphabet with one space between them");
    }
  }
}

QWENLITE_INLINE TokenizerFile parse_pair(std::string_view vocab_json, std::string_view merges_txt,
                                         const TokenizerConfig& config) {
  SaxReader reader("vocab.json", SaxReader::Document::vocab_json, vocab_json.size());
  json_text::read_events(vocab_json, reader);
  TokenizerFile file = reader.take();
  parse_merges(merges_txt, file);
  const std::string_view regex =
      config.pretokenize_regex ? *config.pretokenize_regex : pre_split::qwen3_regex;
  const bool known_class =
      config.tokenizer_class == "Qwen2Tokenizer" || config.tokenizer_class == "Qwen2TokenizerFast";
  const auto rule = pre_split::rule_of(regex);
  if (!rule) {
    throw Error(ErrorCode::unsupported, "tokenizer_config.json pretokenize_regex", {"\"", shown(regex), "\""},
                "the regex of Qwen3 or Qwen3.5");
  }
  if (!config.pretokenize_regex && !known_class) {
    throw Error(ErrorCode::unsupported, "tokenizer_config.json tokenizer_class",
                {"\"", shown(config.tokenizer_class), "\""},
                "Qwen2Tokenizer, or a pretokenize_regex, or a tokenizer.json");
  }
  file.rule = *rule;
  return file;
}

// -------------------------------------------------------------------------- tokenizer_config.json

using json_text::Json;

/// Throws "tokenizer_config.json PLACE: found a KIND, expected EXPECTED".
[[noreturn]] inline void refuse(std::string_view place, const Json& found, const char* expected) {
  throw Error(ErrorCode::bad_file, {"tokenizer_config.json", place.empty() ? "" : " ", place},
              python_json::kind_of(found), expected);
}

/// The "content" of an object that describes a token, or null.
[[nodiscard]] inline const std::string* content_of(const Json& value) {
  const Json* content = value.is_object() ? json_text::member(value, "content") : nullptr;
  return content != nullptr && content->is_string() ? &content->get_ref<const std::string&>() : nullptr;
}

/// A string, or the "content" of an object, as tokens are written there; nothing for null or when absent.
[[nodiscard]] inline std::optional<std::string> token_text(const Json* value, const char* field) {
  if (value == nullptr || value->is_null()) return std::nullopt;
  if (value->is_string()) return value->get_ref<const std::string&>();
  const std::string* content = content_of(*value);
  if (content == nullptr) refuse(field, *value, "a string or an object with content");
  return *content;
}

[[nodiscard]] inline AddedToken config_token(const std::string& id_text, const Json& value) {
  const std::string place = joined({"added_tokens_decoder[\"", shown(id_text), "\"]"});
  RawAddedToken raw;
  const char* end = id_text.data() + id_text.size();
  const auto [stop, problem] = std::from_chars(id_text.data(), end, raw.id);
  if (problem != std::errc() || stop != end || raw.id < 0) {
    throw Error(ErrorCode::bad_file, {"tokenizer_config.json ", place}, "this key", "a token id");
  }
  const std::string* content = content_of(value);
  if (content == nullptr) refuse(place, value, "an object with content");
  raw.content = *content;
  for (std::size_t i = 0; i < raw.flags.size(); ++i) {
    const std::string_view name = RawAddedToken::flag_names[i];
    const Json* flag = json_text::member(value, name);
    if (flag == nullptr) continue;
    if (!flag->is_boolean()) refuse(joined({place, " ", name}), *flag, "true or false");
    raw.flags[i] = flag->get<bool>();
  }
  return raw.checked(joined({"tokenizer_config.json ", place}));
}

/// The template; of several, the one named "default".
[[nodiscard]] inline std::optional<std::string> template_of(const Json& root) {
  const Json* several = json_text::member(root, "chat_template");
  if (several == nullptr || !several->is_array()) return token_text(several, "chat_template");
  std::optional<std::string> found;
  for (const Json& item : several->get_ref<const Json::array_t&>()) {
    const Json* name = item.is_object() ? json_text::member(item, "name") : nullptr;
    const Json* text = item.is_object() ? json_text::member(item, "template") : nullptr;
    if (name == nullptr || text == nullptr || !json_text::is_text(*name, "default")) continue;
    found = token_text(text, "chat_template");
  }
  return found;
}

QWENLITE_INLINE TokenizerConfig parse_config(std::string_view json) {
  const Json root = python_json::parse(json, "tokenizer_config.json", ErrorCode::bad_file);
  if (!root.is_object()) refuse("", root, "an object");
  TokenizerConfig config;
  const auto text_of = [&root](const char* field) {
    return token_text(json_text::member(root, field), field);
  };
  config.eos_token = text_of("eos_token");
  config.pretokenize_regex = text_of("pretokenize_regex");
  config.tokenizer_class = text_of("tokenizer_class").value_or("");
  config.chat_template = template_of(root);
  const Json* added = json_text::member(root, "added_tokens_decoder");
  if (added == nullptr) return config;
  if (!added->is_object()) refuse("added_tokens_decoder", *added, "an object");
  for (const auto& [id, token] : added->get_ref<const Json::object_t&>()) {
    config.added.push_back(config_token(id, token));
  }
  return config;
}

}  // namespace tokenizer_file
}  // namespace QWENLITE_ABI
}  // namespace qwenlite
