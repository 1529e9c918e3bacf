// SPDX-License-Identifier: Apache-2.0
#include "chat/program.hpp"

#include <csignal>
#include <cstdlib>
#include <iostream>
#include <unistd.h>
#include <utility>

#include "chat/printable.hpp"
#include "programs/out_of_memory.hpp"
#include "programs/terminal.hpp"

namespace ql = qwenlite;

namespace chat {
namespace {

/// Whether text may be dimmed or bold (https://no-color.org).
bool wants_colour() {
  const char* no_colour = std::getenv("NO_COLOR");
  return !programs::is_dumb_terminal() && (no_colour == nullptr || *no_colour == '\0');
}

ReplyStyle style_for(bool terminal, bool think) {
  if (terminal) return wants_colour() ? ReplyStyle::dimmed : ReplyStyle::tagged;
  return think ? ReplyStyle::raw : ReplyStyle::answer_only;
}

/// context_full, with the option that helps, if it does.
ql::Error with_advice(const ql::Error& e, bool larger_context) {
  if (e.code() != ql::ErrorCode::context_full || !larger_context) return e;
  return {e.code(), std::string(e.what()) + " (--context makes it larger)"};
}

}  // namespace

Program::Program(const Options& options, const ql::Checkpoint& files, const ql::Tokenizer& tokenizer,
                 Interrupts& interrupts)
    : options_(options),
      interrupts_(interrupts),
      bar_(std::cerr),
      model_(programs::open_model(files, options.run)),
      chat_(programs::with_memory_for("the conversation's context",
                                      [&] { return Chat(model_, tokenizer, chat_options()); })),
      commands_(chat_, std::cerr, options.stats),
      printer_(std::cout, style_for(isatty(STDOUT_FILENO) != 0, options.think)) {
  for (const std::string& warning : files.warnings()) {
    std::cerr << "warning: " << printable_line(warning) << '\n';
  }
}

ql::ChatSessionOptions Program::chat_options() {
  ql::ChatSessionOptions chat = options_.chat;
  chat.generate.progress = [this](ql::Index done, ql::Index total) { bar_.update(done, total); };
  return chat;
}

void Program::ask_once(const std::string& question) {
  single_question_ = true;
  if (ask(question) == ql::ReplyEnd::cancelled) interrupts_.end_program(SIGINT);
}

bool Program::could_be_larger() const {
  return chat_.session().max_tokens() < model_.config().context_limit();
}

/// A question asked once, to which there is no answer because the context is full.
void Program::refuse_unanswered(const ql::ChatReply& reply) const {
  if (!single_question_ || reply.end != ql::ReplyEnd::context || reply.answered()) return;
  const ql::Index prompt = reply.prompt_tokens;
  const ql::Index generated = reply.generate.generated_tokens;
  const ql::Error full(ql::ErrorCode::context_full,
                       "the context is full before there is an answer: the prompt's " +
                           std::to_string(prompt) + " tokens and the reply's " + std::to_string(generated) +
                           " make " + std::to_string(prompt + generated) + ", and there is room for " +
                           std::to_string(chat_.session().max_tokens()));
  throw with_advice(full, could_be_larger());
}

ql::ReplyEnd Program::ask(const std::string& question) {
  StepTimes times;
  const ql::ChatReply reply = answer(question, times);
  refuse_unanswered(reply);
  if (reply.dropped_messages > 0 && !commands_.told_full()) {
    std::cerr << "note: the context is full; the oldest messages are left out from now on\n";
    commands_.set_told_full();
  }
  print_notes(std::cerr, reply,
              {.single_question = single_question_,
               .larger_context = could_be_larger(),
               .thinking_allowed = options_.chat.thinking_budget != ql::Index{0}});
  if (commands_.stats()) {
    if (!storage_) storage_ = programs::storage_of(model_, options_.run);  // the same after every reply
    print_stats(std::cerr, reply, times, chat_, *storage_);
  }
  return reply.end;
}

/// Shows the reply as it comes; whatever happens, the terminal is left as it was.
ql::ChatReply Program::answer(const std::string& question, StepTimes& times) {
  struct Ending {
    Program& program;
    ~Ending() {
      program.bar_.erase();
      program.printer_.end();
    }
  } const ending{*this};
  bar_.start();
  const StopOnInterrupt stop(interrupts_);
  const auto show = [&](const ql::ReplyDelta& delta) {
    if (delta.token >= 0) times.token_came();
    bar_.erase();
    printer_.show(delta);
    times.going_on();
  };
  try {
    return chat_.send(question, show, stop.token());
  } catch (const ql::Error& e) {
    throw with_advice(e, could_be_larger());
  }
}

LineReaderOptions Program::reader_options() const {
  const bool shown = isatty(STDOUT_FILENO) != 0 || isatty(STDERR_FILENO) != 0;
  const bool terminal = isatty(STDIN_FILENO) != 0 && shown;
  return {terminal, terminal && !programs::is_dumb_terminal(), terminal && wants_colour(), options_.history,
          command_names()};
}

void Program::greet() const {
  std::cerr << "Talking with " << printable_line(options_.name)
            << ". /help lists the commands, Ctrl-D ends.\n";
}

void Program::loop() {
  const LineReaderOptions how = reader_options();
  const auto reader = make_line_reader(interrupts_, how);
  if (!options_.history.empty() && !reader->has_history()) {
    std::cerr << "note: --history has no effect here: there is no line editor\n";
  }
  if (how.terminal) greet();
  while (true) {
    const Line line = read_message(*reader, "> ", ". ");
    if (line.kind == Line::Kind::end) {
      if (how.terminal) std::cerr << std::endl;
      return;
    }
    if (line.text.find_first_not_of(" \t\r\n") != std::string::npos) reader->remember(line.text);
    if (!take(line)) return;
  }
}

/// False: the user wants to end.
bool Program::take(const Line& line) {
  if (line.kind == Line::Kind::interrupted) {
    if (line.was_empty && stopped_before_) return false;
    stopped_before_ = line.was_empty;
    if (line.was_empty) std::cerr << "note: Ctrl-C once more, or Ctrl-D, ends" << std::endl;
    return true;
  }
  stopped_before_ = false;
  if (line.text.find_first_not_of(" \t\r\n") == std::string::npos) return true;
  if (const auto command = command_of(line.text)) return commands_.run(*command);
  try {
    ask(message_of(line.text));
  } catch (const ql::Error& e) {
    if (e.code() != ql::ErrorCode::context_full && e.code() != ql::ErrorCode::bad_text) throw;
    std::cerr << "note: " << printable_line(e.what()) << std::endl;
  }
  return true;
}

}  // namespace chat
