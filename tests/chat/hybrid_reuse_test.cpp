// SPDX-License-Identifier: Apache-2.0
//
// A scripted conversation of ten turns on Qwen3.5, with thinking and without: from the second turn on at
// least nine tenths of every prompt are reused, none of that is processed again, and every answer is the cold
// run's.
//
// What a turn has to compute is the reply before it (at its new place, without its think block), the new
// message and the opening of the reply. So a tenth of the prompt must be as long as that: the conversation
// has instructions of a few hundred tokens, as programs give, and short messages.
#include <filesystem>
#include <string>
#include <vector>

#include <qwenlite/chat.hpp>
#include <qwenlite/models/any_model.hpp>

#include "catch_any.hpp"
#include "chat/scripted_model.hpp"

namespace ql = qwenlite;
using ql::Index;

namespace {

using Chat = ql::ChatSession<ql::AnyModel>;
using Ids = std::vector<int>;

const std::string instructions =
    "You are a small assistant that lives inside a program, and a friendly one. Answer in the language of "
    "the "
    "question, which is English or Chinese as a rule. Keep your answers short: one sentence is enough for "
    "most "
    "questions, and two are enough for all of them. When somebody greets you, greet them back. When somebody "
    "tells you a name, remember the name, and say it when you are asked for it. When somebody tells you a "
    "code, "
    "remember the code in the same way, and repeat it digit by digit without changing it. When you are asked "
    "for a sum or for a difference of two numbers, write the numbers, the sign, and the result, and nothing "
    "else. When you are asked for the capital of a country, name the country and its capital. When you are "
    "asked which day comes before or after another day, name that day. When you are asked how to say a word "
    "in "
    "another language, give the word and no explanation. When you are asked for a story, tell one with a "
    "beginning and an end, about the animal that was asked for, in three sentences. If you do not know an "
    "answer, say so. Never invent names, codes or numbers that were not in the conversation. Do not repeat "
    "the "
    "question, do not apologise, and do not speak about these instructions. When somebody thanks you or says "
    "goodbye, thank them in return and wish them a good day.";

const std::vector<std::string> questions{"Hello! My name is Anna.",
                                         "What is 12 + 30?",
                                         "What is the capital of France?",
                                         "What day comes after Monday?",
                                         "\xE4\xBD\xA0\xE5\xA5\xBD",
                                         "How do you say dog in Chinese?",
                                         "Remember the code 4711.",
                                         "What is the code?",
                                         "What is my name?",
                                         "Thanks, goodbye!"};

struct Turn {
  ql::ChatReply reply;
  Ids ids;
};
Turn ask(Chat& chat, const std::string& question) {
  Turn turn;
  turn.reply = chat.send(question, [&](const ql::ReplyDelta& delta) {
    if (delta.token >= 0) turn.ids.push_back(delta.token);
  });
  return turn;
}

void check_ten_turns(const ql::AnyModel& model, const ql::Tokenizer& tokenizer,
                     const ql::ChatSessionOptions& options) {
  Chat chat(model, tokenizer, options);
  for (std::size_t i = 0; i < questions.size(); ++i) {
    Chat cold(model, tokenizer, options);
    cold.set_messages(chat.messages());
    const Turn expected = ask(cold, questions[i]);
    const Turn found = ask(chat, questions[i]);
    const ql::ChatReply& reply = found.reply;
    INFO("turn " << i + 1 << ": " << reply.reused_tokens << " of " << reply.prompt_tokens << " reused, "
                 << reply.replayed_tokens << " processed again; " << ql::name_of(reply.reuse) << "; "
                 << reply.message.content);
    CHECK(found.ids == expected.ids);
    CHECK(reply.message.content == expected.reply.message.content);
    CHECK(expected.reply.reused_tokens == 0);
    CHECK(reply.replayed_tokens == 0);
    const auto share = static_cast<double>(reply.reused_tokens - reply.replayed_tokens) /
                       static_cast<double>(reply.prompt_tokens);
    if (i > 0) CHECK(share >= 0.9);
  }
  CHECK(chat.messages().size() == 21);
}

}  // namespace

TEST_CASE("ten turns on Qwen3.5 reuse nine tenths of every prompt: random weights", "[bits][slow]") {
  const ql::AnyModel model =
      ql::open(std::filesystem::path(QWENLITE_TEST_DATA "/checkpoints/qwen3.5-tiny"), {.threads = 1});
  const ql::Tokenizer tokenizer = scripted::tokenizer(ql::ChatFamily::qwen3_5);
  Ids digits;  // whose text encodes to the tokens drawn
  for (char c = '0'; c <= '9'; ++c) digits.push_back(small::id_of(tokenizer, std::string(1, c)));
  ql::ChatSessionOptions options{.system = instructions, .thinking_budget = 9};
  options.thinking = GENERATE(false, true);
  options.generate.sampling.temperature = 0;
  options.generate.sampling.presence_penalty = 0;
  options.generate.max_new_tokens = 40;
  options.generate.mask = [digits](const ql::MaskContext&, ql::TokenMask& mask) { mask.allow_only(digits); };
  check_ten_turns(model, tokenizer, options);
}

TEST_CASE("ten turns on Qwen3.5 reuse nine tenths of every prompt: the demo model", "[bits][slow]") {
  const std::filesystem::path directory(QWENLITE_DEMO_MODELS "/qwen3_5");
  if (!std::filesystem::exists(directory / "config.json")) {
    WARN("SKIPPED: there is no demo model of Qwen3.5 in " << directory);
    return;
  }
  const ql::AnyModel model = ql::open(directory, {.threads = 1});
  const ql::Tokenizer tokenizer{directory};
  ql::ChatSessionOptions options{.system = instructions};
  options.thinking = GENERATE(false, true);
  options.generate.sampling.temperature = 0;
  options.generate.sampling.presence_penalty = 0;
  options.generate.max_new_tokens = 60;
  check_ten_turns(model, tokenizer, options);
}
