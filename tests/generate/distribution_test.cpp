// SPDX-License-Identifier: Apache-2.0
//
// 200,000 draws per setting against the sorting reference, chi-squared. Seeds are fixed, so the outcome is
// always the same; the limit is what one in a million honest samplers would exceed. The last case shows that
// the same test notices settings that are off by little.
#include <string>
#include <vector>

#include "catch_any.hpp"
#include "generate/reference_sampler.hpp"

using namespace sampler_test;
using ql::SamplingOptions;

namespace {

constexpr int many = 200000;

void check_draws(const std::string& name, const std::vector<float>& logits, const SamplingOptions& options,
                 const std::vector<int>& generated = {}, int draws = many) {
  const ChiSquared result =
      chi_squared(count_draws(logits, options, draws, generated), reference(logits, options, generated));
  INFO(name << ": chi-squared " << result.statistic << " for " << result.freedom
            << " degrees of freedom, limit " << result.critical() << ", impossible " << result.impossible);
  CHECK(result.agrees());
}

std::vector<float> tied_logits() {
  std::vector<float> tied(100);
  for (std::size_t i = 0; i < tied.size(); ++i) tied[i] = static_cast<float>(i % 4);
  return tied;
}

/// A reply of 40 tokens: 5 of them several times, among them the likeliest ones.
std::vector<int> reply_of(const std::vector<float>& logits) {
  std::vector<int> order(logits.size());
  std::iota(order.begin(), order.end(), 0);
  std::stable_sort(order.begin(), order.end(), [&](int a, int b) {
    return logits[static_cast<std::size_t>(a)] > logits[static_cast<std::size_t>(b)];
  });
  std::vector<int> reply(order.begin(), order.begin() + 15);
  for (int i = 0; i < 25; ++i) reply.push_back(order[static_cast<std::size_t>(i % 5)]);
  return reply;
}

}  // namespace

TEST_CASE("draws follow temperature, top_k, top_p and min_p", "[slow]") {
  const std::vector<float> logits = normal_logits(60, 1.5F, 5);
  check_draws("plain", logits, {.temperature = 1.0});
  check_draws("hot", logits, {.temperature = 2.5});
  check_draws("cold", logits, {.temperature = 0.4});
  check_draws("top_k", logits, {.temperature = 0.8, .top_k = 7});
  check_draws("top_p", logits, {.temperature = 1.0, .top_p = 0.7});
  check_draws("min_p", logits, {.temperature = 1.0, .min_p = 0.2});
  check_draws("top_k, top_p", logits, {.temperature = 1.2, .top_k = 20, .top_p = 0.8});
  check_draws("all", logits, {.temperature = 1.5, .top_k = 30, .top_p = 0.95, .min_p = 0.1});
  check_draws("top_p, min_p", logits, {.temperature = 2.0, .top_p = 0.9, .min_p = 0.3});
}

TEST_CASE("draws follow the penalties and the logit bias", "[slow]") {
  const std::vector<float> logits = normal_logits(60, 1.5F, 5);  // of both signs
  const std::vector<int> reply = reply_of(logits);
  check_draws(
      "neutral", logits,
      {.temperature = 1.0, .repetition_penalty = 1.0, .presence_penalty = 0.0, .frequency_penalty = 0.0},
      reply);
  check_draws("repetition", logits, {.temperature = 1.0, .repetition_penalty = 1.3}, reply);
  check_draws("repetition wanted", logits, {.temperature = 1.0, .repetition_penalty = 0.8}, reply);
  check_draws("presence", logits, {.temperature = 1.0, .presence_penalty = 1.5}, reply);
  check_draws("frequency", logits, {.temperature = 1.0, .frequency_penalty = 0.3}, reply);
  check_draws("frequency wanted", logits, {.temperature = 1.0, .frequency_penalty = -0.2}, reply);
  const SamplingOptions all{.temperature = 0.8,
                            .top_k = 25,
                            .top_p = 0.9,
                            .repetition_penalty = 1.1,
                            .presence_penalty = 0.5,
                            .frequency_penalty = 0.1};
  check_draws("all penalties, top_k, top_p", logits, all, reply);
  SamplingOptions biased{.temperature = 1.0, .repetition_penalty = 1.2};
  biased.logit_bias = {{3, 2.0}, {7, -1.5}, {3, 0.5}, {reply[0], -infinity}, {59, 100.0}, {59, -98.0}};
  check_draws("bias, then penalty", logits, biased, reply);
  biased.top_p = 0.85;
  check_draws("bias, penalty, top_p", logits, biased, reply);
}

TEST_CASE("draws follow the distribution at ties and among masked logits", "[slow]") {
  check_draws("tied, top_k", tied_logits(), {.temperature = 1.0, .top_k = 30});
  check_draws("tied, top_p", tied_logits(), {.temperature = 1.0, .top_p = 0.75});
  std::vector<float> masked = normal_logits(60, 1.5F, 5);
  for (std::size_t i = 0; i < masked.size(); i += 3) masked[i] = -infinity;
  check_draws("masked", masked, {.temperature = 1.0});
  check_draws("masked, top_k, top_p", masked, {.temperature = 1.0, .top_k = 55, .top_p = 0.99});
}

TEST_CASE("draws follow the distribution of thousands of tokens", "[slow]") {
  const std::vector<float> large = normal_logits(3001, 1.0F, 6);
  check_draws("plain", large, {.temperature = 1.0}, {}, 100000);
  check_draws("top_p", large, {.temperature = 1.0, .top_p = 0.9}, {}, 50000);
  check_draws("top_k beyond sorting", large, {.temperature = 1.0, .top_k = 2000, .top_p = 0.95}, {}, 30000);
  const SamplingOptions penal{.temperature = 1.0, .top_p = 0.9, .presence_penalty = 1.0};
  check_draws("top_p, presence", large, penal, reply_of(large), 50000);
}

TEST_CASE("the chi-squared test notices settings that are a little off", "[slow]") {
  const std::vector<float> logits = normal_logits(60, 1.5F, 5);
  const std::vector<int> reply = reply_of(logits);
  const auto agrees = [&](const SamplingOptions& drawn, const SamplingOptions& claimed,
                          const std::vector<int>& claimed_reply) {
    return chi_squared(count_draws(logits, drawn, many, reply), reference(logits, claimed, claimed_reply))
        .agrees();
  };
  const SamplingOptions presence{.temperature = 1.0, .presence_penalty = 0.5};
  CHECK(agrees(presence, presence, reply));
  CHECK_FALSE(agrees({.temperature = 1.03}, {.temperature = 1.0}, reply));
  CHECK_FALSE(agrees({.top_p = 0.75}, {.top_p = 0.7}, reply));
  CHECK_FALSE(agrees({.top_k = 8}, {.top_k = 7}, reply));
  CHECK_FALSE(agrees(presence, {.presence_penalty = 0.54}, reply));
  CHECK_FALSE(agrees({.repetition_penalty = 1.1}, {.repetition_penalty = 1.13}, reply));
  CHECK_FALSE(agrees({.frequency_penalty = 0.1}, {.frequency_penalty = 0.11}, reply));
  std::vector<int> shorter = reply;
  shorter.erase(shorter.begin());  // one occurrence less of the likeliest token
  CHECK_FALSE(agrees({.frequency_penalty = 0.1}, {.frequency_penalty = 0.1}, shorter));
}
