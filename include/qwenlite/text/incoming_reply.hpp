// SPDX-License-Identifier: Apache-2.0
//
// IncomingReply: what a chat does with each token of a reply, knowing no model: shows it, and watches the
// number of tokens in the think block.
//
// When the block has had its budget it is closed with the tokens that the template closes one with; they
// are part of the reply like drawn ones, and the model goes on after them.
#pragma once

#include <cstddef>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <qwenlite/text/reply_stream.hpp>
#include <qwenlite/text/tokenizer.hpp>

namespace qwenlite {
inline namespace QWENLITE_ABI {

/// One reply as it comes.
class IncomingReply {
 public:
  /// `prompt` must not be empty.
  IncomingReply(const Tokenizer& tokenizer, std::span<const int> prompt, ReplyStreamOptions options,
                std::optional<std::ptrdiff_t> thinking_budget, const ReplyCallback& on_delta)
      : tokenizer_(tokenizer),
        stream_(tokenizer, prompt, std::move(options)),
        budget_(thinking_budget),
        on_delta_(on_delta),
        prompt_end_(prompt.back()) {}

  /// Shows a token. False ends the generation: see ended() and out_of_budget().
  bool take(int token) {
    if (stream_.inside_think()) ++thought_;
    push(token);
    return !ended() && !out_of_budget();
  }
  void finish() { show(stream_.finish()); }

  /// Whether the think block is to be closed now.
  [[nodiscard]] bool out_of_budget() const noexcept {
    return budget_ && !closed_ && stream_.inside_think() && thought_ >= *budget_;
  }
  /// Closes it as the template writes the end of one: shows these tokens, and returns them.
  std::vector<int> close_think_block() {
    closed_ = true;
    std::string_view before = tokenizer_.token_bytes(tokens_.empty() ? prompt_end_ : tokens_.back());
    std::size_t breaks = stream_.message().reasoning_content.value_or("").empty() ? 2 : 1;
    for (; breaks > 0 && !before.empty() && before.back() == '\n'; --breaks) before.remove_suffix(1);
    const std::string text = std::string(breaks, '\n') + "</think>\n\n";
    const std::vector<int> tokens = tokenizer_.encode(text, {.control_tokens = true});
    for (const int token : tokens) push(token);
    return tokens;
  }

  /// Nothing more is wanted: a stop string was met, or the callback returned false.
  [[nodiscard]] bool ended() const noexcept { return refused_ || stream_.stopped(); }
  [[nodiscard]] bool stopped() const noexcept { return stream_.stopped(); }
  [[nodiscard]] bool inside_think() const noexcept { return stream_.inside_think(); }
  [[nodiscard]] bool closed_by_budget() const noexcept { return closed_; }
  /// All tokens so far.
  [[nodiscard]] const std::vector<int>& tokens() const noexcept { return tokens_; }
  [[nodiscard]] Message take_message() noexcept { return stream_.take_message(); }

 private:
  void push(int token) {
    tokens_.push_back(token);
    show(stream_.push(token));
  }
  void show(const ReplyDelta& delta) {
    if (!refused_) refused_ = !on_delta_(delta);
  }

  const Tokenizer& tokenizer_;
  ReplyStream stream_;
  std::optional<std::ptrdiff_t> budget_;
  ReplyCallback on_delta_;
  int prompt_end_;  // its last token
  std::vector<int> tokens_;
  std::ptrdiff_t thought_ = 0;  // tokens in the think block
  bool closed_ = false;
  bool refused_ = false;
};

}  // namespace QWENLITE_ABI
}  // namespace qwenlite
