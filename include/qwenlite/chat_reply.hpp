// SPDX-License-Identifier: Apache-2.0
//
// ChatReply: what a turn of a ChatSession gave, why it ended, and what it could use of earlier turns.
#pragma once

#include <cstdint>
#include <string_view>

#include <qwenlite/generate/generate.hpp>
#include <qwenlite/text/chat_template.hpp>

namespace qwenlite {
inline namespace QWENLITE_ABI {

/// Why a reply ended.
enum class ReplyEnd : std::uint8_t {
  stop,         ///< the model ended it
  stop_string,  ///< one of the stop strings was met
  length,       ///< generate.max_new_tokens
  context,      ///< the session is full; the next turn drops the oldest turns
  callback,     ///< the callback returned false
  cancelled,    ///< a stop was requested
};

/// In words.
[[nodiscard]] constexpr std::string_view name_of(ReplyEnd end) noexcept {
  switch (end) {
    case ReplyEnd::stop: return "stop";
    case ReplyEnd::stop_string: return "stop string";
    case ReplyEnd::length: return "length";
    case ReplyEnd::context: return "context";
    case ReplyEnd::callback: return "callback";
    case ReplyEnd::cancelled: return "cancelled";
  }
  return "?";
}

/// The end that generate() gives as a reason.
[[nodiscard]] constexpr ReplyEnd reply_end(FinishReason reason) noexcept {
  switch (reason) {
    case FinishReason::stop: return ReplyEnd::stop;
    case FinishReason::length: return ReplyEnd::length;
    case FinishReason::context: return ReplyEnd::context;
    case FinishReason::callback: return ReplyEnd::callback;
    case FinishReason::cancelled: break;
  }
  return ReplyEnd::cancelled;
}

/// How much of what the session held a prompt could use, and if not all, why.
enum class Reuse : std::uint8_t {
  all,              ///< all that the prompt could use; as a rule it goes on where the session ended
  empty,            ///< the session held nothing
  not_kept,         ///< the session keeps nothing it computes (NoCache)
  think_block,      ///< a think block is not part of the prompt any more
  reply_text,       ///< the last reply was cut, or its text encodes to other tokens than were drawn
  dropped_turns,    ///< the oldest turns were dropped
  history_changed,  ///< messages, system message or tools were changed, or a question was taken back
};

/// In words.
[[nodiscard]] constexpr std::string_view name_of(Reuse reuse) noexcept {
  switch (reuse) {
    case Reuse::all: return "all reused";
    case Reuse::empty: return "nothing held";
    case Reuse::not_kept: return "nothing is kept";
    case Reuse::think_block: return "think block left out of the history";
    case Reuse::reply_text: return "last reply cut or encoded differently";
    case Reuse::dropped_turns: return "oldest turns dropped";
    case Reuse::history_changed: return "history changed";
  }
  return "?";
}

/// A reply and what it took.
struct ChatReply {
  Message message;  ///< role assistant: content, reasoning_content and tool_calls
  ReplyEnd end = ReplyEnd::stop;
  /// Whether the new messages and the reply are in the conversation. False only when a callback or a
  /// cancellation ended the reply before there was an answer.
  bool remembered = true;
  bool inside_think = false;  ///< the reply ended inside its think block
  bool thinking_closed_by_budget = false;
  Index prompt_tokens = 0;  ///< of the whole conversation
  Index reused_tokens = 0;  ///< of them, held by the session already; the others were computed
  /// Of the reused, processed again all the same: recurrent state goes back to places it remembers. None
  /// while prompts part where they do as a rule, and SessionOptions::snapshot_bytes holds those places.
  Index replayed_tokens = 0;
  Reuse reuse = Reuse::all;
  Index dropped_messages = 0;  ///< the oldest ones, taken out of the conversation
  GenerateStats generate;      ///< generated_tokens includes those that closed a think block

  /// Whether there is an answer: false when the reply ended inside the think block, or before a first word
  /// after it.
  [[nodiscard]] bool answered() const noexcept {
    return !message.content.empty() || !message.tool_calls.empty();
  }
};

}  // namespace QWENLITE_ABI
}  // namespace qwenlite
