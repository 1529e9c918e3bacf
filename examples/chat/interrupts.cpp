// SPDX-License-Identifier: Apache-2.0
#include "chat/interrupts.hpp"

#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <fcntl.h>
#include <poll.h>
#include <stdexcept>
#include <string>
#include <string_view>
#include <system_error>
#include <unistd.h>

namespace chat {
namespace {

/// Normal colours, and no bracketed paste (a line editor may have been asking for it).
constexpr std::string_view normal = "\x1b[0m\x1b[?2004l\n";

bool is_ignored(int signal) {
  struct sigaction action {};
  return sigaction(signal, nullptr, &action) == 0 && action.sa_handler == SIG_IGN;
}

void write_all(int file, std::string_view text) {
  while (!text.empty()) {
    const auto written = ::write(file, text.data(), text.size());
    if (written <= 0) return;
    text.remove_prefix(static_cast<std::size_t>(written));
  }
}

/// Suspends the program as Ctrl-Z would, but not with half a line dimmed. Calls only what a handler may.
extern "C" void suspend_with_normal_colours(int /*signal*/) {
  const int saved = errno;
  write_all(STDOUT_FILENO, "\x1b[0m");
  ::kill(::getpid(), SIGSTOP);
  errno = saved;
}

}  // namespace

Interrupts::Interrupts() {
  if (::pipe2(woken_, O_CLOEXEC | O_NONBLOCK) != 0) {
    throw std::runtime_error(std::string("no pipe could be made: ") + std::strerror(errno));
  }
  termios settings{};
  if (::tcgetattr(STDIN_FILENO, &settings) == 0) terminal_ = settings;
  sigemptyset(&watched_);
  sigaddset(&watched_, wake);
  for (const int signal : {SIGINT, SIGTERM, SIGHUP, SIGQUIT}) {
    if (!is_ignored(signal)) sigaddset(&watched_, signal);
  }
  pthread_sigmask(SIG_BLOCK, &watched_, &before_);
  try {
    watcher_ = std::thread([this] { watch(); });
  } catch (const std::system_error& e) {
    pthread_sigmask(SIG_SETMASK, &before_, nullptr);
    throw std::runtime_error(std::string("the thread that waits for Ctrl-C could not be started: ") +
                             e.code().message());
  }
}

Interrupts::~Interrupts() {
  {
    const std::lock_guard lock(mutex_);
    ending_ = true;
  }
  pthread_kill(watcher_.native_handle(), wake);
  watcher_.join();
  pthread_sigmask(SIG_SETMASK, &before_, nullptr);
  for (const int end : woken_) ::close(end);
}

void Interrupts::watch() {
  while (true) {
    int signal = 0;
    if (sigwait(&watched_, &signal) != 0) continue;
    if (signal == SIGINT) {
      on_ctrl_c();
    } else if (signal != wake) {
      end_program(signal);
    } else {
      const std::lock_guard lock(mutex_);
      if (ending_) return;
    }
  }
}

void Interrupts::on_ctrl_c() {
  std::stop_source stop{std::nostopstate};
  {
    const std::lock_guard lock(mutex_);
    if (doing_ == Doing::reading) return write_all(woken_[1], "!");
    if (doing_ == Doing::something || ++presses_ == insistent) end_program(SIGINT);
    stop = stop_;
  }
  stop.request_stop();  // unlocked: it may call whoever listens to the token
}

void Interrupts::end_program(int signal) const {
  if (::isatty(STDOUT_FILENO) != 0) write_all(STDOUT_FILENO, normal);
  if (terminal_) ::tcsetattr(STDIN_FILENO, TCSANOW, &*terminal_);
  std::signal(signal, SIG_DFL);
  sigset_t only;
  sigemptyset(&only);
  sigaddset(&only, signal);
  pthread_sigmask(SIG_UNBLOCK, &only, nullptr);
  std::raise(signal);
  std::_Exit(128 + signal);
}

void Interrupts::set(Doing doing) {
  const std::lock_guard lock(mutex_);
  doing_ = doing;
  presses_ = 0;
}

bool Interrupts::wait_for_input() {
  set(Doing::reading);
  pollfd ready[] = {{STDIN_FILENO, POLLIN, 0}, {woken_[0], POLLIN, 0}};
  while (::poll(ready, 2, -1) < 0) {
  }
  set(Doing::something);
  char byte{};
  return ::read(woken_[0], &byte, 1) <= 0;
}

StopOnInterrupt::StopOnInterrupt(Interrupts& interrupts) : interrupts_(interrupts) {
  std::stop_source source;
  token_ = source.get_token();
  {
    const std::lock_guard lock(interrupts.mutex_);
    interrupts.stop_ = std::move(source);
  }
  interrupts.set(Interrupts::Doing::answering);
  if (::isatty(STDOUT_FILENO) == 0 || is_ignored(SIGTSTP)) return;
  struct sigaction suspend {};
  suspend.sa_handler = suspend_with_normal_colours;
  suspend.sa_flags = SA_RESTART;
  handles_suspend_ = ::sigaction(SIGTSTP, &suspend, &suspend_before_) == 0;
}

StopOnInterrupt::~StopOnInterrupt() {
  if (handles_suspend_) ::sigaction(SIGTSTP, &suspend_before_, nullptr);
  interrupts_.set(Interrupts::Doing::something);
}

}  // namespace chat
