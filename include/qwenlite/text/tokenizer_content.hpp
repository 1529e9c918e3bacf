// SPDX-License-Identifier: Apache-2.0
//
// What tokenizer files say, as plain lists: the readers fill them, Tokenizer checks them against each
// other and builds its tables from them.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include <qwenlite/error.hpp>
#include <qwenlite/text/pre_split.hpp>
#include <qwenlite/text/vocabulary.hpp>

namespace qwenlite {
inline namespace QWENLITE_ABI {

/// A token that is matched whole, ahead of the pre-split, and has no merges.
struct AddedToken {
  int id = Vocabulary::none;
  std::string content;
  bool special = false;      ///< left out by decoding with skip_special
  bool left_strip = false;   ///< takes the white space before it along
  bool right_strip = false;  ///< takes the white space after it along
};

/// What tokenizer.json (or vocab.json and merges.txt) holds.
struct TokenizerFile {
  std::string name;      ///< for messages
  ByteStrings tokens;    ///< in file order
  std::vector<int> ids;  ///< of `tokens`
  ByteStrings merges;    ///< two per merge, in order of rank
  std::vector<AddedToken> added;
  PreSplit rule = PreSplit::qwen3;
};

/// What tokenizer_config.json holds and this library uses.
struct TokenizerConfig {
  std::string name = "tokenizer_config.json";  ///< for messages
  std::vector<AddedToken> added;
  std::optional<std::string> eos_token;
  std::optional<std::string> chat_template;
  std::optional<std::string> pretokenize_regex;
  std::string tokenizer_class;
};

}  // namespace QWENLITE_ABI
}  // namespace qwenlite
