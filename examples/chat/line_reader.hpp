// SPDX-License-Identifier: Apache-2.0
//
// LineReader: one message of the user at a time. On a terminal with GNU readline there is editing, a history,
// and a paste of several lines arrives as one message; without it, and from a pipe, lines are read as they
// come. A line that ends in a backslash goes on with the next one.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "chat/interrupts.hpp"

namespace chat {

/// What a reader was given.
struct Line {
  enum class Kind { text, interrupted, end };
  Kind kind = Kind::end;
  std::string text{};
  /// Of an interrupted line: nothing had been typed yet.
  bool was_empty = true;
};

struct LineReaderOptions {
  bool terminal = false;                // show a prompt
  bool editing = false;                 // it is a terminal with a cursor to move
  bool colour = false;                  // the prompt may stand out
  std::string history_file{};           // empty: the history is forgotten at the end
  std::vector<std::string> commands{};  // what Tab completes at the beginning of a line
};

class LineReader {
 public:
  LineReader() = default;
  LineReader(const LineReader&) = delete;
  LineReader& operator=(const LineReader&) = delete;
  virtual ~LineReader() = default;

  virtual Line read(const std::string& prompt) = 0;
  /// Adds a message to the history.
  virtual void remember(const std::string& /*message*/) {}
  [[nodiscard]] virtual bool has_history() const { return false; }
};

/// The best reader there is for these options. Throws qwenlite::Error for a history file that cannot be used.
std::unique_ptr<LineReader> make_line_reader(Interrupts& interrupts, const LineReaderOptions& options);

/// Reads with the terminal's own, plain editing, or from a pipe.
std::unique_ptr<LineReader> make_plain_reader(Interrupts& interrupts, const LineReaderOptions& options);

/// Reads with GNU readline; only in builds that found it.
std::unique_ptr<LineReader> make_readline_reader(const LineReaderOptions& options);

/// A message: lines up to one that does not end in a backslash. Those of the backslashes that continue a line
/// are removed; two of them stand for themselves.
Line read_message(LineReader& reader, const std::string& prompt, const std::string& continued);

}  // namespace chat
