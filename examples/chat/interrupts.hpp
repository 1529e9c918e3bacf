// SPDX-License-Identifier: Apache-2.0
//
// Ctrl-C, and the signals that end programs. All of them are blocked in every thread and waited for by one,
// so what they cause runs in no signal handler. What Ctrl-C means depends on what the program is doing: it
// stops the answer that is being written, wakes whoever waits for a line, or else ends the program. However
// the program ends, or is suspended during an answer, the terminal is put in order first.
#pragma once

#include <csignal>
#include <mutex>
#include <optional>
#include <stop_token>
#include <termios.h>
#include <thread>

namespace chat {

class Interrupts {
 public:
  /// Make it before other threads: they inherit the blocked signals. Signals that are ignored (nohup) stay
  /// ignored.
  Interrupts();
  Interrupts(const Interrupts&) = delete;
  Interrupts& operator=(const Interrupts&) = delete;
  ~Interrupts();

  /// Waits until standard input has something, or its end. False: Ctrl-C came instead.
  [[nodiscard]] bool wait_for_input();

  /// Ends the program the way `signal` does when nobody catches it, with the terminal as it was.
  [[noreturn]] void end_program(int signal) const;

 private:
  friend class StopOnInterrupt;
  enum class Doing { something, reading, answering };
  static constexpr int wake = SIGUSR1;  // tells the watcher to look at ending_
  static constexpr int insistent = 3;   // so many times Ctrl-C without effect end the program

  void watch();
  void on_ctrl_c();
  void set(Doing doing);

  std::mutex mutex_;  // of the next four
  Doing doing_ = Doing::something;
  std::stop_source stop_{std::nostopstate};
  int presses_ = 0;
  bool ending_ = false;

  int woken_[2] = {-1, -1};  // a pipe; Ctrl-C while reading writes a byte
  std::optional<termios> terminal_;
  sigset_t watched_{};
  sigset_t before_{};
  std::thread watcher_;
};

/// While it lives, Ctrl-C requests a stop of this token, and Ctrl-Z leaves the terminal with normal colours.
class StopOnInterrupt {
 public:
  explicit StopOnInterrupt(Interrupts& interrupts);
  StopOnInterrupt(const StopOnInterrupt&) = delete;
  StopOnInterrupt& operator=(const StopOnInterrupt&) = delete;
  ~StopOnInterrupt();

  [[nodiscard]] std::stop_token token() const { return token_; }

 private:
  Interrupts& interrupts_;
  std::stop_token token_;
  bool handles_suspend_ = false;
  struct sigaction suspend_before_ {};
};

}  // namespace chat
