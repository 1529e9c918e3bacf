// SPDX-License-Identifier: Apache-2.0
//
// What the sampler is held against: the plain definition, which sorts the whole vocabulary, and a chi-squared
// test of many draws.
#pragma once

#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>
#include <random>
#include <vector>

#include <qwenlite/generate/sampler.hpp>

namespace sampler_test {

namespace ql = qwenlite;
using ql::Index;

inline constexpr float infinity = std::numeric_limits<float>::infinity();

inline std::vector<float> normal_logits(std::size_t n, float sigma, unsigned seed) {
  std::mt19937 engine(seed);
  std::normal_distribution<float> normal(0.0F, sigma);
  std::vector<float> logits(n);
  for (float& x : logits) x = normal(engine);
  return logits;
}

/// The logits with bias and penalties, by the definition: one token of the reply after the other.
inline std::vector<double> edited_logits(const std::vector<float>& logits, const ql::SamplingOptions& options,
                                         const std::vector<int>& generated) {
  std::vector<double> edited(logits.begin(), logits.end());
  for (const ql::TokenBias& entry : options.logit_bias) {
    edited[static_cast<std::size_t>(entry.token)] += entry.bias;
  }
  for (std::size_t id = 0; id < edited.size(); ++id) {
    const auto times = std::count(generated.begin(), generated.end(), static_cast<int>(id));
    if (times == 0) continue;
    const double repetition = options.repetition_penalty.value_or(1);
    edited[id] = edited[id] > 0 ? edited[id] / repetition : edited[id] * repetition;
    edited[id] -= options.presence_penalty.value_or(0);
    for (auto i = times; i > 0; --i) edited[id] -= options.frequency_penalty.value_or(0);
  }
  return edited;
}

/// Probability of every id by the definition: sort, cut, normalise.
inline std::vector<double> reference(const std::vector<float>& raw, const ql::SamplingOptions& options,
                                     const std::vector<int>& generated = {}) {
  const std::vector<double> logits = edited_logits(raw, options, generated);
  const double temperature = options.temperature.value_or(1);
  std::vector<std::size_t> order(logits.size());
  std::iota(order.begin(), order.end(), std::size_t{0});
  std::stable_sort(order.begin(), order.end(), [&](auto a, auto b) { return logits[a] > logits[b]; });
  const auto weight = [&](std::size_t id) { return std::exp((logits[id] - logits[order[0]]) / temperature); };
  const auto k = static_cast<std::size_t>(options.top_k.value_or(0));
  if (k > 0 && k < order.size()) order.resize(k);
  double total = 0;
  for (const auto id : order) total += weight(id);
  std::vector<double> probability(logits.size(), 0.0);
  double before = 0;
  for (const auto id : order) {
    const bool first = id == order[0];
    if (!first && before >= options.top_p.value_or(1) * total) break;
    before += weight(id);
    if (first || weight(id) >= options.min_p.value_or(0)) probability[id] = weight(id);
  }
  const double kept = std::accumulate(probability.begin(), probability.end(), 0.0);
  for (double& p : probability) p /= kept;
  return probability;
}

struct ChiSquared {
  double statistic = 0;
  double freedom = 0;
  double impossible = 0;  // draws of ids whose probability is zero

  /// The value that one in a million honest samplers exceeds (Wilson and Hilferty, 1931).
  [[nodiscard]] double critical() const {
    constexpr double z = 4.7534;
    if (freedom < 1) return 1e-6;  // a single possible outcome
    const double spread = 2 / (9 * freedom);
    return freedom * std::pow(1 - spread + z * std::sqrt(spread), 3);
  }
  [[nodiscard]] bool agrees() const { return impossible == 0 && statistic <= critical(); }
};

/// Counts of draws against probabilities. Ids too rare for a bin of their own share one.
inline ChiSquared chi_squared(const std::vector<double>& seen, const std::vector<double>& probability) {
  const double count = std::accumulate(seen.begin(), seen.end(), 0.0);
  ChiSquared result{0, -1, 0};
  const auto bin = [&](double found, double expected) {
    result.statistic += (found - expected) * (found - expected) / expected;
    result.freedom += 1;
  };
  double rare_expected = 0;
  double rare_seen = 0;
  for (std::size_t id = 0; id < seen.size(); ++id) {
    const double expected = probability[id] * count;
    if (expected <= 0) {
      result.impossible += seen[id];
    } else if (expected < 10) {
      rare_expected += expected;
      rare_seen += seen[id];
    } else {
      bin(seen[id], expected);
    }
  }
  if (rare_expected >= 10) bin(rare_seen, rare_expected);
  return result;
}

/// How often each id is drawn, after `generated`.
inline std::vector<double> count_draws(const std::vector<float>& logits, ql::SamplingOptions options,
                                       int draws, const std::vector<int>& generated = {}) {
  options.seed = 20240607;
  ql::Sampler sampler(options, static_cast<Index>(logits.size()));
  sampler.set_generated(generated);
  std::vector<double> seen(logits.size(), 0.0);
  for (int i = 0; i < draws; ++i) seen[static_cast<std::size_t>(sampler.sample(logits, i))] += 1;
  return seen;
}

}  // namespace sampler_test
