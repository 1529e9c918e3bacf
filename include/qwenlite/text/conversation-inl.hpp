// SPDX-License-Identifier: Apache-2.0
//
// Definitions of conversation.hpp.
#pragma once

#include <algorithm>
#include <string>
#include <utility>

#include <qwenlite/text/chat_template-inl.hpp>
#include <qwenlite/text/conversation.hpp>
#include <qwenlite/text/python_json.hpp>
#include <qwenlite/text/unicode.hpp>

namespace qwenlite {
inline namespace QWENLITE_ABI {
namespace conversation {

/// The message that the oldest turn begins with.
[[nodiscard]] inline std::size_t first_turn(const std::vector<Message>& messages) noexcept {
  return !messages.empty() && messages.front().role == "system" ? 1 : 0;
}

/// Where all turns but the oldest begin. Results of tools sent as a user belong to the turn before.
[[nodiscard]] inline std::vector<std::size_t> later_turns(const std::vector<Message>& messages) {
  std::vector<std::size_t> starts;
  for (std::size_t i = first_turn(messages) + 1; i < messages.size(); ++i) {
    if (messages[i].role == "user" && !chat::is_tool_response(messages[i].content)) starts.push_back(i);
  }
  return starts;
}

/// The messages without those between the system message and `start`.
[[nodiscard]] inline std::vector<Message> from_turn(const std::vector<Message>& messages, std::size_t start) {
  std::vector<Message> kept = messages;
  const auto begin = kept.begin();
  kept.erase(begin + static_cast<std::ptrdiff_t>(first_turn(messages)),
             begin + static_cast<std::ptrdiff_t>(start));
  return kept;
}

[[noreturn]] inline void refuse_long(std::size_t tokens, std::size_t most, bool alone) {
  const char* what = alone ? "the message is too long: with its surroundings it has "
                           : "the conversation is too long: it has ";
  throw Error(ErrorCode::context_full, what + std::to_string(tokens) + " tokens, and there is room for " +
                                           std::to_string(most) + " and a reply");
}

/// The earliest of `starts` whose prompt has at most `limit` tokens, by halving: prompts get shorter from
/// one to the next. starts.size() when there is none.
template <class Encode>
[[nodiscard]] std::size_t first_that_fits(const std::vector<std::size_t>& starts, std::size_t limit,
                                          const Encode& encode) {
  std::size_t low = 0, high = starts.size();
  while (low < high) {
    const std::size_t middle = low + (high - low) / 2;
    if (encode(starts[middle]).size() <= limit) {
      high = middle;
    } else {
      low = middle + 1;
    }
  }
  return low;
}

}  // namespace conversation

QWENLITE_INLINE FittedPrompt fitted_prompt(std::vector<Message>& messages, const Tokenizer& tokenizer,
                                           const ChatOptions& options, const PromptRoom& room,
                                           WhenFull when_full) {
  FittedPrompt fitted{.tokens = tokenizer.encode_chat(messages, options)};
  if (fitted.tokens.size() <= room.wanted) return fitted;
  const std::vector<std::size_t> starts = conversation::later_turns(messages);
  if (when_full == WhenFull::drop_oldest && !starts.empty()) {
    const auto encode = [&](std::size_t start) {
      return tokenizer.encode_chat(conversation::from_turn(messages, start), options);
    };
    // If a quarter cannot be had, as much as is needed; if not even that, all that may go.
    std::size_t turn = conversation::first_that_fits(starts, room.wanted - room.wanted / 4, encode);
    if (turn == starts.size()) turn = conversation::first_that_fits(starts, room.wanted, encode);
    const std::size_t start = starts[std::min(turn, starts.size() - 1)];
    fitted.tokens = encode(start);
    fitted.dropped_messages = start - conversation::first_turn(messages);
  }
  if (fitted.tokens.size() > room.most) {
    conversation::refuse_long(fitted.tokens.size(), room.most,
                              when_full == WhenFull::drop_oldest || starts.empty());
  }
  if (fitted.dropped_messages > 0) {
    messages =
        conversation::from_turn(messages, fitted.dropped_messages + conversation::first_turn(messages));
  }
  return fitted;
}

// -------------------------------------------------------------------------------------- JSON form

QWENLITE_INLINE std::string chat_request_json(const ChatRequest& request) {
  using Json = nlohmann::ordered_json;
  const auto valid = [](const std::string& text) {
    std::string out;
    unicode::append_valid(out, text);
    return out;
  };
  Json messages = Json::array();
  for (const Message& message : request.messages) {
    Json entry;
    entry["role"] = valid(message.role);
    entry["content"] = valid(message.content);
    if (message.reasoning_content) entry["reasoning_content"] = valid(*message.reasoning_content);
    for (const ToolCall& call : message.tool_calls) {
      Json function;
      function["name"] = valid(call.name);
      function["arguments"] = valid(call.arguments);  // a string: the text stays as it is
      Json wrapped;
      wrapped["type"] = "function";
      wrapped["function"] = std::move(function);
      entry["tool_calls"].push_back(std::move(wrapped));
    }
    messages.push_back(std::move(entry));
  }
  Json root;
  root["messages"] = std::move(messages);
  for (const std::string& tool : request.options.tools) {
    root["tools"].push_back(python_json::parse(tool, "tool definition", ErrorCode::bad_text));
  }
  if (request.options.enable_thinking) root["enable_thinking"] = *request.options.enable_thinking;
  return python_json::text_of(root);
}

}  // namespace QWENLITE_ABI
}  // namespace qwenlite
