// SPDX-License-Identifier: Apache-2.0
//
// What chat does for people, as far as it shows without a terminal: text made safe, slash commands, saved
// conversations, and the options for replies. The terminal itself is tried by terminal_session.py.
#include <algorithm>
#include <sstream>
#include <sys/stat.h>

#include "../../examples/chat/printable.hpp"
#include "run_program.hpp"

using namespace example_tests;

namespace {

const Words greedy = {"--interactive", "--temperature", "0", "--no-think", "--kv", "f32"};

Words with(Words words, const Words& more) {
  words.insert(words.end(), more.begin(), more.end());
  return words;
}

Result talk(const std::string& lines, const Words& more = {}) {
  Result result = run("chat", with(greedy, more), lines);
  INFO(result.err);
  CHECK(result.status == 0);
  return result;
}

std::string answer(const Words& words) {
  const Result result = run("chat", with({"--temperature", "0"}, words));
  INFO(result.err);
  CHECK(result.status == 0);
  return result.out;
}

std::size_t count(const std::string& text, const std::string& part) {
  std::size_t found = 0;
  for (std::size_t at = text.find(part); at != std::string::npos; at = text.find(part, at + 1)) ++found;
  return found;
}

/// Contents of the messages of one role in a saved conversation.
Words contents(const fs::path& file, const std::string& role) {
  const Json saved = Json::parse(read_file(file));
  Words found;
  for (const Json& message : saved.at("messages")) {
    if (message.at("role") == role) found.push_back(message.at("content"));
  }
  return found;
}

}  // namespace

TEST_CASE("control characters are shown, not sent") {
  using chat::printable;
  CHECK(printable("plain, 你好, é 😀\n\ttab") == "plain, 你好, é 😀\n\ttab");
  CHECK(printable("\x1b[31mred\x1b]0;title\x07") == "^[[31mred^[]0;title^G");
  CHECK(printable("a\rb\x08\x7f") == "a^Mb^H^?");
  CHECK(printable(std::string_view("\0", 1)) == "^@");
  CHECK(printable("\xc2\x9b"
                  "31m") == "<U+009B>31m");
  CHECK(printable("\xc2\x80\xc2\x9f") == "<U+0080><U+009F>");
  CHECK(printable("\xc2\xa0\xc3\x9b") == "\xc2\xa0\xc3\x9b");  // neighbours that are letters and spaces
  for (int byte = 0; byte < 0x20; ++byte) {
    const std::string shown = printable(std::string(1, static_cast<char>(byte)));
    INFO(byte);
    CHECK((byte == '\n' || byte == '\t' || shown[0] == '^'));
  }
  CHECK(chat::printable_line("a\nb") == "a b");
}

TEST_CASE("chat has commands, and a wrong one ends nothing") {
  const Result result = talk("/bogus\n/help\n/think maybe\n/reset now\n  /stats\nHello\n/exit\nHello\n");
  CHECK(count(result.err, "there is no command '/bogus'; there are /help /reset") == 1);
  CHECK_THAT(result.err, has_text("/system [TEXT|off]"));
  std::istringstream lines(talk("/help\n").err);
  for (std::string line; std::getline(lines, line);) CHECK(line.size() <= 80);
  CHECK_THAT(result.err, has_text("note: /think: the argument: found 'maybe', expected on or off"));
  CHECK_THAT(result.err, has_text("note: /reset: the argument: found 'now', expected none"));
  CHECK(count(result.err, "stats: prompt") == 1);
  CHECK(result.out == answer({"--no-think", "--kv", "f32", "--prompt", "Hello"}));
  CHECK(count(talk("Hello\n//help\n").err, "/help") == 0);  // a message, not the command
}

TEST_CASE("chat tells what was reused and why not more") {
  const auto stats = [](const std::string& lines) { return talk(lines, {"--stats"}).err; };
  CHECK_THAT(stats("Hello\n"), has_text("0 reused"));
  CHECK_THAT(stats("Hello\n"), has_text("(nothing held)"));
  CHECK_THAT(stats("Hello\nHello\n"), has_text("(think block left out of the history)"));
  CHECK_THAT(stats("Hello\n/system Be kind.\nHello\n"), has_text("(history changed)"));
}

TEST_CASE("/reset and /system change what the model is told") {
  const TemporaryDirectory scratch;
  const std::string file = (scratch.path() / "chat.json").string();
  const auto saved = [&](const std::string& lines) {
    talk(lines + "/save! " + file + "\n", {"--system", "A"});
  };
  saved("Hello\n/reset\nWhat is your name?\n");
  CHECK(contents(file, "user") == Words{"What is your name?"});
  CHECK(contents(file, "system") == Words{"A"});
  saved("/system  Two words \nHello\n");
  CHECK(contents(file, "system") == Words{"Two words"});
  saved("/system off\n");
  CHECK(contents(file, "system").empty());
  CHECK_THAT(talk("/system\n", {"--system", "Be kind."}).err, has_text("the system message is: Be kind."));
}

TEST_CASE("a saved conversation goes on where it ended") {
  const TemporaryDirectory scratch;
  const std::string file = (scratch.path() / "chat.json").string();
  const Result whole = talk("My name is Ada.\nHello\nWhat is my name?\n");
  const Result begun = talk("My name is Ada.\nHello\n/save " + file + "\n");
  const Result ended = talk("Forget me.\n/load " + file + "\nWhat is my name?\n");
  CHECK(ended.out.substr(ended.out.find('\n') + 1) == whole.out.substr(begun.out.size()));
  CHECK(contents(file, "user") == Words{"My name is Ada.", "Hello"});

  struct stat status {};
  REQUIRE(::stat(file.c_str(), &status) == 0);
  CHECK((status.st_mode & 077U) == 0);  // nobody else's business

  const std::string before = read_file(file);
  CHECK_THAT(talk("Hello\n/save " + file + "\n").err, has_text("exists already (/save! replaces it)"));
  CHECK(read_file(file) == before);
  talk("Hello\n/save! " + file + "\n");
  CHECK(read_file(file) != before);
  CHECK(std::distance(fs::directory_iterator(scratch.path()), fs::directory_iterator()) == 1);
}

TEST_CASE("a conversation in which nothing was said can be saved and loaded") {
  for (const std::string model : {"qwen3", "qwen3_5"}) {
    const TemporaryDirectory scratch;
    const std::string file = (scratch.path() / "chat.json").string();
    const auto told = [&](const std::string& lines) {
      return run("chat", {"--interactive", "--no-think", "--temperature", "0", "--model", model}, lines);
    };
    const Result plain = told("Hello\n");
    const Result none = told("/save " + file + "\n/load " + file + "\nHello\n");
    CHECK(none.err == "note: saved 0 messages to " + file + "\nnote: loaded 0 messages from " + file + "\n");
    CHECK(none.out == plain.out);
    const Result system =
        told("/system Be brief.\n/save! " + file + "\n/system off\n/load " + file + "\n/system\n");
    CHECK_THAT(system.err, has_text("note: loaded 1 message from " + file +
                                    "\n"
                                    "note: the system message is: Be brief.\n"));
  }
}

TEST_CASE("/load tells what a file has that the conversation will not have") {
  const TemporaryDirectory scratch;
  const std::string file = (scratch.path() / "chat.json").string();
  const std::string loaded = "note: loaded 2 messages (";
  Json saved = {
      {"messages", {{{"role", "user"}, {"content", "x"}}, {{"role", "assistant"}, {"content", "y"}}}}};
  const auto told = [&](const Words& more) {
    write_file(file, saved.dump());
    const std::string err = talk("/load " + file + "\n", more).err;
    CHECK(err.rfind(loaded, 0) == 0);
    return err.substr(err.find(" from "));
  };
  CHECK(told({}) == " from " + file + "\n");
  saved["tools"] = Json::array();
  CHECK(told({}) == " from " + file + "\n");
  saved["tools"] = {{{"type", "function"}, {"function", {{"name", "f"}}}}};
  CHECK(told({}) == " from " + file + "; its tools are left out, as chat has none\n");

  saved.erase("tools");
  const std::string err = talk("/load " + file + "\n").err;
  const int tokens = std::stoi(err.substr(loaded.size()));
  const auto full = [](int context) {
    return "; it does not fit into the context of " + std::to_string(context) +
           " tokens: the oldest messages will be left out\n";
  };
  CHECK(told({"--context", std::to_string(tokens)}) == " from " + file + full(tokens));
  CHECK(told({"--context", std::to_string(tokens + 1)}) == " from " + file + "\n");
}

TEST_CASE("files that cannot be saved or loaded are named") {
  const TemporaryDirectory scratch;
  const std::string at = scratch.path().string() + "/";
  const auto says = [&](const std::string& line, const std::string& part) {
    const Result result = talk(line + "\nHello\n");
    CHECK_THAT(result.err, has_text(part));
    CHECK(is_one_line(result.err));
    CHECK(count(result.out, "\n") == 1);  // Hello is still answered
  };
  says("/save", "/save: found no file name");
  says("/save " + at + "no/file", "no/file: could not be written: No such file");
  says("/save " + at, "/: is a directory");
  says("/save! " + at, "/: is a directory");
  says("/load", "/load: found no file name");
  says("/load " + at + "none", "none: No such file");
  says("/load " + at, "is not a file");
  const auto load = [&](const std::string& text, const std::string& part) {
    write_file(at + "bad", text);
    says("/load " + at + "bad", part);
  };
  load("", "is not a saved conversation");
  load("\x1b[31m", "is not a saved conversation");
  load("[]", "is not a saved conversation");
  load(R"({"messages": 1})", "is not a saved conversation");
  load(R"({"messages": [{"role": "nobody", "content": "x"}]})", "found 'nobody', expected system");
  load(R"({"messages": [{"role": "assistant", "content": "x", "reasoning_content": 5}]})",
       "is not a saved conversation: messages[0].reasoning_content: found a number, expected a string");
  load(R"({"messages": [{"role": "user", "content": [{"type": "text", "text": "x"}]}]})",
       "messages[0].content: found an array, expected a string");
  load(std::string(100000, '['), "is not a saved conversation");
  write_file(at + "bad", R"({"messages": [{"role": "assistant", "content": "x"}]})");
  CHECK(talk("/load " + at + "bad\n", {"--model", "qwen3_5"}).err ==
        "note: /load: " + at +
            "bad: is no conversation for this model: messages: found no user message that asks something, "
            "expected at least one\n");
}

TEST_CASE("lines that end in a backslash go on") {
  const TemporaryDirectory scratch;
  const std::string file = (scratch.path() / "chat.json").string();
  talk("Hello\\\nyou\\\n\nHello\\\\\n/save " + file + "\nHello\\");
  CHECK(contents(file, "user") == Words{"Hello\nyou\n", "Hello\\\\"});
}

TEST_CASE("chat ends a reply at --stop") {
  const Words story = {"--no-think", "--prompt", "Tell me a story."};
  const std::string whole = answer(story);
  REQUIRE(count(whole, " ") > 4);
  const std::string second = whole.substr(whole.find(' '), 4);
  const std::string cut = answer(with(story, {"--stop", "never in it", "--stop", second}));
  CHECK(cut == whole.substr(0, whole.find(second)) + "\n");
  check_usage_error("chat", {"--prompt", "x", "--stop", ""}, "--stop");
}

TEST_CASE("chat says how far a reply without an answer came") {
  const auto note = [](const Words& words) {
    const Result result = run("chat", with({"--temperature", "0"}, words));
    CHECK(result.status == 0);
    return result.err;
  };
  const std::string before = "note: the reply ended at a --stop text before any answer\n";
  CHECK(note({"--prompt", "What is 3 plus 4?", "--no-think", "--stop", "3"}) == before);
  CHECK(note({"--model", "qwen3_5", "--prompt", "Hi", "--stop", "Hel"}) == before);
  CHECK(note({"--prompt", "Hi", "--stop", "Hel"}) == before);  // after it has thought
  CHECK(note({"--prompt", "Hi", "--think", "--stop", "user"}) ==
        "note: the reply ended at a --stop text while the model was still thinking, without an answer\n");
  const Words budget = {"--prompt", "Hi", "--think", "--thinking-budget", "2", "--max-new-tokens"};
  CHECK(note(with(budget, {"5"})) ==
        "note: the thinking was ended at --thinking-budget; then the reply was cut off at --max-new-tokens "
        "before any answer\n");
  CHECK(note(with(budget, {"7"})) ==
        "note: the thinking was ended at --thinking-budget; then the reply was cut off at "
        "--max-new-tokens\n");
  CHECK(note(with(budget, {"100"})) == "note: the thinking was ended at --thinking-budget\n");
}

TEST_CASE("a --stop text that stands in a think tag changes nothing, and no tag is saved as an answer") {
  const std::string whole = answer({"--prompt", "Hi", "--think"});
  REQUIRE(whole.rfind("<think>\n", 0) == 0);
  for (const char* stop : {"hi", "<think>", "</think>", "<", "k>"}) {
    INFO(stop);
    CHECK(answer({"--prompt", "Hi", "--think", "--stop", stop}) == whole);
  }
  const TemporaryDirectory scratch;
  const std::string file = (scratch.path() / "chat.json").string();
  run("chat", {"--interactive", "--temperature", "0", "--stop", "hi"}, "Hi\n/save " + file + "\n");
  const std::string plain = answer({"--prompt", "Hi"});
  CHECK(contents(file, "assistant") == Words{plain.substr(0, plain.size() - 1)});
}

TEST_CASE("chat closes the thinking at --thinking-budget") {
  const Words sum = {"--think", "--prompt", "What is 23 + 45?"};
  const std::string whole = answer(sum);
  const Result cut = run("chat", with(sum, {"--temperature", "0", "--thinking-budget", "4"}));
  CHECK(cut.status == 0);
  CHECK_THAT(cut.err, has_text("--thinking-budget"));
  const auto thinking = [](const std::string& text) { return text.substr(0, text.find("</think>")); };
  REQUIRE(cut.out.find("</think>\n\n") != std::string::npos);
  CHECK(thinking(cut.out).size() < thinking(whole).size());
  CHECK(cut.out.size() > cut.out.find("</think>\n\n") + 10);  // there is an answer
  const Result none = run("chat", with(sum, {"--temperature", "0", "--thinking-budget", "0"}));
  CHECK(none.status == 0);
  CHECK(none.err.empty());  // nothing was cut short
}

TEST_CASE("chat draws with presets and penalties") {
  const Words story = {"--no-think", "--prompt", "Tell me a story.", "--seed", "3"};
  const auto draw = [&](const Words& more) { return run("chat", with(story, more)).out; };
  const std::string preset = draw({"--preset", "qwen3-non-thinking"});
  CHECK(preset == draw({"--temperature", "0.7", "--top-p", "0.8", "--top-k", "20", "--min-p", "0"}));
  CHECK(draw({"--preset", "qwen3-non-thinking", "--temperature", "0"}) == draw({"--temperature", "0"}));
  for (const char* option : {"--repetition-penalty", "--presence-penalty", "--frequency-penalty"}) {
    INFO(option);
    CHECK(draw({"--temperature", "0", option, "20"}) != draw({"--temperature", "0"}));
    check_usage_error("chat", {"--prompt", "x", option, "1000"}, option);
  }
  check_usage_error("chat", {"--prompt", "x", "--repetition-penalty", "0"}, "from 0.01 to 100");
  check_usage_error("chat", {"--prompt", "x", "--preset", "best"}, "qwen3-thinking");
}
