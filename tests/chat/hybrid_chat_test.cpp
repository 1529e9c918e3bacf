// SPDX-License-Identifier: Apache-2.0
//
// ChatSession on Qwen3.5, whose recurrent state cannot be cut at will: every turn of a conversation gives the
// tokens of a fresh session given the whole prompt, and processes none of the tokens it reuses again.
//
// Why none: a turn's prompt and the next one's part at the reply's think block, which the template leaves out
// of the history. The chat session remembers that very place (the open chunk's rows included), so going back
// to it replays 0 tokens, however long the reply was. With places at multiples of 64 alone, and before the
// reply's opening of 3 tokens, it would be up to 63 + 3, and 8 more where the place before was out of reach.
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

/// A network of random weights speaks in digits, whose text encodes to the tokens drawn.
ql::ChatSessionOptions options_for(const ql::Tokenizer& tokenizer) {
  Ids digits;
  for (char c = '0'; c <= '9'; ++c) digits.push_back(small::id_of(tokenizer, std::string(1, c)));
  ql::ChatSessionOptions options;
  options.system = "Be brief.";
  options.thinking_budget = 7;
  options.generate.sampling.temperature = 0;
  options.generate.sampling.presence_penalty = 0;
  options.generate.mask = [digits](const ql::MaskContext&, ql::TokenMask& mask) { mask.allow_only(digits); };
  options.session.max_tokens = 2048;
  return options;
}

struct Turn {
  ql::ChatReply reply;
  Ids ids;
};
Turn ask(Chat& chat, const std::string& question, Index length, bool thinking) {
  Turn turn;
  chat.generate_options().max_new_tokens = length;
  chat.set_thinking(thinking);
  turn.reply = chat.send(question, [&](const ql::ReplyDelta& delta) {
    if (delta.token >= 0) turn.ids.push_back(delta.token);
  });
  return turn;
}

}  // namespace

TEST_CASE("a conversation with Qwen3.5 equals cold runs and reuses what went before", "[bits]") {
  const ql::AnyModel model =
      ql::open(std::filesystem::path(QWENLITE_TEST_DATA "/checkpoints/qwen3.5-tiny"), {.threads = 1});
  const ql::Tokenizer tokenizer = scripted::tokenizer(ql::ChatFamily::qwen3_5);
  const bool thinks = GENERATE(false, true);
  Chat chat(model, tokenizer, options_for(tokenizer));
  Index before = 0;
  for (int i = 0; i < 10; ++i) {
    INFO("turn " << i << (thinks ? ", thinking" : ""));
    const std::string question = "Question " + std::to_string(i) + ": hello?";
    const Index length = 10 + 37 * i % 150;
    Chat cold(model, tokenizer, options_for(tokenizer));
    cold.set_messages(chat.messages());
    const Turn expected = ask(cold, question, length, thinks);
    const Turn found = ask(chat, question, length, thinks);
    CHECK(found.ids == expected.ids);
    CHECK(found.reply.message.content == expected.reply.message.content);
    CHECK(found.reply.prompt_tokens == expected.reply.prompt_tokens);
    CHECK(expected.reply.reused_tokens == 0);
    CHECK(found.reply.reused_tokens >= before);
    CHECK(found.reply.replayed_tokens == 0);
    if (i > 0) CHECK(found.reply.reuse == ql::Reuse::think_block);
    before = found.reply.prompt_tokens - 8;  // the next prompt has no empty think block there
  }
  CHECK(chat.session().length() > 700);

  chat.set_messages({chat.messages().begin(), chat.messages().begin() + 7});  // takes turns back
  const Index held_before = chat.session().length();
  Chat cold(model, tokenizer, options_for(tokenizer));
  cold.set_messages(chat.messages());
  const Turn expected = ask(cold, "Once more?", 20, thinks);
  const Turn found = ask(chat, "Once more?", 20, thinks);
  CHECK(found.ids == expected.ids);
  CHECK(found.reply.reused_tokens > 100);
  CHECK(found.reply.reused_tokens < held_before);
  // The new question parts from the old one after the opening of its message, before which was remembered.
  CHECK(found.reply.replayed_tokens <= 6);
}
