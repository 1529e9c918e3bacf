// SPDX-License-Identifier: Apache-2.0
//
// The pre-split rules of the two families, run as one hand-written scanner over valid UTF-8.
//
// A rule is a regex in tokenizer.json whose alternatives are tried in order at each position:
//   (?i:'s|'t|'re|'ve|'m|'ll|'d) | [^\r\n\p{L}\p{N}]?\p{L}+ | \p{N} | ?[^\s\p{L}\p{N}]+[\r\n]*
//   | \s*[\r\n]+ | \s+(?!\S) | \s+
// Qwen3.5 counts combining marks as letters in the second and the fourth. Every character is covered by
// some alternative, no alternative needs more than one look back, and the scan is linear.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string_view>

#include <qwenlite/error.hpp>
#include <qwenlite/text/unicode.hpp>

namespace qwenlite {
inline namespace QWENLITE_ABI {

/// Which of the known pre-split rules a tokenizer uses.
enum class PreSplit : std::uint8_t { qwen3, qwen3_5 };

namespace pre_split {

inline constexpr std::string_view qwen3_regex =
    R"((?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*|)"
    R"(\s*[\r\n]+|\s+(?!\S)|\s+)";
inline constexpr std::string_view qwen3_5_regex =
    R"((?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?[\p{L}\p{M}]+|\p{N}| ?[^\s\p{L}\p{M}\p{N}]+[\r\n]*|)"
    R"(\s*[\r\n]+|\s+(?!\S)|\s+)";

/// The rule a regex stands for, recognised by its exact text.
[[nodiscard]] inline std::optional<PreSplit> rule_of(std::string_view regex) noexcept {
  if (regex == qwen3_regex) return PreSplit::qwen3;
  if (regex == qwen3_5_regex) return PreSplit::qwen3_5;
  return std::nullopt;
}

/// Character classes, one bit each, so that a rule's set is a mask.
enum Class : std::uint8_t { letter = 1, mark = 2, number = 4, blank = 8, newline = 16, symbol = 32 };

[[nodiscard]] constexpr std::array<std::uint8_t, 128> ascii_classes() noexcept {
  std::array<std::uint8_t, 128> table{};
  for (unsigned c = 0; c < 128; ++c) {
    const bool is_letter = (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z');
    const bool is_number = c >= '0' && c <= '9';
    const bool is_blank = c == ' ' || (c >= 9 && c <= 13);
    table[c] = is_letter ? letter : is_number ? number : is_blank ? blank : symbol;
  }
  table['\r'] = table['\n'] = newline;
  return table;
}
inline constexpr std::array<std::uint8_t, 128> ascii_class = ascii_classes();

/// Cuts a text into pieces, one `next()` after the other. The text must be valid UTF-8.
class Scanner {
 public:
  Scanner(std::string_view text, PreSplit rule) noexcept
      : text_(text),
        letters_(rule == PreSplit::qwen3 ? letter : letter | mark),
        symbols_(rule == PreSplit::qwen3 ? symbol | mark : symbol) {}

  [[nodiscard]] bool done() const noexcept { return at_ == text_.size(); }

  /// The next piece, never empty; only while not done().
  [[nodiscard]] std::string_view next() noexcept {
    const std::size_t begin = at_;
    at_ = piece_end(begin);
    return text_.substr(begin, at_ - begin);
  }

 private:
  struct Char {
    unsigned kind = 0;  // a Class, or 0 past the end of the text
    std::size_t end = 0;
  };

  [[nodiscard]] Char look(std::size_t at) const noexcept {
    if (at >= text_.size()) return {0, at};
    const auto byte = static_cast<unsigned char>(text_[at]);
    if (byte < 0x80) return {ascii_class[byte], at + 1};
    return look_wide(at);
  }

  [[nodiscard]] Char look_wide(std::size_t at) const noexcept {
    const unicode::Decoded found = unicode::decode(text_, at);
    const std::size_t end = at + found.length;
    switch (unicode::category(found.point)) {
      case unicode::Category::letter: return {letter, end};
      case unicode::Category::mark: return {mark, end};
      case unicode::Category::number: return {number, end};
      case unicode::Category::space: return {blank, end};
      case unicode::Category::other: break;
    }
    return {symbol, end};
  }

  /// End of the run of characters of the classes in `mask` that begins at `at`.
  [[nodiscard]] std::size_t run_end(std::size_t at, unsigned mask) const noexcept {
    for (Char next = look(at); (next.kind & mask) != 0; next = look(at)) at = next.end;
    return at;
  }

  [[nodiscard]] std::size_t piece_end(std::size_t at) const noexcept {
    const Char first = look(at);
    if ((first.kind & letters_) != 0) return run_end(first.end, letters_);
    if (first.kind == number) return first.end;
    if (first.kind != newline) {
      if (const std::size_t length = contraction(at); length != 0) return at + length;
      const Char second = look(first.end);
      if ((second.kind & letters_) != 0) return run_end(second.end, letters_);
      const bool space_before_symbols = text_[at] == ' ' && (second.kind & symbols_) != 0;
      if ((first.kind & symbols_) != 0 || space_before_symbols) {
        return run_end(run_end(first.end, symbols_), newline);
      }
    }
    return blanks_end(at);
  }

  /// White space: up to the last line break of the run if it has one; else the run, but for its last
  /// character when text follows (that one may lead the next piece).
  [[nodiscard]] std::size_t blanks_end(std::size_t at) const noexcept {
    std::size_t end = at;
    std::size_t last_begin = at;
    std::size_t after_newline = 0;
    for (Char next = look(at); (next.kind & (blank | newline)) != 0; next = look(end)) {
      last_begin = end;
      end = next.end;
      if (next.kind == newline) after_newline = end;
    }
    if (after_newline != 0) return after_newline;
    return end == text_.size() || last_begin == at ? end : last_begin;
  }

  /// Length of an English contraction at `at` in any case, or 0.
  [[nodiscard]] std::size_t contraction(std::size_t at) const noexcept {
    if (text_[at] != '\'') return 0;
    const auto lower = [&](std::size_t i) {
      return i < text_.size() ? static_cast<char>(text_[i] | 0x20) : '\0';
    };
    const char second = lower(at + 2);
    switch (lower(at + 1)) {
      case 's':
      case 't':
      case 'm':
      case 'd': return 2;
      case 'r':
      case 'v': return second == 'e' ? 3 : 0;
      case 'l': return second == 'l' ? 3 : 0;
      default: return 0;
    }
  }

  std::string_view text_;
  unsigned letters_;
  unsigned symbols_;
  std::size_t at_ = 0;
};

}  // namespace pre_split
}  // namespace QWENLITE_ABI
}  // namespace qwenlite
