// SPDX-License-Identifier: Apache-2.0
//
// Definitions of tokenizer_file.hpp but for the streaming reader of tokenizer.json, which is
// tokenizer_sax.hpp: reading files, merges.txt, tokenizer_config.json.
#pragma once

#include <array>
#include <charconv>
#include <filesystem>
#include <fstream>
#include <string>
#include <string_view>
#include <utility>

#include <qwenlite/text/python_json.hpp>
#include <qwenlite/text/tokenizer_file.hpp>
#include <qwenlite/text/tokenizer_sax.hpp>

namespace qwenlite {
inline namespace QWENLITE_ABI {
namespace tokenizer_file {

inline std::string read(const std::filesystem::path& path) {
  std::error_code failure;
  if (!std::filesystem::is_regular_file(path, failure)) {  // opening a pipe would wait for its writer
    throw Error(ErrorCode::io, path.string(), "no regular file", "a tokenizer file");
  }
  const auto size = std::filesystem::file_size(path, failure);
  std::ifstream file(path, std::ios::binary);
  if (failure || !file) throw Error(ErrorCode::io, path.string(), "no readable file", "a tokenizer file");
  std::string text(static_cast<std::size_t>(size), '\0');
  file.read(text.data(), static_cast<std::streamsize>(text.size()));
  if (static_cast<std::size_t>(file.gcount()) != text.size()) {
    throw Error(ErrorCode::io, path.string(), std::to_string(file.gcount()) + " bytes could be read",
                std::to_string(text.size()));
  }
  return text;
}

inline void read_events(std::string_view json, nlohmann::json_sax<nlohmann::ordered_json>& events) {
  nlohmann::ordered_json::sax_parse(json.data(), json.data() + json.size(), &events);
}

inline TokenizerFile parse(std::string_view json, std::string name) {
  SaxReader reader(std::move(name), SaxReader::Document::tokenizer_json, json.size());
  read_events(json, reader);
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
      throw Error(ErrorCode::bad_file, "merges.txt line " + std::to_string(number), "\"" + shown(line) + "\"",
                  "two parts in the byte alphabet with one space between them");
    }
  }
}

inline TokenizerFile parse_pair(std::string_view vocab_json, std::string_view merges_txt,
                                const TokenizerConfig& config) {
  SaxReader reader("vocab.json", SaxReader::Document::vocab_json, vocab_json.size());
  read_events(vocab_json, reader);
  TokenizerFile file = reader.take();
  parse_merges(merges_txt, file);
  const std::string_view regex =
      config.pretokenize_regex ? *config.pretokenize_regex : pre_split::qwen3_regex;
  const bool known_class =
      config.tokenizer_class == "Qwen2Tokenizer" || config.tokenizer_class == "Qwen2TokenizerFast";
  const auto rule = pre_split::rule_of(regex);
  if (!rule) {
    throw Error(ErrorCode::unsupported, "tokenizer_config.json pretokenize_regex", "\"" + shown(regex) + "\"",
                "the regex of Qwen3 or Qwen3.5");
  }
  if (!config.pretokenize_regex && !known_class) {
    throw Error(ErrorCode::unsupported, "tokenizer_config.json tokenizer_class",
                "\"" + shown(config.tokenizer_class) + "\"",
                "Qwen2Tokenizer, or a pretokenize_regex, or a tokenizer.json");
  }
  file.rule = *rule;
  return file;
}

// -------------------------------------------------------------------------- tokenizer_config.json

inline constexpr std::string_view config_name = "tokenizer_config.json";

/// A string, or the "content" of an object, as tokens are written there; nothing for null.
inline std::optional<std::string> token_text(const nlohmann::ordered_json& value, std::string_view field) {
  if (value.is_null()) return std::nullopt;
  if (value.is_string()) return value.get<std::string>();
  if (value.is_object() && value.contains("content") && value["content"].is_string()) {
    return value["content"].get<std::string>();
  }
  throw Error(ErrorCode::bad_file, std::string(config_name).append(" ").append(field),
              python_json::kind_of(value), "a string or an object with content");
}

inline AddedToken config_token(const std::string& id_text, const nlohmann::ordered_json& value) {
  const std::string place = std::string(config_name) + " added_tokens_decoder[\"" + shown(id_text) + "\"]";
  RawAddedToken raw;
  const char* end = id_text.data() + id_text.size();
  const auto [stop, problem] = std::from_chars(id_text.data(), end, raw.id);
  if (problem != std::errc() || stop != end || raw.id < 0) {
    throw Error(ErrorCode::bad_file, place, "this key", "a token id");
  }
  if (!value.is_object() || !value.contains("content") || !value["content"].is_string()) {
    throw Error(ErrorCode::bad_file, place, python_json::kind_of(value), "an object with content");
  }
  raw.content = value["content"].get<std::string>();
  for (const std::string_view flag : RawAddedToken::flag_names) {
    const std::string key(flag);
    if (!value.contains(key)) continue;
    if (!value[key].is_boolean()) {
      throw Error(ErrorCode::bad_file, place + " " + key, python_json::kind_of(value[key]), "true or false");
    }
    *raw.flag(flag) = value[key].get<bool>();
  }
  return raw.checked(place);
}

inline TokenizerConfig parse_config(std::string_view json) {
  const nlohmann::ordered_json root = python_json::parse(json, config_name, ErrorCode::bad_file);
  if (!root.is_object()) {
    throw Error(ErrorCode::bad_file, config_name, python_json::kind_of(root), "an object");
  }
  TokenizerConfig config;
  const auto text_of = [&root](const char* key) -> std::optional<std::string> {
    return root.contains(key) ? token_text(root[key], key) : std::nullopt;
  };
  config.eos_token = text_of("eos_token");
  config.pretokenize_regex = text_of("pretokenize_regex");
  config.tokenizer_class = text_of("tokenizer_class").value_or("");
  if (root.contains("chat_template") && root["chat_template"].is_array()) {  // several, by name
    for (const auto& item : root["chat_template"]) {
      const bool usable = item.is_object() && item.contains("name") && item.contains("template");
      if (usable && item["name"] == "default")
        config.chat_template = token_text(item["template"], "chat_template");
    }
  } else {
    config.chat_template = text_of("chat_template");
  }
  if (root.contains("added_tokens_decoder")) {
    const auto& added = root["added_tokens_decoder"];
    if (!added.is_object()) {
      throw Error(ErrorCode::bad_file, std::string(config_name) + " added_tokens_decoder",
                  python_json::kind_of(added), "an object");
    }
    for (const auto& item : added.items()) config.added.push_back(config_token(item.key(), item.value()));
  }
  return config;
}

}  // namespace tokenizer_file
}  // namespace QWENLITE_ABI
}  // namespace qwenlite
