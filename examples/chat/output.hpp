// SPDX-License-Identifier: Apache-2.0
//
// How chat shows a reply. On a terminal: without control characters, the thinking dimmed, or between its tags
// where colours are not wanted. Elsewhere: byte for byte the answer, or with --think the thinking too.
#pragma once

#include <chrono>
#include <optional>
#include <ostream>
#include <string>
#include <string_view>
#include <vector>

#include "chat/commands.hpp"

namespace chat {

enum class ReplyStyle {
  dimmed,       // a terminal: thinking is dimmed
  tagged,       // a terminal without colours: thinking stands between its tags
  raw,          // a pipe: thinking between its tags, nothing changed
  answer_only,  // a pipe: the answer, nothing changed
};

class ReplyPrinter {
 public:
  ReplyPrinter(std::ostream& out, ReplyStyle style) : out_(out), style_(style) {}

  void show(const qwenlite::ReplyDelta& delta);

  /// Ends the reply, on a line of its own.
  void end();

 private:
  [[nodiscard]] bool on_terminal() const {
    return style_ == ReplyStyle::dimmed || style_ == ReplyStyle::tagged;
  }
  void write(std::string_view text);
  void write_control(std::string_view sequence);
  void begin_thinking();
  void go_on_thinking();
  void end_thinking();

  std::ostream& out_;
  ReplyStyle style_;
  bool thinking_ = false;
  bool at_line_start_ = true;
};

/// Times between the tokens of a reply, without what showing them takes.
class StepTimes {
 public:
  void token_came() {
    if (resumed_) seconds_.push_back(std::chrono::duration<double>(Clock::now() - *resumed_).count());
  }
  void going_on() { resumed_ = Clock::now(); }
  [[nodiscard]] const std::vector<double>& seconds() const { return seconds_; }

 private:
  using Clock = std::chrono::steady_clock;
  std::optional<Clock::time_point> resumed_;
  std::vector<double> seconds_;
};

/// Prints what an answer took (--stats).
void print_stats(std::ostream& out, const qwenlite::ChatReply& reply, const StepTimes& times,
                 const Chat& chat, const programs::Storage& storage);

/// What notes need to know about the program.
struct NoteOptions {
  bool single_question = false;   // there is no conversation
  bool larger_context = false;    // the model could have one
  bool thinking_allowed = false;  // so it is worth a note that it was ended
};

/// Says what the reader should know about how the reply ended, if anything.
void print_notes(std::ostream& out, const qwenlite::ChatReply& reply, const NoteOptions& options);

}  // namespace chat
