// SPDX-License-Identifier: Apache-2.0
//
// Conversation: the messages so far, and a session that already holds as much of them as can be reused.
//
// For every question the whole conversation is rendered anew, as the template demands (it drops earlier
// thinking), and compared with the tokens in the session: what is equal from the beginning stays, the rest
// is cut off and computed. When the context has no room, whole turns are left out, the oldest first.
#pragma once

#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include <qwenlite/generate/generate.hpp>
#include <qwenlite/text/text_stream.hpp>
#include <qwenlite/text/tokenizer.hpp>

#include "programs/open_model.hpp"

namespace chat {

using qwenlite::Index;

struct ConversationOptions {
  std::string system;            // empty: no system message
  std::optional<bool> thinking;  // empty: the template's own choice
  Index context = 0;             // tokens; 0: the library's default
  qwenlite::GenerateOptions generate;
};

/// What one answer took.
struct AnswerStats {
  qwenlite::GenerateStats generate;
  Index prompt_tokens = 0;           // of the rendered conversation
  Index reused_tokens = 0;           // of them, already in the session
  Index dropped_turns = 0;           // left out of the prompt
  bool answered = true;              // false: the reply ended inside the think block
  std::vector<double> step_seconds;  // one per token drawn after the first
};

class Conversation {
 public:
  Conversation(const programs::ProgramModel& model, const qwenlite::Tokenizer& tokenizer,
               ConversationOptions options);

  /// Called with each piece of the reply as it becomes known.
  using Show = std::function<void(const qwenlite::TextDelta& delta)>;

  /// Asks, and remembers question and answer. Throws `context_full`, with the conversation unchanged, when
  /// the question alone has no room.
  AnswerStats ask(std::string question, const Show& show);

  [[nodiscard]] const programs::ProgramModel::Session& session() const { return session_; }

 private:
  [[nodiscard]] std::vector<int> render() const;
  std::vector<int> fitting_prompt(AnswerStats& stats);
  void drop_oldest_turn();

  const programs::ProgramModel& model_;
  const qwenlite::Tokenizer& tokenizer_;
  ConversationOptions options_;
  programs::ProgramModel::Session session_;
  std::vector<qwenlite::Message> messages_;
};

}  // namespace chat
