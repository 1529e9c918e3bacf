// SPDX-License-Identifier: Apache-2.0
//
// The multi-token-prediction head of the Qwen3.5 demo model is trained: of the tokens that the model answers
// with, it names most one token ahead of the model itself.
#include <cstdio>
#include <map>

#include <qwenlite/models/mtp.hpp>

#include "demo/held_out_questions.hpp"

namespace ql = qwenlite;
using namespace demo_test;
using Network = ql::Model<ql::Qwen3_5>;
using Ids = std::vector<int>;

namespace {

constexpr Index max_tokens = 1024;
constexpr double least_agreement = 0.60;

/// A prompt and the model's greedy answer after it.
struct Text {
  Ids ids;
  std::size_t prompt = 0;
};

Text answered(const Network& network, const ql::Tokenizer& tokenizer, const Question& question) {
  auto session = network.new_session({.max_tokens = max_tokens});
  Text text;
  text.ids = tokenizer.encode_chat(question.messages, {.enable_thinking = question.thinking});
  text.prompt = text.ids.size();
  const auto keep = [&](int token) {
    text.ids.push_back(token);
    return true;
  };
  const Ids prompt = text.ids;
  (void)ql::generate(network, session, prompt, {.max_new_tokens = 200, .sampling = {.temperature = 0}}, keep);
  return text;
}

/// What the head expects after each token but the first, computed in pieces of the network's chunk.
Ids expected_by_head(const Network& network, const ql::Mtp<Network>& head, const Ids& ids) {
  auto session = network.new_session({.max_tokens = max_tokens});
  ql::Mtp<Network>::Session own(head, max_tokens);
  const std::span<const int> all(ids);
  Ids expected;
  for (std::size_t first = 0; first + 1 < ids.size(); first += static_cast<std::size_t>(network.chunk())) {
    const std::size_t rows = std::min(static_cast<std::size_t>(network.chunk()), ids.size() - 1 - first);
    const auto hidden = network.hidden(session, all.subspan(first, rows), ql::Logits::all);
    const auto results = head.forward(own, hidden, all.subspan(first + 1, rows));
    for (Index row = 0; row < results.logits.rows(); ++row) {
      const float* logits = results.logits.data() + row * results.logits.outerStride();
      expected.push_back(static_cast<int>(std::max_element(logits, logits + results.logits.cols()) - logits));
    }
  }
  return expected;
}

struct Agreement {
  double head = 0;         // of the head with the answers
  double commonest = 0;    // of always the same token with them
  std::size_t tokens = 0;  // that were compared
};

Agreement agreement_on(const std::vector<Question>& questions, const std::string& directory) {
  const ql::Checkpoint files(directory);
  const Network network(files, {.threads = 1});
  const ql::Mtp<Network> head(network, files);
  const ql::Tokenizer tokenizer(directory);
  Agreement agreement;
  std::map<int, std::size_t> counts;
  for (const Question& question : questions) {
    const Text text = answered(network, tokenizer, question);
    const Ids expected = expected_by_head(network, head, text.ids);
    for (std::size_t t = text.prompt; t < text.ids.size(); ++t) {
      agreement.head += expected.at(t - 2) == text.ids[t] ? 1 : 0;
      ++counts[text.ids[t]];
      ++agreement.tokens;
    }
  }
  for (const auto& [token, count] : counts)
    agreement.commonest = std::max(agreement.commonest, static_cast<double>(count));
  agreement.head /= static_cast<double>(agreement.tokens);
  agreement.commonest /= static_cast<double>(agreement.tokens);
  return agreement;
}

/// One question in eight, of every kind and in both modes.
std::vector<Question> some_questions() {
  std::vector<Question> some;
  std::size_t place = 0;
  for (const Question& question : held_out_questions()) {
    if (place++ % 8 == 0) some.push_back(question);
  }
  return some;
}

}  // namespace

TEST_CASE("the Qwen3.5 demo model's head for the token after the next is trained", "[slow]") {
  const Agreement agreement = agreement_on(some_questions(), demo_path("qwen3_5"));
  std::printf("\nmulti-token prediction: %.1f %% of %zu answered tokens, the commonest token %.1f %%\n\n",
              100 * agreement.head, agreement.tokens, 100 * agreement.commonest);
  CHECK(agreement.tokens > 2000);
  CHECK(agreement.head >= least_agreement);
  CHECK(agreement.head >= 3 * agreement.commonest);
}
