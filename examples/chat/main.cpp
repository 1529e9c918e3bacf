// SPDX-License-Identifier: Apache-2.0
//
// chat: talks with a Qwen3 model. One question with --prompt or through a pipe, or a conversation line by
// line. Without a directory it uses the demo model that comes with the library.
#include <algorithm>
#include <filesystem>
#include <iostream>
#include <string>
#include <unistd.h>
#include <vector>

#include <qwenlite/generate/presets.hpp>

#include "chat/program.hpp"
#include "programs/chat_family.hpp"
#include "programs/demo_models.hpp"
#include "programs/standard_input.hpp"

namespace ql = qwenlite;
namespace fs = std::filesystem;
using ql::Index;

namespace {

constexpr Index many = Index{1} << 24;

std::vector<std::string> preset_names() {
  std::vector<std::string> names;
  for (const ql::SamplingPreset preset : ql::sampling_presets) names.emplace_back(ql::name_of(preset));
  return names;
}

void add_sampling_options(CLI::App& app, chat::Options& o) {
  ql::SamplingOptions& sampling = o.chat.generate.sampling;
  std::string names;
  for (const std::string& name : preset_names()) names += (names.empty() ? "" : ", ") + name;
  app.add_option("--preset", o.preset,
                 "values of the model card to draw with (single options override them): " + names)
      ->check(programs::one_of(preset_names()));
  app.add_option("--temperature", sampling.temperature, "0 takes the likeliest token; default: the model's")
      ->check(programs::number_in(0.0, 100.0));
  app.add_option("--top-p", sampling.top_p, "draw from the likeliest tokens that sum to this")
      ->check(programs::number_in(0.0, 1.0));
  app.add_option("--top-k", sampling.top_k, "draw from this many of the likeliest tokens; 0: all")
      ->check(programs::number_in<Index>(0, many));
  app.add_option("--min-p", sampling.min_p, "leave out tokens less likely than this times the likeliest")
      ->check(programs::number_in(0.0, 1.0));
  app.add_option("--repetition-penalty", sampling.repetition_penalty,
                 "above 1: tokens that the reply already has become less likely, by this factor")
      ->check(programs::number_in(0.01, 100.0));
  app.add_option("--presence-penalty", sampling.presence_penalty,
                 "taken from the logits of tokens that the reply already has")
      ->check(programs::number_in(-100.0, 100.0));
  app.add_option("--frequency-penalty", sampling.frequency_penalty,
                 "the same, once for every time the reply has the token")
      ->check(programs::number_in(-100.0, 100.0));
  app.add_option("--seed", sampling.seed, "the same seed gives the same reply")
      ->check(programs::number_in<std::uint64_t>(0, UINT64_MAX));
}

void add_reply_options(CLI::App& app, chat::Options& o) {
  CLI::Option* think = app.add_flag("--think", o.think, "let the model think first, and print that too");
  app.add_flag("--no-think", o.no_think, "ask for an answer without thinking")->excludes(think);
  app.add_option("--thinking-budget", o.chat.thinking_budget,
                 "most tokens of thinking; then the model has to answer")
      ->check(programs::number_in<Index>(0, many));
  app.add_option("--max-new-tokens", o.chat.generate.max_new_tokens,
                 "longest reply (default: to the end of the context)")
      ->check(programs::number_in<Index>(1, many));
  app.add_option("--stop", o.chat.stop_strings,
                 "end a reply before this text, in thinking or answer; may be given several times")
      ->allow_extra_args(false)
      ->option_text("TEXT");
}

void add_options(CLI::App& app, chat::Options& o) {
  CLI::Option* directory = app.add_option(
      "DIRECTORY", o.directory, std::string(programs::checkpoint_help) + " (default: the demo model qwen3)");
  app.add_option("--model", o.model, "the same as an option")->excludes(directory)->option_text("NAME");
  CLI::Option* prompt = app.add_option("--prompt", o.prompt, "ask this one question and end");
  app.add_flag("--interactive", o.interactive,
               "read questions line by line even when input is not a terminal")
      ->excludes(prompt);
  app.add_option("--system", o.chat.system, "system message");
  add_reply_options(app, o);
  add_sampling_options(app, o);
  app.add_option(
         "--context", o.chat.session.max_tokens,
         "tokens that conversation and reply may have together (default: 4096, or the model's context "
         "if that is less)")
      ->check(programs::number_in<Index>(1, many));
  programs::add_family_option(app, o.family);
  programs::add_run_options(app, o.run);
  app.add_option("--history", o.history, "keep the lines typed on a terminal in this file (default: nowhere)")
      ->excludes(prompt);
  app.add_flag("--stats", o.stats, "print speeds and sizes to standard error");
  app.footer(
      "With --prompt, or when standard input is a pipe or file (then all of it is the question, without a\n"
      "line break at its end), chat asks once and ends. Otherwise every line is a message, a pasted text of\n"
      "several lines is one, and /help lists the commands.\n"
      "On a terminal thinking is shown dimmed. Elsewhere only the answer is written; with --think the\n"
      "thinking comes before it, between <think> and </think>.\n"
      "Ctrl-C stops an answer; three times, without waiting for it, also the program.");
}

std::string model_directory(const chat::Options& o) {
  if (!o.model.empty()) return programs::model_directory(o.model, "--model");
  if (!o.directory.empty()) return programs::model_directory(o.directory, "DIRECTORY");
  return programs::demo_directory(programs::demo_models.front());
}

/// What people call the model.
std::string name_of_model(const chat::Options& o) {
  const std::string& directory = o.model.empty() ? o.directory : o.model;
  if (directory.empty()) return "the demo model";
  if (programs::means_demo_model(directory)) return "the demo model " + directory;
  return fs::absolute(directory / fs::path()).parent_path().filename();
}

/// All of standard input, without a line break at its end.
std::string piped_question() {
  std::string text = programs::all_input(programs::most_small);
  if (!text.empty() && text.back() == '\n') text.pop_back();
  if (!text.empty() && text.back() == '\r') text.pop_back();
  if (text.empty()) {
    throw CLI::ValidationError("standard input", "found nothing, expected a question (or use --prompt TEXT)");
  }
  return text;
}

void check_texts(const CLI::App& app, const chat::Options& o) {
  const auto check = [&](const char* option, bool wrong, const char* what) {
    if (app.count(option) > 0 && wrong) throw CLI::ValidationError(option, what);
  };
  check("DIRECTORY", o.directory.empty(), "found an empty name, expected a checkpoint directory");
  check("--model", o.model.empty(), "found an empty name, expected a demo model or a checkpoint directory");
  check("--prompt", o.prompt.empty(), "found no text, expected a question");
  check("--history", o.history.empty(), "found an empty name, expected a file");
  for (const std::string& stop : o.chat.stop_strings)
    check("--stop", stop.empty(), "found no text, expected some");
}

void check_context(const chat::Options& o, Index most) {
  const Index wanted = o.chat.session.max_tokens;
  if (wanted <= most) return;
  throw CLI::ValidationError("--context", "found " + std::to_string(wanted) +
                                              ", expected at most the model's " + std::to_string(most));
}

void run(chat::Options& o, chat::Interrupts& interrupts) {
  if (o.think || o.no_think) o.chat.thinking = o.think;
  if (!o.preset.empty()) {
    o.chat.generate.sampling = o.chat.generate.sampling.or_else(ql::options_of(ql::preset_named(o.preset)));
  }
  const bool terminal = isatty(STDIN_FILENO) != 0;
  const bool loop = !o.has_prompt && (o.interactive || terminal);
  // Between two pieces of a prompt there is a look at Ctrl-C and the progress bar: people want more of them.
  if (loop && terminal) o.chat.generate.prefill_piece = 128;
  const std::string question = loop ? "" : o.has_prompt ? o.prompt : piped_question();

  const ql::Checkpoint files(model_directory(o));
  check_context(o, files.config().context_limit());
  o.name = name_of_model(o);
  const ql::Tokenizer tokenizer = programs::open_tokenizer(files.directory().string(), o.family);
  programs::require_template(tokenizer);
  chat::Program program(o, files, tokenizer, interrupts);
  if (!loop && !o.history.empty()) std::cerr << "note: --history has no effect on a single question\n";
  loop ? program.loop() : program.ask_once(question);
}

}  // namespace

int main(int argc, char** argv) {
  CLI::App app("Talks with a Qwen3 or Qwen3.5 model.", "chat");
  chat::Options options;
  add_options(app, options);
  const auto usage = [](const CLI::App&) { return "[OPTIONS] [DIRECTORY]"; };
  return programs::run_program(app, argc, argv, usage, [&] {
    check_texts(app, options);
    options.has_prompt = app.count("--prompt") > 0;
    chat::Interrupts interrupts;
    run(options, interrupts);
  });
}
