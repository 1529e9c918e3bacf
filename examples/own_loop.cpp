// SPDX-License-Identifier: Apache-2.0
//
// A loop of your own: the network gives the logits of the next token, and everything else is yours. This one
// always takes the likeliest token, and tells how sure the model was.
//
//   own_loop <checkpoint directory> [question]
#include <algorithm>
#include <cmath>
#include <iostream>
#include <iterator>
#include <span>
#include <vector>

#include <qwenlite/model.hpp>

namespace ql = qwenlite;

namespace {

/// Probability of one token among all, from their logits.
double probability(std::span<const float> logits, float chosen) {
  double sum = 0;
  for (const float x : logits) sum += std::exp(double{x} - double{chosen});
  return 1 / sum;
}

void answer(const char* directory, const char* question) {
  const ql::Checkpoint files(directory);
  const ql::AnyModel model = ql::open(files);
  const ql::Tokenizer text(files.directory());
  const auto tokens = static_cast<std::size_t>(model.token_count());  // the rest of the logits is padding
  const std::span<const int> stop_ids = model.stop_ids();

  auto session = model.new_session({.max_tokens = 512});
  std::vector<int> next = text.encode_chat({{"user", question}}, {.enable_thinking = false});
  if (std::ssize(next) > session.max_tokens()) {
    throw ql::Error(ql::ErrorCode::context_full, "the question", {next.size(), " tokens"},
                    {"at most ", session.max_tokens()});
  }
  ql::TextStream out(text);

  double bits = 0;  // how much the reply surprised the model
  ql::Index count = 0;
  while (true) {
    const std::span<const float> logits = model.logits(session, next).first(tokens);  // after the last token
    const auto best = std::max_element(logits.begin(), logits.end());
    bits -= std::log2(probability(logits, *best));
    ++count;

    const auto token = static_cast<int>(best - logits.begin());
    if (std::find(stop_ids.begin(), stop_ids.end(), token) != stop_ids.end()) break;
    std::cout << out.push(token) << std::flush;
    if (session.length() == session.max_tokens()) break;
    next = {token};  // the session remembers the rest
  }
  std::cout << out.flush() << '\n';
  std::cerr << count << " tokens, " << bits / static_cast<double>(count) << " bits each\n";
}

}  // namespace

int main(int argc, char** argv) try {
  if (argc < 2 || argc > 3) {
    std::cerr << "usage: own_loop <checkpoint directory> [question]\n";
    return 2;
  }
  answer(argv[1], argc > 2 ? argv[2] : "Hello! Who are you?");
} catch (const ql::Error& e) {
  std::cerr << "own_loop: " << e.what() << '\n';
  return 1;
}
