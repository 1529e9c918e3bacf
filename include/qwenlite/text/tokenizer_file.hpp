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

/// The whole content of a regular file. Throws `io`.
[[nodiscard]] std::string read(const std::filesystem::path& path);

/// Parses tokenizer.json; `name` is used in messages.
[[nodiscard]] TokenizerFile parse(std::string_view json, std::string name);

/// Parses vocab.json and merges.txt, which do not say how text is split: `config` must.
[[nodiscard]] TokenizerFile parse_pair(std::string_view vocab_json, std::string_view merges_txt,
                                       const TokenizerConfig& config);

/// Parses tokenizer_config.json.
[[nodiscard]] TokenizerConfig parse_config(std::string_view json);

}  // namespace tokenizer_file
}  // namespace QWENLITE_ABI
}  // namespace qwenlite

#ifndef QWENLITE_COMPILED
#include <qwenlite/text/tokenizer_file-inl.hpp>
#endif
