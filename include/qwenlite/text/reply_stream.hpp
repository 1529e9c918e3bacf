// SPDX-License-Identifier: Apache-2.0
//
// ReplyStream: the tokens of an assistant's reply to what a program shows and remembers of it: thinking,
// answer and tool calls, piece by piece and, at the end, as a message.
//
// Owns the order of the parts: bytes to characters, think tags and stop strings (TextStream), tool calls.
// All deltas together equal the message. Results never depend on how text is divided into tokens.
#pragma once

#include <concepts>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <type_traits>
#include <utility>
#include <vector>

#include <qwenlite/text/text_stream.hpp>
#include <qwenlite/text/tool_calls.hpp>

namespace qwenlite {
inline namespace QWENLITE_ABI {

/// What one token of a reply made known; most often a few letters of one of the texts, or nothing yet.
/// In this order: a token that ends the thinking may also begin the answer. Views hold during the callback.
struct ReplyDelta {
  std::string_view reasoning{};            ///< of the think block, without tags and outer line breaks
  std::string_view content{};              ///< of the answer, without tool calls
  std::span<const ToolCall> tool_calls{};  ///< completed by this token
  std::string_view text{};  ///< everything as the model wrote it, think tags and tool calls too
  int token = -1;           ///< -1 in the last delta, which gives what was held back
};

class ReplyCallback;

/// A callable taking a ReplyDelta and returning nothing, or a bool where false ends the reply.
template <class F>
concept TakesReplyDelta =
    !std::same_as<std::remove_cvref_t<F>, ReplyCallback> && std::invocable<F&, const ReplyDelta&>;

/// Refers to such a callable, which must live as long. It is called once for every token, in order, and
/// once more at the end (then token is -1).
class ReplyCallback {
 public:
  ReplyCallback() = default;
  template <TakesReplyDelta F>
  ReplyCallback(F&& callable) noexcept  // NOLINT(google-explicit-constructor)
      : callable_(address_of(callable)), call_(call<std::remove_reference_t<F>>) {}

  bool operator()(const ReplyDelta& delta) const { return call_ == nullptr || call_(callable_, delta); }

 private:
  template <class F>
  [[nodiscard]] static void* address_of(F& callable) noexcept {
    if constexpr (std::is_function_v<F>) {
      return reinterpret_cast<void*>(&callable);
    } else {
      return const_cast<void*>(static_cast<const void*>(std::addressof(callable)));
    }
  }
  template <class F>
  static bool call(void* callable, const ReplyDelta& delta) {
    F& f = *reinterpret_cast<F*>(callable);
    if constexpr (std::is_void_v<std::invoke_result_t<F&, const ReplyDelta&>>) {
      f(delta);
      return true;
    } else {
      return static_cast<bool>(f(delta));
    }
  }

  void* callable_ = nullptr;
  bool (*call_)(void*, const ReplyDelta&) = nullptr;
};

struct ReplyStreamOptions {
  /// The reply ends before the first of these to be completed, in the thinking or in the answer, of which
  /// think tags are no part.
  std::vector<std::string> stop_strings{};
  /// Definitions of the tools, for the types of parameters. Must outlive the stream.
  std::span<const std::string> tools{};
};

class ReplyStream {
 public:
  /// A reply to `prompt`, which says whether it begins inside a think block. `tokenizer` must outlive the
  /// stream. Throws `bad_argument` for an empty stop string.
  ReplyStream(const Tokenizer& tokenizer, std::span<const int> prompt, ReplyStreamOptions options = {});

  /// Takes the next token. Once stopped(), nothing more comes.
  [[nodiscard]] ReplyDelta push(int token);
  /// Ends the reply: gives out what was held back.
  [[nodiscard]] ReplyDelta finish();

  /// Whether a stop string was met.
  [[nodiscard]] bool stopped() const noexcept { return text_.stopped(); }
  /// Whether the think block is open; once stopped(), whether the stop string stood in it.
  [[nodiscard]] bool inside_think() const noexcept { return text_.think_state() == ThinkState::inside; }

  /// The reply so far, or after finish() all of it: role assistant; reasoning_content is set when the
  /// prompt or the reply opened a think block, even an empty one.
  [[nodiscard]] const Message& message() const noexcept { return message_; }
  [[nodiscard]] Message take_message() noexcept { return std::move(message_); }

 private:
  [[nodiscard]] ReplyDelta delta(const TextDelta& text, int token, bool last);

  TextStream text_;
  ToolCallParser calls_;
  Message message_;
  std::string reasoning_;  // of the latest delta
  std::string content_;
};

}  // namespace QWENLITE_ABI
}  // namespace qwenlite

#ifndef QWENLITE_COMPILED
#include <qwenlite/text/reply_stream-inl.hpp>
#endif
