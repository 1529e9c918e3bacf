// SPDX-License-Identifier: Apache-2.0
//
// Lines edited with GNU readline 8: cursor keys, history, UTF-8, and bracketed paste, which makes a pasted
// text of several lines one message. readline is licensed under the GPL, version 3: of all programs here only
// this example links it, and only where it is found. Without this file the example works, plainly.
//
// Ctrl-C is a key here, not a signal: it drops the line, and the caller decides what follows. readline's
// state is global, so there can be one such reader at a time.
#include <cerrno>
#include <clocale>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <fcntl.h>
#include <readline/history.h>
#include <readline/readline.h>
#include <termios.h>
#include <unistd.h>

#include <qwenlite/error.hpp>

#include "chat/line_reader.hpp"

namespace chat {
namespace {

constexpr int most_entries = 1000;  // of the history
constexpr int ctrl_c = 3;

// What readline's callbacks, plain functions, tell the reader and are told by it.
bool interrupted = false;
bool was_empty = false;
std::vector<std::string> commands;
sigset_t blocked;  // signals

int on_ctrl_c(int /*count*/, int /*key*/) {
  interrupted = true;
  was_empty = rl_end == 0;
  rl_point = rl_end;
  rl_insert_text("^C");
  rl_redisplay();
  return rl_newline(1, '\n');
}

/// readline leaves Ctrl-C to the terminal, which would make a signal of it. Its own counterpart
/// rl_deprep_terminal brings the old settings back. Called before a line is read, and when one goes on after
/// Ctrl-Z: to suspend the program, readline unblocks all signals and blocks them no more.
void prepare_terminal(int meta) {
  pthread_sigmask(SIG_SETMASK, &blocked, nullptr);
  rl_prep_terminal(meta);
  termios settings{};
  const int terminal = fileno(rl_instream == nullptr ? stdin : rl_instream);
  if (tcgetattr(terminal, &settings) != 0) return;
  settings.c_cc[VINTR] = _POSIX_VDISABLE;
  tcsetattr(terminal, TCSADRAIN, &settings);
}

char* next_command(const char* text, int state) {
  static std::size_t at = 0;
  if (state == 0) at = 0;
  while (at < commands.size()) {
    const std::string& command = commands[at++];
    if (command.rfind(text, 0) == 0) return ::strdup(command.c_str());
  }
  return nullptr;
}

/// Tab: the name of a command, and files behind one.
char** complete(const char* text, int start, int /*end*/) {
  const bool in_command = rl_line_buffer[0] == '/';
  rl_attempted_completion_over = in_command && start > 0 ? 0 : 1;
  return in_command && start == 0 ? rl_completion_matches(text, next_command) : nullptr;
}

/// Editing characters of several bytes needs a locale that knows them, and text is UTF-8 here whatever the
/// locale. readline takes it from the environment.
void use_utf8() {
  std::setlocale(LC_CTYPE, "");
  if (MB_CUR_MAX > 1) return;
  if (std::setlocale(LC_CTYPE, "C.UTF-8") != nullptr) ::setenv("LC_ALL", "C.UTF-8", 1);
}

/// So that the user learns at the start that the file is of no use.
void check_writable(const std::string& file) {
  const int opened = ::open(file.c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0600);
  if (opened < 0) {
    throw qwenlite::Error(qwenlite::ErrorCode::io, "--history: " + file + ": " + std::strerror(errno));
  }
  ::close(opened);
}

class ReadlineReader final : public LineReader {
 public:
  explicit ReadlineReader(const LineReaderOptions& options)
      : colour_(options.colour), history_file_(options.history_file) {
    commands = options.commands;
    use_utf8();
    rl_readline_name = "qwenlite-chat";
    if (::isatty(STDOUT_FILENO) == 0) rl_outstream = stderr;  // the answers go elsewhere
    rl_prep_term_function = prepare_terminal;
    rl_attempted_completion_function = complete;
    rl_basic_word_break_characters = " \t\n";
    pthread_sigmask(SIG_BLOCK, nullptr, &blocked);
    rl_initialize();
    for (Keymap keys : {emacs_standard_keymap, vi_insertion_keymap, vi_movement_keymap}) {
      rl_bind_key_in_map(ctrl_c, on_ctrl_c, keys);
    }
    start_history();
  }

  Line read(const std::string& prompt) override {
    interrupted = false;
    const std::string shown = colour_ ? "\001\x1b[1m\002" + prompt + "\001\x1b[0m\002" : prompt;
    const std::unique_ptr<char, decltype(&std::free)> typed(::readline(shown.c_str()), &std::free);
    if (typed == nullptr) return {};
    if (interrupted) return {Line::Kind::interrupted, {}, was_empty};
    Line line{Line::Kind::text, typed.get()};
    while (!line.text.empty() && (line.text.back() == '\n' || line.text.back() == '\r')) {
      line.text.pop_back();  // pasted
    }
    return line;
  }

  void remember(const std::string& message) override {
    const HIST_ENTRY* latest = ::history_get(history_base + history_length - 1);
    if (latest != nullptr && message == latest->line) return;
    ::add_history(message.c_str());
    if (!history_file_.empty()) ::append_history(1, history_file_.c_str());
  }

  [[nodiscard]] bool has_history() const override { return true; }

 private:
  void start_history() const {
    ::using_history();
    ::stifle_history(most_entries);
    history_comment_char = '#';  // times between the entries: only so can an
                                 // entry have several lines
    history_write_timestamps = 1;
    if (history_file_.empty()) return;
    check_writable(history_file_);
    ::read_history(history_file_.c_str());
    ::history_truncate_file(history_file_.c_str(), most_entries);
  }

  bool colour_;
  std::string history_file_;
};

}  // namespace

std::unique_ptr<LineReader> make_readline_reader(const LineReaderOptions& options) {
  return std::make_unique<ReadlineReader>(options);
}

}  // namespace chat
