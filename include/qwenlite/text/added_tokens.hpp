// SPDX-License-Identifier: Apache-2.0
//
// Finds added tokens in a text: leftmost first, the longest of those that begin at one place.
//
// Whether a place may hold one at all is the caller's business: text typed by a user may not, text
// written by the chat template may. Candidates are found by their first byte, then looked up once per
// distinct length, so the cost does not grow with the number of added tokens.
#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <qwenlite/error.hpp>
#include <qwenlite/text/tokenizer_content.hpp>
#include <qwenlite/text/unicode.hpp>

namespace qwenlite {
inline namespace QWENLITE_ABI {

/// Half-open range of bytes of a text.
struct ByteRange {
  std::size_t begin = 0;
  std::size_t end = 0;
};

/// Added tokens in another order. Pointers are sorted, by a function that is passed, so that sorting is
/// compiled once.
[[nodiscard]] inline std::vector<AddedToken*> sorted(std::vector<AddedToken>& tokens,
                                                     bool (*before)(const AddedToken* a,
                                                                    const AddedToken* b)) {
  std::vector<AddedToken*> order;
  order.reserve(tokens.size());
  for (AddedToken& token : tokens) order.push_back(&token);
  std::sort(order.begin(), order.end(), before);
  return order;
}

/// The added tokens of a tokenizer, ready for matching.
class AddedTokens {
 public:
  struct Match {
    ByteRange bytes;  ///< without the white space that lstrip and rstrip take along
    const AddedToken* token = nullptr;
  };

  AddedTokens() = default;
  explicit AddedTokens(std::vector<AddedToken> tokens) {
    const auto longer = [](const AddedToken* a, const AddedToken* b) {
      return a->content.size() > b->content.size();
    };
    for (const AddedToken* token : sorted(tokens, longer)) {
      const std::size_t length = token->content.size();
      if (lengths_.empty() || lengths_.back() != length) lengths_.push_back(length);
    }
    const auto by_content = [](const AddedToken* a, const AddedToken* b) { return a->content < b->content; };
    for (AddedToken* token : sorted(tokens, by_content)) {
      begins_[static_cast<unsigned char>(token->content.front())] = true;
      tokens_.push_back(std::move(*token));
    }
  }

  [[nodiscard]] const std::vector<AddedToken>& all() const noexcept { return tokens_; }

  /// The first match that begins at `from` or later and lies inside `text`.
  [[nodiscard]] std::optional<Match> find(std::string_view text, std::size_t from) const noexcept {
    for (std::size_t at = from; at < text.size(); ++at) {
      if (!begins_[static_cast<unsigned char>(text[at])]) continue;
      for (const std::size_t length : lengths_) {
        if (length > text.size() - at) continue;
        const AddedToken* token = lookup(text.substr(at, length));
        if (token != nullptr) return Match{{at, at + length}, token};
      }
    }
    return std::nullopt;
  }

  /// The match widened by the white space its flags take along, not before `floor`.
  [[nodiscard]] static ByteRange stripped(std::string_view text, const Match& match,
                                          std::size_t floor) noexcept {
    ByteRange range = match.bytes;
    while (match.token->right_strip && range.end < text.size()) {
      const unicode::Decoded next = unicode::decode(text, range.end);
      if (!unicode::is_space(next.point)) break;
      range.end += next.length;
    }
    while (match.token->left_strip && range.begin > floor) {
      std::size_t before = range.begin - 1;
      while (before > floor && (static_cast<unsigned char>(text[before]) & 0xC0U) == 0x80U) --before;
      if (!unicode::is_space(unicode::decode(text, before).point)) break;
      range.begin = before;
    }
    return range;
  }

 private:
  [[nodiscard]] const AddedToken* lookup(std::string_view text) const noexcept {
    const auto found =
        std::lower_bound(tokens_.begin(), tokens_.end(), text,
                         [](const AddedToken& a, std::string_view t) { return a.content < t; });
    return found != tokens_.end() && found->content == text ? &*found : nullptr;
  }

  std::vector<AddedToken> tokens_;    // sorted by content
  std::array<bool, 256> begins_{};    // whether some token begins with this byte
  std::vector<std::size_t> lengths_;  // of the contents, longest first
};

}  // namespace QWENLITE_ABI
}  // namespace qwenlite
