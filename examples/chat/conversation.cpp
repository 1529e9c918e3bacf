// SPDX-License-Identifier: Apache-2.0
#include "chat/conversation.hpp"

#include <algorithm>
#include <chrono>
#include <utility>

namespace ql = qwenlite;

namespace chat {

Conversation::Conversation(const programs::ProgramModel& model, const ql::Tokenizer& tokenizer,
                           ConversationOptions options)
    : model_(model),
      tokenizer_(tokenizer),
      options_(std::move(options)),
      session_(model.new_session({.max_tokens = options_.context})) {
  const std::vector<int>& ends = tokenizer.eos_ids();  // beside those that the model's files name
  options_.generate.stop_ids.insert(options_.generate.stop_ids.end(), ends.begin(), ends.end());
  if (!options_.system.empty()) messages_.push_back({"system", options_.system});
}

std::vector<int> Conversation::render() const {
  return tokenizer_.encode_chat(messages_, {.enable_thinking = options_.thinking});
}

/// Removes the oldest question and everything up to the next one.
void Conversation::drop_oldest_turn() {
  const auto is_question = [](const ql::Message& m) { return m.role == "user"; };
  const auto first = std::find_if(messages_.begin(), messages_.end(), is_question);
  messages_.erase(first, std::find_if(first + 1, messages_.end(), is_question));
}

/// The rendered conversation, shortened at message borders until it leaves room for an answer.
std::vector<int> Conversation::fitting_prompt(AnswerStats& stats) {
  const Index limit = session_.max_tokens();
  const Index wanted = std::min(options_.generate.max_new_tokens.value_or(256), limit / 4);
  const auto questions = [&] {
    return std::count_if(messages_.begin(), messages_.end(), [](const auto& m) { return m.role == "user"; });
  };
  std::vector<int> prompt = render();
  while (static_cast<Index>(prompt.size()) + wanted > limit && questions() > 1) {
    drop_oldest_turn();
    ++stats.dropped_turns;
    prompt = render();
  }
  if (static_cast<Index>(prompt.size()) < limit) return prompt;
  throw ql::Error(ql::ErrorCode::context_full, "the message is too long: with its surroundings it has " +
                                                   std::to_string(prompt.size()) +
                                                   " tokens, and the context holds " + std::to_string(limit) +
                                                   " (--context makes it larger)");
}

AnswerStats Conversation::ask(std::string question, const Show& show) {
  AnswerStats stats;
  const std::vector<ql::Message> before = messages_;
  messages_.push_back({"user", std::move(question)});
  std::vector<int> prompt;
  try {
    prompt = fitting_prompt(stats);
  } catch (...) {
    messages_ = before;
    throw;
  }
  const auto known = session_.tokens();
  const auto equal = std::mismatch(prompt.begin(), prompt.end() - 1, known.begin(), known.end()).first;
  stats.prompt_tokens = static_cast<Index>(prompt.size());
  stats.reused_tokens = equal - prompt.begin();  // at least the last token is computed, for its logits
  session_.truncate(stats.reused_tokens);

  ql::TextStream stream(tokenizer_);
  stream.begin(prompt);
  ql::Message answer{"assistant"};
  const auto take = [&](const ql::TextDelta& delta) {
    for (const ql::TextPiece& piece : delta.pieces()) {
      if (!piece.thinking) answer.content.append(piece.text);
    }
    show(delta);
  };
  using Clock = std::chrono::steady_clock;
  std::optional<Clock::time_point> resumed;
  const auto on_token = [&](int token) {
    if (resumed) stats.step_seconds.push_back(std::chrono::duration<double>(Clock::now() - *resumed).count());
    take(stream.push(token));
    resumed = Clock::now();
    return true;
  };
  const auto rest = std::span<const int>(prompt).subspan(static_cast<std::size_t>(stats.reused_tokens));
  stats.generate = ql::generate(model_, session_, rest, options_.generate, on_token);
  take(stream.flush());
  stats.answered = stream.think_state() != ql::ThinkState::inside;
  messages_.push_back(std::move(answer));
  return stats;
}

}  // namespace chat
