// SPDX-License-Identifier: Apache-2.0
//
// Sampler: from the logits of one position to a token id.
//
// Order of the steps, as in Hugging Face's generate(): temperature, then top_k, then top_p over what
// top_k left, then min_p; the token is drawn from the rest in proportion. (vLLM applies min_p before
// top_k and top_p; the others are in the same order.)
//
// Random numbers are a function of (seed, position), so a draw depends on nothing that happened before
// it: dropping tokens and drawing again, or stopping and continuing, gives the same choices. Buffers are
// allocated at construction, none per draw.
#pragma once

#include <array>
#include <optional>
#include <random>
#include <vector>

#include <qwenlite/error.hpp>
#include <qwenlite/generate/candidates.hpp>
#include <qwenlite/tensor.hpp>

namespace qwenlite {
inline namespace QWENLITE_ABI {

/// How to choose the next token. A field that is not set is taken from the model's defaults, or else has
/// no effect (temperature: 1).
struct SamplingOptions {
  std::optional<double> temperature = {};  ///< 0 to 100; 0 (or under 1e-5) always takes the largest logit
  std::optional<Index> top_k = {};         ///< keep the k most likely; 0 keeps all
  std::optional<double> top_p = {};        ///< 0 to 1: keep the most likely until they sum to p; 0 keeps one
  std::optional<double> min_p = {};        ///< 0 to 1: drop what is less likely than min_p x the most likely
  std::optional<std::uint64_t> seed = {};  ///< not set: a new random one each time

  /// These options, with the fields that are not set taken from `defaults`: any struct whose temperature,
  /// top_k, top_p and min_p are std::optional numbers. If it has a do_sample that is set and false, the
  /// default temperature is 0.
  template <class Defaults>
  [[nodiscard]] SamplingOptions or_else(const Defaults& defaults) const {
    SamplingOptions merged = *this;
    const auto fill = [](auto& field, const auto& from) {
      using Value = typename std::remove_reference_t<decltype(field)>::value_type;
      if (!field && from) field = static_cast<Value>(*from);
    };
    if constexpr (requires { defaults.do_sample; }) {
      if (!merged.temperature && defaults.do_sample && !*defaults.do_sample) merged.temperature = 0;
    }
    fill(merged.temperature, defaults.temperature);
    fill(merged.top_k, defaults.top_k);
    fill(merged.top_p, defaults.top_p);
    fill(merged.min_p, defaults.min_p);
    return merged;
  }

  /// Throws bad_argument naming the first field that is out of range.
  void check() const {
    check_range("temperature", temperature, 100);
    check_range("top_p", top_p, 1);
    check_range("min_p", min_p, 1);
    if (top_k && *top_k < 0) {
      throw Error(ErrorCode::bad_argument, "top_k", std::to_string(*top_k), "0 (off) or a positive number");
    }
  }

 private:
  static void check_range(const char* name, const std::optional<double>& value, int most) {
    if (!value || (*value >= 0 && *value <= most)) return;  // also false for NaN
    throw Error(ErrorCode::bad_argument, name, std::to_string(*value),
                "a number from 0 to " + std::to_string(most));
  }
};

/// Philox4x32 with 10 rounds (Salmon et al., "Parallel random numbers: as easy as 1, 2, 3", 2011).
/// A pure function: 64 bits of key and 128 bits of counter in, 128 random bits out.
[[nodiscard]] constexpr std::array<std::uint32_t, 4> philox(std::array<std::uint32_t, 4> counter,
                                                            std::array<std::uint32_t, 2> key) noexcept {
  for (int round = 0; round < 10; ++round) {
    const std::uint64_t a = std::uint64_t{0xD2511F53U} * counter[0];
    const std::uint64_t b = std::uint64_t{0xCD9E8D57U} * counter[2];
    counter = {static_cast<std::uint32_t>(b >> 32U) ^ counter[1] ^ key[0], static_cast<std::uint32_t>(b),
               static_cast<std::uint32_t>(a >> 32U) ^ counter[3] ^ key[1], static_cast<std::uint32_t>(a)};
    key[0] += 0x9E3779B9U;
    key[1] += 0xBB67AE85U;
  }
  return counter;
}

/// The uniform number in [0, 1) that belongs to a seed and a position, with 53 random bits.
[[nodiscard]] constexpr double uniform_at(std::uint64_t seed, std::uint64_t position) noexcept {
  const auto low = [](std::uint64_t x) { return static_cast<std::uint32_t>(x); };
  const auto high = [](std::uint64_t x) { return static_cast<std::uint32_t>(x >> 32U); };
  const auto random = philox({low(position), high(position), 0, 0}, {low(seed), high(seed)});
  const std::uint64_t bits = (std::uint64_t{random[0]} << 32U | random[1]) >> 11U;
  return static_cast<double>(bits) * 0x1p-53;
}

/// Chooses token ids for one sequence. Not shared between threads.
class Sampler {
 public:
  /// token_count: ids at or beyond it have no text and are never chosen (a model's embedding may have
  /// more rows than its tokenizer has ids). Throws bad_argument for options out of range.
  Sampler(const SamplingOptions& options, Index token_count)
      : token_count_(token_count),
        temperature_(options.temperature.value_or(1.0)),
        top_k_(options.top_k.value_or(0)),
        top_p_(options.top_p.value_or(1.0)),
        min_p_(options.min_p.value_or(0.0)),
        seed_(options.seed ? *options.seed : random_seed()) {
    options.check();
    if (token_count < 1 || token_count > std::numeric_limits<std::int32_t>::max()) {
      throw Error(ErrorCode::bad_argument, "token_count", std::to_string(token_count), "1 to 2147483647");
    }
    if (top_k_ >= token_count) top_k_ = 0;
    if (greedy()) return;
    if (top_k_ > 0) {
      best_.resize(static_cast<std::size_t>(candidates::top_capacity(top_k_, token_count)));
    }
    if (!ranks_all()) {
      weights_.resize(static_cast<std::size_t>(token_count));
      if (top_p_ < 1) mass_cut_.emplace(token_count);
    }
  }

  /// The token that follows at `position` (the number of tokens before it; it selects the random number).
  /// logits: one float per row of the embedding, at least token_count of them.
  /// Throws numeric when they hold NaN or +infinity, or nothing finite.
  [[nodiscard]] int sample(std::span<const float> logits, Index position) {
    if (static_cast<Index>(logits.size()) < token_count_) {
      throw Error(ErrorCode::bad_argument, "logits", std::to_string(logits.size()) + " values",
                  "at least " + std::to_string(token_count_));
    }
    logits = logits.first(static_cast<std::size_t>(token_count_));
    const candidates::Maximum max = candidates::maximum(logits);
    check_finite(max);
    if (greedy()) return static_cast<int>(candidates::first_equal(logits, max.value));
    const double uniform = uniform_at(seed_, static_cast<std::uint64_t>(position));
    return ranks_all() ? sample_ranked(logits, max.value, uniform) : sample_dense(logits, max.value, uniform);
  }

  [[nodiscard]] bool greedy() const noexcept { return temperature_ < 1e-5 || top_k_ == 1; }
  [[nodiscard]] std::uint64_t seed() const noexcept { return seed_; }

 private:
  static constexpr Index most_ranked = 1024;  // up to here sorting what top_k left is the cheaper way

  [[nodiscard]] bool ranks_all() const noexcept { return top_k_ > 0 && top_k_ <= most_ranked; }

  [[nodiscard]] static std::uint64_t random_seed() {
    std::random_device device;
    return std::uint64_t{device()} << 32U | device();
  }

  static void check_finite(const candidates::Maximum& max) {
    if (!max.has_nan && std::isfinite(max.value)) return;
    const char* found = max.has_nan ? "NaN" : max.value > 0 ? "+infinity" : "no finite value";
    throw Error(ErrorCode::numeric, "logits", found,
                "finite numbers (-infinity only where a token is masked)");
  }

  [[nodiscard]] double weight_of(float logit, float max) const noexcept {
    return std::exp((static_cast<double>(logit) - static_cast<double>(max)) / temperature_);
  }

  /// top_k is small: rank its survivors and walk down.
  [[nodiscard]] int sample_ranked(std::span<const float> logits, float max, double uniform) noexcept {
    candidates::top(logits, top_k_, best_.data());
    const std::span<candidates::Candidate> best(best_.data(), static_cast<std::size_t>(top_k_));
    std::sort(best.begin(), best.end(), candidates::ranks_before);
    double total = 0;
    for (const auto& c : best) total += weight_of(c.logit, max);
    double kept = 0;
    std::size_t count = 0;
    for (; count < best.size(); ++count) {
      const double weight = weight_of(best[count].logit, max);
      if (count > 0 && (kept >= top_p_ * total || weight < min_p_ || weight <= 0)) break;
      kept += weight;
    }
    double rest = uniform * kept;
    for (std::size_t i = 0; i + 1 < count; ++i) {
      rest -= weight_of(best[i].logit, max);
      if (rest < 0) return best[i].id;
    }
    return best[count - 1].id;
  }

  /// Everything (or very many) may be chosen: weights for all ids, cut by a threshold.
  [[nodiscard]] int sample_dense(std::span<const float> logits, float max, double uniform) noexcept {
    const double total = top_k_ > 0 ? spread_top(logits, max)
                                    : candidates::exp_weights(logits, max, 1 / temperature_, weights_.data());
    candidates::Cut cut;
    if (mass_cut_ && top_p_ <= 0) {
      cut = {1.0F, candidates::first_equal(weights_, 1.0F)};
    } else if (mass_cut_) {
      cut = mass_cut_->find(weights_, total, top_p_);
    }
    const auto least = static_cast<float>(min_p_);
    if (least > cut.weight) cut = {least, token_count_};
    return static_cast<int>(candidates::draw(weights_, cut, uniform));
  }

  /// Weights of the top_k best at their ids, zero elsewhere; returns their sum.
  double spread_top(std::span<const float> logits, float max) noexcept {
    candidates::top(logits, top_k_, best_.data());
    std::fill(weights_.begin(), weights_.end(), 0.0F);
    double total = 0;
    for (Index i = 0; i < top_k_; ++i) {
      const candidates::Candidate& c = best_[static_cast<std::size_t>(i)];
      const auto weight = static_cast<float>(weight_of(c.logit, max));
      weights_[static_cast<std::size_t>(c.id)] = weight;
      total += static_cast<double>(weight);
    }
    return total;
  }

  Index token_count_;
  double temperature_;
  Index top_k_;
  double top_p_;
  double min_p_;
  std::uint64_t seed_;
  std::vector<candidates::Candidate> best_;      // [top_capacity(top_k)], with top_k only
  std::vector<float> weights_;                   // [token_count], without a small top_k only
  std::optional<candidates::MassCut> mass_cut_;  // with top_p below 1 only
};

}  // namespace QWENLITE_ABI
}  // namespace qwenlite
