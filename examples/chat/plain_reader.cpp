// SPDX-License-Identifier: Apache-2.0
//
// Lines as they come: from a pipe, or from a terminal whose own editing (erase, kill) has to do.
#include <iostream>
#include <unistd.h>

#include "chat/line_reader.hpp"
#include "programs/input_limits.hpp"
#include "programs/standard_input.hpp"

namespace chat {
namespace {

class PlainReader final : public LineReader {
 public:
  PlainReader(Interrupts& interrupts, bool terminal)
      : interrupts_(interrupts),
        terminal_(terminal),
        prompts_(::isatty(STDOUT_FILENO) != 0 ? std::cout : std::cerr) {}

  Line read(const std::string& prompt) override {
    if (terminal_) prompts_ << prompt << std::flush;
    std::size_t searched = 0;  // of pending_, without finding the end of a line
    while (true) {
      const std::size_t end = pending_.find('\n', searched);
      if (end != std::string::npos) return take(end, end + 1);
      if (ended_) return pending_.empty() ? Line{} : take(pending_.size(), pending_.size());
      if (terminal_ && !interrupts_.wait_for_input()) {
        pending_.clear();
        prompts_ << std::endl;
        // What was typed of the line is known to the terminal alone, so every line counts as empty.
        return {Line::Kind::interrupted};
      }
      searched = pending_.size();
      ended_ = !programs::append_input(pending_);
      programs::require_at_most(pending_.size(), programs::most_small, "a line of standard input");
    }
  }

 private:
  Line take(std::size_t size, std::size_t with_end) {
    Line line{Line::Kind::text, pending_.substr(0, size)};
    pending_.erase(0, with_end);
    if (!line.text.empty() && line.text.back() == '\r') line.text.pop_back();
    return line;
  }

  Interrupts& interrupts_;
  bool terminal_;
  std::ostream& prompts_;
  bool ended_ = false;
  std::string pending_;  // read, not handed out
};

}  // namespace

std::unique_ptr<LineReader> make_plain_reader(Interrupts& interrupts, const LineReaderOptions& options) {
  return std::make_unique<PlainReader>(interrupts, options.terminal);
}

}  // namespace chat
