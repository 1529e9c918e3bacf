// SPDX-License-Identifier: Apache-2.0
//
// Tools: the model may ask for a function of yours, and answers with what it returned.
//
//   tools <checkpoint directory> <question>
#include <chrono>
#include <ctime>
#include <iostream>
#include <utility>
#include <vector>

#include <qwenlite/chat.hpp>
#include <qwenlite/model.hpp>

namespace ql = qwenlite;

namespace {

/// Runs the one tool there is; `call.arguments` is a JSON object as text, for a JSON library of your choice.
std::string run(const ql::ToolCall& call) {
  if (call.name != "now") return "error: no tool of this name";
  const std::time_t now = std::chrono::system_clock::to_time_t(std::chrono::system_clock::now());
  return std::ctime(&now);
}

void answer(const char* directory, const char* question) {
  const ql::Checkpoint files(directory);
  const ql::AnyModel model = ql::open(files);
  const ql::Tokenizer text(files.directory());

  const char* const now = R"({"type": "function", "function": {"name": "now",
      "description": "The date and the time of day", "parameters": {"type": "object", "properties": {}}}})";
  ql::ChatSession chat(model, text, {.thinking = false, .tools = {now}});
  const auto show = [](const ql::ReplyDelta& delta) { std::cout << delta.content << std::flush; };

  ql::ChatReply reply = chat.send(question, show);
  for (int round = 0; round < 5 && !reply.message.tool_calls.empty(); ++round) {
    std::vector<ql::Message> results;
    for (const ql::ToolCall& call : reply.message.tool_calls) results.push_back({"tool", run(call)});
    reply = chat.send_messages(std::move(results), show);
  }
  std::cout << '\n';
}

}  // namespace

int main(int argc, char** argv) try {
  if (argc != 3) {
    std::cerr << "usage: tools <checkpoint directory> <question>\n";
    return 2;
  }
  answer(argv[1], argv[2]);
} catch (const ql::Error& e) {
  std::cerr << "tools: " << e.what() << '\n';
  return 1;
}
