// SPDX-License-Identifier: Apache-2.0
//
// Conversation: the messages of a chat and the prompt they make, kept within a number of tokens.
//
// A turn is a user message and all that follows it up to the next one. What has no room is left out turn
// by turn from the oldest; a system message and the latest turn always stay. Also the JSON form in which
// conversations are saved.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include <qwenlite/error.hpp>
#include <qwenlite/text/chat_template.hpp>
#include <qwenlite/text/tokenizer.hpp>

namespace qwenlite {
inline namespace QWENLITE_ABI {

/// What happens to a conversation that the session has no room for.
enum class WhenFull : std::uint8_t {
  drop_oldest,  ///< the oldest turns are dropped, a quarter of the room at once, so that it happens seldom
  refuse,       ///< `context_full` is thrown
};

/// A prompt that has room, and what it took.
struct FittedPrompt {
  std::vector<int> tokens;
  std::size_t dropped_messages = 0;  ///< taken out of the messages
};

/// Tokens that a prompt may have.
struct PromptRoom {
  std::size_t most = 0;    ///< more cannot be processed
  std::size_t wanted = 0;  ///< up to here there is room for a reply too
};

/// The prompt of `messages`. Turns that have no room are taken out of `messages`; with none left to take
/// out, the prompt may exceed room.wanted, but never room.most. Throws `context_full` with `messages`
/// unchanged if it would, and as Tokenizer::encode_chat does.
[[nodiscard]] FittedPrompt fitted_prompt(std::vector<Message>& messages, const Tokenizer& tokenizer,
                                         const ChatOptions& options, const PromptRoom& room,
                                         WhenFull when_full);

/// {"messages": [...], ...} as parse_chat_request() reads it: messages, tools, enable_thinking.
[[nodiscard]] std::string chat_request_json(const ChatRequest& request);

}  // namespace QWENLITE_ABI
}  // namespace qwenlite

#ifndef QWENLITE_COMPILED
#include <qwenlite/text/conversation-inl.hpp>
#endif
