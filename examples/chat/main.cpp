// SPDX-License-Identifier: Apache-2.0
//
// chat: talks with a Qwen3 model. One question with --prompt or through a pipe, or a conversation line by
// line. Without a directory it uses the demo model that comes with the library.
#include <csignal>
#include <filesystem>
#include <iostream>
#include <iterator>
#include <string>
#include <unistd.h>

#include <qwenlite/checkpoint/checkpoint.hpp>

#include "chat/conversation.hpp"
#include "chat/output.hpp"
#include "programs/open_model.hpp"

namespace ql = qwenlite;
namespace fs = std::filesystem;

namespace {

struct Options {
  std::string directory;
  std::string prompt;
  std::string family;
  bool has_prompt = false;
  bool interactive = false;
  bool think = false;
  bool no_think = false;
  bool stats = false;
  programs::RunOptions run;
  chat::ConversationOptions conversation;
};

void add_options(CLI::App& app, Options& o) {
  using ql::Index;
  constexpr Index many = Index{1} << 24;
  ql::GenerateOptions& generate = o.conversation.generate;
  app.add_option("DIRECTORY", o.directory, "checkpoint directory (default: the demo model)");
  app.add_option("--prompt", o.prompt, "ask this one question and end");
  app.add_flag("--interactive", o.interactive,
               "read questions line by line even when input is not a terminal");
  app.add_option("--system", o.conversation.system, "system message");
  CLI::Option* think = app.add_flag("--think", o.think, "let the model think first, and print that too");
  app.add_flag("--no-think", o.no_think, "ask for an answer without thinking")->excludes(think);
  app.add_option("--max-new-tokens", generate.max_new_tokens,
                 "longest reply (default: to the end of the context)")
      ->check(programs::number_in<Index>(1, many));
  app.add_option("--temperature", generate.sampling.temperature,
                 "0 takes the likeliest token; default: the model's")
      ->check(programs::number_in(0.0, 100.0));
  app.add_option("--top-p", generate.sampling.top_p, "draw from the likeliest tokens that sum to this")
      ->check(programs::number_in(0.0, 1.0));
  app.add_option("--top-k", generate.sampling.top_k, "draw from this many of the likeliest tokens; 0: all")
      ->check(programs::number_in<Index>(0, many));
  app.add_option("--min-p", generate.sampling.min_p,
                 "leave out tokens less likely than this times the likeliest")
      ->check(programs::number_in(0.0, 1.0));
  app.add_option("--seed", generate.sampling.seed, "the same seed gives the same reply")
      ->check(programs::number_in<std::uint64_t>(0, UINT64_MAX));
  app.add_option("--context", o.conversation.context, "tokens that conversation and reply may have together")
      ->check(programs::number_in<Index>(1, many));
  app.add_option("--family", o.family, "chat template to use when the directory's is not a known one")
      ->check(programs::one_of({"qwen3", "qwen3.5"}));
  programs::add_run_options(app, o.run);
  app.add_flag("--stats", o.stats, "print speeds and sizes to standard error");
  app.footer(
      "With --prompt, or when standard input is a pipe or file (then all of it is the question, without a\n"
      "line break at its end), chat asks once and ends. Otherwise every line is a question; /exit or the "
      "end\n"
      "of input ends the conversation.\n"
      "On a terminal thinking is shown dimmed. Elsewhere only the answer is written; with --think the\n"
      "thinking comes before it, between <think> and </think>.");
}

/// The demo model: in the source tree, or where it is installed relative to the program.
std::string demo_directory() {
  const fs::path built = QWENLITE_DEMO_MODELS "/qwen3";
  std::error_code ignored;
  if (fs::exists(built, ignored)) return built.string();
  const fs::path program = fs::read_symlink("/proc/self/exe", ignored);
  const fs::path installed = program.parent_path().parent_path() / "share/qwenlite/demo_models/qwen3";
  if (fs::exists(installed, ignored)) return installed.string();
  throw ql::Error(ql::ErrorCode::io, "no DIRECTORY was given, and the demo model is neither in " +
                                         built.string() + " nor in " + installed.string());
}

class Program {
 public:
  Program(const Options& options, const ql::Checkpoint& files, const ql::Tokenizer& tokenizer)
      : options_(options),
        model_(programs::open_model(files, options.run)),
        conversation_(model_, tokenizer, options.conversation),
        printer_(std::cout, isatty(STDOUT_FILENO) != 0, options.think) {
    for (const std::string& warning : files.warnings()) std::cerr << "warning: " << warning << '\n';
  }

  void ask(std::string question) {
    const chat::AnswerStats stats = answer(std::move(question));
    if (stats.dropped_turns > 0 && !said_dropped_) {
      std::cerr << "note: the context is full; the oldest messages are left out from now on\n";
      said_dropped_ = true;
    }
    chat::print_notes(std::cerr, stats);
    if (options_.stats) chat::print_stats(std::cerr, stats, model_, conversation_, options_.run.kv);
  }

  /// One question per line until /exit or the end of input. A question without room is no reason to end.
  void loop() {
    const bool prompted = isatty(STDIN_FILENO) != 0;
    if (prompted) std::cout << "One question per line; /exit ends.\n";
    std::string line;
    while (true) {
      if (prompted) std::cout << "> " << std::flush;
      if (!std::getline(std::cin, line)) break;
      if (!line.empty() && line.back() == '\r') line.pop_back();
      if (line.find_first_not_of(" \t") == std::string::npos) continue;
      if (line == "/exit") return;
      try {
        ask(line);
      } catch (const ql::Error& e) {
        if (e.code() != ql::ErrorCode::context_full) throw;
        std::cerr << "note: " << e.what() << '\n';
      }
    }
    if (prompted) std::cout << '\n';
  }

 private:
  /// Shows the reply as it comes; whatever happens, the terminal is left as it was.
  chat::AnswerStats answer(std::string question) {
    try {
      const chat::AnswerStats stats =
          conversation_.ask(std::move(question), [&](const ql::TextDelta& delta) { printer_.show(delta); });
      printer_.end();
      return stats;
    } catch (...) {
      printer_.end();
      throw;
    }
  }

  const Options& options_;
  programs::ProgramModel model_;
  chat::Conversation conversation_;
  chat::ReplyPrinter printer_;
  bool said_dropped_ = false;
};

/// Ctrl-C ends the program; dimmed text must not outlive it on the terminal.
extern "C" void restore_terminal_and_end(int signal) {
  constexpr char normal[] = "\x1b[0m\n";
  const auto written = ::write(STDOUT_FILENO, normal, sizeof normal - 1);
  static_cast<void>(written);
  std::signal(signal, SIG_DFL);
  std::raise(signal);
}

/// All of standard input, without a line break at its end.
std::string piped_question() {
  std::string text{std::istreambuf_iterator<char>(std::cin), std::istreambuf_iterator<char>()};
  if (!text.empty() && text.back() == '\n') text.pop_back();
  if (!text.empty() && text.back() == '\r') text.pop_back();
  if (text.empty()) {
    throw CLI::ValidationError("standard input", "found nothing, expected a question (or use --prompt TEXT)");
  }
  return text;
}

void run(Options& options) {
  if (options.think || options.no_think) options.conversation.thinking = options.think;
  options.conversation.generate.prefill_piece = options.run.prefill_piece();
  const bool loop = !options.has_prompt && (options.interactive || isatty(STDIN_FILENO) != 0);
  std::string question;
  if (!loop) question = options.has_prompt ? options.prompt : piped_question();
  if (!loop && question.empty()) throw CLI::ValidationError("--prompt", "found no text, expected a question");

  const ql::Checkpoint files(options.directory.empty() ? demo_directory() : options.directory);
  ql::TokenizerOptions how;
  if (!options.family.empty()) {
    how.family = options.family == "qwen3" ? ql::ChatFamily::qwen3 : ql::ChatFamily::qwen3_5;
  }
  const ql::Tokenizer tokenizer(files.directory(), how);
  Program program(options, files, tokenizer);
  if (loop) {
    program.loop();
  } else {
    program.ask(question);
  }
}

}  // namespace

int main(int argc, char** argv) {
  CLI::App app("Talks with a Qwen3 model.", "chat");
  Options options;
  add_options(app, options);
  const auto usage = [](const CLI::App&) { return "[OPTIONS] [DIRECTORY]"; };
  if (isatty(STDOUT_FILENO) != 0) std::signal(SIGINT, restore_terminal_and_end);
  return programs::run_program(app, argc, argv, usage, [&] {
    if (options.directory.empty() && app.count("DIRECTORY") > 0) {
      throw CLI::ValidationError("DIRECTORY", "found an empty name, expected a checkpoint directory");
    }
    options.has_prompt = app.count("--prompt") > 0;
    run(options);
  });
}
