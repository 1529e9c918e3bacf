// SPDX-License-Identifier: Apache-2.0
//
// ChatSession: messages in, streamed text out.
//
// Every turn renders the whole conversation with the model's chat template and processes those tokens of
// the prompt that the session does not hold at their place. So a turn costs its new tokens only, and its
// answer is, bit for bit, that of a fresh session given the whole prompt. The templates leave earlier
// think blocks out of the prompt: after a reply that had one (also the empty one of a model told not to
// think), the reply's text is processed again at its new place, and nothing before it.
//
// Recurrent state, unlike keys and values, cannot be cut at will. So the session is told to remember the
// places where prompts part as a rule: behind the first message (what is left when the oldest turns are
// dropped), before the newest one (taken back, or said in other words) and at the beginning of the reply,
// before its think block; and where the history was changed. Coming back there processes no token again.
//
//   qwenlite::ChatSession chat(model, tokenizer, {.system = "Be brief."});
//   chat.send("Hello!", [](const qwenlite::ReplyDelta& delta) { std::cout << delta.content << std::flush; });
#pragma once

#include <algorithm>
#include <concepts>
#include <cstdint>
#include <optional>
#include <span>
#include <stop_token>
#include <string>
#include <string_view>
#include <type_traits>
#include <utility>
#include <vector>

#include <qwenlite/chat_reply.hpp>
#include <qwenlite/generate/either_stop.hpp>
#include <qwenlite/generate/generate.hpp>
#include <qwenlite/models/session.hpp>
#include <qwenlite/text/conversation.hpp>
#include <qwenlite/text/incoming_reply.hpp>
#include <qwenlite/text/reply_stream.hpp>
#include <qwenlite/text/tokenizer.hpp>
#include <qwenlite/text/unicode.hpp>

namespace qwenlite {
inline namespace QWENLITE_ABI {

struct ChatSessionOptions {
  std::string system{};              ///< the system message; empty: none
  std::optional<bool> thinking{};    ///< unset leaves it to the template, see ChatOptions
  std::vector<std::string> tools{};  ///< definitions the model may call, each a JSON object as text
  /// Most tokens of a think block. Then the block is closed and the model answers. 0 thinks not at all.
  std::optional<Index> thinking_budget{};
  /// Leave earlier think blocks in the prompt (see ChatOptions): cheaper turns, but not the published
  /// template. Without it the reply of the turn before is processed once more, without its block.
  bool keep_thinking = false;
  /// The reply ends before any of these texts, in the thinking or in the answer. Think tags are part of
  /// neither, the text of tool calls is answer.
  std::vector<std::string> stop_strings{};
  /// How to draw tokens (unset fields: the model's defaults with thinking or without), how many (thinking
  /// counts, and the end of a block comes whole), `progress` of the prompt's new tokens, and `cancel` for all
  /// turns. `think` and `already_generated`, which say how a reply began, are filled in for each.
  GenerateOptions generate{};
  /// What to do when the conversation outgrows the session's max_tokens.
  WhenFull when_full = WhenFull::drop_oldest;
  SessionOptions session{};
};

/// What two generate() calls of one reply did together. The prompt of the second was the end of a think
/// block, `closing` tokens that `first` counts as generated, after the last token of the first call, if
/// there was one, or else after the prompt.
[[nodiscard]] inline GenerateStats joined(const GenerateStats& first, const GenerateStats& second,
                                          Index closing) noexcept {
  GenerateStats sum = second;
  sum.generated_tokens += first.generated_tokens;
  if (first.last_token < 0) {
    sum.prompt_tokens = std::max<Index>(0, second.prompt_tokens - closing);
    return sum;
  }
  sum.prompt_tokens = first.prompt_tokens;
  sum.prefill_seconds = first.prefill_seconds;
  sum.time_to_first_token = first.time_to_first_token;
  sum.decode_steps += first.decode_steps + 1;  // the one that processed the end of the block
  sum.decode_seconds += first.decode_seconds + second.prefill_seconds;
  return sum;
}

/// What ChatSession needs of a model: AnyModel and every Model have it.
template <class Model>
concept ChatModel = requires(const Model& model, typename Model::Session& session, Index n) {
  requires TokenModel<Model, typename Model::Session>;
  { model.new_session(SessionOptions{}) } -> std::same_as<typename Model::Session>;
  { session.tokens() } -> std::convertible_to<std::span<const int>>;
  session.truncate(n);
};

/// A conversation with a model. One caller at a time; movable. If send() throws, from a callback too, the
/// conversation is as it was before, and so it is when a reply is ended before there is an answer. What was
/// computed stays in the session, to be used by the next turn as far as it fits.
template <ChatModel Model>
class ChatSession {
 public:
  using Session = typename Model::Session;

  /// `model` and `tokenizer` must outlive the session. Throws `bad_argument` for options out of range.
  ChatSession(const Model& model, const Tokenizer& tokenizer, ChatSessionOptions options = {});
  ChatSession(const Model&, const Tokenizer&&, ChatSessionOptions = {}) = delete;
  ChatSession(const Model&&, const Tokenizer&, ChatSessionOptions = {}) = delete;

  /// Says `text` as the user and streams the reply. Bytes of `text` that are not UTF-8 become U+FFFD.
  /// Also ended by `cancel`, while the prompt is processed too. Throws `context_full` when the new message
  /// alone has no room, and as generate() and the chat template do.
  ChatReply send(std::string text, ReplyCallback on_delta = {}, std::stop_token cancel = {});

  /// The same for any messages: the results of tool calls ({"tool", "18 C"}), or none to have the
  /// conversation as it stands answered.
  ChatReply send_messages(std::vector<Message> messages, ReplyCallback on_delta = {},
                          std::stop_token cancel = {});

  /// The conversation so far; a system message is its first.
  [[nodiscard]] const std::vector<Message>& messages() const noexcept { return messages_; }
  /// Replaces all messages, the system message included.
  void set_messages(std::vector<Message> messages);
  /// Replaces the system message; empty: none.
  void set_system(std::string text);
  /// Forgets all messages but the system message.
  void reset();

  /// For the turns to come; unset leaves it to the template.
  void set_thinking(std::optional<bool> thinking) { options_.thinking = thinking; }
  void set_thinking_budget(std::optional<Index> tokens);
  void set_tools(std::vector<std::string> tools) { options_.tools = std::move(tools); }
  [[nodiscard]] GenerateOptions& generate_options() noexcept { return options_.generate; }
  [[nodiscard]] const ChatSessionOptions& options() const noexcept { return options_; }

  [[nodiscard]] const Session& session() const noexcept { return session_; }
  [[nodiscard]] const Model& model() const noexcept { return *model_; }
  [[nodiscard]] const Tokenizer& tokenizer() const noexcept { return *tokenizer_; }

 private:
  /// Where a prompt and what the session holds part.
  struct Held {
    Index tokens = 0;
    Reuse reuse = Reuse::all;
  };

  [[nodiscard]] ChatOptions chat_options() const {
    return {.enable_thinking = options_.thinking,
            .tools = options_.tools,
            .keep_thinking = options_.keep_thinking};
  }
  [[nodiscard]] PromptRoom room() const noexcept;
  [[nodiscard]] Held held(std::span<const int> prompt, bool dropped) const;
  [[nodiscard]] bool may_think(std::span<const int> prompt) const;
  Index go_back(Index tokens);
  [[nodiscard]] std::vector<Index> parting_places(std::span<const int> prompt, Index known) const;
  [[nodiscard]] GenerateOptions reply_options(const std::stop_token& cancel, bool inside_think) const;
  GenerateStats run(IncomingReply& incoming, std::vector<int> input, GenerateOptions options);
  [[nodiscard]] std::optional<FinishReason> end_after_closing(const IncomingReply& incoming,
                                                              std::size_t input, Index generated) const;

  const Model* model_;
  const Tokenizer* tokenizer_;
  ChatSessionOptions options_;
  Session session_;
  std::vector<Message> messages_;
  Presence presence_;
  Index last_prompt_ = 0;  // tokens of the latest prompt: what the session holds beyond is a reply
  bool edited_ = false;    // the history was changed since
};

// ------------------------------------------------------------------------------------ definitions

template <ChatModel Model>
ChatSession<Model>::ChatSession(const Model& model, const Tokenizer& tokenizer, ChatSessionOptions options)
    : model_(&model),
      tokenizer_(&tokenizer),
      options_(std::move(options)),
      session_(model.new_session(options_.session)) {
  set_thinking_budget(options_.thinking_budget);
  for (const std::string& stop : options_.stop_strings) {
    require(!stop.empty(), "ChatSessionOptions::stop_strings: found an empty string, expected text");
  }
  set_system(options_.system);
}

template <ChatModel Model>
void ChatSession<Model>::set_thinking_budget(std::optional<Index> tokens) {
  require(!tokens || *tokens >= 0, "thinking_budget: found a negative number, expected 0 or more tokens");
  options_.thinking_budget = tokens;
}

template <ChatModel Model>
void ChatSession<Model>::set_messages(std::vector<Message> messages) {
  messages_ = std::move(messages);
  edited_ = true;
}

template <ChatModel Model>
void ChatSession<Model>::set_system(std::string text) {
  options_.system = text;
  const bool has = !messages_.empty() && messages_.front().role == "system";
  if (text.empty()) {
    if (has) messages_.erase(messages_.begin());
  } else if (has) {
    messages_.front() = Message{"system", std::move(text)};
  } else {
    messages_.insert(messages_.begin(), Message{"system", std::move(text)});
  }
  edited_ = true;
}

template <ChatModel Model>
void ChatSession<Model>::reset() {
  const bool has = !messages_.empty() && messages_.front().role == "system";
  messages_.resize(has ? 1 : 0);
  edited_ = true;
}

template <ChatModel Model>
ChatReply ChatSession<Model>::send(std::string text, ReplyCallback on_delta, std::stop_token cancel) {
  std::vector<Message> question(1);
  question.front().role = "user";
  unicode::append_valid(question.front().content, text);
  return send_messages(std::move(question), on_delta, std::move(cancel));
}

template <ChatModel Model>
ChatReply ChatSession<Model>::send_messages(std::vector<Message> added, ReplyCallback on_delta,
                                            std::stop_token cancel) {
  presence_.check("the chat session");
  std::vector<Message> messages = messages_;  // takes their place at the end
  messages.insert(messages.end(), std::move_iterator(added.begin()), std::move_iterator(added.end()));
  const FittedPrompt prompt =
      fitted_prompt(messages, *tokenizer_, chat_options(), room(), options_.when_full);
  const std::span<const int> tokens = prompt.tokens;
  const Held known = held(tokens, prompt.dropped_messages > 0);

  ChatReply reply;
  reply.prompt_tokens = static_cast<Index>(tokens.size());
  reply.reused_tokens = known.tokens;
  reply.reuse = known.reuse;
  IncomingReply incoming(*tokenizer_, tokens,
                         {.stop_strings = options_.stop_strings, .tools = options_.tools},
                         options_.thinking_budget, on_delta);
  const EitherStop stop(cancel, options_.generate.cancel);
  reply.replayed_tokens = go_back(known.tokens);
  last_prompt_ = reply.prompt_tokens;
  const auto rest = tokens.subspan(static_cast<std::size_t>(known.tokens));
  GenerateOptions how = reply_options(stop.token(), incoming.inside_think());
  if constexpr (requires { model_->defaults(true); }) {
    how.sampling = how.sampling.or_else(model_->defaults(may_think(tokens)));
  }
  how.remember_after = parting_places(tokens, known.tokens);
  reply.generate = run(incoming, {rest.begin(), rest.end()}, std::move(how));
  reply.end = incoming.stopped() ? ReplyEnd::stop_string : reply_end(reply.generate.finish_reason);
  const bool broken_off = reply.end == ReplyEnd::cancelled || reply.end == ReplyEnd::callback;
  incoming.finish();  // what was held back may turn out to be a stop string

  if (incoming.stopped() && !broken_off) reply.end = ReplyEnd::stop_string;
  reply.inside_think = incoming.inside_think();
  reply.thinking_closed_by_budget = incoming.closed_by_budget();
  reply.message = incoming.take_message();
  reply.remembered = reply.answered() || !broken_off;
  if (!reply.remembered) return reply;
  reply.dropped_messages = static_cast<Index>(prompt.dropped_messages);
  messages.push_back(reply.message);
  messages_ = std::move(messages);
  edited_ = false;
  return reply;
}

/// A prompt may fill the session but for one token; more than wanted is given to a reply by dropping turns.
template <ChatModel Model>
PromptRoom ChatSession<Model>::room() const noexcept {
  const Index limit = session_.max_tokens();
  const Index reply = std::min(options_.generate.max_new_tokens.value_or(256), limit / 4);
  return {.most = static_cast<std::size_t>(limit - 1), .wanted = static_cast<std::size_t>(limit - reply)};
}

template <ChatModel Model>
auto ChatSession<Model>::held(std::span<const int> prompt, bool dropped) const -> Held {
  if (!retains(session_)) return {.tokens = 0, .reuse = Reuse::not_kept};
  const std::span<const int> known = session_.tokens();
  // At least the last token is computed, for its logits.
  const auto parted = std::mismatch(prompt.begin(), prompt.end() - 1, known.begin(), known.end());
  const auto same = static_cast<std::size_t>(parted.first - prompt.begin());
  Held result{.tokens = static_cast<Index>(same)};
  const std::optional<int> think = tokenizer_->token_to_id("<think>");
  if (known.empty()) {
    result.reuse = Reuse::empty;
  } else if (same == known.size() || (same + 1 == prompt.size() && known[same] == prompt[same])) {
    result.reuse = Reuse::all;
  } else if (dropped) {
    result.reuse = Reuse::dropped_turns;
  } else if (think && (known[same] == *think || prompt[same] == *think)) {
    result.reuse = Reuse::think_block;
  } else {
    const bool in_reply = !edited_ && result.tokens >= last_prompt_;
    result.reuse = in_reply ? Reuse::reply_text : Reuse::history_changed;
  }
  return result;
}

/// Whether the reply to a prompt may think: unless the prompt ends in a closed think block.
template <ChatModel Model>
bool ChatSession<Model>::may_think(std::span<const int> prompt) const {
  const std::optional<int> opening = tokenizer_->token_to_id("<|im_start|>");
  const std::optional<int> close = tokenizer_->token_to_id("</think>");
  for (auto at = prompt.rbegin(); opening && at != prompt.rend() && *at != *opening; ++at) {
    if (close && *at == *close) return false;
  }
  return true;
}

/// Takes the session back to so many tokens; returns how many of them were processed again for it.
template <ChatModel Model>
Index ChatSession<Model>::go_back(Index tokens) {
  if constexpr (std::is_void_v<decltype(session_.truncate(tokens))>) {
    session_.truncate(tokens);
    return 0;
  } else {
    const bool changed = std::ssize(session_.tokens()) > tokens;
    const Index replayed = session_.truncate(tokens);
    if constexpr (requires { session_.remember(tokens); }) {
      if (changed) session_.remember(tokens);
    }
    return replayed;
  }
}

/// Where later prompts are likely to part from this one, in tokens after the `known` first: behind the first
/// message, before the newest one, and in the reply's opening, before a think block.
template <ChatModel Model>
std::vector<Index> ChatSession<Model>::parting_places(std::span<const int> prompt, Index known) const {
  const int opening = tokenizer_->token_to_id("<|im_start|>").value_or(-1);
  std::vector<Index> starts;  // of messages
  for (auto at = prompt.begin(); (at = std::find(at, prompt.end(), opening)) != prompt.end(); ++at) {
    starts.push_back(at - prompt.begin());
  }
  if (starts.empty()) return {};
  const Index reply = starts.back();
  starts.pop_back();  // of the reply, whose opening is known
  std::vector<Index> places;
  if (starts.size() > 1) places = {starts[1] - known};
  if (starts.size() > 2) places.push_back(starts.back() - known);
  const int think = tokenizer_->token_to_id("<think>").value_or(-1);
  places.push_back(std::find(prompt.begin() + reply, prompt.end(), think) - prompt.begin() - known);
  std::erase_if(places, [](Index place) { return place <= 0; });
  return places;
}

template <ChatModel Model>
GenerateOptions ChatSession<Model>::reply_options(const std::stop_token& cancel, bool inside_think) const {
  GenerateOptions options = options_.generate;
  options.cancel = cancel;
  if (!options.ignore_eos) {  // beside those that the model's files name
    const std::vector<int>& ends = tokenizer_->eos_ids();
    options.stop_ids.insert(options.stop_ids.end(), ends.begin(), ends.end());
  }
  options.think = {.open = tokenizer_->token_to_id("<think>").value_or(-1),
                   .close = tokenizer_->token_to_id("</think>").value_or(-1),
                   .open_at_start = inside_think};
  options.already_generated.clear();
  return options;
}

/// Generates; and when a think block has had its budget, closes it and goes on.
template <ChatModel Model>
GenerateStats ChatSession<Model>::run(IncomingReply& incoming, std::vector<int> input,
                                      GenerateOptions options) {
  GenerateStats stats;
  const auto take = [&](int token) { return incoming.take(token); };
  if (!incoming.out_of_budget()) {
    stats = generate(*model_, session_, input, options, take);
    if (incoming.ended() || !incoming.out_of_budget()) return stats;
    input.assign(1, stats.last_token);
    options.progress = {};
    options.remember_after.clear();
  }
  const std::vector<int> closing = incoming.close_think_block();
  input.insert(input.end(), closing.begin(), closing.end());
  stats.generated_tokens += static_cast<Index>(closing.size());
  if (const auto reason = end_after_closing(incoming, input.size(), stats.generated_tokens)) {
    stats.finish_reason = *reason;
    return stats;
  }
  if (options.max_new_tokens) *options.max_new_tokens -= stats.generated_tokens;
  options.already_generated = incoming.tokens();
  const GenerateStats rest = generate(*model_, session_, input, options, take);
  return joined(stats, rest, static_cast<Index>(closing.size()));
}

/// Why nothing comes after the end of a think block, with `input` tokens still to be processed.
template <ChatModel Model>
std::optional<FinishReason> ChatSession<Model>::end_after_closing(const IncomingReply& incoming,
                                                                  std::size_t input, Index generated) const {
  if (incoming.ended()) return FinishReason::callback;
  if (options_.generate.max_new_tokens && generated >= *options_.generate.max_new_tokens) {
    return FinishReason::length;
  }
  const Index room = session_.max_tokens() - session_.length();
  if (static_cast<Index>(input) > room) return FinishReason::context;
  return std::nullopt;
}

}  // namespace QWENLITE_ABI
}  // namespace qwenlite

#ifdef QWENLITE_COMPILED
// Compiled once, in cmake/instances/chat.cpp.
#include <qwenlite/models/any_model.hpp>

namespace qwenlite {
inline namespace QWENLITE_ABI {

extern template class ChatSession<AnyModel>;

}  // namespace QWENLITE_ABI
}  // namespace qwenlite
#endif
