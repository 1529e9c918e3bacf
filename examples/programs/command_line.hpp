// SPDX-License-Identifier: Apache-2.0
//
// What the programs share on the command line: checked numbers, standard streams that are open, and one way
// to end. A failure is one line `error: ...` and status 1; wrong usage is one line that says what is right
// and status 2. Whatever these lines quote, they hold nothing that a terminal would obey.
#pragma once

#include <CLI/CLI.hpp>
#include <charconv>
#include <cmath>
#include <csignal>
#include <cstdlib>
#include <exception>
#include <fcntl.h>
#include <iostream>
#include <new>
#include <sstream>
#include <stdexcept>
#include <string>
#include <system_error>
#include <unistd.h>
#include <vector>

#include <qwenlite/error.hpp>
#include <qwenlite/in_quotes.hpp>

namespace programs {

inline constexpr int exit_failure = 1;
inline constexpr int exit_usage = 2;

/// The group of options that are taken, but not in the help. CLI11 has the empty name for it, with which its
/// messages lack the names of the options as well: they get that when the help is printed.
inline constexpr const char* unlisted = "Unlisted";

/// Accepts a number in [least, most], and says so when it is given something else.
template <class Number>
CLI::Validator number_in(Number least, Number most) {
  const auto check = [least, most](const std::string& text) -> std::string {
    Number value{};
    const char* end = text.data() + text.size();
    const auto [stop, status] = std::from_chars(text.data(), end, value);
    if (status == std::errc{} && stop == end && value >= least && value <= most) return {};
    std::ostringstream message;
    message << "found " << qwenlite::in_quotes(text) << ", expected a number from " << least << " to "
            << most;
    return message.str();
  };
  return CLI::Validator(check, "");
}

/// Accepts one of some words.
inline CLI::Validator one_of(const std::vector<std::string>& words) {
  const auto check = [words](const std::string& text) -> std::string {
    std::string choices;
    for (const std::string& word : words) {
      if (word == text) return {};
      choices += (choices.empty() ? "" : &word == &words.back() ? " or " : ", ") + word;
    }
    return "found " + qwenlite::in_quotes(text) + ", expected " + choices;
  };
  return CLI::Validator(check, "");
}

/// Accepts any name but an empty one, which a script's unset variable makes.
inline CLI::Validator a_name_of(const std::string& what) {
  const auto check = [what](const std::string& text) {
    return text.empty() ? "found an empty name, expected " + what : std::string();
  };
  return CLI::Validator(check, "");
}

/// A message on one line, whatever is in it. The command line's parser quotes all that it did not expect.
inline std::string one_line(std::string text) {
  while (!text.empty() && (text.back() == '\n' || text.back() == ' ')) text.pop_back();
  for (char& c : text) c = c == '\n' || c == '\r' ? ' ' : c;
  return qwenlite::on_one_line(text, 2000);
}

/// The subcommand that was being parsed, or the program.
inline const CLI::App& innermost(const CLI::App& app) {
  const auto chosen = app.get_subcommands();
  return chosen.empty() ? app : *chosen.front();
}

/// The help for what was chosen.
inline std::string help_of(CLI::App& app) {
  const auto chosen = app.get_subcommands();
  CLI::App& shown = chosen.empty() ? app : *chosen.front();
  for (CLI::Option* option : shown.get_options([](CLI::Option* o) { return o->get_group() == unlisted; })) {
    option->group("");
  }
  return app.help();
}

/// "inspect tokenize": the words before the options.
inline std::string call_of(const CLI::App& program) {
  const CLI::App& app = innermost(program);
  return &app == &program ? program.get_name() : program.get_name() + " " + app.get_name();
}

/// Where a standard stream was closed, the next file to be opened would take its place. What opens instead
/// here fails when it is used, as a closed one does.
inline void keep_standard_streams() {
  for (const int stream : {STDIN_FILENO, STDOUT_FILENO, STDERR_FILENO}) {
    if (::fcntl(stream, F_GETFD) >= 0) continue;
    if (::open("/dev/null", stream == STDIN_FILENO ? O_WRONLY : O_RDONLY) < 0) std::_Exit(exit_failure);
  }
}

/// A file that grows beyond what `ulimit -f` allows is an error like others, with a name, and what was
/// written of it is removed; the signal would end the program before.
inline void take_file_limits_as_errors() {
  std::signal(SIGXFSZ, SIG_IGN);
}

/// What is wrong with the command line, in one line.
inline std::string complaint(const CLI::App& app, const CLI::ParseError& e) {
  const bool no_subcommand = app.get_require_subcommand_min() > 0 && app.get_subcommands().empty();
  if (!no_subcommand) return one_line(e.what());
  const std::vector<std::string> found = app.remaining();
  return "found " + (found.empty() ? "none" : qwenlite::in_quotes(found.front())) + ", expected a subcommand";
}

/// Parses the command line, then calls `work`. `usage` shows the words that follow a program's name, given
/// the (sub)command that was chosen.
template <class Work, class Usage>
int run_program(CLI::App& app, int argc, const char* const* argv, const Usage& usage, const Work& work) {
  keep_standard_streams();
  take_file_limits_as_errors();
  app.set_version_flag("--version", app.get_name() + " " + qwenlite::version, "print the version and end");
  std::string asked_for;  // help or version
  try {
    app.parse(argc, argv);
  } catch (const CLI::CallForHelp&) {
    asked_for = help_of(app);
  } catch (const CLI::CallForVersion& e) {
    asked_for = std::string(e.what()) + "\n";
  } catch (const CLI::ParseError& e) {
    std::cerr << call_of(app) << ": " << complaint(app, e) << "; usage: " << call_of(app) << " "
              << usage(innermost(app)) << " (--help explains)\n";
    return exit_usage;
  }
  try {
    if (asked_for.empty()) work();
    std::cout << asked_for << std::flush;
    if (!std::cout) throw std::runtime_error("standard output: could not be written");
    return 0;
  } catch (const CLI::ParseError& e) {
    std::cerr << call_of(app) << ": " << one_line(e.what()) << "\n";
    return exit_usage;
  } catch (const std::bad_alloc&) {
    std::cout.flush();
    std::cerr << "error: out of memory: the system gives the program no more\n";
    return exit_failure;
  } catch (const std::exception& e) {
    std::cout.flush();
    std::cerr << "error: " << one_line(e.what()) << "\n";
    return exit_failure;
  }
}

}  // namespace programs
