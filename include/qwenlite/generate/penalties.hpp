// SPDX-License-Identifier: Apache-2.0
//
// Penalties: makes tokens that were generated before less (or more) likely.
//
// Only tokens it was told of count; which they are is the caller's business, so that a reply continued later
// can be given the tokens of its first part. For a token generated c > 0 times, with logit x:
//   x <- x / repetition if x > 0, else x * repetition;   x <- x - presence - c * frequency
// Nothing is allocated after construction, and nothing at all when the penalties are neutral (1, 0, 0).
#pragma once

#include <algorithm>
#include <span>
#include <vector>

#include <qwenlite/generate/sampling_options.hpp>
#include <qwenlite/tensor.hpp>

namespace qwenlite {
inline namespace QWENLITE_ABI {

class Penalties {
 public:
  /// Takes the three penalties of checked options.
  Penalties(const SamplingOptions& options, Index token_count)
      : repetition_(options.repetition_penalty.value_or(1)),
        presence_(options.presence_penalty.value_or(0)),
        frequency_(options.frequency_penalty.value_or(0)) {
    if (neutral()) return;
    counts_.resize(static_cast<std::size_t>(token_count));
    seen_.reserve(static_cast<std::size_t>(token_count));
  }

  [[nodiscard]] bool neutral() const noexcept {
    return repetition_ == 1 && presence_ == 0 && frequency_ == 0;
  }
  /// True when apply() changes anything.
  [[nodiscard]] bool pending() const noexcept { return !seen_.empty(); }

  /// Counts a generated token, 0 to token_count - 1.
  void count(int token) noexcept {
    if (neutral()) return;
    if (counts_[static_cast<std::size_t>(token)]++ == 0) seen_.push_back(token);
  }

  /// Forgets all tokens.
  void clear() noexcept {
    for (const int token : seen_) counts_[static_cast<std::size_t>(token)] = 0;
    seen_.clear();
  }

  /// logits: [token_count], changed at the tokens counted so far.
  void apply(std::span<float> logits) const noexcept {
    for (const int token : seen_) {
      const auto id = static_cast<std::size_t>(token);
      const auto x = static_cast<double>(logits[id]);
      const double scaled = x > 0 ? x / repetition_ : x * repetition_;
      logits[id] = static_cast<float>(scaled - presence_ - counts_[id] * frequency_);
    }
  }

 private:
  double repetition_;
  double presence_;
  double frequency_;
  std::vector<std::int32_t> counts_;  // [token_count], how often each was generated; empty when neutral
  std::vector<int> seen_;             // the tokens generated at least once
};

}  // namespace QWENLITE_ABI
}  // namespace qwenlite
