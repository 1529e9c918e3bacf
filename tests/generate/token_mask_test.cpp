// SPDX-License-Identifier: Apache-2.0
//
// Masks: banned tokens are never drawn under any setting, a forced one always is, and a mask that leaves
// nothing is an error.
#include <set>
#include <string>
#include <vector>

#include <qwenlite/generate/token_mask.hpp>

#include "catch_any.hpp"
#include "generate/reference_sampler.hpp"

using namespace sampler_test;
using ql::SamplingOptions;
using ql::TokenMask;

namespace {

std::vector<SamplingOptions> settings() {
  return {{.temperature = 0.0},
          {.temperature = 2.0, .seed = 1},
          {.temperature = 2.0, .top_k = 40, .seed = 1},
          {.temperature = 2.0, .top_k = 2000, .seed = 1},
          {.temperature = 2.0, .top_p = 0.95, .seed = 1},
          {.temperature = 2.0, .min_p = 0.01, .seed = 1},
          {.temperature = 1.0, .top_k = 20, .top_p = 0.9, .presence_penalty = 1.0, .seed = 1}};
}

}  // namespace

TEST_CASE("a mask remembers what it was told") {
  for (const int count : {1, 63, 64, 65, 200}) {
    TokenMask mask(count);
    const auto banned = [&] {
      std::vector<int> ids;
      for (int id = 0; id < count; ++id) {
        if (mask.banned(id)) ids.push_back(id);
      }
      return ids;
    };
    CHECK(banned().empty());
    CHECK(!mask.bans());
    mask.ban(count - 1);
    mask.ban(0);
    CHECK(banned() == (count == 1 ? std::vector<int>{0} : std::vector<int>{0, count - 1}));
    mask.allow(0);
    CHECK(!mask.banned(0));
    mask.allow_only(std::vector<int>{count / 2});
    CHECK(banned().size() == static_cast<std::size_t>(count) - 1);
    std::vector<float> logits(static_cast<std::size_t>(count), 1.0F);
    mask.apply(logits);
    for (int id = 0; id < count; ++id) {
      CHECK(logits[static_cast<std::size_t>(id)] == (id == count / 2 ? 1.0F : -infinity));
    }
    mask.ban_all();
    CHECK(banned().size() == static_cast<std::size_t>(count));
    mask.force(0);
    mask.clear();
    CHECK(banned().empty());
    CHECK(!mask.bans());
    CHECK(!mask.forced().has_value());
    for (const int id : {-1, count}) {
      const std::string message = "token id for the mask: found " + std::to_string(id) + ", expected 0 to " +
                                  std::to_string(count - 1);
      CHECK_THROWS_WITH(mask.ban(id), message);
      CHECK_THROWS_WITH(mask.allow(id), message);
      CHECK_THROWS_WITH(mask.force(id), message);
      CHECK_THROWS_WITH(mask.banned(id), message);
    }
  }
}

TEST_CASE("banned tokens are never drawn") {
  const std::vector<float> logits = normal_logits(3000, 1, 11);
  for (const SamplingOptions& options : settings()) {
    ql::Sampler sampler(options, 3000);
    TokenMask mask(3000);
    std::set<int> banned;
    for (Index i = 0; i < 300; ++i) {  // each token drawn is banned from then on
      const int token = sampler.sample(logits, i, mask);
      CHECK(banned.insert(token).second);
      mask.ban(token);
    }
  }
}

TEST_CASE("banned by mask and banned by bias is the same") {
  const std::vector<float> logits = normal_logits(3000, 1, 12);
  for (SamplingOptions options : settings()) {
    ql::Sampler masked(options, 3000);
    TokenMask mask(3000);
    for (int id = 0; id < 3000; id += 3) {
      mask.ban(id);
      options.logit_bias.push_back({id, -static_cast<double>(infinity)});
    }
    ql::Sampler biased(options, 3000);
    for (Index i = 0; i < 100; ++i) {
      const int token = masked.sample(logits, i, mask);
      CHECK(token % 3 != 0);
      CHECK(biased.sample(logits, i) == token);
    }
  }
}

TEST_CASE("a mask with few tokens left draws those") {
  const std::vector<float> logits = normal_logits(3000, 1, 13);
  const std::vector<int> allowed = {17, 64, 2999};
  for (const SamplingOptions& options : settings()) {
    ql::Sampler sampler(options, 3000);
    TokenMask mask(3000);
    mask.allow_only(allowed);
    std::set<int> seen;
    for (Index i = 0; i < 200; ++i) seen.insert(sampler.sample(logits, i, mask));
    const std::set<int> possible(allowed.begin(), allowed.end());
    CHECK((options.temperature == 0.0 || seen == possible));
    for (const int token : seen) CHECK(possible.count(token) == 1);
  }
}

TEST_CASE("a mask that bans nothing changes nothing") {
  const std::vector<float> logits = normal_logits(3000, 1, 14);
  for (const SamplingOptions& options : settings()) {
    ql::Sampler sampler(options, 3000);
    TokenMask fresh(3000);
    TokenMask undone(3000);
    undone.ban(5);
    undone.allow(5);
    for (Index i = 0; i < 50; ++i) {
      const int token = sampler.sample(logits, i);
      CHECK(sampler.sample(logits, i, fresh) == token);
      CHECK(sampler.sample(logits, i, undone) == token);
    }
  }
}

TEST_CASE("a forced token is drawn whatever else is said") {
  std::vector<float> logits = normal_logits(3000, 1, 15);
  logits[77] = -infinity;
  for (SamplingOptions options : settings()) {
    options.logit_bias = {{77, -5.0}};
    ql::Sampler sampler(options, 3000);
    TokenMask mask(3000);
    mask.ban_all();
    mask.force(77);
    CHECK(sampler.sample(logits, 0, mask) == 77);
  }
}

TEST_CASE("a mask that leaves no token is an error") {
  const std::string message =
      "tokens to draw from: found none: logit bias, penalties and mask ban them all, expected at least one";
  for (const SamplingOptions& options : settings()) {
    ql::Sampler sampler(options, 3000);
    TokenMask mask(3000);
    mask.ban_all();
    try {
      (void)sampler.sample(normal_logits(3000, 1, 16), 0, mask);
      FAIL("no error");
    } catch (const ql::Error& e) {
      CHECK(e.code() == ql::ErrorCode::numeric);
      CHECK(e.what() == message);
    }
    mask.allow(8);
    std::vector<float> logits = normal_logits(3000, 1, 16);
    logits[8] = -infinity;  // what the mask allows the model forbids
    CHECK_THROWS_WITH(sampler.sample(logits, 0, mask), message);
    logits[8] = 0;
    CHECK(sampler.sample(logits, 0, mask) == 8);
    logits[9] = std::numeric_limits<float>::quiet_NaN();  // banned, but the model is broken all the same
    CHECK_THROWS_AS(sampler.sample(logits, 0, mask), ql::Error);
  }
}

TEST_CASE("a mask for another vocabulary is an error") {
  ql::Sampler sampler({}, 10);
  const TokenMask mask(11);
  CHECK_THROWS_WITH(sampler.sample(std::vector<float>(11), 0, mask),
                    "mask: found 11 tokens, expected 10, as the sampler has");
}
