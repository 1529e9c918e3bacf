// SPDX-License-Identifier: Apache-2.0
//
// The same with sizes and policies as types: this program contains two networks and no other.
//
//   hello_static <Qwen3-0.6B directory> [<Qwen3-1.7B directory>]
#include <iostream>

#include <qwenlite/model.hpp>

namespace ql = qwenlite;

using Small = ql::Model<ql::Qwen3_0_6B, ql::KvCache<ql::Bf16>>;
using Larger = ql::Model<ql::Qwen3_1_7B, ql::KvCache<float>>;

template <class Net>
void greet(const char* directory) {
  ql::Checkpoint files(directory);
  Net net(files);  // throws if config.json has other sizes
  ql::Tokenizer text(files.directory());
  ql::TextStream out(text);

  typename Net::Session session(net, {.max_tokens = 2048});
  auto prompt = text.encode_chat({{"user", "Say hello."}});
  ql::generate(net, session, prompt, {.max_new_tokens = 32}, [&](int token) {
    std::cout << out.push(token) << std::flush;
    return true;
  });
  std::cout << out.flush() << '\n';
}

int main(int argc, char** argv) try {
  if (argc < 2 || argc > 3) {
    std::cerr << "usage: hello_static <Qwen3-0.6B directory> [<Qwen3-1.7B directory>]\n";
    return 2;
  }
  greet<Small>(argv[1]);
  if (argc > 2) greet<Larger>(argv[2]);
} catch (const ql::Error& e) {
  std::cerr << "hello_static: " << e.what() << '\n';
  return 1;
}
