// SPDX-License-Identifier: Apache-2.0
//
// A reply's tokens to thinking, answer, tool calls and message. The small tokenizer has a token for each
// byte, so that any text can arrive in any division.
#include <string>
#include <string_view>
#include <vector>

#include <qwenlite/text/incoming_reply.hpp>
#include <qwenlite/text/python_json.hpp>
#include <qwenlite/text/reply_stream.hpp>

#include "catch_any.hpp"
#include "small_tokenizer.hpp"

namespace ql = qwenlite;

namespace {

std::vector<int> bytes_of(const ql::Tokenizer& tokenizer, std::string_view text) {
  std::vector<int> ids;
  for (const char c : text) ids.push_back(small::id_of(tokenizer, std::string(1, c)));
  return ids;
}
std::vector<int> tokens_of(const ql::Tokenizer& tokenizer, std::string_view text) {
  return tokenizer.encode(text, {.control_tokens = true});
}

struct Shown {
  std::string reasoning, content, text, calls;
  std::vector<int> tokens;
  void add(const ql::ReplyDelta& delta) {
    reasoning += delta.reasoning;
    content += delta.content;
    text += delta.text;
    tokens.push_back(delta.token);
    for (const ql::ToolCall& call : delta.tool_calls) {
      calls += call.name + call.arguments;
    }
  }
};

const std::string assistant = "<|im_start|>assistant\n";

}  // namespace

TEST_CASE("a reply comes out the same whole and in bytes") {
  const ql::Tokenizer tokenizer = small::tokenizer();
  const std::string call = "<tool_call>\n{\"name\": \"f\", \"arguments\": {\"a\": 1}}\n</tool_call>";
  struct Case {
    std::string prompt, reply, reasoning, content, calls;
    bool has_block;
  };
  const std::vector<Case> cases{
      {assistant, "hello", "", "hello", "", false},
      {assistant, "<think>\nhello\n</think>\n\nhi", "hello", "hi", "", true},
      {assistant + "<think>\n", "hello\n</think>\n\nhi", "hello", "hi", "", true},
      {assistant + "<think>\n\n</think>\n\n", "hi\n", "", "hi\n", "", true},
      {assistant, "<think>\na <tool_call> b\n</think>\n\nhi\n" + call, "a <tool_call> b", "hi", "f{\"a\": 1}",
       true},
      {assistant, "<think>\nnever", "never", "", "", true},
      {assistant, "hi <tool_call>\n{", "", "hi <tool_call>\n{", "", false},
      {"<think>" + assistant, "a</think>b", "", "a</think>b", "", false},
  };
  for (const Case& c : cases) {
    for (const bool in_bytes : {false, true}) {
      const std::vector<int> prompt = tokens_of(tokenizer, c.prompt);
      ql::ReplyStream stream(tokenizer, prompt);
      Shown shown;
      for (const int id : in_bytes ? bytes_of(tokenizer, c.reply) : tokens_of(tokenizer, c.reply)) {
        shown.add(stream.push(id));
      }
      shown.add(stream.finish());
      CHECK(shown.tokens.back() == -1);
      CHECK(shown.text == c.reply);
      CHECK(shown.reasoning == c.reasoning);
      CHECK(shown.content == c.content);
      CHECK(shown.calls == c.calls);
      const ql::Message message = stream.take_message();
      CHECK(message.role == "assistant");
      CHECK(message.content == c.content);
      CHECK(message.reasoning_content.has_value() == c.has_block);
      CHECK(message.reasoning_content.value_or("") == c.reasoning);
      CHECK(message.tool_calls.size() == (c.calls.empty() ? 0 : 1));
    }
  }
}

TEST_CASE("a stop string ends the reply and is not part of it") {
  const ql::Tokenizer tokenizer = small::tokenizer();
  ql::ReplyStream stream(tokenizer, tokens_of(tokenizer, assistant), {.stop_strings = {"STOP"}});
  Shown shown;
  for (const int id : bytes_of(tokenizer, "hi STOP now")) shown.add(stream.push(id));
  CHECK(stream.stopped());
  shown.add(stream.finish());
  CHECK(shown.content == "hi ");
  CHECK(shown.text == "hi ");
  CHECK(stream.message().content == "hi ");
  const std::vector<int> prompt = tokens_of(tokenizer, assistant);
  CHECK_THROWS_AS(ql::ReplyStream(tokenizer, prompt, {.stop_strings = {""}}), ql::Error);
}

TEST_CASE("a think block that has had its budget is closed as the template writes it") {
  const ql::Tokenizer tokenizer = small::tokenizer();
  struct Case {
    std::string prompt, thinking;
    std::ptrdiff_t budget;
    std::string closing;
  };
  const std::vector<Case> cases{
      {assistant, "<think>abc", 3, "\n</think>\n\n"},      {assistant, "<think>ab\n", 3, "</think>\n\n"},
      {assistant, "<think>", 0, "\n\n</think>\n\n"},       {assistant + "<think>\n", "", 0, "\n</think>\n\n"},
      {assistant + "<think>\n", "a", 1, "\n</think>\n\n"},
  };
  for (const Case& c : cases) {
    Shown shown;
    const auto show = [&](const ql::ReplyDelta& delta) { shown.add(delta); };
    const std::vector<int> prompt = tokens_of(tokenizer, c.prompt);
    ql::IncomingReply reply(tokenizer, prompt, {}, c.budget, show);
    std::vector<int> ids = tokens_of(tokenizer, c.thinking);
    for (std::size_t i = 0; i < ids.size(); ++i) {
      CHECK_FALSE(reply.out_of_budget());
      CHECK(reply.take(ids[i]) == (i + 1 < ids.size()));
    }
    CHECK(reply.out_of_budget());
    CHECK_FALSE(reply.ended());
    CHECK(reply.close_think_block() == tokens_of(tokenizer, c.closing));
    CHECK_FALSE(reply.out_of_budget());
    CHECK(reply.closed_by_budget());
    CHECK(reply.take(small::id_of(tokenizer, "x")));
    reply.finish();
    CHECK(shown.text == c.thinking + c.closing + "x");
    CHECK(reply.take_message().content == "x");
  }
}

TEST_CASE("a callback that returns false ends the reply and is not called again") {
  const ql::Tokenizer tokenizer = small::tokenizer();
  int calls = 0;
  const auto show = [&](const ql::ReplyDelta&) { return ++calls < 2; };
  const std::vector<int> prompt = tokens_of(tokenizer, assistant);
  ql::IncomingReply reply(tokenizer, prompt, {}, std::nullopt, show);
  CHECK(reply.take(small::id_of(tokenizer, "a")));
  CHECK_FALSE(reply.take(small::id_of(tokenizer, "b")));
  CHECK(reply.ended());
  reply.finish();
  CHECK(calls == 2);
  CHECK(reply.take_message().content == "ab");
}

namespace {
int delta_count = 0;
void count_delta(const ql::ReplyDelta&) {
  ++delta_count;
}
}  // namespace

TEST_CASE("callbacks may be lambdas, objects, functions or nothing, and return nothing or a bool") {
  struct Counter {
    int count = 0;
    bool operator()(const ql::ReplyDelta& delta) { return ++count < 2 && delta.token != 7; }
  } counter;
  const ql::ReplyCallback object = counter, copy = object;
  CHECK(object({.token = 1}));
  CHECK_FALSE(copy({.token = 1}));
  CHECK(counter.count == 2);
  const auto by_value = [](ql::ReplyDelta delta) { return delta.token; };
  CHECK(ql::ReplyCallback(by_value)({.token = 1}));
  CHECK_FALSE(ql::ReplyCallback(by_value)({.token = 0}));
  CHECK(ql::ReplyCallback(count_delta)({}));
  CHECK(ql::ReplyCallback(&count_delta)({}));
  CHECK(delta_count == 2);
  CHECK(ql::ReplyCallback()({}));
}
