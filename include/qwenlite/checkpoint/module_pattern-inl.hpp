// SPDX-License-Identifier: Apache-2.0
//
// Patterns for names of modules, as configurations of quantised checkpoints write them: parts of a name, or
// the part of regular expressions that they use: literals, `.`, escapes, classes, groups, `|`, `*`, `+`, `?`,
// `^`, `$`. An expression with more in it (a look-ahead, a count) matches nobody knows what, and says so.
//
// An expression is evaluated on all places of the name at once: no backtracking, so no text takes forever.
#pragma once

#include <array>
#include <string_view>
#include <vector>

#include <qwenlite/tensor.hpp>

namespace qwenlite {
inline namespace QWENLITE_ABI {
namespace module_pattern {

enum class Match : std::uint8_t { no, yes, unknown };

/// Whether the parts of `words`, between dots, follow each other somewhere in `name`.
[[nodiscard]] inline bool has_words(std::string_view name, std::string_view words) {
  if (words.empty()) return false;
  for (std::size_t at = name.find(words); at != std::string_view::npos; at = name.find(words, at + 1)) {
    const std::size_t end = at + words.size();
    if ((at == 0 || name[at - 1] == '.') && (end == name.size() || name[end] == '.')) return true;
  }
  return false;
}

/// Matches one expression against the beginning of one name.
class Expression {
 public:
  Expression(std::string_view pattern, std::string_view name) : pattern_(pattern), name_(name) {}

  [[nodiscard]] Match match() {
    Places start(name_.size() + 1, 0);
    start[0] = 1;
    const Places ends = alternatives(start, 0);
    if (!understood_ || at_ != pattern_.size()) return Match::unknown;
    for (const char reached : ends) {
      if (reached != 0) return Match::yes;
    }
    return Match::no;
  }

 private:
  using Places = std::vector<char>;          // [name + 1]: 1 where the text up to there has been matched
  using Characters = std::array<bool, 256>;  // a class
  static constexpr int max_depth = 6;
  static constexpr int max_steps = 20000;

  [[nodiscard]] bool more() const { return understood_ && at_ < pattern_.size(); }
  Places give_up() {
    understood_ = false;
    at_ = pattern_.size();
    return Places(name_.size() + 1, 0);
  }
  /// Whether that added a place.
  static bool add(Places& to, const Places& from) {
    bool grew = false;
    for (std::size_t i = 0; i < to.size(); ++i) {
      grew = grew || (to[i] == 0 && from[i] != 0);
      to[i] = static_cast<char>(to[i] | from[i]);
    }
    return grew;
  }

  Places alternatives(const Places& from, int depth) {
    Places result(name_.size() + 1, 0);
    while (true) {
      Places reached = from;
      while (more() && pattern_[at_] != '|' && pattern_[at_] != ')') reached = repeated(reached, depth);
      add(result, reached);
      if (!more() || pattern_[at_] != '|') return result;
      ++at_;
    }
  }

  /// An atom and how often it stands.
  Places repeated(const Places& from, int depth) {
    const std::size_t first = at_;
    Places reached = atom(from, depth);
    const char count = more() ? pattern_[at_] : '\0';
    if (count == '{') return give_up();
    if (count != '*' && count != '+' && count != '?') return reached;
    const std::size_t end = at_ + 1;
    while (count != '?') {
      at_ = first;
      const Places again = atom(reached, depth);
      if (!understood_) return again;
      if (!add(reached, again)) break;
    }
    if (count != '+') add(reached, from);
    at_ = end;
    if (more() && pattern_[at_] == '?') ++at_;  // as few as possible: the same places
    return reached;
  }

  Places atom(const Places& from, int depth) {
    if (++steps_ > max_steps) return give_up();
    const char c = pattern_[at_++];
    Characters characters{};
    switch (c) {
      case '(': return group(from, depth);
      case '^': return kept(from, 0);
      case '$': return kept(from, name_.size());
      case '*':
      case '+':
      case '?':
      case '{':
      case '}':
      case ']': return give_up();
      case '.': characters.fill(true); break;
      case '[':
        if (!read_class(characters)) return give_up();
        break;
      case '\\':
        if (!more() || !read_escape(characters)) return give_up();
        break;
      default: characters[static_cast<unsigned char>(c)] = true;
    }
    Places reached(name_.size() + 1, 0);
    for (std::size_t i = 0; i < name_.size(); ++i) {
      if (from[i] != 0 && characters[static_cast<unsigned char>(name_[i])]) reached[i + 1] = 1;
    }
    return reached;
  }

  Places group(const Places& from, int depth) {
    if (depth >= max_depth) return give_up();
    if (more() && pattern_[at_] == '?') {
      if (pattern_.substr(at_, 2) != "?:") return give_up();
      at_ += 2;
    }
    Places reached = alternatives(from, depth + 1);
    if (!more()) return give_up();
    ++at_;  // the closing bracket
    return reached;
  }

  static Places kept(const Places& from, std::size_t place) {
    Places reached(from.size(), 0);
    reached[place] = from[place];
    return reached;
  }

  bool read_escape(Characters& characters) {
    const char c = pattern_[at_++];
    const bool letter = (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z');
    if (c == 'd' || c == 'w') {
      for (char digit = '0'; digit <= '9'; ++digit) characters[static_cast<unsigned char>(digit)] = true;
    }
    if (c == 'w') {
      for (unsigned i = 'a'; i <= 'z'; ++i) characters[i] = characters[i - 'a' + 'A'] = true;
      characters['_'] = true;
    }
    const bool digit = c >= '0' && c <= '9';
    if (!letter && !digit) characters[static_cast<unsigned char>(c)] = true;
    return !digit && (!letter || c == 'd' || c == 'w');
  }

  bool read_class(Characters& characters) {
    const bool others = more() && pattern_[at_] == '^';
    if (others) ++at_;
    for (bool first = true; more() && (first || pattern_[at_] != ']'); first = false) {
      const char low = pattern_[at_++];
      if (low == '\\') {
        if (!more() || !read_escape(characters)) return false;
        continue;
      }
      char high = low;
      if (at_ + 1 < pattern_.size() && pattern_[at_] == '-' && pattern_[at_ + 1] != ']') {
        high = pattern_[at_ + 1];
        at_ += 2;
      }
      const auto last = static_cast<unsigned char>(high);
      for (unsigned i = static_cast<unsigned char>(low); i <= last; ++i) characters[i] = true;
    }
    if (!more()) return false;
    ++at_;  // the closing bracket
    for (bool& each : characters) each = each != others;
    return true;
  }

  std::string_view pattern_;
  std::string_view name_;
  std::size_t at_ = 0;  // in pattern_
  int steps_ = 0;
  bool understood_ = true;
};

}  // namespace module_pattern
}  // namespace QWENLITE_ABI
}  // namespace qwenlite
