// SPDX-License-Identifier: Apache-2.0
//
// TextStream: tokens of a reply to text, as they come.
//
// Every piece handed out is valid UTF-8, and all pieces together equal what decode() gives for all
// tokens, cut at the first stop string. Held back are only the beginning of a character and, with stop
// strings, text that may be the beginning of one or of a tag. Results never depend on how text is divided
// into tokens. The same text is also given by channel: reasoning between <think> and </think>, and the
// answer. A stop string is looked for in each of them apart: what stands in the markup, or goes across it,
// is nothing that the model says.
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

/// A stretch of one channel. The tags, and the white space around them, belong to neither.
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
  /// By channel, in order, at most one per change. May lag behind text() by part of a tag, with the white
  /// space before it.
  [[nodiscard]] std::span<const TextPiece> pieces() const noexcept { return pieces_; }

  friend std::ostream& operator<<(std::ostream& out, const TextDelta& delta) { return out << delta.text_; }

 private:
  std::string_view text_;
  std::span<const TextPiece> pieces_;
};

/// What a stretch of a reply is.
enum class ThinkPartKind : std::uint8_t {
  thinking,
  answer,
  markup,  ///< a think tag, with the white space around it
};

/// A stretch of one kind.
struct ThinkPart {
  std::string_view text;
  ThinkPartKind kind = ThinkPartKind::answer;
};

/// Divides text that arrives in parts into reasoning, answer and the markup between them. All parts together
/// are the text.
class ThinkSplitter {
 public:
  explicit ThinkSplitter(ThinkState state = ThinkState::before) noexcept
      : state_(state), drop_newlines_(state == ThinkState::inside) {}

  /// Where the text given so far ends.
  [[nodiscard]] ThinkState state() const noexcept { return state_; }

  /// Takes the next part of the text; with `last`, gives out what was held back too.
  void push(std::string_view text, bool last);
  /// What the latest call gave, at most one per change. Views hold until the next.
  [[nodiscard]] std::span<const ThinkPart> parts() const noexcept { return parts_; }

 private:
  static constexpr std::string_view open_tag = "<think>", close_tag = "</think>";

  struct Mark {
    std::size_t end;  // in text_
    ThinkPartKind kind;
  };

  void emit(std::size_t count, ThinkPartKind kind);

  /// Handles what `held_` allows; true when the state changed and the rest must be looked at again.
  bool step();

  bool step_before();

  bool step_inside();

  ThinkState state_;
  bool drop_newlines_;  // directly after a tag
  std::string held_;
  std::string text_;
  std::vector<Mark> marks_;
  std::vector<ThinkPart> parts_;
};

/// Where a stream ends and what it leaves out.
struct TextStreamOptions {
  /// The text ends before the first of these to be completed, in the thinking or in the answer; think tags
  /// are part of neither.
  std::vector<std::string> stop_strings{};
  bool skip_special = true;               ///< leave out tokens flagged special, such as <|im_end|>
  ThinkState think = ThinkState::before;  ///< where the reply begins; begin() finds it in the prompt
};

/// Turns the tokens of one reply into text, one push at a time. One caller at a time.
class TextStream {
 public:
  /// `tokenizer` must outlive the stream. Throws `bad_argument` for an empty stop string.
  explicit TextStream(const Tokenizer& tokenizer, TextStreamOptions options = {});

  /// Starts a new reply to `prompt`, which says whether it begins inside a think block.
  void begin(std::span<const int> prompt);

  /// The text that `token` completes; empty once stopped().
  TextDelta push(int token);

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

  struct Range {
    std::size_t begin, end;  // in out_
    bool thinking;
  };

  TextDelta advance(bool last);

  /// Moves whole characters from raw_ to characters_; with `last`, a cut-off one as U+FFFD.
  void move_characters(bool last);

  void take(const ThinkPart& part);

  /// Gives out the first `count` bytes of held_.
  void release(std::size_t count);

  /// Ends the text before byte `begin` of held_.
  void stop_at(std::size_t begin);

  /// The stop string that is completed first in held_; of two that end together the longer.
  [[nodiscard]] Stop first_stop() const noexcept;

  /// Length of the longest tail of held_ that begins a stop string; in thinking with the line breaks before
  /// it, which belong to no channel if the thinking ends there.
  [[nodiscard]] std::size_t held_back() const noexcept;

  const Tokenizer* tokenizer_;
  TextStreamOptions options_;
  ThinkSplitter splitter_;
  std::string raw_;         // bytes that may be the beginning of a character
  std::string characters_;  // what the latest token completed
  std::string held_;        // of one channel: may be the beginning of a stop string
  bool thinking_ = false;   // which
  std::string out_;
  std::vector<Range> ranges_;
  std::vector<TextPiece> pieces_;
  bool stopped_ = false;
};

}  // namespace QWENLITE_ABI
}  // namespace qwenlite

#ifndef QWENLITE_COMPILED
#include <qwenlite/text/text_stream-inl.hpp>
#endif
