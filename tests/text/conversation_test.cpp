// SPDX-License-Identifier: Apache-2.0
//
// Fitting a conversation into a number of tokens, and its JSON form.
#include <string>
#include <vector>

#include <qwenlite/text/conversation.hpp>

#include "catch_any.hpp"
#include "small_tokenizer.hpp"

namespace ql = qwenlite;
using Messages = std::vector<ql::Message>;

namespace {

ql::Tokenizer tokenizer_of(ql::ChatFamily family = ql::ChatFamily::qwen3) {
  return ql::Tokenizer::from_json(small::json(), {}, {.family = family});
}

std::string listed(const Messages& messages) {
  std::string text;
  for (const ql::Message& m : messages) text += m.role.substr(0, 1) + ":" + m.content.substr(0, 2) + " ";
  return text;
}

/// A system message and `turns` turns of the same length: "u:q1 a:r1 u:q2 ...", ending with a question.
Messages dialogue(int turns) {
  Messages messages{{"system", "s"}};
  for (int i = 1; i <= turns; ++i) {
    messages.push_back({"user", "q" + std::to_string(i) + "xxxxxx"});
    if (i < turns) messages.push_back({"assistant", "r" + std::to_string(i)});
  }
  return messages;
}

std::size_t size_of(const Messages& messages, const ql::Tokenizer& tokenizer) {
  return tokenizer.encode_chat(messages).size();
}

}  // namespace

TEST_CASE("what has room stays as it is") {
  const ql::Tokenizer tokenizer = tokenizer_of();
  Messages messages = dialogue(4);
  const std::size_t size = size_of(messages, tokenizer);
  for (const ql::WhenFull when : {ql::WhenFull::drop_oldest, ql::WhenFull::refuse}) {
    const ql::FittedPrompt fitted = ql::fitted_prompt(messages, tokenizer, {}, {size + 9, size}, when);
    CHECK(fitted.tokens == tokenizer.encode_chat(messages));
    CHECK(fitted.dropped_messages == 0);
    CHECK(messages.size() == 8);
  }
}

TEST_CASE("the oldest turns go, a quarter of the room at once") {
  const ql::Tokenizer tokenizer = tokenizer_of();
  const std::size_t full = size_of(dialogue(9), tokenizer);
  const std::size_t turn = size_of(dialogue(9), tokenizer) - size_of(dialogue(8), tokenizer);
  Messages messages = dialogue(9);
  const ql::FittedPrompt fitted =
      ql::fitted_prompt(messages, tokenizer, {}, {full + 9, full - 1}, ql::WhenFull::drop_oldest);
  CHECK(fitted.tokens == tokenizer.encode_chat(messages));
  CHECK(fitted.tokens.size() <= (full - 1) - (full - 1) / 4);
  CHECK(fitted.tokens.size() + turn > (full - 1) - (full - 1) / 4);  // and no more than needed
  CHECK(messages.front().role == "system");
  CHECK(messages.back().content == "q9xxxxxx");
  CHECK(messages[1].role == "user");
  CHECK(fitted.dropped_messages == 17 + 1 - messages.size());
  CHECK(fitted.dropped_messages % 2 == 0);
}

TEST_CASE("where a quarter cannot be had, what is needed goes; then all that may") {
  const ql::Tokenizer tokenizer = tokenizer_of();
  Messages messages = dialogue(3);
  messages.back().content = std::string(200, 'x');  // so long that little else has room
  const std::size_t two = size_of({messages[0], messages[3], messages[4], messages[5]}, tokenizer);
  Messages kept = messages;
  ql::FittedPrompt fitted =
      ql::fitted_prompt(kept, tokenizer, {}, {two + 50, two}, ql::WhenFull::drop_oldest);
  CHECK(listed(kept) == "s:s u:q2 a:r2 u:xx ");
  CHECK(fitted.dropped_messages == 2);
  kept = messages;
  fitted = ql::fitted_prompt(kept, tokenizer, {}, {two + 50, 100}, ql::WhenFull::drop_oldest);
  CHECK(listed(kept) == "s:s u:xx ");
  CHECK(fitted.tokens == tokenizer.encode_chat(kept));
  CHECK(fitted.dropped_messages == 4);
}

TEST_CASE("without room for the latest turn nothing changes") {
  const ql::Tokenizer tokenizer = tokenizer_of();
  Messages messages = dialogue(3);
  const auto error_of = [&](ql::PromptRoom room, ql::WhenFull when) -> std::string {
    try {
      (void)ql::fitted_prompt(messages, tokenizer, {}, room, when);
    } catch (const ql::Error& e) {
      CHECK(e.code() == ql::ErrorCode::context_full);
      return e.what();
    }
    return "no error";
  };
  CHECK(error_of({20, 10}, ql::WhenFull::drop_oldest).find("the message is too long") == 0);
  CHECK(error_of({60, 50}, ql::WhenFull::refuse).find("the conversation is too long") == 0);
  CHECK(listed(messages) == listed(dialogue(3)));
  CHECK(error_of({60, 50}, ql::WhenFull::drop_oldest) == "no error");
}

TEST_CASE("a turn is a question with everything up to the next one") {
  const ql::Tokenizer tokenizer = tokenizer_of();
  const Messages messages{{"assistant", "hi"},  // a greeting, without a system message
                          {"user", "q1"},
                          {.role = "assistant", .tool_calls = {{"f", {}}}},
                          {"tool", "t1"},
                          {"assistant", "r1"},
                          {"user", "<tool_response>\nx\n</tool_response>"},  // a result in the old form
                          {"assistant", "r2"},
                          {"user", "q2"}};
  Messages kept = messages;
  const std::size_t full = size_of(messages, tokenizer);
  CHECK(
      ql::fitted_prompt(kept, tokenizer, {}, {full, full - 1}, ql::WhenFull::drop_oldest).dropped_messages ==
      7);
  CHECK(listed(kept) == "u:q2 ");
  kept = {messages.begin(), messages.end() - 1};  // the first turn is the latest: only the greeting may go
  const std::size_t wanted = size_of(kept, tokenizer) - 1;
  CHECK(ql::fitted_prompt(kept, tokenizer, {}, {full, wanted}, ql::WhenFull::drop_oldest).dropped_messages ==
        1);
  CHECK(kept.front().content == "q1");
}

TEST_CASE("a conversation is written as JSON and read back") {
  ql::ChatRequest request;
  request.messages = {{"system", "Be \"brief\".\n\\"},
                      {"user", "Z\xC3\xBCrich \xF0\x9F\x98\x80 \x01"},
                      {.role = "assistant",
                       .content = "Looking.",
                       .reasoning_content = "hm\n",
                       .tool_calls = {{"f", R"({"z":1,  "a": "x"})"}, {"g", "{\"k\": 2}"}}},
                      {"tool", "18 C"},
                      {.role = "assistant", .content = "18", .reasoning_content = ""},
                      {"user", ""}};
  request.options.enable_thinking = false;
  request.options.tools = {R"({"name": "f"})", R"({"name": "g"})"};
  const std::string json = ql::chat_request_json(request);
  CHECK(json.find('\n') == std::string::npos);
  const ql::ChatRequest read = ql::parse_chat_request(json);
  CHECK(ql::chat_request_json(read) == json);
  REQUIRE(read.messages.size() == request.messages.size());
  for (std::size_t i = 0; i < read.messages.size(); ++i) {
    CHECK(read.messages[i].role == request.messages[i].role);
    CHECK(read.messages[i].content == request.messages[i].content);
    CHECK(read.messages[i].reasoning_content == request.messages[i].reasoning_content);
    REQUIRE(read.messages[i].tool_calls.size() == request.messages[i].tool_calls.size());
    for (std::size_t k = 0; k < read.messages[i].tool_calls.size(); ++k) {
      CHECK(read.messages[i].tool_calls[k].name == request.messages[i].tool_calls[k].name);
      CHECK(read.messages[i].tool_calls[k].arguments == request.messages[i].tool_calls[k].arguments);
    }
  }
  CHECK(read.options.enable_thinking == std::optional<bool>(false));
  CHECK(read.options.tools == request.options.tools);

  request = {};
  request.messages = {{"user", "bad \xFF byte"}};
  const std::string replaced = ql::chat_request_json(request);
  CHECK(ql::parse_chat_request(replaced).messages.front().content == "bad \xEF\xBF\xBD byte");
  CHECK_FALSE(ql::parse_chat_request(replaced).options.enable_thinking.has_value());
}

TEST_CASE("think blocks can be kept in the history") {
  const Messages messages{{"user", "a"}, {.role = "assistant", .content = "b", .reasoning_content = "why"},
                          {"user", "c"}, {.role = "assistant", .content = "d", .reasoning_content = ""},
                          {"user", "e"}, {"assistant", "f"},
                          {"user", "g"}};
  for (const ql::ChatFamily family : {ql::ChatFamily::qwen3, ql::ChatFamily::qwen3_5}) {
    const std::string kept =
        ql::ChatTemplate(family).render(messages, {.add_generation_prompt = false, .keep_thinking = true});
    CHECK(
        kept ==
        "<|im_start|>user\na<|im_end|>\n<|im_start|>assistant\n<think>\nwhy\n</think>\n\nb<|im_end|>\n"
        "<|im_start|>user\nc<|im_end|>\n<|im_start|>assistant\n<think>\n\n</think>\n\nd<|im_end|>\n"
        "<|im_start|>user\ne<|im_end|>\n<|im_start|>assistant\nf<|im_end|>\n<|im_start|>user\ng<|im_end|>\n");
    const std::string published = ql::ChatTemplate(family).render(messages, {.add_generation_prompt = false});
    CHECK(published.find("<think>") == std::string::npos);
  }
}
