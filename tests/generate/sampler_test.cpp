// SPDX-License-Identifier: Apache-2.0
//
// What holds for every draw: random numbers, seeds, greedy choices, padding, broken logits. How often tokens
// are drawn is in distribution_test.cpp.
#include <array>
#include <cmath>
#include <set>
#include <string>
#include <vector>

#include "catch_any.hpp"
#include "generate/reference_sampler.hpp"

using namespace sampler_test;
using ql::SamplingOptions;

TEST_CASE("philox gives the published numbers") {
  using Words = std::array<std::uint32_t, 4>;
  CHECK(ql::philox({0, 0, 0, 0}, {0, 0}) == Words{0x6627e8d5, 0xe169c58d, 0xbc57ac4c, 0x9b00dbd8});
  constexpr std::uint32_t ones = 0xffffffff;
  CHECK(ql::philox({ones, ones, ones, ones}, {ones, ones}) ==
        Words{0x408f276d, 0x41c83b0e, 0xa20bc7c6, 0x6d5451fd});
  CHECK(ql::philox({0x243f6a88, 0x85a308d3, 0x13198a2e, 0x03707344}, {0xa4093822, 0x299f31d0}) ==
        Words{0xd16cfe09, 0x94fdcceb, 0x5001e420, 0x24126ea1});
}

TEST_CASE("uniform numbers are spread over [0, 1)") {
  double sum = 0;
  int low = 0;
  for (std::uint64_t i = 0; i < 100000; ++i) {
    const double u = ql::uniform_at(7, i);
    REQUIRE(u >= 0);
    REQUIRE(u < 1);
    sum += u;
    low += u < 0.1 ? 1 : 0;
  }
  CHECK(std::abs(sum / 100000 - 0.5) < 0.005);
  CHECK(std::abs(low - 10000) < 500);
  CHECK(ql::uniform_at(1, std::uint64_t{1} << 32U) != ql::uniform_at(1, 0));
  CHECK(ql::uniform_at(std::uint64_t{1} << 32U, 5) != ql::uniform_at(0, 5));
}

TEST_CASE("greedy takes the largest logit, the lowest id at ties") {
  std::vector<float> logits = normal_logits(151936, 1, 7);
  logits[70001] = logits[70002] = logits[150000] = 50.0F;
  ql::Sampler greedy({.temperature = 0.0}, 151936);
  CHECK(greedy.sample(logits, 0) == 70001);
  logits[3] = 50.0F;
  CHECK(greedy.sample(logits, 1) == 3);
  CHECK(ql::Sampler({.temperature = 1e-9}, 151936).sample(logits, 0) == 3);
  CHECK(ql::Sampler({.temperature = 5.0, .top_k = 1}, 151936).sample(logits, 0) == 3);
  CHECK(ql::Sampler({.temperature = 5.0, .top_p = 0.0}, 151936).sample(logits, 0) == 3);
  CHECK(ql::Sampler({.temperature = 5.0, .top_k = 50, .top_p = 0.0}, 151936).sample(logits, 0) == 3);
  const std::vector<float> one = {-4.0F};
  CHECK(ql::Sampler({.temperature = 0.0}, 1).sample(one, 0) == 0);
  CHECK(ql::Sampler({.temperature = 1.0, .top_p = 0.5}, 1).sample(one, 0) == 0);
}

TEST_CASE("greedy choices ignore the seed but not bias, penalties and mask") {
  const std::vector<float> logits = {1.0F, 4.0F, 3.0F, 2.0F};
  for (const std::uint64_t seed : {0U, 1U, 77U}) {
    SamplingOptions options{.temperature = 0.0, .seed = seed};
    CHECK(ql::Sampler(options, 4).sample(logits, 5) == 1);
    options.presence_penalty = 1.5;
    ql::Sampler penalised(options, 4);
    penalised.generated(1);
    CHECK(penalised.sample(logits, 5) == 2);
    ql::TokenMask mask(4);
    mask.ban(2);
    CHECK(penalised.sample(logits, 5, mask) == 1);
    CHECK(penalised.sample(logits, 5) == 2);
    options.logit_bias = {{0, 2.5}};
    CHECK(ql::Sampler(options, 4).sample(logits, 5) == 1);
    options.logit_bias = {{0, 3.5}};
    CHECK(ql::Sampler(options, 4).sample(logits, 5) == 0);
  }
}

TEST_CASE("ids without text are never chosen") {
  std::vector<float> logits = normal_logits(1000, 1, 8);
  for (std::size_t id = 900; id < 1000; ++id) logits[id] = 30;
  for (const ql::SamplingOptions& options :
       {ql::SamplingOptions{.temperature = 0.0}, ql::SamplingOptions{.temperature = 3.0, .seed = 1},
        ql::SamplingOptions{.temperature = 3.0, .top_k = 40, .seed = 1},
        ql::SamplingOptions{.temperature = 3.0, .top_p = 0.99, .seed = 1}}) {
    ql::Sampler sampler(options, 900);
    std::set<int> seen;
    for (Index i = 0; i < 500; ++i) seen.insert(sampler.sample(logits, i));
    CHECK(*seen.rbegin() < 900);
    CHECK((options.temperature == 0.0 || seen.size() > 10));
  }
  logits[950] = std::numeric_limits<float>::quiet_NaN();  // nor looked at
  CHECK(ql::Sampler({.temperature = 0.0}, 900).sample(logits, 0) < 900);
}

TEST_CASE("a draw depends on seed and position alone") {
  const std::vector<float> logits = normal_logits(5000, 1, 9);
  for (const ql::SamplingOptions& options :
       {ql::SamplingOptions{.temperature = 1.0, .seed = 42}, ql::SamplingOptions{.top_p = 0.9, .seed = 42},
        ql::SamplingOptions{.top_k = 100, .seed = 42}}) {
    ql::Sampler first(options, 5000);
    ql::Sampler second(options, 5000);
    std::vector<int> forward;
    for (Index i = 0; i < 50; ++i) forward.push_back(first.sample(logits, i));
    for (Index i = 50; i-- > 0;) CHECK(second.sample(logits, i) == forward[static_cast<std::size_t>(i)]);
    CHECK(std::set<int>(forward.begin(), forward.end()).size() > 20);
  }
  ql::Sampler unseeded({.temperature = 1.0}, 5000);
  ql::Sampler again({.temperature = 1.0, .seed = unseeded.seed()}, 5000);
  for (Index i = 0; i < 20; ++i) CHECK(unseeded.sample(logits, i) == again.sample(logits, i));
  CHECK(ql::Sampler({.temperature = 1.0}, 5000).seed() != unseeded.seed());
}

TEST_CASE("broken logits are an error") {
  const float nan = std::numeric_limits<float>::quiet_NaN();
  const auto message = [](std::vector<float> logits, const ql::SamplingOptions& options) -> std::string {
    try {
      (void)ql::Sampler(options, static_cast<Index>(logits.size())).sample(logits, 0);
    } catch (const ql::Error& e) {
      CHECK(e.code() == ql::ErrorCode::numeric);
      return e.what();
    }
    return "no error";
  };
  for (const ql::SamplingOptions& options :
       {ql::SamplingOptions{.temperature = 0.0}, ql::SamplingOptions{.temperature = 1.0},
        ql::SamplingOptions{.temperature = 1.0, .top_k = 4}, ql::SamplingOptions{.top_p = 0.5}}) {
    for (std::size_t at : {0U, 5U, 13U, 18U}) {
      std::vector<float> logits(19, 1.0F);
      logits[at] = nan;
      CHECK(message(logits, options).find("NaN") != std::string::npos);
      logits[at] = infinity;
      CHECK(message(logits, options).find("+infinity") != std::string::npos);
    }
    CHECK(message(std::vector<float>(19, -infinity), options).find("no finite") != std::string::npos);
  }
  ql::Sampler sampler({}, 20);
  CHECK_THROWS_AS(sampler.sample(std::vector<float>(19, 0.0F), 0), ql::Error);
}

TEST_CASE("logits that bias or penalties break are an error that says so") {
  const auto message = [](const std::vector<float>& logits, const SamplingOptions& options, int generated) {
    ql::Sampler sampler(options, static_cast<Index>(logits.size()));
    sampler.generated(generated);
    try {
      (void)sampler.sample(logits, 0);
    } catch (const ql::Error& e) {
      CHECK(e.code() == ql::ErrorCode::numeric);
      return std::string(e.what());
    }
    return std::string("no error");
  };
  CHECK(message({1e38F, 0.0F}, {.repetition_penalty = 0.1}, 0) ==
        "logits with bias and penalties: found +infinity, expected finite numbers (-infinity only where a "
        "token "
        "is masked)");
  CHECK(message({1e38F, 0.0F}, {.repetition_penalty = 0.1}, 1) == "no error");
  SamplingOptions banned;
  banned.logit_bias = {{0, -infinity}, {1, -infinity}};
  CHECK(
      message({3.0F, 1.0F}, banned, 0) ==
      "tokens to draw from: found none: logit bias, penalties and mask ban them all, expected at least one");
}
