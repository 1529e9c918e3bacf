// SPDX-License-Identifier: Apache-2.0
//
// Sampler: from the logits of one position to a token id.
//
// Order of the steps: logit bias, penalties, mask; then, as in Hugging Face's generate(), temperature, top_k,
// top_p over what top_k left, and min_p; the token is drawn from the rest in proportion. (vLLM applies min_p
// before top_k and top_p; the others are in the same order.) The logits are copied only if one of the first
// three changes them.
//
// Random numbers are a function of (seed, position), penalties of the tokens given to generated(), and a draw
// depends on nothing else that happened before it: dropping tokens and drawing again, or stopping and
// continuing, gives the same choices. Buffers are allocated at construction, none per draw.
#pragma once

#include <algorithm>
#include <cmath>
#include <limits>
#include <memory>
#include <optional>
#include <random>
#include <span>
#include <string>
#include <vector>

#include <qwenlite/error.hpp>
#include <qwenlite/generate/candidates.hpp>
#include <qwenlite/generate/mass_cut.hpp>
#include <qwenlite/generate/penalties.hpp>
#include <qwenlite/generate/philox.hpp>
#include <qwenlite/generate/sampling_options.hpp>
#include <qwenlite/generate/token_mask.hpp>
#include <qwenlite/generate/token_weights.hpp>
#include <qwenlite/tensor.hpp>

namespace qwenlite {
inline namespace QWENLITE_ABI {

/// Chooses token ids for one sequence. Not shared between threads.
class Sampler {
 public:
  /// token_count: ids at or beyond it have no text and are never chosen (a model's embedding may have
  /// more rows than its tokenizer has ids). Throws bad_argument for options out of range.
  Sampler(const SamplingOptions& options, Index token_count);

  /// The token that follows at `position` (the number of tokens before it; it selects the random number).
  /// logits: one float per row of the embedding, at least token_count of them.
  /// Throws numeric when they hold NaN or +infinity, or when bias and penalties leave nothing finite.
  [[nodiscard]] int sample(std::span<const float> logits, Index position);

  /// The same, of the tokens that a mask allows, or the one that it forces. A mask that (with the bias) bans
  /// every token throws numeric. mask: made for as many tokens as the sampler.
  [[nodiscard]] int sample(std::span<const float> logits, Index position, const TokenMask& mask) {
    require_same_count(mask);
    return choose(logits, position, &mask);
  }

  /// Counts a token as generated: the penalties apply to it from now on. Throws bad_argument for an id that
  /// is not one of the token_count.
  void generated(int token);

  /// Counts exactly these tokens as generated: to continue a reply, or after dropping some of it.
  void set_generated(std::span<const int> tokens);

  [[nodiscard]] bool greedy() const noexcept { return temperature_ < 1e-5 || top_k_ == 1; }
  [[nodiscard]] std::uint64_t seed() const noexcept { return seed_; }

 private:
  static constexpr Index most_ranked = 1024;  // up to here sorting what top_k left is the cheaper way

  [[nodiscard]] bool ranks_all() const noexcept { return top_k_ > 0 && top_k_ <= most_ranked; }

  [[nodiscard]] static std::uint64_t random_seed();

  [[nodiscard]] static Index checked(const SamplingOptions& options, Index token_count);

  void require_same_count(const TokenMask& mask) const;

  static void check_finite(const candidates::Maximum& max, const char* what);

  [[nodiscard]] int choose(std::span<const float> logits, Index position, const TokenMask* mask);

  /// A copy of the logits with bias, penalties and bans.
  [[nodiscard]] std::span<const float> edit(std::span<const float> logits, const TokenMask* mask) noexcept;

  static void check_edited(const candidates::Maximum& max);

  [[nodiscard]] double weight_of(float logit, float max) const noexcept;

  /// top_k is small: rank its survivors and walk down.
  [[nodiscard]] int sample_ranked(std::span<const float> logits, float max, double uniform) noexcept;

  /// Everything (or very many) may be chosen: weights for all ids, cut by a threshold.
  [[nodiscard]] int sample_dense(std::span<const float> logits, float max, double uniform) noexcept;

  /// Weights of the top_k best at their ids, zero elsewhere; returns their sum.
  double spread_top(std::span<const float> logits, float max) noexcept;

  Index token_count_;
  double temperature_;
  Index top_k_;
  double top_p_;
  double min_p_;
  std::uint64_t seed_;
  std::vector<TokenBias> bias_;
  Penalties penalties_;
  std::unique_ptr<float[]> edited_;              // [token_count]; memory nobody uses is never touched
  std::vector<candidates::Candidate> best_;      // [top_capacity(top_k)], with top_k only
  std::vector<float> weights_;                   // [token_count], without a small top_k only
  std::optional<candidates::MassCut> mass_cut_;  // with top_p below 1 only
};

}  // namespace QWENLITE_ABI
}  // namespace qwenlite

#ifndef QWENLITE_COMPILED
#include <qwenlite/generate/sampler-inl.hpp>
#endif
