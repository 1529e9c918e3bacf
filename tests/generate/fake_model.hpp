// SPDX-License-Identifier: Apache-2.0
//
// Models for tests of the generation loop, without a network: one counts upwards, one babbles.
#pragma once

#include <optional>
#include <random>
#include <span>
#include <vector>

#include <qwenlite/generate/generate.hpp>

namespace generate_test {

namespace ql = qwenlite;
using ql::Index;
using Ids = std::vector<int>;

struct FakeSession {
  Index limit = 100;
  Ids seen = {};
  [[nodiscard]] Index length() const { return static_cast<Index>(seen.size()); }
  [[nodiscard]] Index max_tokens() const { return limit; }
};

/// The same, but recomputing everything.
struct ForgetfulSession : FakeSession {
  [[nodiscard]] static bool retains() { return false; }
};

struct FakeDefaults {
  std::optional<bool> do_sample;
  std::optional<float> temperature;
  std::optional<int> top_k;
  std::optional<float> top_p;
  std::optional<float> min_p;
};

/// After token t comes (t + 1) % 3. Ids 3 and 4 are padding with larger logits than any token.
struct FakeModel {
  Ids stops = {};
  FakeDefaults suggested = {.do_sample = {}, .temperature = 0.0F, .top_k = {}, .top_p = {}, .min_p = {}};
  mutable std::vector<std::size_t> pieces = {};
  mutable std::vector<float> row = std::vector<float>(5);
  float unit = 1;  // what the likely token's logit is above the others

  std::span<const float> logits(FakeSession& session, std::span<const int> tokens) const {
    prefill(session, tokens);
    const auto next = static_cast<std::size_t>((tokens.back() + 1) % 3);
    row = {0, 0, 0, 9, 9};
    row[next] = unit;
    return row;
  }
  void prefill(FakeSession& session, std::span<const int> tokens) const {
    pieces.push_back(tokens.size());
    session.seen.insert(session.seen.end(), tokens.begin(), tokens.end());
  }
  [[nodiscard]] Index token_count() const { return 3; }
  [[nodiscard]] std::span<const int> stop_ids() const { return stops; }
  [[nodiscard]] FakeDefaults defaults() const { return suggested; }
};
static_assert(ql::TokenModel<FakeModel, FakeSession>);
static_assert(ql::TokenModel<FakeModel, ForgetfulSession>);
static_assert(!ql::TokenModel<FakeModel, Ids>);

/// Forty tokens with logits that depend on nothing but the number of tokens before, all of them plausible.
struct BabblingModel {
  static constexpr Index count = 40;
  Ids stops = {};
  mutable std::vector<float> row = std::vector<float>(count);

  std::span<const float> logits(FakeSession& session, std::span<const int> tokens) const {
    prefill(session, tokens);
    std::minstd_rand random(static_cast<unsigned>(session.length()) + 1U);
    for (float& x : row) x = static_cast<float>(random() % 1000U) * 1e-3F;
    return row;
  }
  void prefill(FakeSession& session, std::span<const int> tokens) const {
    session.seen.insert(session.seen.end(), tokens.begin(), tokens.end());
  }
  [[nodiscard]] Index token_count() const { return count; }
  [[nodiscard]] std::span<const int> stop_ids() const { return stops; }
  [[nodiscard]] FakeDefaults defaults() const { return {}; }
};
static_assert(ql::TokenModel<BabblingModel, FakeSession>);

/// Runs generate() and collects what it hands out.
struct Run {
  Ids out = {};
  ql::GenerateStats stats = {};
};
template <class Model, class Session>
Run run(const Model& model, Session& session, const Ids& prompt, const ql::GenerateOptions& options) {
  Run result;
  result.stats = ql::generate(model, session, prompt, options, [&](int token) {
    result.out.push_back(token);
    return true;
  });
  return result;
}

}  // namespace generate_test
