// SPDX-License-Identifier: Apache-2.0
//
// Perplexity, divergence and agreement on models whose logits are a table: every number expected here can be
// computed by hand.
#include <cmath>
#include <limits>

#include "catch_any.hpp"
#include "score/fake_model.hpp"

using namespace score_test;

namespace {

constexpr float inf = std::numeric_limits<float>::infinity();
constexpr float nan_value = std::numeric_limits<float>::quiet_NaN();

float ln(double x) {
  return static_cast<float>(std::log(x));
}

ql::Score score(const TableModel& model, const Ids& ids, const ql::ScoreOptions& options = {}) {
  FakeSession session;
  return ql::score(model, session, ids, options);
}

ql::Score compare(const TableModel& model, const TableModel& reference, const Ids& ids,
                  const ql::ScoreOptions& options = {}) {
  FakeSession session;
  FakeSession other;
  return ql::compare(model, session, ql::Reference(reference, other), ids, options);
}

/// Two tokens: after either, the first has probability p.
TableModel coin(double p) {
  const Row row = {ln(p), ln(1 - p)};
  return {{row, row}};
}

}  // namespace

TEST_CASE("uniform logits have the perplexity of the vocabulary") {
  for (const float logit : {0.0F, -30.0F, 1e30F}) {  // only differences between logits mean something
    const ql::Score found = score(uniform(7, logit), counting(20, 7));
    CHECK(found.tokens == 19);
    CHECK(found.perplexity() == Approx(7).epsilon(1e-12));
    CHECK(found.compared == 0);
    CHECK(std::isnan(found.mean_kl()));
    CHECK(std::isnan(found.top1()));
    CHECK(std::isnan(found.reference_perplexity()));
    CHECK_FALSE(found.stopped);
  }
}

TEST_CASE("a model is no different from itself") {
  const TableModel model = {{{1.25F, -3, 0.5F}, {2, 2, 2}, {-7, 80, 0}}};
  const ql::Score found = compare(model, model, {0, 1, 2, 2, 1, 0, 0});
  CHECK(found.compared == 6);
  CHECK(found.kl == 0);
  CHECK(found.top1() == 1);
  CHECK(found.reference_nll == found.nll);
  CHECK(found.nll == score(model, {0, 1, 2, 2, 1, 0, 0}).nll);
  // The same distributions by other logits.
  const TableModel shifted = {{{11.25F, 7, 10.5F}, {0, 0, 0}, {-3, 84, 4}}};
  CHECK(compare(shifted, model, {0, 1, 2, 2}).mean_kl() == Approx(0).margin(1e-15));
}

TEST_CASE("a case computed by hand") {
  // The text 0 1 1: the model gives it 1/4 and 1/2, the reference 1/8 and 3/4.
  const TableModel model = {{{ln(0.75), ln(0.25)}, {ln(0.5), ln(0.5)}}};
  const TableModel reference = {{{ln(0.875), ln(0.125)}, {ln(0.25), ln(0.75)}}};
  const ql::Score found = compare(model, reference, {0, 1, 1});
  CHECK(found.tokens == 2);
  CHECK(found.perplexity() == Approx(std::sqrt(8.0)).epsilon(1e-6));
  CHECK(found.reference_perplexity() == Approx(std::sqrt(32.0 / 3)).epsilon(1e-6));
  const double first = 0.875 * std::log(0.875 / 0.75) + 0.125 * std::log(0.125 / 0.25);
  const double second = 0.25 * std::log(0.25 / 0.5) + 0.75 * std::log(0.75 / 0.5);
  CHECK(found.kl == Approx(first + second).epsilon(1e-6));
  CHECK(found.agreed == 1);  // after 1 the model is undecided, which counts as token 0
  CHECK(found.top1() == 0.5);
}

TEST_CASE("the divergence weighs by the reference") {
  const double forward = 0.9 * std::log(0.9 / 0.6) + 0.1 * std::log(0.1 / 0.4);
  const double backward = 0.6 * std::log(0.6 / 0.9) + 0.4 * std::log(0.4 / 0.1);
  CHECK(compare(coin(0.6), coin(0.9), {0, 0}).mean_kl() == Approx(forward).epsilon(1e-6));
  CHECK(compare(coin(0.9), coin(0.6), {0, 0}).mean_kl() == Approx(backward).epsilon(1e-6));
}

TEST_CASE("ties go to the lowest id") {
  CHECK(ql::likeliest(Row{1, 3, 3, 2}).id == 1);
  CHECK(ql::likeliest(Row{-inf, -2, -2}).id == 1);
  const TableModel low = {{{5, 5, 1}}};
  const TableModel high = {{{4, 5, 5}}};
  CHECK(compare(low, {{{9, 9, 9}}}, {0, 0}).agreed == 1);
  CHECK(compare(low, high, {0, 0}).agreed == 0);
  CHECK(compare(high, {{{0, 1, 0}}}, {0, 0}).agreed == 1);
}

TEST_CASE("tokens that are ruled out") {
  const TableModel without = {{{0, 0, -inf}, {0, 0, -inf}, {0, 0, -inf}}};
  CHECK(score(without, {0, 1, 0}).perplexity() == Approx(2).epsilon(1e-12));
  CHECK(score(without, {0, 2}).nll == static_cast<double>(inf));
  CHECK(score(without, {0, 2}).perplexity() == static_cast<double>(inf));
  // What the reference rules out weighs nothing; what only the model rules out costs everything.
  CHECK(compare(uniform(3), without, {0, 1}).mean_kl() == Approx(std::log(1.5)).epsilon(1e-12));
  CHECK(compare(without, uniform(3), {0, 1}).mean_kl() == static_cast<double>(inf));
  CHECK(compare(without, without, {0, 1}).mean_kl() == 0);
}

TEST_CASE("logits far apart neither overflow nor vanish") {
  const TableModel steep = {{{3e38F, -3e38F}, {0, 1000}}};
  const ql::Score found = score(steep, {0, 0, 1, 0});
  CHECK(std::isfinite(found.nll));
  CHECK(score(steep, {1, 0}).nll == Approx(1000).epsilon(1e-12));
  CHECK(score(steep, {1, 1}).nll == Approx(0).margin(1e-300));
  CHECK(compare(steep, coin(0.5), {1, 1}).mean_kl() == Approx(500 - std::log(2.0)).epsilon(1e-9));
}

TEST_CASE("broken logits are an error") {
  for (const Row& row : {Row{0, nan_value}, Row{nan_value, nan_value}, Row{inf, 0}, Row{-inf, -inf}}) {
    const TableModel broken = {{row, row}};
    CHECK_THROWS_AS(score(broken, {0, 1}), ql::Error);
    CHECK_THROWS_AS(compare(uniform(2), broken, {0, 1}), ql::Error);
    CHECK_THROWS_AS(compare(broken, uniform(2), {0, 1}), ql::Error);
  }
  CHECK_THROWS_WITH(score({{{0, nan_value}}}, {0, 0}), has_text("NaN"));
}

TEST_CASE("scores of several texts add up") {
  const TableModel model = {{{1, 2, 3}, {3, 1, 0}, {0, 0, 4}}};
  const TableModel reference = {{{1, 2, 2}, {3, 2, 0}, {5, 0, 4}}};
  ql::Score sum = compare(model, reference, {0, 1, 2});
  sum += compare(model, reference, {2, 2, 0, 1});
  CHECK(sum.tokens == 5);
  const ql::Score together =
      compare(model, reference, {0, 1, 2, 2, 2, 0, 1}, {.scored = [](Index i) { return i != 3; }});
  CHECK(together.tokens == 5);
  CHECK(sum.nll == Approx(together.nll).epsilon(1e-12));
  CHECK(sum.kl == Approx(together.kl).epsilon(1e-12));
  CHECK(sum.agreed == together.agreed);
}

TEST_CASE("wrong arguments of scoring") {
  const TableModel model = uniform(3);
  CHECK_THROWS_WITH(score(model, {}), has_text("found 0 tokens"));
  CHECK_THROWS_WITH(score(model, {1}), has_text("found 1 token,"));
  CHECK_THROWS_WITH(score(model, {1, 3}), has_text("token id: found 3, expected 0 to 2"));
  CHECK_THROWS_WITH(score(model, {1, -1}), has_text("token id: found -1"));
  CHECK_THROWS_WITH(compare(model, uniform(4), {0, 1}), has_text("found 4 tokens, expected 3"));
  FakeSession session;
  const Ids ids = {0, 1};
  CHECK_THROWS_WITH(ql::compare(model, session, ql::Reference(model, session), ids),
                    has_text("session of its own"));
}
