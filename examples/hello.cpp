// SPDX-License-Identifier: Apache-2.0
//
// Opens any checkpoint directory and answers one message.
#include <iostream>

#include <qwenlite/model.hpp>

int main(int argc, char** argv) try {
  if (argc != 2) {
    std::cerr << "usage: hello <checkpoint directory>\n";
    return 2;
  }

  qwenlite::Checkpoint files(argv[1]);               // maps *.safetensors, reads the json files
  qwenlite::AnyModel model = qwenlite::open(files);  // family and sizes picked at run time
  qwenlite::Tokenizer text(files.directory());

  auto session = model.new_session();  // for at most 4096 tokens; {.max_tokens = n} sets it
  auto prompt = text.encode_chat({{"user", "Write a haiku about caches."}});
  qwenlite::TextStream out(text);  // holds back half a UTF-8 character

  auto stats = qwenlite::generate(model, session, prompt, {.max_new_tokens = 128}, [&](int token) {
    std::cout << out.push(token) << std::flush;
    return true;  // false stops early
  });
  std::cout << out.flush() << '\n';

  std::cerr << stats.tokens_per_second() << " tokens/s with " << qwenlite::kernels::active().name
            << " kernels\n";
} catch (const qwenlite::Error& e) {
  std::cerr << "hello: " << e.what() << '\n';
  return 1;
}
