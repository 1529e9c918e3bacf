// SPDX-License-Identifier: Apache-2.0
//
// The demo model, asked by the library what its training cannot have shown it: how much of each kind it
// answers right, and that the questions tell it from a model of two layers trained alike.
#include <cstdio>
#include <map>
#include <set>

#include "demo/held_out_questions.hpp"

namespace ql = qwenlite;
using namespace demo_test;

namespace {

constexpr double least_share = 0.90;      // of each kind, with and without thinking
constexpr double least_advantage = 0.30;  // over two layers, of all questions

struct Score {
  Index right = 0;
  Index asked = 0;
  [[nodiscard]] double share() const {
    return asked == 0 ? 0 : static_cast<double>(right) / static_cast<double>(asked);
  }
  void count(bool is_right) {
    ++asked;
    right += is_right ? 1 : 0;
  }
};

using ModeScores = std::map<bool, Score>;  // by thinking
using Scores = std::map<std::string, ModeScores>;

std::string demo_path() {
  return std::string(QWENLITE_DEMO_MODELS) + "/qwen3";
}

Scores evaluate(const std::string& directory, const std::vector<Question>& questions) {
  const ql::AnyModel model = ql::open(directory, {.threads = 1});
  const ql::Tokenizer text(demo_path());  // two_layers has the same one
  auto session = model.new_session({.max_tokens = 2048});
  Scores scores;
  for (const Question& question : questions) {
    const Answer answer = ask(model, session, text, question);
    scores[question.kind][question.thinking].count(is_right(question, answer));
  }
  return scores;
}

Score total(const Scores& scores) {
  Score sum;
  for (const auto& [kind, modes] : scores) {
    for (const auto& [thinking, score] : modes) {
      sum.right += score.right;
      sum.asked += score.asked;
    }
  }
  return sum;
}

void print_row(const std::string& kind, ModeScores demo, ModeScores small) {
  std::printf("%-14s", kind.c_str());
  for (const bool thinking : {false, true}) {
    const Score& score = demo[thinking];
    std::printf("  %3ld of %3ld  %5.1f %%  %5.1f %%", static_cast<long>(score.right),
                static_cast<long>(score.asked), 100 * score.share(), 100 * small[thinking].share());
  }
  std::printf("\n");
}

/// Scores of the demo model, and behind them those of two layers.
void print_table(Scores demo, Scores small) {
  std::printf("\n%-14s  %-28s  %s\n", "held out", "no thinking   (two layers)", "thinking     (two layers)");
  for (const auto& [kind, modes] : demo) print_row(kind, modes, small[kind]);
  std::printf("all: %.1f %%, two layers %.1f %%\n\n", 100 * total(demo).share(), 100 * total(small).share());
}

/// Tokens of a conversation that begins with `count` messages of the question's.
Index tokens_of(const ql::Tokenizer& text, const Question& question, std::size_t count) {
  const std::vector<ql::Message> first(question.messages.begin(),
                                       question.messages.begin() + static_cast<std::ptrdiff_t>(count));
  return static_cast<Index>(text.encode_chat(first, {.add_generation_prompt = false}).size());
}

/// The place of the message that tells the name or code.
std::size_t place_of_telling(const Question& question) {
  const auto tells = [&](const ql::Message& m) { return m.content.find(question.told) != std::string::npos; };
  const auto found = std::find_if(question.messages.begin(), question.messages.end(), tells);
  REQUIRE(found != question.messages.end());
  return static_cast<std::size_t>(found - question.messages.begin());
}

}  // namespace

TEST_CASE("the demo model answers questions it has not seen, and two layers clearly fewer", "[slow]") {
  const std::vector<Question> questions = held_out_questions();
  const Scores demo = evaluate(demo_path(), questions);
  const Scores small = evaluate(std::string(QWENLITE_TEST_DATA) + "/demo/two_layers", questions);
  print_table(demo, small);
  for (const auto& [kind, modes] : demo) {
    for (const auto& [thinking, score] : modes) {
      INFO(kind << (thinking ? ", thinking" : ", no thinking"));
      CHECK(score.share() >= least_share);
    }
  }
  CHECK(total(small).share() <= total(demo).share() - least_advantage);
}

TEST_CASE("there are 30 questions and more of every kind, with and without thinking") {
  std::map<std::pair<std::string, bool>, std::set<std::string>> asked;
  for (const Question& question : held_out_questions()) {
    std::string whole;
    for (const ql::Message& message : question.messages) whole += message.content + '\n';
    asked[{question.kind, question.thinking}].insert(whole);
  }
  for (const char* kind : {"greetings", "identity", "sums", "differences", "capitals", "weekdays",
                           "translations", "names", "codes", "stories"}) {
    for (const bool thinking : {false, true}) {
      INFO(kind << thinking);
      CHECK(asked[{kind, thinking}].size() >= 30);
    }
  }
  CHECK(asked.size() == 20);
}

TEST_CASE("names are asked for several turns later, codes 200 tokens later") {
  const ql::Tokenizer text(demo_path());
  for (const Question& question : held_out_questions()) {
    if (question.told.empty()) continue;
    const std::size_t told = place_of_telling(question);
    const std::size_t last = question.messages.size() - 1;
    INFO(question.told);
    CHECK(last - told >= 8);  // its answer, three turns, the question
    if (question.kind != "codes") continue;
    CHECK(tokens_of(text, question, last) - tokens_of(text, question, told + 1) >= 200);
  }
}

TEST_CASE("sums and differences are asked for with their working") {
  for (const Question& question : held_out_questions()) {
    const bool worked = question.kind == "sums" || question.kind == "differences";
    CHECK(question.thought.empty() == !(worked && question.thinking));
  }
}

TEST_CASE("an answer is right only if all that is asked of it is there") {
  const Question sum{
      .kind = "sums", .thinking = true, .expect = {"= 12."}, .thought = {"carry 1", "x"}, .sentences = 0};
  CHECK(is_right(sum, split("<think>\nones: carry 1.\n</think>\n\n5 + 7 = 12.")));
  CHECK_FALSE(is_right(sum, split("<think>\nones: carry 1.\n</think>\n\n5 + 7 = 13.")));
  CHECK_FALSE(is_right(sum, split("<think>\nones: carry 0.\n</think>\n\n5 + 7 = 12.")));
  CHECK_FALSE(is_right(sum, split("5 + 7 = 12. carry 1")));
  CHECK_FALSE(is_right(sum, split("<think>\ncarry 1, 5 + 7 = 12.")));

  const Question story{.kind = "stories", .expect = {"fox", "x"}, .sentences = 3};
  CHECK(is_right(story, split("A fox. A frog! 完。")));
  CHECK_FALSE(is_right(story, split("A fox. A frog")));
  CHECK_FALSE(is_right(story, split("A dog. A frog. And so on.")));
  CHECK_FALSE(is_right(story, split("")));
}
