// SPDX-License-Identifier: Apache-2.0
//
// Which tokens are read and scored, and how a run is followed and stopped.
#include <limits>
#include <set>

#include "catch_any.hpp"
#include "score/fake_model.hpp"

using namespace score_test;

namespace {

using Bounds = std::vector<std::vector<Index>>;

Bounds windows(Index tokens, Index window, Index stride) {
  Bounds bounds;
  for (const ql::ScoreWindow& w : ql::score_windows(tokens, 1000, {.window = window, .stride = stride})) {
    bounds.push_back({w.first, w.scored, w.end});
  }
  return bounds;
}

struct Step {
  Index done = 0;
  Index total = 0;
  bool operator==(const Step&) const = default;
};

}  // namespace

TEST_CASE("windows of a text") {
  CHECK(windows(2, 4, 2) == Bounds{{0, 1, 2}});
  CHECK(windows(4, 4, 2) == Bounds{{0, 1, 4}});
  CHECK(windows(5, 4, 2) == Bounds{{0, 1, 4}, {2, 4, 5}});
  CHECK(windows(8, 4, 2) == Bounds{{0, 1, 4}, {2, 4, 6}, {4, 6, 8}});
  CHECK(windows(8, 4, 3) == Bounds{{0, 1, 4}, {3, 4, 7}, {6, 7, 8}});
  CHECK(windows(6, 4, 1) == Bounds{{0, 1, 4}, {1, 4, 5}, {2, 5, 6}});
  CHECK(windows(4, 2, 1) == Bounds{{0, 1, 2}, {1, 2, 3}, {2, 3, 4}});
  CHECK(windows(4, 3, 0) == windows(4, 3, 1));  // half a window
  CHECK(windows(9, 4, 0) == windows(9, 4, 2));
  CHECK(windows(1500, 0, 0) == Bounds{{0, 1, 1000}, {500, 1000, 1500}});  // as many as a session holds
  CHECK(windows(3, 1000, 999) == Bounds{{0, 1, 3}});
}

TEST_CASE("every token but the first is scored once, with enough before it") {
  for (const Index window : {2, 3, 5, 8, 64}) {
    for (Index stride = 1; stride<window; stride += window> 8 ? 13 : 1) {
      for (Index tokens = 2; tokens < 40; ++tokens) {
        Index next = 1;
        for (const std::vector<Index>& w : windows(tokens, window, stride)) {
          REQUIRE(w[1] == next);
          REQUIRE(w[2] > w[1]);
          REQUIRE(w[2] - w[0] <= window);
          REQUIRE((w[0] == 0 || w[1] - w[0] == window - stride));
          next = w[2];
        }
        REQUIRE(next == tokens);
      }
    }
  }
}

TEST_CASE("wrong windows") {
  CHECK_THROWS_WITH(windows(9, 1, 0), has_text("window: found 1, expected 2 to 1000"));
  CHECK_THROWS_WITH(windows(9, 1001, 0), has_text("window: found 1001"));
  CHECK_THROWS_WITH(windows(9, -1, 0), has_text("window: found -1"));
  CHECK_THROWS_WITH(windows(9, 4, 4), has_text("stride: found 4, expected 1 to 3"));
  CHECK_THROWS_WITH(windows(9, 4, -1), has_text("stride: found -1"));
  CHECK_THROWS_WITH(windows(1, 4, 2), has_text("text to score: found 1 token, expected at least 2"));
  CHECK_THROWS_WITH(ql::score_windows(9, 1000, {.piece = 0}), has_text("piece: found 0"));
  CHECK_THROWS_WITH(ql::score_windows(9, 1, {}), has_text("tokens that a session holds: found 1"));
}

TEST_CASE("what is read of a window, and after which tokens logits are wanted") {
  const TableModel model = uniform(10);
  FakeSession session{.limit = 6, .seen = {9, 9}};  // of earlier use
  const ql::Score found = ql::score(model, session, counting(9, 10), {.window = 6, .stride = 3, .piece = 2});
  CHECK(found.tokens == 8);
  CHECK(model.calls == std::vector<Call>{{0, {0, 1}, {0, 1}},
                                         {2, {2, 3}, {0, 1}},
                                         {4, {4}, {0}},
                                         {0, {3, 4}, {}},  // context only
                                         {2, {5, 6}, {0, 1}},
                                         {4, {7}, {0}}});
}

TEST_CASE("chosen tokens are scored, and the rest is read") {
  const TableModel model = uniform(10);
  FakeSession session;
  const std::set<Index> chosen = {0, 3, 4, 8};  // nothing predicts the first token of a text
  const ql::Score found = ql::score(model, session, counting(9, 10),
                                    {.piece = 3, .scored = [&](Index i) { return chosen.count(i) > 0; }});
  CHECK(found.tokens == 3);
  CHECK(model.calls == std::vector<Call>{{0, {0, 1, 2}, {2}}, {3, {3, 4, 5}, {0}}, {6, {6, 7}, {1}}});
  const ql::Score none = ql::score(model, session, counting(9, 10), {.scored = [](Index) { return false; }});
  CHECK(none.tokens == 0);
  CHECK(std::isnan(none.perplexity()));
}

TEST_CASE("windows and pieces change nothing where context means nothing") {
  const TableModel model = {{{1, 2, 0, 4}, {0, 0, 3, 1}, {2, 2, 2, 5}, {1, 7, 7, 0}}};
  const TableModel reference = {{{1, 2, 0, 3}, {1, 0, 3, 1}, {2, 2, 3, 5}, {1, 7, 6, 0}}};
  const Ids ids = counting(50, 4);
  FakeSession session;
  FakeSession other;
  const ql::Score whole = ql::compare(model, session, ql::Reference(reference, other), ids);
  for (const Index window : {2, 7, 50}) {
    for (const Index piece : {Index{1}, Index{5}, Index{1000}, std::numeric_limits<Index>::max()}) {
      const ql::Score found = ql::compare(model, session, ql::Reference(reference, other), ids,
                                          {.window = window, .stride = 1, .piece = piece});
      CHECK(found.tokens == 49);
      CHECK(found.nll == whole.nll);  // the same sums, in the same order
      CHECK(found.kl == whole.kl);
      CHECK(found.agreed == whole.agreed);
    }
  }
}

TEST_CASE("progress is told after each piece, and can stop") {
  const TableModel model = uniform(4);
  FakeSession session;
  std::vector<Step> steps;
  ql::ScoreOptions options{.window = 6, .stride = 4, .piece = 3};
  options.progress = [&](Index done, Index total) {
    steps.push_back({done, total});
    return true;
  };
  CHECK_FALSE(ql::score(model, session, counting(10, 4), options).stopped);
  CHECK(steps == std::vector<Step>{{3, 10}, {5, 10}, {8, 10}, {10, 10}});

  options.progress = [&](Index done, Index) { return done < 5; };
  const ql::Score part = ql::score(model, session, counting(10, 4), options);
  CHECK(part.stopped);
  CHECK(part.tokens == 5);
  CHECK(part.perplexity() == Approx(4).epsilon(1e-12));
  ql::Score sum;
  sum += part;
  CHECK(sum.stopped);
}

TEST_CASE("the smaller of two sessions limits the window") {
  const TableModel model = uniform(4);
  const TableModel reference = uniform(4);
  FakeSession session{.limit = 50};
  FakeSession small{.limit = 8};
  CHECK(ql::compare(model, session, ql::Reference(reference, small), counting(30, 4)).tokens == 29);
  for (const Call& call : model.calls) CHECK(call.before + static_cast<Index>(call.tokens.size()) < 8);
  CHECK(model.calls == reference.calls);
}
