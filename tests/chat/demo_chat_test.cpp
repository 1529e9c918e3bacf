// SPDX-License-Identifier: Apache-2.0
//
// ChatSession with the demo model: every turn's tokens equal those of a session that never saw the turns
// before, whatever was reused, cancelled or thrown in between.
#include <functional>
#include <stdexcept>
#include <string>
#include <vector>

#include <qwenlite/chat.hpp>
#include <qwenlite/models/any_model.hpp>

#include "catch_any.hpp"

namespace ql = qwenlite;
using ql::Index;
using ql::Reuse;
using Ids = std::vector<int>;

namespace {

struct Demo {
  ql::AnyModel model = ql::open(std::filesystem::path(QWENLITE_DEMO_MODELS "/qwen3"));
  ql::Tokenizer tokenizer{QWENLITE_DEMO_MODELS "/qwen3"};
};

const std::vector<std::string> questions{"Hello! My name is Anna.",
                                         "What is 12 + 30?",
                                         "What is the capital of France?",
                                         "Tell me a story about a cat.",
                                         "\xE4\xBD\xA0\xE5\xA5\xBD",
                                         "What day comes after Monday?",
                                         "How do you say dog in Chinese?",
                                         "Remember the code 4711.",
                                         "What is my name?",
                                         "Thanks, goodbye!"};

/// The tokens of a fresh session given the whole prompt, up to the end of the reply.
Ids cold_reply(const Demo& demo, const Ids& prompt, const ql::GenerateOptions& how, Index max_tokens) {
  auto session = demo.model.new_session({.max_tokens = max_tokens});
  Ids ids;
  ql::GenerateOptions options = how;
  options.stop_ids = demo.tokenizer.eos_ids();
  ql::generate(demo.model, session, prompt, options, [&](int token) {
    ids.push_back(token);
    return true;
  });
  return ids;
}

struct Turn {
  ql::ChatReply reply;
  Ids ids;
};
Turn ask(ql::ChatSession<ql::AnyModel>& chat, const std::string& question) {
  Turn turn;
  turn.reply = chat.send(question, [&](const ql::ReplyDelta& delta) {
    if (delta.token >= 0) turn.ids.push_back(delta.token);
  });
  return turn;
}

/// The prompt that the latest reply answered.
Ids answered_prompt(const Demo& demo, const ql::ChatSession<ql::AnyModel>& chat) {
  std::vector<ql::Message> messages = chat.messages();
  messages.pop_back();
  return demo.tokenizer.encode_chat(
      messages, {.enable_thinking = chat.options().thinking, .keep_thinking = chat.options().keep_thinking});
}

}  // namespace

TEST_CASE("ten turns compute their new tokens only and equal cold runs", "[slow]") {
  const Demo demo;
  const Index empty_block =
      static_cast<Index>(demo.tokenizer.encode("<think>\n\n</think>\n\n", {.control_tokens = true}).size());
  for (const bool thinking : {false, true}) {
    for (const bool keep : {false, true}) {
      const bool greedy = !keep;  // and drawn, with a seed
      ql::GenerateOptions how;
      how.max_new_tokens = 120;
      how.sampling.seed = 5;
      if (greedy) how.sampling.temperature = 0;
      ql::ChatSession chat(
          demo.model, demo.tokenizer,
          {.thinking = thinking, .keep_thinking = keep, .generate = how, .session = {.max_tokens = 2048}});
      const Reuse wanted = keep ? Reuse::all : Reuse::think_block;
      Index before = 0, before_generated = 0;
      bool before_ended = true;
      int as_wanted = 0;
      for (const std::string& question : questions) {
        const Turn turn = ask(chat, question);
        INFO(question << ", thinking " << thinking << ", kept " << keep);
        const Ids prompt = answered_prompt(demo, chat);
        CHECK(turn.reply.answered());
        CHECK(turn.ids == cold_reply(demo, prompt, how, 2048));
        CHECK(turn.reply.prompt_tokens == static_cast<Index>(prompt.size()));
        CHECK(turn.reply.generate.prompt_tokens == turn.reply.prompt_tokens - turn.reply.reused_tokens);
        if (before == 0) {
          CHECK(turn.reply.reuse == Reuse::empty);
        } else if (turn.reply.reuse == wanted) {
          ++as_wanted;
          const Index held = keep ? before + before_generated : before - (thinking ? 0 : empty_block);
          const bool cut = keep && !before_ended;  // then the last token drawn was not processed yet
          CHECK(turn.reply.reused_tokens == held - (cut ? 1 : 0));
        } else {  // this model now and then leaves its block out, or writes a word in other tokens
          CHECK((turn.reply.reuse == Reuse::all || turn.reply.reuse == Reuse::reply_text));
          CHECK(turn.reply.reused_tokens >= before);
        }
        before = turn.reply.prompt_tokens;
        before_generated = turn.reply.generate.generated_tokens;
        before_ended = turn.reply.end == ql::ReplyEnd::stop;
      }
      CHECK(as_wanted >= 7);
      CHECK(chat.messages().size() == 20);
    }
  }
}

TEST_CASE("cancelling inside a long prompt leaves a session that goes on as if nothing had been", "[slow]") {
  const Demo demo;
  std::string text = "What is the capital of France? ";
  while (text.size() < 3000) text += "Hello there, how are you today? ";
  ql::ChatSessionOptions options{.thinking = false, .session = {.max_tokens = 2048}};
  options.generate.sampling.temperature = 0;
  options.generate.max_new_tokens = 20;
  options.generate.prefill_piece = 100;
  std::stop_source stop;
  Index stop_at = 300;
  options.generate.progress = [&](Index done, Index) {
    if (done == stop_at) stop.request_stop();
  };
  ql::ChatSession chat(demo.model, demo.tokenizer, options);
  const ql::ChatReply cancelled = chat.send(text, {}, stop.get_token());
  CHECK(cancelled.end == ql::ReplyEnd::cancelled);
  CHECK(cancelled.generate.prompt_tokens == 300);
  CHECK(cancelled.prompt_tokens > 500);
  CHECK_FALSE(cancelled.remembered);
  CHECK(chat.messages().empty());
  CHECK(chat.session().length() == 300);
  stop_at = -1;
  SECTION("with the same message") {
    const Turn turn = ask(chat, text);
    CHECK(turn.reply.reused_tokens == 300);
    CHECK(turn.ids == cold_reply(demo, answered_prompt(demo, chat),
                                 {.max_new_tokens = 20, .sampling = {.temperature = 0}}, 2048));
  }
  SECTION("with another") {
    const Turn turn = ask(chat, "What is 12 + 30?");
    CHECK(turn.reply.reuse == Reuse::history_changed);
    CHECK(turn.reply.answered());
    CHECK(turn.ids == cold_reply(demo, answered_prompt(demo, chat), {.sampling = {.temperature = 0}}, 2048));
  }
}

TEST_CASE("a throwing callback leaves model and chat usable") {
  const Demo demo;
  ql::ChatSessionOptions options{.thinking = true};
  options.generate.sampling.temperature = 0;
  ql::ChatSession chat(demo.model, demo.tokenizer, options);
  (void)ask(chat, questions[0]);
  for (const int after : {0, 1, 5, 12}) {
    int count = 0;
    const auto thrower = [&](const ql::ReplyDelta&) {
      if (count++ == after) throw std::runtime_error("no paper");
    };
    CHECK_THROWS_AS(chat.send("What is 12 + 30?", thrower), std::runtime_error);
    CHECK(chat.messages().size() == 2);
  }
  const Turn turn = ask(chat, "What is 12 + 30?");
  CHECK(turn.reply.generate.prompt_tokens == 1);  // the failed tries had computed the prompt
  CHECK(turn.ids == cold_reply(demo, answered_prompt(demo, chat), options.generate, 0));
  ql::ChatSession other(demo.model, demo.tokenizer, options);
  CHECK(ask(other, "What is 12 + 30?").reply.answered());
}

TEST_CASE("the demo model answers after its thinking was cut short") {
  const Demo demo;
  for (const Index budget : {0, 1, 6}) {
    ql::ChatSessionOptions options{.thinking = true, .thinking_budget = budget};
    options.generate.sampling.temperature = 0;
    ql::ChatSession chat(demo.model, demo.tokenizer, options);
    const Turn turn = ask(chat, "What is the capital of France?");
    CHECK(turn.reply.thinking_closed_by_budget);
    CHECK(turn.reply.end == ql::ReplyEnd::stop);
    CHECK(turn.reply.answered());
    CHECK(turn.reply.message.content.find("think") == std::string::npos);
    CHECK(ask(chat, "What is 12 + 30?").reply.answered());
  }
}

TEST_CASE("after a cut-off thought the reply goes on as one") {
  const Demo demo;
  ql::ChatSessionOptions options{.thinking = true, .thinking_budget = 6};
  options.generate.sampling.temperature = 0;
  options.generate.max_new_tokens = 40;
  std::vector<Index> positions;
  std::size_t seen_at_answer = 0;
  options.generate.mask = [&](const ql::MaskContext& reply, ql::TokenMask&) {
    positions.push_back(static_cast<Index>(reply.generated.size()));
    if (!reply.inside_think && reply.generated.size() > 1 && seen_at_answer == 0) {
      seen_at_answer = reply.generated.size();
    }
  };
  ql::ChatSession chat(demo.model, demo.tokenizer, options);
  const Turn turn = ask(chat, "What is the capital of France?");
  REQUIRE(turn.reply.thinking_closed_by_budget);
  CHECK(seen_at_answer == 1 + 6 + 3);  // the tag, the budget, the end of the block
  CHECK(positions.back() + 1 ==
        turn.reply.generate.generated_tokens + (turn.reply.end == ql::ReplyEnd::stop));
}
