// SPDX-License-Identifier: Apache-2.0
//
// Penalties: what they do to each logit, and that they depend on the tokens told of alone. How they shift
// draws is in distribution_test.cpp.
#include <string>
#include <vector>

#include <qwenlite/generate/penalties.hpp>

#include "catch_any.hpp"
#include "generate/reference_sampler.hpp"

using namespace sampler_test;
using ql::SamplingOptions;

TEST_CASE("penalties change the logits of generated tokens by their definition") {
  ql::Penalties penalties({.repetition_penalty = 2.0, .presence_penalty = 0.5, .frequency_penalty = 0.25}, 6);
  CHECK(!penalties.neutral());
  CHECK(!penalties.pending());
  for (const int token : {1, 3, 1, 1, 5}) penalties.count(token);
  CHECK(penalties.pending());
  std::vector<float> logits = {4, 4, -4, -4, 0, -infinity};
  penalties.apply(logits);
  CHECK(logits == std::vector<float>{4, 2 - 0.5F - 0.75F, -4, -8 - 0.5F - 0.25F, 0, -infinity});

  penalties.clear();
  CHECK(!penalties.pending());
  penalties.count(1);
  logits = {4, 4, -4, -4, 0, 0};
  penalties.apply(logits);
  CHECK(logits == std::vector<float>{4, 2 - 0.5F - 0.25F, -4, -4, 0, 0});
}

TEST_CASE("neutral penalties keep no account") {
  for (const SamplingOptions& options :
       {SamplingOptions{}, SamplingOptions{.repetition_penalty = 1.0, .presence_penalty = 0.0}}) {
    ql::Penalties penalties(options, 3);
    CHECK(penalties.neutral());
    penalties.count(2);
    CHECK(!penalties.pending());
  }
  for (const SamplingOptions& options :
       {SamplingOptions{.repetition_penalty = 1.01}, SamplingOptions{.presence_penalty = -0.1},
        SamplingOptions{.frequency_penalty = 0.1}}) {
    CHECK(!ql::Penalties(options, 3).neutral());
  }
}

TEST_CASE("penalties depend on which tokens were generated, not on how they were told of") {
  const std::vector<float> logits = normal_logits(500, 1, 3);
  const SamplingOptions options{
      .top_p = 0.9, .repetition_penalty = 1.2, .presence_penalty = 0.3, .frequency_penalty = 0.2, .seed = 4};
  ql::Sampler one(options, 500);
  std::vector<int> reply;
  for (Index i = 0; i < 60; ++i) {
    reply.push_back(one.sample(logits, i));
    one.generated(reply.back());
  }
  SECTION("continued") {
    ql::Sampler other(options, 500);
    other.set_generated(std::span(reply).first(30));
    for (std::size_t i = 30; i < 60; ++i) {
      const int token = other.sample(logits, static_cast<Index>(i));
      CHECK(token == reply[i]);
      other.generated(token);
    }
  }
  SECTION("dropped and drawn again") {
    one.set_generated(std::span(reply).first(10));
    CHECK(one.sample(logits, 10) == reply[10]);
    one.set_generated({});
    CHECK(one.sample(logits, 0) == reply[0]);
  }
  SECTION("in another order") {
    std::vector<int> backwards(reply.rbegin(), reply.rend());
    ql::Sampler other(options, 500);
    other.set_generated(backwards);
    for (Index i = 60; i < 90; ++i) CHECK(other.sample(logits, i) == one.sample(logits, i));
  }
  SECTION("which does matter") {
    ql::Sampler forgetful(options, 500);
    int same = 0;
    for (std::size_t i = 1; i < 60; ++i) {
      same += static_cast<int>(forgetful.sample(logits, static_cast<Index>(i)) == reply[i]);
    }
    CHECK(same < 59);
  }
}

TEST_CASE("a token that is none cannot have been generated") {
  ql::Sampler sampler({}, 10);
  for (const int token : {-1, 10, 151936}) {
    CHECK_THROWS_WITH(sampler.generated(token),
                      "generated token: found " + std::to_string(token) + ", expected an id from 0 to 9");
  }
  CHECK_THROWS_AS(sampler.set_generated(std::vector<int>{3, 10}), ql::Error);
}
