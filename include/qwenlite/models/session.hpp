// SPDX-License-Identifier: Apache-2.0
//
// Session: all that changes while one sequence is processed: its tokens, keys and values, and the scratch
// memory of single-sequence calls. One caller at a time; any number of sessions share a model.
#pragma once

#include <algorithm>
#include <concepts>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <type_traits>
#include <vector>

#include <qwenlite/cache/kv_layout.hpp>
#include <qwenlite/cache/snapshots.hpp>
#include <qwenlite/models/batch.hpp>

namespace qwenlite {
inline namespace QWENLITE_ABI {

/// How much a session can hold.
struct SessionOptions {
  /// Most tokens the sequence can hold. 0: the model's context or default_max_tokens, whichever is less.
  Index max_tokens = 0;
  /// Makes the scratch memory of single-sequence calls at once; without it, the first such call does.
  /// Sessions that are only ever part of a Batch need none.
  bool own_scratch = true;
  /// Most bytes of copies of recurrent state, which truncate() goes back to (see Session::remember()); used
  /// as the sequence grows, and only by networks that have such state.
  Index snapshot_bytes = Index{256} << 20;
};
/// What max_tokens is when nobody says, unless the model's context is shorter.
inline constexpr Index default_max_tokens = 4096;

/// One sequence of tokens of a network. Keeps the network alive. Movable; one that was moved from holds no
/// tokens, takes none and throws `bad_argument`.
template <class Network>
class Session {
 public:
  using Kv = typename Network::Kv;
  using State = typename Network::State;

  /// Throws `bad_argument` when options.max_tokens exceeds the positions the model was made for.
  explicit Session(const Network& network, const SessionOptions& options = {});

  /// Tokens processed so far.
  [[nodiscard]] Index length() const noexcept { return static_cast<Index>(tokens_.size()); }
  /// Most tokens it can hold.
  [[nodiscard]] Index max_tokens() const noexcept { return max_tokens_; }
  /// The tokens processed so far, [length()]. Valid until the session changes.
  [[nodiscard]] std::span<const int> tokens() const noexcept { return tokens_; }

  /// Forgets all tokens from position n on; what follows has the bits of a session that never saw them. Where
  /// a recurrent state cannot go back so far, tokens since the last place remembered are processed again;
  /// returns how many. Throws `bad_argument` unless 0 <= n <= length().
  Index truncate(Index n);

  /// Makes it free to come back to n tokens: truncate() there processes none again, and a little farther on
  /// only those in between, as long as SessionOptions::snapshot_bytes holds the place. It must be one that
  /// truncate() can go back to at no cost by itself, as it can to the last 64; nothing happens otherwise, and
  /// without recurrent state. Besides, a place is remembered unasked every 1,024 tokens.
  /// Throws `bad_argument` unless 0 <= n <= length().
  void remember(Index n) {
    check_length("remember", n);
    snapshots_.keep(state_, n, length());
  }
  /// The place where the sequence ends now.
  void remember() { remember(length()); }
  /// Whether remember() is of use: whether there is recurrent state.
  [[nodiscard]] bool remembers() const noexcept { return Snapshots<State>::takes_any; }

  /// Whether what was computed stays for the next forward. If not, each one computes all tokens again.
  [[nodiscard]] static constexpr bool retains() noexcept { return Kv::retains; }

  /// Bytes reserved for keys and values, the part of them in use, and all memory of the session.
  [[nodiscard]] Index kv_capacity_bytes() const noexcept { return kv_.bytes(); }
  [[nodiscard]] Index kv_used_bytes() const noexcept { return kv_.used_bytes(); }
  [[nodiscard]] Index bytes() const noexcept {
    const Index own = own_batch_ == nullptr ? 0 : own_batch_->bytes();
    const Index tokens = max_tokens_ * static_cast<Index>(sizeof(int));
    return kv_.bytes() + state_.bytes() + snapshots_.most_bytes(max_tokens_) + tokens + own;
  }

  [[nodiscard]] const Kv& kv() const noexcept { return kv_; }
  [[nodiscard]] const Network& network() const noexcept { return network_; }

 private:
  friend Network;
  friend class Batch<Network>;

  Batch<Network>& own_batch() {
    if (own_batch_ == nullptr) {
      own_batch_ = std::make_unique<Batch<Network>>(network_, BatchOptions{.max_tokens = max_tokens_});
    }
    return *own_batch_;
  }

  [[nodiscard]] static State new_state(const DeltaLayout& layout) {
    if constexpr (std::is_constructible_v<State, const DeltaLayout&>)
      return State(layout);
    else
      return State();
  }
  void cut(Index n);
  void check_length(const char* what, Index n) const {
    presence_.check("the session");
    if (n < 0 || n > length()) throw Error(ErrorCode::bad_argument, what, n, {"0 to ", length(), " tokens"});
  }

  Presence presence_;
  Network network_;
  Index max_tokens_;
  Kv kv_;
  State state_;
  Snapshots<State> snapshots_;
  std::vector<int> tokens_;
  std::unique_ptr<Batch<Network>> own_batch_;
};

/// Checks a wish for `wanted` tokens against what the model was made for.
[[nodiscard]] inline Index checked_max_tokens(Index wanted, Index context_limit) {
  if (wanted == 0) return std::min(context_limit, default_max_tokens);
  if (wanted < 0 || wanted > context_limit) {
    throw Error(ErrorCode::bad_argument, "max_tokens", wanted,
                {"1 to ", context_limit, ", the positions this model was made for"});
  }
  return wanted;
}

template <class Network>
Session<Network>::Session(const Network& network, const SessionOptions& options)
    : network_(network),
      max_tokens_(checked_max_tokens(options.max_tokens, network.config().context_limit())),
      kv_(network.kv_layout(max_tokens_), network.kv_format()),
      state_(new_state(network.sizes().delta)),
      snapshots_(state_, options.snapshot_bytes) {
  require(options.snapshot_bytes >= 0, "SessionOptions::snapshot_bytes: found a negative number");
  tokens_.reserve(static_cast<std::size_t>(max_tokens_));
  if (options.own_scratch) own_batch();
}

template <class Network>
Index Session<Network>::truncate(Index n) {
  check_length("truncate", n);
  if (state_.can_truncate(n)) {
    cut(n);
    return 0;
  }
  const Index start = snapshots_.restore(state_, n);
  const std::vector<int> again(tokens_.begin() + start, tokens_.begin() + n);
  cut(start);
  if (!again.empty()) network_.prefill(*this, again);
  return static_cast<Index>(again.size());
}

template <class Network>
void Session<Network>::cut(Index n) {
  kv_.truncate(n);
  state_.truncate(n);
  snapshots_.forget_after(state_, n);
  tokens_.resize(static_cast<std::size_t>(n));
}

}  // namespace QWENLITE_ABI
}  // namespace qwenlite
