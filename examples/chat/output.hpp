// SPDX-License-Identifier: Apache-2.0
//
// How chat shows a reply: on a terminal the thinking is dimmed; elsewhere only the answer is written, or
// with --think the whole reply with the thinking between its tags.
#pragma once

#include <ostream>

#include "chat/conversation.hpp"

namespace chat {

class ReplyPrinter {
 public:
  ReplyPrinter(std::ostream& out, bool terminal, bool raw) : out_(out), terminal_(terminal), raw_(raw) {}

  void show(const qwenlite::TextDelta& delta) {
    if (terminal_) {
      for (const qwenlite::TextPiece& piece : delta.pieces()) show_coloured(piece);
    } else if (raw_) {
      write(delta.text());
    } else {
      for (const qwenlite::TextPiece& piece : delta.pieces()) {
        if (!piece.thinking) write(piece.text);
      }
    }
    out_.flush();
  }

  /// Ends the reply, on a line of its own.
  void end() {
    if (dimmed_) out_ << normal;
    if (!at_line_start_) out_ << '\n';
    out_.flush();
    dimmed_ = false;
    at_line_start_ = true;
  }

 private:
  static constexpr const char* dim = "\x1b[2m";
  static constexpr const char* normal = "\x1b[0m";

  void show_coloured(const qwenlite::TextPiece& piece) {
    if (piece.thinking != dimmed_) {
      out_ << (piece.thinking ? dim : normal);
      if (!piece.thinking) write("\n\n");
      dimmed_ = piece.thinking;
    }
    write(piece.text);
  }
  void write(std::string_view text) {
    if (text.empty()) return;
    out_ << text;
    at_line_start_ = text.back() == '\n';
  }

  std::ostream& out_;
  bool terminal_;
  bool raw_;
  bool dimmed_ = false;
  bool at_line_start_ = true;
};

/// Prints what an answer took (--stats).
void print_stats(std::ostream& out, const AnswerStats& stats, const programs::ProgramModel& model,
                 const Conversation& conversation, const std::string& kv);

/// Says what the reader should know about how the reply ended, if anything.
void print_notes(std::ostream& out, const AnswerStats& stats);

}  // namespace chat
