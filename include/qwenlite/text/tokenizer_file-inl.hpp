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

#include <qwenlite/in_quotes.hpp>
#include <qwenlite/text/python_json.hpp>
#include <qwenlite/text/tokenizer_file.hpp>
#include <qwenlite/text/tokenizer_sax.hpp>

namespace qwenlite {
inline namespace QWENLITE_ABI {
namespace tokenizer_file {

QWENLITE_INLINE std::string read(const std::filesystem::path& path, std::size_t most) {
  const std::string name = in_quotes(path.string());
  std::error_code failure;
  const auto size = std::filesystem::file_size(path, failure);
  const auto close = [](std::FILE* file) { std::fclose(file); };
  const std::unique_ptr<std::FILE, decltype(close)> file(std::fopen(path.c_str(), "rb"));
  if (failure || !file) {
    const std::string why = std::generic_category().message(errno);
    throw Error(ErrorCode::io, name, {"no readable file (", why, ")"}, "a tokenizer file");
  }
  if (size > most) throw Error(ErrorCode::bad_file, name, {size, " bytes"}, {"at most ", most});
  std::string text(static_cast<std::size_t>(size), '\0');
  const std::size_t count = std::fread(text.data(), 1, text.size(), file.get());
  if (count != text.size()) {
    throw Error(ErrorCode::io, name, {count, " bytes could be read"}, {text.size()});
  }
  if (text.compare(0, 26, "version https://git-lfs.gi") == 0) {
    throw Error(ErrorCode::bad_file, name, "a git-lfs pointer", "the file itself (git lfs pull fetches it)");
  }
  return text;
}

QWENLITE_INLINE TokenizerFile parse(NamedText json) {
  SaxReader reader(std::move(json.name), SaxReader::Document::tokenizer_json);
  reader.read(json.text);
  return reader.take();
}

/// Reads merges.txt: "left right" on each line, a first line "#version: ..." allowed.
inline void parse_merges(const NamedText& merges, TokenizerFile& file) {
  std::string_view text = merges.text;
  std::size_t number = 0;
  while (!text.empty()) {
    const std::size_t length = std::min(text.find('\n'), text.size());
    std::string_view line = text.substr(0, length);
    text.remove_prefix(std::min(length + 1, text.size()));
    ++number;
    if (!line.empty() && line.back() == '\r') line.remove_suffix(1);
    if (line.empty() || (number == 1 && line.substr(0, 8) == "#version")) continue;
    if (!append_merge(file.merges, line)) {
      throw Error(ErrorCode::bad_file, {merges.name, " line ", number}, {"\"", shown(line), "\""},
                  "two parts in the byte alphabet with one space between them");
    }
  }
}

QWENLITE_INLINE TokenizerFile parse_pair(NamedText vocab_json, const NamedText& merges_txt,
                                         const TokenizerConfig& config) {
  SaxReader reader(std::move(vocab_json.name), SaxReader::Document::vocab_json);
  reader.read(vocab_json.text);
  TokenizerFile file = reader.take();
  parse_merges(merges_txt, file);
  const std::string_view regex =
      config.pretokenize_regex ? *config.pretokenize_regex : pre_split::qwen3_regex;
  const bool known_class =
      config.tokenizer_class == "Qwen2Tokenizer" || config.tokenizer_class == "Qwen2TokenizerFast";
  const auto rule = pre_split::rule_of(regex);
  if (!rule) {
    throw Error(ErrorCode::unsupported, {config.name, " pretokenize_regex"}, {"\"", shown(regex), "\""},
                "the regex of Qwen3 or Qwen3.5");
  }
  if (!config.pretokenize_regex && !known_class) {
    throw Error(ErrorCode::unsupported, {config.name, " tokenizer_class"},
                {"\"", shown(config.tokenizer_class), "\""},
                "Qwen2Tokenizer, or a pretokenize_regex, or a tokenizer.json");
  }
  file.rule = *rule;
  return file;
}

// -------------------------------------------------------------------------- tokenizer_config.json

using json_text::Json;

/// A member of tokenizer_config.json, or something inside of one: what messages call it, and its value.
struct ConfigValue {
  std::string place;  // "DIRECTORY/tokenizer_config.json eos_token"
  const Json* value;  // null when it is absent

  /// Throws "PLACE: found A KIND, expected EXPECTED".
  [[noreturn]] void refuse(const char* expected) const {
    throw Error(ErrorCode::bad_file, place, python_json::kind_of(*value), expected);
  }
  [[nodiscard]] bool is_absent() const noexcept { return value == nullptr || value->is_null(); }
};

/// The "content" of an object that describes a token, or null.
[[nodiscard]] inline const std::string* content_of(const Json& value) {
  const Json* content = value.is_object() ? json_text::member(value, "content") : nullptr;
  return content != nullptr && content->is_string() ? &content->get_ref<const std::string&>() : nullptr;
}

/// A string, or the "content" of an object, as tokens are written there; nothing for null or when absent.
[[nodiscard]] inline std::optional<std::string> token_text(const ConfigValue& field) {
  if (field.is_absent()) return std::nullopt;
  if (field.value->is_string()) return field.value->get_ref<const std::string&>();
  const std::string* content = content_of(*field.value);
  if (content == nullptr) field.refuse("a string or an object with content");
  return *content;
}

/// One entry of added_tokens_decoder.
[[nodiscard]] inline AddedToken config_token(const std::string& id_text, const ConfigValue& entry) {
  RawAddedToken raw;
  const char* end = id_text.data() + id_text.size();
  const auto [stop, problem] = std::from_chars(id_text.data(), end, raw.id);
  if (problem != std::errc() || stop != end || raw.id < 0) {
    throw Error(ErrorCode::bad_file, entry.place, "this key", "a token id");
  }
  const std::string* content = content_of(*entry.value);
  if (content == nullptr) entry.refuse("an object with content");
  raw.content = *content;
  for (std::size_t i = 0; i < raw.flags.size(); ++i) {
    const std::string_view name = RawAddedToken::flag_names[i];
    const ConfigValue flag{joined({entry.place, " ", name}), json_text::member(*entry.value, name)};
    if (flag.value == nullptr) continue;
    if (!flag.value->is_boolean()) flag.refuse("true or false");
    raw.flags[i] = flag.value->get<bool>();
  }
  return raw.checked(entry.place);
}

/// The template; of several, the one named "default".
[[nodiscard]] inline std::optional<std::string> template_of(const ConfigValue& several) {
  if (several.value == nullptr || !several.value->is_array()) return token_text(several);
  std::optional<std::string> found;
  for (const Json& item : several.value->get_ref<const Json::array_t&>()) {
    const Json* name = item.is_object() ? json_text::member(item, "name") : nullptr;
    const Json* text = item.is_object() ? json_text::member(item, "template") : nullptr;
    if (name == nullptr || text == nullptr || !json_text::is_text(*name, "default")) continue;
    found = token_text({several.place, text});
  }
  return found;
}

QWENLITE_INLINE TokenizerConfig parse_config(NamedText json) {
  json_text::Limits limits = python_json::limits_of(json.text);
  limits.repeated_keys = false;
  const json_text::Parsed parsed = json_text::parse(json.text, limits);
  if (parsed.problem) throw Error(ErrorCode::bad_file, json.name, *parsed.problem, "one JSON value");
  const Json& root = parsed.value;
  if (!root.is_object()) ConfigValue{json.name, &root}.refuse("an object");
  TokenizerConfig config;
  config.name = std::move(json.name);
  const auto field = [&](const char* name) {
    return ConfigValue{joined({config.name, " ", name}), json_text::member(root, name)};
  };
  config.eos_token = token_text(field("eos_token"));
  config.pretokenize_regex = token_text(field("pretokenize_regex"));
  config.tokenizer_class = token_text(field("tokenizer_class")).value_or("");
  config.chat_template = template_of(field("chat_template"));
  const ConfigValue added = field("added_tokens_decoder");
  if (added.value == nullptr) return config;
  if (!added.value->is_object()) added.refuse("an object");
  for (const auto& [id, token] : added.value->get_ref<const Json::object_t&>()) {
    config.added.push_back(config_token(id, {joined({added.place, "[\"", shown(id), "\"]"}), &token}));
  }
  return config;
}

}  // namespace tokenizer_file
}  // namespace QWENLITE_ABI
}  // namespace qwenlite
