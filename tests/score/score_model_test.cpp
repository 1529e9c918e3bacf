// SPDX-License-Identifier: Apache-2.0
//
// Scores of real networks against numbers that were computed without this library: the goldens of the tiny
// checkpoints, and a comparison of two trained models by a float64 program in numpy.
#include <fstream>
#include <nlohmann/json.hpp>

#include <qwenlite/models/any_model.hpp>
#include <qwenlite/score.hpp>

#include "catch_any.hpp"

namespace {

namespace ql = qwenlite;
using ql::Index;

ql::AnyModel opened(const std::string& directory, ql::KvFormat kv = ql::KvFormat::f32) {
  return ql::open(directory, {.precision = ql::Precision::exact, .kv = kv});
}

/// A question and its answer, twice, as the demo models' tokenizer encodes them.
const std::vector<int> dialogue = {
    2641, 262,  198,  481,  293, 220, 17,  22,  277,  220, 19,   23,  30,   2642, 198,  2641, 268,
    198,  2664, 269,  2665, 269, 17,  22,  277, 220,  19,  23,   270, 220,  22,   20,   13,   2642,
    198,  2641, 262,  198,  481, 293, 295, 358, 350,  500, 2522, 30,  2642, 198,  2641, 268,  198,
    2664, 269,  2665, 269,  297, 358, 350, 500, 2522, 293, 738,  382, 257,  13,   2642, 198};

struct Expected {
  Index window;
  Index stride;
  double nll;
  double reference_nll;
  double kl;
  Index agreed;
};

}  // namespace

TEST_CASE("mean negative log likelihoods of the goldens") {
  for (const std::string name : {"qwen3-tiny", "qwen3-tiny-untied-sharded", "qwen3.5-tiny"}) {
    INFO(name);
    const std::string directory = QWENLITE_TEST_DATA "/checkpoints/" + name;
    std::ifstream file(directory + "/golden.json");
    const auto golden = nlohmann::ordered_json::parse(file);
    const double limit = golden["tolerance"]["float32"]["limit"]["mean_nll_abs"].get<double>();
    const ql::AnyModel model = opened(directory);
    auto session = model.new_session({.max_tokens = 512});
    int compared = 0;
    for (const auto& prompt : golden["prompts"]) {
      if (!prompt["mean_nll"].is_number()) continue;
      const auto ids = prompt["ids"].get<std::vector<int>>();
      if (static_cast<Index>(ids.size()) > session.max_tokens()) continue;
      const ql::Score found = ql::score(model, session, ids, {.piece = 7});
      CHECK(found.tokens == static_cast<Index>(ids.size()) - 1);
      CHECK(found.mean_nll() == Approx(prompt["mean_nll"].get<double>()).margin(limit));
      ++compared;
    }
    CHECK(compared > 1);
  }
}

// For each window of the ids: log-softmax in float64 of the logits that a plain numpy forward pass gives for
// the window alone, from the stored weights decoded exactly; sums over the tokens that no earlier window had.
TEST_CASE("two trained models compared by another program") {
  const ql::AnyModel model = opened(QWENLITE_TEST_DATA "/demo/two_layers");
  const ql::AnyModel reference = opened(QWENLITE_DEMO_MODELS "/qwen3");
  auto session = model.new_session({.max_tokens = 80});
  auto other = reference.new_session({.max_tokens = 70});
  for (const Expected& e : {Expected{70, 1, 5.1253614571, 8.4214664034, 2.3003714008, 39},
                            Expected{24, 10, 5.1754707941, 8.4350582071, 2.6416762658, 35}}) {
    for (const Index piece : {5, 64}) {
      const ql::Score found = ql::compare(model, session, ql::Reference(reference, other), dialogue,
                                          {.window = e.window, .stride = e.stride, .piece = piece});
      CHECK(found.tokens == 66);
      CHECK(found.compared == 66);
      CHECK(found.mean_nll() == Approx(e.nll).margin(1e-4));
      CHECK(found.reference_nll / 66 == Approx(e.reference_nll).margin(1e-4));
      CHECK(found.mean_kl() == Approx(e.kl).margin(1e-4));
      CHECK(found.agreed == e.agreed);
    }
  }
}

TEST_CASE("a cache of another format is told apart from the same one") {
  const ql::AnyModel exact = opened(QWENLITE_DEMO_MODELS "/qwen3");
  const ql::AnyModel rounded = opened(QWENLITE_DEMO_MODELS "/qwen3", ql::KvFormat::bf16);
  auto session = rounded.new_session({.max_tokens = 80});
  auto other = exact.new_session({.max_tokens = 80});
  const ql::Score found = ql::compare(rounded, session, ql::Reference(exact, other), dialogue);
  CHECK(found.mean_kl() > 1e-9);
  CHECK(found.mean_kl() < 1e-3);
  CHECK(found.top1() > 0.9);
  auto third = exact.new_session({.max_tokens = 80});
  const ql::Score same = ql::compare(exact, third, ql::Reference(exact, other), dialogue);
  CHECK(same.kl == 0);
  CHECK(same.agreed == 66);
  // Windows read from an empty session: what is left in it from before has no influence.
  const ql::Score again = ql::compare(rounded, session, ql::Reference(exact, other), dialogue);
  CHECK(again.nll == found.nll);
  CHECK(again.kl == found.kl);
}
