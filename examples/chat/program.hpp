// SPDX-License-Identifier: Apache-2.0
//
// The chat program once its command line is read: a model, a conversation with it, and a terminal or pipes.
#pragma once

#include <optional>
#include <string>

#include <qwenlite/checkpoint/checkpoint.hpp>

#include "chat/commands.hpp"
#include "chat/interrupts.hpp"
#include "chat/line_reader.hpp"
#include "chat/output.hpp"
#include "programs/progress_bar.hpp"

namespace chat {

struct Options {
  std::string directory;
  std::string model;
  std::string name;  // of the model, for people
  std::string prompt;
  std::string family;
  std::string preset;
  std::string history;
  bool has_prompt = false;
  bool interactive = false;
  bool think = false;
  bool no_think = false;
  bool stats = false;
  programs::RunOptions run;
  qwenlite::ChatSessionOptions chat;
};

class Program {
 public:
  Program(const Options& options, const qwenlite::Checkpoint& files, const qwenlite::Tokenizer& tokenizer,
          Interrupts& interrupts);

  /// Asks one question. Ends the program if Ctrl-C stopped the answer.
  void ask_once(const std::string& question);

  /// One message after the other until the user or the input ends. A message without room is no reason to
  /// end.
  void loop();

 private:
  [[nodiscard]] qwenlite::ChatSessionOptions chat_options();
  [[nodiscard]] LineReaderOptions reader_options() const;
  qwenlite::ReplyEnd ask(const std::string& question);
  void refuse_unanswered(const qwenlite::ChatReply& reply) const;
  qwenlite::ChatReply answer(const std::string& question, StepTimes& times);
  [[nodiscard]] bool take(const Line& line);
  void greet() const;
  /// Whether --context may be larger than it is.
  [[nodiscard]] bool could_be_larger() const;

  const Options& options_;
  Interrupts& interrupts_;
  programs::ProgressBar bar_;
  programs::ProgramModel model_;
  Chat chat_;
  Commands commands_;
  ReplyPrinter printer_;
  std::optional<programs::Storage> storage_;  // told with statistics
  bool single_question_ = false;
  bool stopped_before_ = false;  // Ctrl-C at an empty prompt was the last thing to happen
};

}  // namespace chat
