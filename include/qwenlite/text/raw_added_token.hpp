// SPDX-License-Identifier: Apache-2.0
//
// An added token as tokenizer.json and tokenizer_config.json describe it: with flags that this library does
// not run, which is told by name when it is checked.
#pragma once

#include <array>
#include <string>
#include <string_view>

#include <qwenlite/text/tokenizer_content.hpp>
#include <qwenlite/text/unicode.hpp>

namespace qwenlite {
inline namespace QWENLITE_ABI {
namespace tokenizer_file {

/// An added token with all flags the format has.
struct RawAddedToken {
  static constexpr std::array<std::string_view, 5> flag_names{"special", "lstrip", "rstrip", "single_word",
                                                              "normalized"};
  int id = Vocabulary::none;
  std::string content;
  std::array<bool, 5> flags{};

  /// The flag of this name, or null.
  [[nodiscard]] bool* flag(std::string_view name) noexcept {
    for (std::size_t i = 0; i < flags.size(); ++i) {
      if (flag_names[i] == name) return &flags[i];
    }
    return nullptr;
  }

  /// The token, if this library can match it. Texts that NFC leaves alone are matched before it, whatever
  /// `normalized` says.
  [[nodiscard]] AddedToken checked(std::string_view place) const {
    if (id < 0) throw Error(ErrorCode::bad_file, {place, " id"}, "nothing", "a token id");
    if (content.empty()) throw Error(ErrorCode::bad_file, {place, " content"}, "nothing", "the token's text");
    if (flags[3]) throw Error(ErrorCode::unsupported, {place, " single_word"}, "true", "false");
    if (flags[4] && !unicode::is_surely_nfc(content)) {
      throw Error(ErrorCode::unsupported, {place, " normalized"}, "true with a text that NFC changes",
                  "false");
    }
    return {id, content, flags[0], flags[1], flags[2]};
  }
};

}  // namespace tokenizer_file
}  // namespace QWENLITE_ABI
}  // namespace qwenlite
