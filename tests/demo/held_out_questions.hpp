// SPDX-License-Identifier: Apache-2.0
//
// The held-out questions of the demo models, asking a model with the library, and judging what it says.
// What makes an answer right is stored with each question; training/questions.py judges in the same way.
#pragma once

#include <algorithm>
#include <fstream>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include <qwenlite/model.hpp>

#include "catch_any.hpp"

namespace demo_test {

using qwenlite::Index;

struct Question {
  std::string kind = {};
  std::vector<qwenlite::Message> messages = {};
  bool thinking = false;
  std::string told = {};                  // a name or code: what the answer must recall; else empty
  std::vector<std::string> expect = {};   // one of these stands in a right answer
  std::vector<std::string> thought = {};  // and, if any, one of these in its think block
  Index sentences = 0;                    // and this many sentences, at least
};

struct Answer {
  std::string thought;
  std::string text;
};

inline Question question_of(const nlohmann::ordered_json& stored) {
  Question question{.kind = stored.at("kind").get<std::string>(),
                    .messages = {},
                    .thinking = stored.at("enable_thinking").get<bool>(),
                    .told = {},
                    .expect = stored.at("expect").get<std::vector<std::string>>(),
                    .thought = stored.value("thought", std::vector<std::string>{}),
                    .sentences = stored.value("sentences", 0)};
  for (const auto& message : stored.at("messages")) {
    question.messages.push_back(
        {message.at("role").get<std::string>(), message.at("content").get<std::string>()});
  }
  if (question.kind == "names" || question.kind == "codes") {
    const auto key = stored.at("key").get<std::string>();
    question.told = key.substr(key.find('|') + 1);
  }
  return question;
}

inline std::vector<Question> held_out_questions() {
  std::ifstream file(std::string(QWENLITE_TEST_DATA) + "/demo/questions.json");
  REQUIRE(file.good());
  std::vector<Question> questions;
  for (const auto& stored : nlohmann::ordered_json::parse(file)) questions.push_back(question_of(stored));
  return questions;
}

/// Parts the think block from the answer; without a whole block all of it is answer.
inline Answer split(const std::string& reply) {
  const std::string open = "<think>";
  const std::string close = "</think>";
  const std::size_t end = reply.find(close);
  if (end == std::string::npos || reply.compare(0, open.size(), open) != 0) return {{}, reply};
  return {reply.substr(open.size(), end - open.size()), reply.substr(end + close.size())};
}

inline std::string demo_path(const std::string& name) {
  return std::string(QWENLITE_DEMO_MODELS) + "/" + name;
}

/// The think tag that a prompt ends with, so that the reply goes on inside the block (Qwen3.5).
inline std::string opened_block(const std::string& prompt) {
  const std::string open = "<think>\n";
  const bool opens =
      prompt.size() >= open.size() && prompt.compare(prompt.size() - open.size(), open.size(), open) == 0;
  return opens ? open : "";
}

/// The greedy answer to a question. `session` is used from its beginning.
inline Answer ask(const qwenlite::AnyModel& model, qwenlite::AnyModel::Session& session,
                  const qwenlite::Tokenizer& text, const Question& question) {
  session.truncate(0);
  const auto prompt = text.encode_chat(question.messages, {.enable_thinking = question.thinking});
  std::vector<int> reply;
  (void)qwenlite::generate(model, session, prompt, {.max_new_tokens = 256, .sampling = {.temperature = 0}},
                           [&](int token) {
                             reply.push_back(token);
                             return true;
                           });
  return split(opened_block(text.decode(prompt)) + text.decode(reply));
}

inline Index count_of(const std::string& text, const std::string& part) {
  Index count = 0;
  for (std::size_t at = text.find(part); at != std::string::npos; at = text.find(part, at + part.size())) {
    ++count;
  }
  return count;
}

/// Whether one of the parts stands in the text.
inline bool has_one(const std::string& text, const std::vector<std::string>& parts) {
  return std::any_of(parts.begin(), parts.end(),
                     [&](const std::string& part) { return text.find(part) != std::string::npos; });
}

inline bool is_right(const Question& question, const Answer& answer) {
  if (!has_one(answer.text, question.expect)) return false;
  if (!question.thought.empty() && !has_one(answer.thought, question.thought)) return false;
  Index sentences = 0;
  for (const char* end : {".", "\xE3\x80\x82", "!"}) sentences += count_of(answer.text, end);
  return sentences >= question.sentences;
}

}  // namespace demo_test
