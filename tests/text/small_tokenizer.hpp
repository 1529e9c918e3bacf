// SPDX-License-Identifier: Apache-2.0
//
// A tokenizer small enough to write down, as tokenizer.json text, for tests that need no downloaded
// files; and a plain byte-pair encoder to compare with.
//
// Ids 0 to 255 are the bytes in the order of the byte alphabet, then one token per merge, then the added
// tokens, numbered on.
#pragma once

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <limits>
#include <optional>
#include <sstream>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <qwenlite/text/pre_split.hpp>
#include <qwenlite/text/tokenizer.hpp>

#include "catch_any.hpp"
#include "temporary_directory.hpp"

namespace small {

/// The byte alphabet's spelling of a byte, written independently of the library.
inline std::string letter_of(unsigned byte) {
  const auto printable = [](unsigned b) { return (b > 0x20 && b < 0x7F) || (b > 0xA0 && b != 0xAD); };
  unsigned point = byte;
  if (!printable(byte)) {
    point = 256;
    for (unsigned b = 0; b < byte; ++b) point += printable(b) ? 0U : 1U;
  }
  std::string text;
  if (point < 0x80) {
    text.push_back(static_cast<char>(point));
  } else {
    text.push_back(static_cast<char>(0xC0 | (point >> 6U)));
    text.push_back(static_cast<char>(0x80 | (point & 0x3FU)));
  }
  return text;
}

inline std::string spelled(std::string_view bytes) {
  std::string text;
  for (const char c : bytes) text += letter_of(static_cast<unsigned char>(c));
  return text;
}

/// The bytes in the order of their ids.
inline std::vector<unsigned> byte_order() {
  std::vector<unsigned> order, rest;
  for (unsigned b = 0; b < 256; ++b) (letter_of(b).size() == 1 || b >= 0xA1 ? order : rest).push_back(b);
  std::vector<unsigned> printable;
  for (const unsigned b : order) (b == 0xAD ? rest : printable).push_back(b);
  printable.insert(printable.end(), rest.begin(), rest.end());
  return printable;
}

inline std::string in_quotes(std::string_view text) {
  std::string out = "\"";
  for (const char c : text) {
    if (c == '"' || c == '\\') out.push_back('\\');
    out += c == '\n' ? std::string("\\n") : std::string(1, c);
  }
  return out + "\"";
}

struct Added {
  std::string content;
  bool special = true;
  std::string flags = R"("lstrip": false, "rstrip": false, "single_word": false, "normalized": false)";
};

/// What a small tokenizer consists of.
struct Spec {
  std::vector<std::pair<std::string, std::string>> merges{
      {"h", "e"},   {"l", "l"},       {"he", "ll"}, {"hell", "o"}, {" ", "hello"}, {"a", "a"},
      {"aa", "aa"}, {"\n", "\n"},     {"i", "m"},   {"1", "2"},    {"t", "h"},     {"th", "i"},
      {"n", "k"},   {"\xC3", "\xA9"}, {"'", "s"},   {"thi", "nk"}, {" ", " "},     {"aaaa", "aaaa"}};
  std::vector<Added> added{{"<|endoftext|>"},       {"<|im_start|>"},           {"<|im_end|>"},
                           {"<think>", false},      {"</think>", false},        {"<tool_call>", false},
                           {"</tool_call>", false}, {"<tool_response>", false}, {"</tool_response>", false}};
  std::string_view regex = qwenlite::pre_split::qwen3_regex;
  bool merges_as_arrays = true;
};

/// Tokens of a Spec by id, without the added ones.
inline std::vector<std::string> tokens_of(const Spec& spec) {
  std::vector<std::string> tokens;
  for (const unsigned b : byte_order()) tokens.emplace_back(1, static_cast<char>(b));
  for (const auto& [left, right] : spec.merges) tokens.push_back(left + right);
  return tokens;
}

inline std::string vocabulary_json(const Spec& spec) {
  std::string json = "{";
  int id = 0;
  for (const std::string& token : tokens_of(spec)) {
    if (id != 0) json += ", ";
    json += in_quotes(spelled(token)) + ": " + std::to_string(id++);
  }
  return json + "}";
}

inline std::string added_json(const Spec& spec) {
  std::string json = "[";
  int id = static_cast<int>(256 + spec.merges.size());
  for (const Added& token : spec.added) {
    if (json.size() > 1) json += ", ";
    json += "{\"id\": " + std::to_string(id++) + ", \"content\": " + in_quotes(token.content) +
            ", \"special\": " + (token.special ? "true" : "false") + ", " + token.flags + "}";
  }
  return json + "]";
}

inline std::string merges_json(const Spec& spec) {
  std::string json = "[";
  for (const auto& [left, right] : spec.merges) {
    if (json.size() > 1) json += ", ";
    const std::string a = spelled(left), b = spelled(right);
    json += spec.merges_as_arrays ? "[" + in_quotes(a) + ", " + in_quotes(b) + "]" : in_quotes(a + " " + b);
  }
  return json + "]";
}

/// tokenizer.json of a Spec.
inline std::string json(const Spec& spec = {}) {
  return R"({"version": "1.0", "truncation": null, "padding": null, "added_tokens": )" + added_json(spec) +
         R"(, "normalizer": {"type": "NFC"}, "pre_tokenizer": {"type": "Sequence", "pretokenizers": [)" +
         R"({"type": "Split", "pattern": {"Regex": )" + in_quotes(spec.regex) +
         R"(}, "behavior": "Isolated", "invert": false}, {"type": "ByteLevel", "add_prefix_space": false, )" +
         R"("trim_offsets": false, "use_regex": false}]}, "post_processor": null, )" +
         R"("decoder": {"type": "ByteLevel", "add_prefix_space": false}, "model": {"type": "BPE", )" +
         R"("dropout": null, "unk_token": null, "continuing_subword_prefix": "", "end_of_word_suffix": "", )" +
         R"("fuse_unk": false, "byte_fallback": false, "ignore_merges": false, "vocab": )" +
         vocabulary_json(spec) + R"(, "merges": )" + merges_json(spec) + "}}";
}

inline qwenlite::Tokenizer tokenizer(const Spec& spec = {}) {
  return qwenlite::Tokenizer::from_json(json(spec));
}

/// The id of a token of the small tokenizer; fails the test when there is none.
inline int id_of(const qwenlite::Tokenizer& tokenizer, std::string_view text) {
  const auto id = tokenizer.token_to_id(text);
  REQUIRE(id.has_value());
  return *id;
}

/// Byte-pair encoding as its definition says, in quadratic time.
inline std::vector<std::string> merged(std::string_view piece, const Spec& spec) {
  std::vector<std::string> parts;
  for (const char c : piece) parts.emplace_back(1, c);
  while (true) {
    std::size_t best_rank = std::numeric_limits<std::size_t>::max(), best = 0;
    for (std::size_t i = 0; i + 1 < parts.size(); ++i) {
      for (std::size_t rank = 0; rank < spec.merges.size() && rank < best_rank; ++rank) {
        if (spec.merges[rank].first != parts[i] || spec.merges[rank].second != parts[i + 1]) continue;
        best_rank = rank;
        best = i;
      }
    }
    if (best_rank == std::numeric_limits<std::size_t>::max()) return parts;
    parts[best] += parts[best + 1];
    parts.erase(parts.begin() + static_cast<std::ptrdiff_t>(best) + 1);
  }
}

}  // namespace small

/// A directory with the full-size tokenizers and reference results, if the environment names one.
inline std::optional<std::filesystem::path> shared_directory(const char* wanted) {
  const char* value = std::getenv("QWENLITE_SHARED");
  if (value != nullptr && std::filesystem::exists(std::filesystem::path(value) / wanted)) return value;
  WARN("SKIPPED: " << wanted << " not found; set QWENLITE_SHARED to the directory that has it");
  return std::nullopt;
}

inline std::string file_text(const std::filesystem::path& path) {
  std::ifstream file(path, std::ios::binary);
  REQUIRE(file);
  std::ostringstream text;
  text << file.rdbuf();
  return text.str();
}
