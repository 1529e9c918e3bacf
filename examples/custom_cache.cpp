// SPDX-License-Identifier: Apache-2.0
//
// Runs a model with a key/value cache that the library does not know: the class in block_cache.hpp.
//
//   custom_cache [directory]    any Qwen3 checkpoint; the demo model without one
#include <iostream>

#include <qwenlite/model.hpp>

#include "block_cache.hpp"

namespace ql = qwenlite;

static_assert(ql::KvPolicy<BlockCache>);

int main(int argc, char** argv) try {
  ql::Checkpoint files(argc > 1 ? argv[1] : QWENLITE_DEMO_MODELS "/qwen3");
  ql::Model<ql::Qwen3, BlockCache> model(files);
  ql::Tokenizer text(files.directory());
  ql::TextStream out(text);

  auto session = model.new_session({.max_tokens = 512});
  auto prompt = text.encode_chat({{"user", "Hello! Who are you?"}}, {.enable_thinking = false});
  ql::GenerateOptions greedy{.max_new_tokens = 100, .sampling = {.temperature = 0}};
  ql::generate(model, session, prompt, greedy, [&](int token) {
    std::cout << out.push(token) << std::flush;
    return true;
  });
  std::cout << out.flush() << "\n\n" << session.kv_used_bytes() << " bytes of keys and values\n";
} catch (const ql::Error& e) {
  std::cerr << "custom_cache: " << e.what() << '\n';
  return 1;
}
