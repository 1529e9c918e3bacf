// SPDX-License-Identifier: Apache-2.0
//
// generate(): feeds a prompt to a session, then draws tokens and feeds them back until something ends it.
//
// Works on anything that meets TokenModel, so it knows no network. A token is processed only when the one
// after it is wanted: when generate() returns, the session holds the prompt and every drawn token but the
// last. After finish reason `stop` that last one is the stop token, so all tokens that were handed out are
// in the session; after any other it is the last token handed out. Passing it (`GenerateStats::last_token`)
// as the next prompt continues as if nothing had ended, with the same random numbers; penalties and a mask
// hook need to be told of the earlier tokens too (`GenerateOptions::already_generated`).
#pragma once

#include <algorithm>
#include <chrono>
#include <concepts>
#include <functional>
#include <optional>
#include <span>
#include <stop_token>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <qwenlite/generate/mask_hook.hpp>
#include <qwenlite/generate/sampler.hpp>
#include <qwenlite/kernels/formats.hpp>

namespace qwenlite {
inline namespace QWENLITE_ABI {

/// What generate() needs of a model and its session. `logits` processes tokens and returns the logits after
/// the last; `prefill` only processes them; ids from token_count() on are never drawn; a stop id ends a
/// reply. defaults() suggests values for sampling (see SamplingOptions::or_else).
template <class Model, class Session>
concept TokenModel = requires(const Model& model, Session& session, std::span<const int> tokens) {
  { model.logits(session, tokens) } -> std::convertible_to<std::span<const float>>;
  model.prefill(session, tokens);
  { model.token_count() } -> std::convertible_to<Index>;
  { model.stop_ids() } -> std::convertible_to<std::span<const int>>;
  SamplingOptions{}.or_else(model.defaults());
  { session.length() } -> std::convertible_to<Index>;
  { session.max_tokens() } -> std::convertible_to<Index>;
};

/// Whether a session keeps what it computed, as one does unless it says otherwise. If not, every call
/// computes all its tokens again.
template <class Session>
[[nodiscard]] bool retains(const Session& session) noexcept {
  if constexpr (requires { session.retains(); }) return session.retains();
  return true;
}

/// How a reply is generated.
struct GenerateOptions {
  /// Most tokens to hand out; not set: as many as the session has room for.
  std::optional<Index> max_new_tokens = {};
  /// How to draw them. Fields that are not set come from the model's defaults.
  SamplingOptions sampling = {};
  /// Go on past the model's stop ids (for measurements).
  bool ignore_eos = false;
  /// Further ids that end the reply, never ignored.
  std::vector<int> stop_ids = {};
  /// Tokens of the prompt processed between two looks at `cancel` and two calls of `progress`; all of them
  /// when the session retains nothing, since each piece would compute those before it again.
  Index prefill_piece = 512;
  /// Numbers of tokens of the prompt after which the session is told to remember() the place, if it can:
  /// where a later prompt may part from this one.
  std::vector<Index> remember_after = {};
  /// Called with the number of prompt tokens processed and their total.
  std::function<void(Index, Index)> progress = {};
  /// Ends the reply early, also while the prompt is being processed.
  std::stop_token cancel = {};
  /// Called before each draw: may ban tokens, or force one (to close a think block, say).
  MaskHook mask = {};
  /// Where the think block is, for what `mask` is told; for nothing else.
  ThinkBlock think = {};
  /// When this call continues a reply: all its tokens that earlier calls handed out. Penalties count them
  /// and `mask` sees them, as if one call had generated everything; `think` still says how the reply began.
  std::vector<int> already_generated = {};
};

/// Why generate() ended.
enum class FinishReason : std::uint8_t {
  stop,      ///< the model drew a stop id (it is not handed out)
  length,    ///< max_new_tokens were handed out
  context,   ///< the session is full
  callback,  ///< the callback returned false
  cancelled  ///< `cancel` was requested
};

[[nodiscard]] constexpr std::string_view name_of(FinishReason reason) noexcept {
  switch (reason) {
    case FinishReason::stop: return "stop";
    case FinishReason::length: return "length";
    case FinishReason::context: return "context";
    case FinishReason::callback: return "callback";
    case FinishReason::cancelled: return "cancelled";
  }
  return "?";
}

/// What one generate() did. Times leave out what the callback took.
struct GenerateStats {
  Index prompt_tokens = 0;         ///< processed of the prompt (fewer than given only when cancelled)
  Index generated_tokens = 0;      ///< handed to the callback
  Index decode_steps = 0;          ///< tokens drawn after the first, a stop id included
  double prefill_seconds = 0;      ///< processing the prompt
  double decode_seconds = 0;       ///< all decode steps
  double time_to_first_token = 0;  ///< seconds: the prompt and the first draw
  int last_token = -1;             ///< the last one drawn: not in the session; -1: none
  FinishReason finish_reason = FinishReason::stop;

  /// Of decoding, and of the prompt; 0 when there was none.
  [[nodiscard]] double tokens_per_second() const noexcept { return rate(decode_steps, decode_seconds); }
  [[nodiscard]] double prefill_tokens_per_second() const noexcept {
    return rate(prompt_tokens, prefill_seconds);
  }

 private:
  [[nodiscard]] static double rate(Index count, double seconds) noexcept {
    return seconds > 0 ? static_cast<double>(count) / seconds : 0;
  }
};

/// One run of generate(), step by step.
template <class Model, class Session>
requires TokenModel<Model, Session>
class Generation {
 public:
  /// Throws `bad_argument` for options out of range or an empty prompt, `context_full` when the session
  /// has no room for the prompt.
  Generation(const Model& model, Session& session, std::span<const int> prompt,
             const GenerateOptions& options)
      : model_(model),
        session_(session),
        prompt_(prompt),
        options_(options),
        sampler_(options.sampling.or_else(model.defaults()), model.token_count()),
        stop_ids_(options.stop_ids) {
    check();
    const std::span<const int> own = model.stop_ids();
    if (!options.ignore_eos) stop_ids_.insert(stop_ids_.end(), own.begin(), own.end());
    const Index room = session.max_tokens() - session.length() - static_cast<Index>(prompt.size());
    most_ = std::min(options.max_new_tokens.value_or(room + 1), room + 1);
    if (options.mask) {
      const Index longest = most_ + static_cast<Index>(options.already_generated.size());
      mask_.emplace(options.mask, options.think, model.token_count(), longest);
    }
    for (const int token : options.already_generated) append(token);
  }

  template <class Callback>
  [[nodiscard]] GenerateStats run(Callback& callback) {
    if (!prefill()) return stats_;
    while (true) {
      if (std::find(stop_ids_.begin(), stop_ids_.end(), stats_.last_token) != stop_ids_.end()) {
        return finish(FinishReason::stop);
      }
      ++stats_.generated_tokens;
      if (!static_cast<bool>(callback(stats_.last_token))) return finish(FinishReason::callback);
      if (stats_.generated_tokens == most_) return finish(limit_reached());
      if (options_.cancel.stop_requested()) return finish(FinishReason::cancelled);
      const auto start = Clock::now();
      choose(model_.logits(session_, std::span<const int>(&stats_.last_token, 1)));
      stats_.decode_seconds += seconds_since(start);
      ++stats_.decode_steps;
    }
  }

 private:
  using Clock = std::chrono::steady_clock;
  static constexpr bool can_remember = requires(Session & session, const Session& view, Index n) {
    session.remember(n);
    { view.remembers() } -> std::convertible_to<bool>;
  };

  [[nodiscard]] static double seconds_since(Clock::time_point start) {
    return std::chrono::duration<double>(Clock::now() - start).count();
  }

  void check() const {
    const auto reject = [](const char* what, Index found) {
      throw Error(ErrorCode::bad_argument, what, found, "at least 1");
    };
    if (options_.max_new_tokens && *options_.max_new_tokens < 1) {
      reject("max_new_tokens", *options_.max_new_tokens);
    }
    if (options_.prefill_piece < 1) reject("prefill_piece", options_.prefill_piece);
    if (prompt_.empty()) reject("tokens of the prompt", 0);
    const Index room = session_.max_tokens() - session_.length();
    if (static_cast<Index>(prompt_.size()) <= room) return;
    throw Error(ErrorCode::context_full, "prompt", {prompt_.size(), " tokens"},
                {"at most ", room, ", the room left of the session's ", session_.max_tokens()});
  }

  /// A session without a cache would compute all earlier tokens again for every piece.
  [[nodiscard]] Index piece() const noexcept {
    return retains(session_) ? options_.prefill_piece : static_cast<Index>(prompt_.size());
  }

  /// How many of the `left` tokens of the prompt to process next. A session can remember a place up to 64
  /// tokens after it has passed it, so the piece ends there at the latest.
  [[nodiscard]] Index next_piece(Index left) const {
    Index count = std::min(piece(), left);
    if constexpr (can_remember) {
      for (const Index place : options_.remember_after) {
        const Index to_place = place - stats_.prompt_tokens;
        if (to_place > 0 && session_.remembers()) count = std::min(count, to_place + block_positions);
      }
    }
    return count;
  }

  /// Remembers the places among the last `count` tokens of the prompt.
  void remember_places(Index count) {
    if constexpr (can_remember) {
      for (const Index place : options_.remember_after) {
        const Index back = stats_.prompt_tokens - place;
        if (back >= 0 && back < count && session_.remembers()) session_.remember(session_.length() - back);
      }
    }
  }

  /// Processes the prompt and draws the first token; false when cancelled before that.
  [[nodiscard]] bool prefill() {
    const auto start = Clock::now();
    const auto total = static_cast<Index>(prompt_.size());
    while (stats_.prompt_tokens < total && !options_.cancel.stop_requested()) {
      const Index count = next_piece(total - stats_.prompt_tokens);
      const auto tokens =
          prompt_.subspan(static_cast<std::size_t>(stats_.prompt_tokens), static_cast<std::size_t>(count));
      stats_.prompt_tokens += count;
      if (stats_.prompt_tokens < total) {
        model_.prefill(session_, tokens);
        stats_.prefill_seconds = seconds_since(start);
      } else {
        const std::span<const float> logits = model_.logits(session_, tokens);
        stats_.prefill_seconds = seconds_since(start);
        choose(logits);
        stats_.time_to_first_token = seconds_since(start);
      }
      remember_places(count);
      if (options_.progress) options_.progress(stats_.prompt_tokens, total);
    }
    if (stats_.prompt_tokens < total) stats_.finish_reason = FinishReason::cancelled;
    return stats_.prompt_tokens == total;
  }

  /// Draws the token that follows what the session holds.
  void choose(std::span<const float> logits) {
    const Index position = session_.length();
    const int token =
        mask_ ? sampler_.sample(logits, position, mask_->at(position)) : sampler_.sample(logits, position);
    append(token);
    stats_.last_token = token;
  }

  /// Adds a token to the reply, for penalties and mask.
  void append(int token) {
    sampler_.generated(token);
    if (mask_) mask_->append(token);
  }

  [[nodiscard]] FinishReason limit_reached() const noexcept {
    return options_.max_new_tokens == most_ ? FinishReason::length : FinishReason::context;
  }

  [[nodiscard]] GenerateStats finish(FinishReason reason) noexcept {
    stats_.finish_reason = reason;
    return stats_;
  }

  const Model& model_;
  Session& session_;
  std::span<const int> prompt_;
  GenerateOptions options_;
  Sampler sampler_;
  std::optional<HookedMask> mask_;  // with options_.mask only
  std::vector<int> stop_ids_;
  Index most_ = 0;  // tokens to hand out at most
  GenerateStats stats_;
};

/// Appends `prompt` to the session, then draws tokens and hands each to callback(int) -> bool until it
/// returns false, a stop id is drawn, a limit is met or `options.cancel` is requested.
/// Throws as Generation's constructor does, and `numeric` when the model's logits are broken or bias and mask
/// ban every token. What callback, progress or mask throw passes through. After either, the session holds
/// what was processed until then: of the reply, all tokens handed out, or all but the last.
template <class Model, class Session, class Callback>
requires TokenModel<Model, Session> && std::predicate<Callback&, int> GenerateStats
generate(const Model& model, Session& session, std::span<const int> prompt, const GenerateOptions& options,
         Callback&& callback) {
  return Generation<Model, Session>(model, session, prompt, options).run(callback);
}

}  // namespace QWENLITE_ABI
}  // namespace qwenlite
