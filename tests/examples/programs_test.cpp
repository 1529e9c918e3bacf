// SPDX-License-Identifier: Apache-2.0
//
// The examples that are read as documentation do what they say, on the demo model. What it answers is not
// written here: programs that reach it on different ways must agree.
#include <cmath>
#include <numeric>
#include <sstream>

#include <qwenlite/checkpoint/safetensors.hpp>

#include "run_program.hpp"

using namespace example_tests;

namespace {

const std::string question = "Hello! Who are you?";

/// The likeliest answer, as the chat gives it, with its line break.
std::string likeliest_answer(const std::string& message) {
  const Result chat = run("chat", {"--prompt", message, "--temperature", "0", "--no-think", demo()});
  INFO(chat.err);
  REQUIRE(chat.status == 0);
  REQUIRE(chat.out.size() > 1);
  return chat.out;
}

void check_usage(const std::string& program, const Words& words) {
  const Result result = run(program, words);
  CHECK(result.status == 2);
  CHECK(result.out.empty());
  CHECK(is_one_line(result.err));
  CHECK(result.err.rfind("usage: " + program + " <", 0) == 0);
}

void check_missing_directory(const std::string& program, const Words& words) {
  const Result result = run(program, words);
  CHECK(result.status == 1);
  CHECK(result.out.empty());
  CHECK(is_one_line(result.err));
  CHECK(result.err.rfind(program + ": ", 0) == 0);
  CHECK_THAT(result.err, has_text("/no/such/directory"));
}

/// Hidden state of a text's last token, by inspect: [hidden_size].
std::vector<double> last_hidden(const std::string& text) {
  const Json ids = run_json("inspect", {"tokenize", demo(), "--special", "--text", text + "<|endoftext|>"});
  const Json traced =
      run_json("inspect", {"trace", demo(), "--ids", joined(ids["ids"].get<std::vector<int>>())});
  return traced["final_norm"]["values"].get<std::vector<double>>();
}

/// Copies a checkpoint as embedding checkpoints are: tensors are named without "model.".
void copy_without_prefix(const fs::path& from, const fs::path& to) {
  fs::copy(from, to, fs::copy_options::recursive);
  const qwenlite::SafetensorsFile file(from / "model.safetensors");
  std::vector<qwenlite::NamedTensor> tensors(file.tensors().begin(), file.tensors().end());
  for (qwenlite::NamedTensor& tensor : tensors) {
    REQUIRE(tensor.name.rfind("model.", 0) == 0);
    tensor.name.erase(0, 6);
  }
  qwenlite::write_safetensors(to / "model.safetensors", tensors);
}

double cosine(const std::vector<double>& a, const std::vector<double>& b) {
  const auto dot = [](const auto& x, const auto& y) {
    return std::inner_product(x.begin(), x.end(), y.begin(), 0.0);
  };
  return dot(a, b) / std::sqrt(dot(a, a) * dot(b, b));
}

}  // namespace

TEST_CASE("hello writes and measures") {
  const Result result = run("hello", {demo()});
  CHECK(result.status == 0);
  CHECK(result.out.size() > 1);
  CHECK(result.out.back() == '\n');
  CHECK_THAT(result.err, has_text(" tokens/s with ") && has_text(" kernels\n"));
  check_usage("hello", {});
  check_missing_directory("hello", {"/no/such/directory"});
}

TEST_CASE("hello_static refuses a network of other sizes") {
  const Result result = run("hello_static", {demo()});
  CHECK(result.status == 1);
  CHECK(is_one_line(result.err));
  CHECK_THAT(result.err, has_text("config.json") && has_text("1024"));
  check_usage("hello_static", {});
}

TEST_CASE("custom_cache gives the answer that the library's cache gives") {
  const Result result = run("custom_cache", {});
  CHECK(result.status == 0);
  const std::string answer = likeliest_answer(question);
  REQUIRE(result.out.rfind(answer, 0) == 0);
  CHECK_THAT(result.out.substr(answer.size()), has_text(" bytes of keys and values\n"));
}

TEST_CASE("own_loop gives the likeliest answer") {
  for (const std::string message : {question.c_str(), "What is 2 + 3?", "Tell me a story."}) {
    INFO(message);
    const Result result = run("own_loop", {demo(), message});
    CHECK(result.status == 0);
    CHECK(result.out == likeliest_answer(message));
    double tokens = 0;
    double bits = -1;
    std::string words;
    std::istringstream(result.err) >> tokens >> words >> bits;
    CHECK(tokens > 1);
    CHECK(bits >= 0);
    CHECK(bits < 3);  // choosing among 2,666 blindly takes 11.4
  }
  std::string too_long;
  for (int i = 0; i < 2000; ++i) too_long += "hello ";
  const Result refused = run("own_loop", {demo(), too_long});
  CHECK(refused.status == 1);
  CHECK_THAT(refused.err, has_text("own_loop: the question: found ") && has_text("expected at most 512\n"));
  check_usage("own_loop", {});
  check_missing_directory("own_loop", {"/no/such/directory"});
}

TEST_CASE("embed prints the cosines of last hidden states") {
  const Words texts = {"What is 2 + 3?", "Tell me a story about a cat.", "What is 2 + 3?", ""};
  Words words = {demo()};
  words.insert(words.end(), texts.begin(), texts.end());
  const Result result = run("embed", words);
  INFO(result.err);
  REQUIRE(result.status == 0);

  std::vector<std::vector<double>> hidden;
  for (const std::string& text : texts) hidden.push_back(last_hidden(text));
  std::istringstream lines(result.out);
  for (std::size_t i = 0; i < texts.size(); ++i) {
    for (std::size_t j = 0; j < texts.size(); ++j) {
      double printed = -2;
      lines >> printed;
      CHECK(printed == Approx(cosine(hidden[i], hidden[j])).margin(0.0006));
    }
    std::string rest;
    std::getline(lines, rest);
    CHECK(rest == "  " + texts[i]);
  }
  CHECK(cosine(hidden[0], hidden[1]) < 0.99);  // else the comparison above would say little

  const TemporaryDirectory scratch;
  copy_without_prefix(demo(), scratch.path());
  words[0] = scratch.path().string();
  CHECK(run("embed", words).out == result.out);
  std::string long_text;
  for (int i = 0; i < 3000; ++i) long_text += "hello ";
  const Result refused = run("embed", {demo(), "short", long_text});
  CHECK(refused.status == 1);
  CHECK_THAT(refused.err,
             has_text("embed: a text: found ") && has_text("expected at most the model's 2048\n"));
  check_usage("embed", {demo()});
  check_missing_directory("embed", {"/no/such/directory", "text"});
}

TEST_CASE("tools offers a tool to a model that has no use for it") {
  const Result result = run("tools", {demo(), question});
  CHECK(result.status == 0);
  CHECK(result.out.size() > 2);
  check_usage("tools", {demo()});
  check_missing_directory("tools", {"/no/such/directory", "Hello"});
}

TEST_CASE("assistant answers in sentences and computes new tokens only") {
  const std::string story = likeliest_answer("Tell me a story.");
  const std::string first = story.substr(0, std::min(story.find(". "), story.size() - 1)) + "\n";
  REQUIRE(first.size() < story.size());  // else no stop string is met

  const Result result = run("assistant", {demo(), "Tell me a story.", "What is 2 + 3?"});
  CHECK(result.status == 0);
  CHECK(result.out.rfind(first, 0) == 0);
  CHECK(result.out.size() > first.size() + 1);

  std::istringstream lines(result.err);
  std::string line;
  REQUIRE(std::getline(lines, line));
  CHECK(line.rfind("ended by stop string, reused ", 0) == 0);
  REQUIRE(std::getline(lines, line));
  int reused = 0;
  int whole = 0;
  REQUIRE(std::sscanf(line.c_str(), "ended by stop, reused %d of %d tokens", &reused, &whole) == 2);
  CHECK(reused > 0);
  CHECK(reused < whole);
  check_usage("assistant", {demo()});
  check_missing_directory("assistant", {"/no/such/directory", "Hello"});
}
