// SPDX-License-Identifier: Apache-2.0
//
// Snapshots: copies of a session's recurrent state along its sequence, so that cutting back far costs little.
// They stay within a budget of bytes: when it is spent, the one goes whose neighbours are closest together,
// measured by how far back it lies, so that recent places stay dense and old ones sparse.
//
// Positions ascend. Those taken unasked are multiples of 64, where snapshots are smallest. States that keep
// nothing, and those that can go back anywhere, have an empty class.
#pragma once

#include <algorithm>
#include <concepts>
#include <cstddef>
#include <utility>
#include <vector>

#include <qwenlite/kernels/formats.hpp>

namespace qwenlite {
inline namespace QWENLITE_ABI {

/// A state of which copies can be taken: snapshot(n) at positions where can_snapshot(n), of
/// snapshot_bytes(n), most_snapshot_bytes() at most; restore() to go back.
template <class State>
concept SnapshotPolicy = requires(State state, const State view, Index n) {
  { view.can_snapshot(n) } -> std::convertible_to<bool>;
  { view.snapshot_bytes(n) } -> std::convertible_to<Index>;
  { view.most_snapshot_bytes() } -> std::convertible_to<Index>;
  { view.snapshot(n).position() } -> std::convertible_to<Index>;
  state.restore(view.snapshot(n));
};

/// Tokens between two copies that are taken unasked.
inline constexpr Index snapshot_interval = 1024;

template <class State>
class Snapshots {
 public:
  static constexpr bool takes_any = false;

  Snapshots(const State& /*state*/, Index /*budget*/) {}
  void keep(const State& /*state*/, Index /*n*/, Index /*length*/) {}
  void keep_now_and_then(const State& /*state*/, Index /*length*/) {}
  void forget_after(const State& /*state*/, Index /*n*/) {}
  [[nodiscard]] Index restore(State& /*state*/, Index /*n*/) const { return 0; }
  [[nodiscard]] Index most_bytes(Index /*max_tokens*/) const { return 0; }
};

template <SnapshotPolicy State>
class Snapshots<State> {
 public:
  using Snapshot = decltype(std::declval<const State&>().snapshot(0));
  static constexpr bool takes_any = true;

  /// `budget` bytes; a snapshot that alone exceeds it is never taken.
  Snapshots(const State& state, Index budget) : largest_(state.most_snapshot_bytes()), budget_(budget) {}

  /// Takes a snapshot at position n of `length` tokens, unless there is one, or the state cannot.
  void keep(const State& state, Index n, Index length) {
    const Index bytes = state.snapshot_bytes(n);
    if (bytes > budget_ || !state.can_snapshot(n)) return;
    const auto place = [&] {
      return std::lower_bound(kept_.begin(), kept_.end(), n,
                              [](const Snapshot& s, Index position) { return s.position() < position; });
    };
    if (const auto at = place(); at != kept_.end() && at->position() == n) return;
    while (bytes_ > budget_ - bytes) forget(state, kept_.begin() + least_missed(length));
    kept_.insert(place(), state.snapshot(n));
    bytes_ += bytes;
  }

  /// The same at the last multiple of 64 when the last one is long ago.
  void keep_now_and_then(const State& state, Index length) {
    const Index last = kept_.empty() ? 0 : kept_.back().position();
    const Index n = length / block_positions * block_positions;
    if (n - last >= snapshot_interval) keep(state, n, length);
  }

  /// Drops those of more than n tokens, which are not the sequence's any more.
  void forget_after(const State& state, Index n) {
    while (!kept_.empty() && kept_.back().position() > n) forget(state, kept_.end() - 1);
  }

  /// Takes the state back to the last snapshot of at most n tokens; returns its position, 0 if there is none.
  [[nodiscard]] Index restore(State& state, Index n) const {
    for (auto at = kept_.rbegin(); at != kept_.rend(); ++at) {
      if (at->position() > n) continue;
      state.restore(*at);
      return at->position();
    }
    return 0;
  }

  /// Of all snapshots that a sequence of max_tokens can come to have.
  [[nodiscard]] Index most_bytes(Index max_tokens) const {
    return max_tokens > budget_ / largest_ ? budget_ : max_tokens * largest_;
  }
  /// Of those there are.
  [[nodiscard]] Index bytes() const noexcept { return bytes_; }

 private:
  void forget(const State& state, typename std::vector<Snapshot>::iterator which) {
    bytes_ -= state.snapshot_bytes(which->position());
    kept_.erase(which);
  }

  /// Which of the kept to give up for a new one, `length` tokens being processed.
  [[nodiscard]] std::ptrdiff_t least_missed(Index length) const {
    std::ptrdiff_t least = 0;
    double least_loss = 0;
    for (std::size_t i = 0; i < kept_.size(); ++i) {
      const Index before = i == 0 ? 0 : kept_[i - 1].position();
      const Index after = i + 1 < kept_.size() ? kept_[i + 1].position() : length;
      const double loss =
          static_cast<double>(after - before) / static_cast<double>(length - kept_[i].position() + 1);
      if (i == 0 || loss < least_loss) {
        least = static_cast<std::ptrdiff_t>(i);
        least_loss = loss;
      }
    }
    return least;
  }

  Index largest_;
  Index budget_;
  Index bytes_ = 0;
  std::vector<Snapshot> kept_;
};

}  // namespace QWENLITE_ABI
}  // namespace qwenlite
