// SPDX-License-Identifier: Apache-2.0
//
// The demo models with int8 weights and int8 keys and values: they answer the held-out questions as they do
// as stored.
#include <cstdio>

#include "demo/held_out_questions.hpp"

namespace ql = qwenlite;
using namespace demo_test;

namespace {

std::vector<Answer> answers(const std::string& name, const ql::OpenOptions& options,
                            const std::vector<Question>& questions) {
  const ql::AnyModel model = ql::open(demo_path(name), options);
  const ql::Tokenizer text(demo_path(name));
  auto session = model.new_session({.max_tokens = 2048});
  std::vector<Answer> all;
  for (const Question& question : questions) all.push_back(ask(model, session, text, question));
  return all;
}

}  // namespace

TEST_CASE("int8 weights with int8 keys and values change no answer from right to wrong", "[slow]") {
  const std::vector<Question> questions = held_out_questions();
  for (const std::string name : {"qwen3", "qwen3_5"}) {
    const std::vector<Answer> stored = answers(name, {.threads = 1}, questions);
    const std::vector<Answer> eight =
        answers(name, {.threads = 1, .kv = ql::KvFormat::int8, .weights = ql::Format::int8}, questions);
    Index judged_otherwise = 0;
    Index other_words = 0;
    for (std::size_t i = 0; i < questions.size(); ++i) {
      judged_otherwise += is_right(questions[i], stored[i]) != is_right(questions[i], eight[i]) ? 1 : 0;
      other_words += stored[i].text != eight[i].text ? 1 : 0;
    }
    std::printf("%s: of %zu answers %ld are judged otherwise, %ld have other words\n", name.c_str(),
                questions.size(), static_cast<long>(judged_otherwise), static_cast<long>(other_words));
    CHECK(judged_otherwise == 0);
    CHECK(10 * other_words < std::ssize(questions));  // near ties, mostly in stories
  }
}
