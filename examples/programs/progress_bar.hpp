// SPDX-License-Identifier: Apache-2.0
//
// A progress bar for what takes long: reading a prompt, quantising weights. On a terminal only; it appears
// after half a second and is erased before anything else is written.
#pragma once

#include <algorithm>
#include <chrono>
#include <ostream>
#include <string>
#include <sys/ioctl.h>
#include <unistd.h>

#include <qwenlite/tensor.hpp>

#include "programs/terminal.hpp"

namespace programs {

class ProgressBar {
 public:
  explicit ProgressBar(std::ostream& out, bool terminal = shows_progress())
      : out_(out), terminal_(terminal) {}
  ProgressBar(const ProgressBar&) = delete;
  ProgressBar& operator=(const ProgressBar&) = delete;
  ~ProgressBar() { erase(); }

  /// Something new begins.
  void start() { started_ = Clock::now(); }

  /// `done` of `total` tokens were read.
  void update(qwenlite::Index done, qwenlite::Index total) {
    show(done, total, " reading " + std::to_string(done) + " of " + std::to_string(total) + " tokens");
  }

  /// The same with other words behind the bar.
  void show(qwenlite::Index done, qwenlite::Index total, const std::string& count) {
    if (!terminal_ || Clock::now() - started_ < std::chrono::milliseconds(500)) return;
    if (done >= total) return erase();
    const qwenlite::Index room = columns() - static_cast<qwenlite::Index>(count.size()) - 3;
    const qwenlite::Index width = std::min<qwenlite::Index>(room, 40);
    out_ << '\r' << erase_line;
    if (width >= 8) {
      const qwenlite::Index filled = width * done / total;
      out_ << '[' << std::string(static_cast<std::size_t>(filled), '#')
           << std::string(static_cast<std::size_t>(width - filled), '.') << ']';
    }
    out_ << count << std::flush;
    shown_ = true;
  }

  void erase() {
    if (shown_) out_ << '\r' << erase_line << std::flush;
    shown_ = false;
  }

 private:
  using Clock = std::chrono::steady_clock;
  static constexpr const char* erase_line = "\x1b[K";

  static qwenlite::Index columns() {
    winsize size{};
    const bool known = ::ioctl(STDERR_FILENO, TIOCGWINSZ, &size) == 0 && size.ws_col > 0;
    return known ? size.ws_col : 80;
  }

  std::ostream& out_;
  bool terminal_;
  bool shown_ = false;
  Clock::time_point started_ = Clock::now();
};

}  // namespace programs
