// SPDX-License-Identifier: Apache-2.0
//
// TextStream: tokens of a reply to text, as they come.
//
// Every piece handed out is valid UTF-8, and all pieces together equal what decode() gives for all
// tokens, cut at the first stop string. Held back are only the beginning of a character and text that
// may be the beginning of a stop string. Results never depend on how text is divided into tokens.
// The same text is also given by channel: reasoning between <think> and </think>, and the answer.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <ostream>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <qwenlite/error.hpp>
#include <qwenlite/text/tokenizer.hpp>
#include <qwenlite/text/unicode.hpp>

namespace qwenlite {
inline namespace QWENLITE_ABI {

/// Where a reply stands with its think block.
enum class ThinkState : std::uint8_t {
  before,  ///< nothing but white space so far: <think> opens the block, anything else is answer
  inside,  ///< in the block: </think> ends it
  after,   ///< in the answer: think tags are plain text
};

/// The state in which a reply to this prompt begins: looks at the tail after the last <|im_start|>, so
/// neither earlier turns nor tags typed in messages count.
[[nodiscard]] inline ThinkState think_state_from_prompt(const Tokenizer& tokenizer,
                                                        std::span<const int> prompt) {
  const auto start = tokenizer.token_to_id("<|im_start|>");
  const auto open = tokenizer.token_to_id("<think>");
  const auto close = tokenizer.token_to_id("</think>");
  for (std::size_t i = prompt.size(); i-- > 0;) {
    if (open && prompt[i] == *open) return ThinkState::inside;
    if (close && prompt[i] == *close) return ThinkState::after;
    if (start && prompt[i] == *start) break;
  }
  return ThinkState::before;
}

/// A stretch of one channel. The tags, and the line breaks around reasoning, belong to neither.
struct TextPiece {
  std::string_view text;
  bool thinking = false;
};

/// What one push made known. Views hold until the next call on the stream.
class TextDelta {
 public:
  TextDelta(std::string_view text, std::span<const TextPiece> pieces) noexcept
      : text_(text), pieces_(pieces) {}

  /// Everything, think tags included.
  [[nodiscard]] std::string_view text() const noexcept { return text_; }
  operator std::string_view() const noexcept { return text_; }  // NOLINT(google-explicit-constructor)
  /// By channel, in order, at most one per change. May lag behind text() by part of a tag.
  [[nodiscard]] std::span<const TextPiece> pieces() const noexcept { return pieces_; }

  friend std::ostream& operator<<(std::ostream& out, const TextDelta& delta) { return out << delta.text_; }

 private:
  std::string_view text_;
  std::span<const TextPiece> pieces_;
};

/// Divides text that arrives in parts into reasoning and answer.
class ThinkSplitter {
 public:
  explicit ThinkSplitter(ThinkState state = ThinkState::before) noexcept
      : state_(state), drop_newlines_(state == ThinkState::inside) {}

  [[nodiscard]] ThinkState state() const noexcept { return state_; }

  /// Takes the next part of the text; with `last`, gives out what was held back too.
  void push(std::string_view text, bool last) {
    text_.clear();
    parts_.clear();
    held_.append(text);
    while (step()) {
    }
    if (last) {
      const bool inside = state_ == ThinkState::inside;
      if (inside) held_.resize(held_.find_last_not_of('\n') + 1);
      emit(held_.size(), inside);
      held_.clear();
    }
    pieces_.clear();
    std::size_t from = 0;
    for (const Part& part : parts_) {
      pieces_.push_back({std::string_view(text_).substr(from, part.end - from), part.thinking});
      from = part.end;
    }
  }
  /// The pieces of the latest call.
  [[nodiscard]] std::span<const TextPiece> pieces() const noexcept { return pieces_; }

 private:
  static constexpr std::string_view open_tag = "<think>", close_tag = "</think>";

  struct Part {
    std::size_t end;  // in text_
    bool thinking;
  };

  void emit(std::size_t count, bool thinking) {
    if (count == 0) return;
    text_.append(held_, 0, count);
    held_.erase(0, count);
    if (parts_.empty() || parts_.back().thinking != thinking) parts_.push_back({0, thinking});
    parts_.back().end = text_.size();
  }

  /// Handles what `held_` allows; true when the state changed and the rest must be looked at again.
  bool step() {
    switch (state_) {
      case ThinkState::before: return step_before();
      case ThinkState::inside: return step_inside();
      case ThinkState::after: break;
    }
    if (drop_newlines_) held_.erase(0, std::min(held_.find_first_not_of('\n'), held_.size()));
    drop_newlines_ = drop_newlines_ && held_.empty();
    emit(held_.size(), false);
    return false;
  }

  bool step_before() {
    const std::size_t first = held_.find_first_not_of(" \t\r\n");
    if (first == std::string::npos) return false;
    const std::string_view rest = std::string_view(held_).substr(first);
    if (rest.size() < open_tag.size() && open_tag.substr(0, rest.size()) == rest) return false;
    if (rest.substr(0, open_tag.size()) == open_tag) {
      held_.erase(0, first + open_tag.size());
      state_ = ThinkState::inside;
      drop_newlines_ = true;
    } else {
      state_ = ThinkState::after;
    }
    return true;
  }

  bool step_inside() {
    if (drop_newlines_) {
      held_.erase(0, std::min(held_.find_first_not_of('\n'), held_.size()));
      drop_newlines_ = held_.empty();
    }
    std::size_t keep = held_.find(close_tag);
    const bool closes = keep != std::string::npos;
    if (!closes) {  // the longest tail that may become the tag
      keep = held_.size() - std::min(held_.size(), close_tag.size() - 1);
      while (std::string_view(held_).substr(keep) != close_tag.substr(0, held_.size() - keep)) ++keep;
    }
    const std::size_t after_tag = keep + close_tag.size();
    std::size_t text_end = keep;  // line breaks before the tag, or what may become it, wait with it
    while (text_end > 0 && held_[text_end - 1] == '\n') --text_end;
    emit(text_end, true);
    if (!closes) return false;
    held_.erase(0, after_tag - text_end);
    state_ = ThinkState::after;
    drop_newlines_ = true;
    return true;
  }

  ThinkState state_;
  bool drop_newlines_;  // directly after a tag
  std::string held_;
  std::string text_;
  std::vector<Part> parts_;
  std::vector<TextPiece> pieces_;
};

struct TextStreamOptions {
  /// The text ends before the first of these to be completed, in thinking and answer alike.
  std::vector<std::string> stop_strings{};
  bool skip_special = true;
  ThinkState think = ThinkState::before;
};

class TextStream {
 public:
  /// `tokenizer` must outlive the stream. Throws `bad_argument` for an empty stop string.
  explicit TextStream(const Tokenizer& tokenizer, TextStreamOptions options = {})
      : tokenizer_(&tokenizer), options_(std::move(options)), splitter_(options_.think) {
    for (const std::string& stop : options_.stop_strings) {
      require(!stop.empty(), "TextStreamOptions::stop_strings: found an empty string, expected text");
    }
  }

  /// Starts a new reply to `prompt`, which says whether it begins inside a think block.
  void begin(std::span<const int> prompt) {
    splitter_ = ThinkSplitter(think_state_from_prompt(*tokenizer_, prompt));
    raw_.clear();
    pending_.clear();
    stopped_ = false;
  }

  /// The text that `token` completes; empty once stopped().
  TextDelta push(int token) {
    const bool skipped = options_.skip_special && tokenizer_->is_special(token);
    if (!skipped && !stopped_) raw_.append(tokenizer_->token_bytes(token));
    return advance(false);
  }

  /// Ends the reply: gives out what was held back.
  TextDelta flush() { return advance(true); }

  /// Whether a stop string was met; the text ends before it.
  [[nodiscard]] bool stopped() const noexcept { return stopped_; }
  /// Inside the think block at the end of a reply means that no answer was given.
  [[nodiscard]] ThinkState think_state() const noexcept { return splitter_.state(); }

 private:
  struct Stop {
    std::size_t begin = std::string::npos;
    std::size_t end = std::string::npos;
  };

  TextDelta advance(bool last) {
    move_characters(last);
    const Stop stop = first_stop();
    const bool met = stop.end != std::string::npos;
    const std::size_t ready = met ? stop.begin : last ? pending_.size() : pending_.size() - held_back();
    out_.assign(pending_, 0, ready);
    pending_.erase(0, met ? std::string::npos : ready);
    if (met) {
      stopped_ = true;
      raw_.clear();
    }
    splitter_.push(out_, last || met);
    return {out_, splitter_.pieces()};
  }

  /// Moves whole characters from raw_ to pending_; with `last`, a cut-off one as U+FFFD.
  void move_characters(bool last) {
    std::size_t at = 0;
    while (at < raw_.size()) {
      const unicode::Decoded next = unicode::decode(raw_, at);
      if (!next.complete && !last) break;
      pending_.append(next.valid ? std::string_view(raw_).substr(at, next.length)
                                 : unicode::replacement_utf8);
      at += next.length;
    }
    raw_.erase(0, at);
  }

  /// The stop string that is completed first in pending_; of two that end together the longer.
  [[nodiscard]] Stop first_stop() const noexcept {
    Stop first;
    for (const std::string& stop : options_.stop_strings) {
      const std::size_t begin = pending_.find(stop);
      if (begin == std::string::npos) continue;
      const std::size_t end = begin + stop.size();
      if (end < first.end || (end == first.end && begin < first.begin)) first = {begin, end};
    }
    return first;
  }

  /// Length of the longest tail of pending_ that begins a stop string.
  [[nodiscard]] std::size_t held_back() const noexcept {
    std::size_t held = 0;
    for (const std::string& stop : options_.stop_strings) {
      for (std::size_t n = std::min(stop.size() - 1, pending_.size()); n > held; --n) {
        if (pending_.compare(pending_.size() - n, n, stop, 0, n) == 0) held = n;
      }
    }
    return held;
  }

  const Tokenizer* tokenizer_;
  TextStreamOptions options_;
  ThinkSplitter splitter_;
  std::string raw_;      // bytes that may be the beginning of a character
  std::string pending_;  // valid text that may be the beginning of a stop string
  std::string out_;
  bool stopped_ = false;
};

}  // namespace QWENLITE_ABI
}  // namespace qwenlite
