// SPDX-License-Identifier: Apache-2.0
//
// Finds added tokens in a text: leftmost first, the longest of those that begin at one place.
//
// Whether a place may hold one at all is the caller's business: text typed by a user may not, text
// written by the chat template may. A place is looked at further only if some token begins with its byte.
// Then one binary search finds the last token, in their order, that is not behind the text: whatever token
// the text begins with, that one begins with it too, and each token knows the longest other it begins with.
// So the cost hardly grows with the number of added tokens.
#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <limits>
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
    const auto by_content = [](const AddedToken* a, const AddedToken* b) { return a->content < b->content; };
    for (AddedToken* token : sorted(tokens, by_content)) {
      begins_[static_cast<unsigned char>(token->content.front())] = true;
      starts_.push_back(start_of(token->content));
      tokens_.push_back(std::move(*token));
    }
  }

  [[nodiscard]] const std::vector<AddedToken>& all() const noexcept { return tokens_; }

  /// The first match that begins at `from` or later and lies inside `text`.
  [[nodiscard]] std::optional<Match> find(std::string_view text, std::size_t from) const noexcept {
    for (std::size_t at = from; at < text.size(); ++at) {
      if (!begins_[static_cast<unsigned char>(text[at])]) continue;
      const AddedToken* token = longest_at(text.substr(at));
      if (token != nullptr) return Match{{at, at + token->content.size()}, token};
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
      const unicode::Decoded point = unicode::decode(text, before);
      if (!unicode::is_space(point.point) || before + point.length != range.begin) break;
      range.begin = before;
    }
    return range;
  }

 private:
  static constexpr std::size_t none = std::numeric_limits<std::size_t>::max();

  [[nodiscard]] static bool begins_with(std::string_view text, std::string_view start) noexcept {
    return text.substr(0, start.size()) == start;
  }

  /// The longest other token that the next one, in their order, begins with.
  [[nodiscard]] std::size_t start_of(std::string_view next) const noexcept {
    std::size_t start = tokens_.empty() ? none : tokens_.size() - 1;
    while (start != none && !begins_with(next, tokens_[start].content)) start = starts_[start];
    return start;
  }

  /// The longest token that `text` begins with, or null.
  [[nodiscard]] const AddedToken* longest_at(std::string_view text) const noexcept {
    const auto before = [](std::string_view t, const AddedToken& token) { return t < token.content; };
    const auto behind = std::upper_bound(tokens_.begin(), tokens_.end(), text, before);
    if (behind == tokens_.begin()) return nullptr;
    auto found = static_cast<std::size_t>(behind - tokens_.begin()) - 1;
    const std::string& last = tokens_[found].content;
    const auto parted = std::mismatch(last.begin(), last.end(), text.begin(), text.end());
    const auto same = static_cast<std::size_t>(parted.first - last.begin());
    while (found != none && tokens_[found].content.size() > same) found = starts_[found];
    return found == none ? nullptr : &tokens_[found];
  }

  std::vector<AddedToken> tokens_;   // sorted by content
  std::vector<std::size_t> starts_;  // of each, the longest other token it begins with, or none
  std::array<bool, 256> begins_{};   // whether some token begins with this byte
};

}  // namespace QWENLITE_ABI
}  // namespace qwenlite
