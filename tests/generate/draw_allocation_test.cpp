// SPDX-License-Identifier: Apache-2.0
//
// Drawing a token allocates nothing: this program counts every use of operator new.
#include <string>
#include <vector>

#include "catch_any.hpp"
#include "counting_allocator.hpp"
#include "generate/fake_model.hpp"
#include "generate/reference_sampler.hpp"

namespace ql = qwenlite;
using ql::Index;
using ql::SamplingOptions;

TEST_CASE("a draw allocates nothing") {
  constexpr Index count = 20000;
  const std::vector<float> flat = sampler_test::normal_logits(count, 1, 1);
  const std::vector<float> peaked = sampler_test::normal_logits(count, 8, 1);
  SamplingOptions biased{.temperature = 1.0, .top_p = 0.9, .frequency_penalty = 0.5};
  biased.logit_bias = {{3, 1.0}, {4, -1.0}};
  for (const SamplingOptions& options :
       {SamplingOptions{.temperature = 0.0}, SamplingOptions{.temperature = 1.0},
        SamplingOptions{.top_k = 20, .top_p = 0.9}, SamplingOptions{.top_k = 3000, .top_p = 0.9},
        SamplingOptions{.top_p = 0.9}, SamplingOptions{.top_p = 0.999}, SamplingOptions{.min_p = 0.1},
        SamplingOptions{.repetition_penalty = 1.1, .presence_penalty = 1.0}, biased}) {
    const long at_start = allocations;
    ql::Sampler sampler(options, count);
    ql::TokenMask mask(count);
    const long before = allocations;
    for (Index i = 0; i < 100; ++i) {
      sampler.generated(sampler.sample(i % 2 == 0 ? flat : peaked, i));
      mask.clear();
      mask.ban(static_cast<int>(i));
      if (i % 10 == 9) mask.ban_all();
      if (i % 10 == 9) mask.allow(7);
      sampler.generated(sampler.sample(flat, i, mask));
    }
    sampler.set_generated(std::vector<int>{});
    CHECK(allocations == before);
    CHECK(before > at_start);  // the counter counts
  }
}

TEST_CASE("a generated token allocates nothing, hook and penalties included") {
  using namespace generate_test;
  const BabblingModel model;
  FakeSession session{.limit = 2000};
  session.seen.reserve(2000);
  ql::GenerateOptions options{.sampling = {.temperature = 1.0, .presence_penalty = 1.0, .seed = 1}};
  options.mask = [](const ql::MaskContext& reply, ql::TokenMask& mask) {
    if (!reply.generated.empty()) mask.ban(reply.generated.back());
  };
  options.already_generated = {1, 2, 3};
  long before = -1;
  long tokens = 0;
  const Ids prompt = {0};
  const auto stats = ql::generate(model, session, prompt, options, [&](int) {
    if (before < 0) before = allocations;
    ++tokens;
    return true;
  });
  CHECK(stats.finish_reason == ql::FinishReason::context);
  CHECK(tokens == 2000);
  CHECK(allocations == before);
}
