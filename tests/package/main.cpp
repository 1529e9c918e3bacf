// SPDX-License-Identifier: Apache-2.0
//
// Two units of one program include the whole library: everything in it must be inline, and both must see
// the same library. This one answers a question too, so that the networks are compiled and work.
#include <cstdio>

#include <qwenlite/model.hpp>

qwenlite::ErrorCode second_unit(const qwenlite::Error& error);

namespace {

bool answers(const char* directory) {
  const qwenlite::Checkpoint files(directory);
  const qwenlite::AnyModel model = qwenlite::open(files);
  const qwenlite::Tokenizer text(files.directory());
  qwenlite::TextStream out(text);
  auto session = model.new_session({.max_tokens = 128});
  const auto prompt = text.encode_chat({{"user", "Hello"}}, {.enable_thinking = false});
  std::string answer;
  generate(model, session, prompt, {.max_new_tokens = 20, .sampling = {.temperature = 0}}, [&](int token) {
    answer += out.push(token);
    return true;
  });
  answer += out.flush();
  std::puts(answer.c_str());
  return !answer.empty();
}

}  // namespace

int main(int argc, char** argv) try {
  const qwenlite::Error error(qwenlite::ErrorCode::cancelled, "passed between units");
  if (second_unit(error) != qwenlite::ErrorCode::cancelled) return 1;
  return argc == 2 && answers(argv[1]) ? 0 : 1;
} catch (const qwenlite::Error& e) {
  std::puts(e.what());
  return 1;
}
