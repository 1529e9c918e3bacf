// SPDX-License-Identifier: Apache-2.0
//
// Definitions of reply_stream.hpp.
#pragma once

#include <utility>

#include <qwenlite/text/reply_stream.hpp>

namespace qwenlite {
inline namespace QWENLITE_ABI {

QWENLITE_INLINE ReplyStream::ReplyStream(const Tokenizer& tokenizer, std::span<const int> prompt,
                                         ReplyStreamOptions options)
    : text_(tokenizer, {.stop_strings = std::move(options.stop_strings)}), calls_(options.tools) {
  text_.begin(prompt);
  message_.role = "assistant";
  if (text_.think_state() != ThinkState::before) message_.reasoning_content.emplace();
}

QWENLITE_INLINE ReplyDelta ReplyStream::push(int token) {
  return delta(text_.push(token), token, false);
}

QWENLITE_INLINE ReplyDelta ReplyStream::finish() {
  return delta(text_.flush(), -1, true);
}

QWENLITE_INLINE ReplyDelta ReplyStream::delta(const TextDelta& text, int token, bool last) {
  reasoning_.clear();
  content_.clear();
  for (const TextPiece& piece : text.pieces()) (piece.thinking ? reasoning_ : content_).append(piece.text);
  calls_.push(content_, last);
  if (!message_.reasoning_content && (inside_think() || !reasoning_.empty())) {
    message_.reasoning_content.emplace();
  }
  if (message_.reasoning_content) message_.reasoning_content->append(reasoning_);
  message_.content.append(calls_.text());
  const std::span<const ToolCall> calls = calls_.calls();
  message_.tool_calls.insert(message_.tool_calls.end(), calls.begin(), calls.end());
  return {.reasoning = reasoning_,
          .content = calls_.text(),
          .tool_calls = calls,
          .text = text.text(),
          .token = token};
}

}  // namespace QWENLITE_ABI
}  // namespace qwenlite
