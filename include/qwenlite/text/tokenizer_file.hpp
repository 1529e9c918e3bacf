// SPDX-License-Identifier: Apache-2.0
//
// The files of a tokenizer, read but not yet put into tables: tokenizer.json, or vocab.json with
// merges.txt, and tokenizer_config.json.
//
// tokenizer.json is streamed (11 MB; a tree of it would cost half a second and 100 MB). Whatever a file
// asks for that byte-level BPE with a known pre-split rule is not, is refused here by name. Strings of
// vocabulary and merges are turned from the byte alphabet into bytes as they are read.
#pragma once

#include <filesystem>
#include <string>
#include <string_view>

#include <qwenlite/error.hpp>
#include <qwenlite/text/tokenizer_content.hpp>

namespace qwenlite {
inline namespace QWENLITE_ABI {

namespace tokenizer_file {

/// How long the files may be: far above any real one (13 MB for the vocabulary of Qwen3.5, 10 kB for the
/// others), low enough to be read by mistake.
inline constexpr std::size_t most_vocabulary_bytes = 128'000'000;
inline constexpr std::size_t most_config_bytes = 16'000'000;  // as Checkpoint reads the same file

/// The text of a file, and what messages call it.
struct NamedText {
  std::string_view text;
  std::string name;
};

/// The whole content of a regular file. Throws `io`, or `bad_file` when it is longer than `most` bytes.
[[nodiscard]] std::string read(const std::filesystem::path& path, std::size_t most);

/// Parses tokenizer.json.
[[nodiscard]] TokenizerFile parse(NamedText json);

/// Parses vocab.json and merges.txt, which do not say how text is split: `config` must.
[[nodiscard]] TokenizerFile parse_pair(NamedText vocab_json, const NamedText& merges_txt,
                                       const TokenizerConfig& config);

/// Parses tokenizer_config.json.
[[nodiscard]] TokenizerConfig parse_config(NamedText json);

}  // namespace tokenizer_file
}  // namespace QWENLITE_ABI
}  // namespace qwenlite

#ifndef QWENLITE_COMPILED
#include <qwenlite/text/tokenizer_file-inl.hpp>
#endif
