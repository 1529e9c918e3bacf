// SPDX-License-Identifier: Apache-2.0
//
// The demo models, asked by the library what their training cannot have shown them: how much of each kind
// they answer right, and that the questions tell them from a model of two layers trained alike.
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

/// `files` has the tokenizer: two_layers has none of its own.
Scores evaluate(const std::string& directory, const std::string& files,
                const std::vector<Question>& questions) {
  const ql::AnyModel model = ql::open(directory, {.threads = 1});
  const ql::Tokenizer text(files);
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

/// Scores by kind and mode, one column for each model.
void print_table(const std::map<std::string, Scores>& models) {
  std::printf("\n%-24s", "held out");
  for (const auto& [name, scores] : models) std::printf("  %20s", name.c_str());
  for (const auto& [kind, modes] : models.begin()->second) {
    for (const auto& [thinking, ignored] : modes) {
      std::printf("\n%-14s %-9s", kind.c_str(), thinking ? "thinking" : "");
      for (const auto& [name, scores] : models) {
        const Score& score = scores.at(kind).at(thinking);
        std::printf("  %3ld of %3ld  %5.1f %%", static_cast<long>(score.right),
                    static_cast<long>(score.asked), 100 * score.share());
      }
    }
  }
  std::printf("\n%-24s", "all");
  for (const auto& [name, scores] : models) std::printf("  %18.1f %%", 100 * total(scores).share());
  std::printf("\n\n");
}

void check_shares(const std::string& name, const Scores& scores) {
  for (const auto& [kind, modes] : scores) {
    for (const auto& [thinking, score] : modes) {
      INFO(name << ": " << kind << (thinking ? ", thinking" : ", no thinking"));
      CHECK(score.share() >= least_share);
    }
  }
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

TEST_CASE("the demo models answer questions they have not seen, and two layers clearly fewer", "[slow]") {
  const std::vector<Question> questions = held_out_questions();
  std::map<std::string, Scores> models;
  for (const std::string name : {"qwen3", "qwen3_5"}) {
    models[name] = evaluate(demo_path(name), demo_path(name), questions);
  }
  models["two layers"] =
      evaluate(std::string(QWENLITE_TEST_DATA) + "/demo/two_layers", demo_path("qwen3"), questions);
  print_table(models);
  for (const std::string name : {"qwen3", "qwen3_5"}) {
    check_shares(name, models[name]);
    CHECK(total(models["two layers"]).share() <= total(models[name]).share() - least_advantage);
  }
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
  const ql::Tokenizer text(demo_path("qwen3"));
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
