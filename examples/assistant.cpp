// SPDX-License-Identifier: Apache-2.0
//
// A conversation in which the model gets one sentence per turn: each message is answered, as the words come,
// up to the first stop string.
//
//   assistant <checkpoint directory> <message> ...
#include <iostream>

#include <qwenlite/chat.hpp>
#include <qwenlite/model.hpp>

int main(int argc, char** argv) try {
  if (argc < 3) {
    std::cerr << "usage: assistant <checkpoint directory> <message> ...\n";
    return 2;
  }
  const qwenlite::Checkpoint files(argv[1]);
  const qwenlite::AnyModel model = qwenlite::open(files);
  const qwenlite::Tokenizer text(files.directory());

  qwenlite::ChatSession chat(model, text,
                             {.thinking = false,
                              .stop_strings = {". ", "\n"},
                              .generate = {.max_new_tokens = 200, .sampling = {.temperature = 0}}});
  for (int i = 2; i < argc; ++i) {
    const qwenlite::ChatReply reply = chat.send(argv[i], [](const qwenlite::ReplyDelta& delta) {
      std::cout << delta.content << std::flush;  // delta.reasoning and .tool_calls come apart
    });
    std::cout << '\n';
    std::cerr << "ended by " << name_of(reply.end) << ", reused " << reply.reused_tokens << " of "
              << reply.prompt_tokens << " tokens\n";
  }
} catch (const qwenlite::Error& e) {
  std::cerr << "assistant: " << e.what() << '\n';
  return 1;
}
