// SPDX-License-Identifier: Apache-2.0
//
// chat on the demo model: one question or a conversation, what goes to which stream, reuse of what is in the
// cache, full contexts, and wrong usage.
#include <algorithm>

#include "run_program.hpp"

using namespace example_tests;

namespace {

const Words greedy = {"--temperature", "0", "--no-think", "--kv", "f32"};

Words with(Words words, const Words& more) {
  words.insert(words.end(), more.begin(), more.end());
  return words;
}

std::string answer(const Words& words, const std::string& input = {}) {
  const Result result = run("chat", words, input);
  INFO(result.err);
  CHECK(result.status == 0);
  CHECK(result.err.empty());
  CHECK(!result.out.empty());
  CHECK((result.out.empty() || result.out.back() == '\n'));
  return result.out;
}

/// The numbers N of all lines "... N WORD ..." with that word, such as "12 reused,".
std::vector<int> numbers_before(const std::string& text, const std::string& word) {
  std::vector<int> found;
  for (std::size_t at = text.find(word); at != std::string::npos; at = text.find(word, at + 1)) {
    const std::size_t end = text.rfind(' ', at - 1);
    const std::size_t start = text.rfind(' ', end - 1) + 1;
    found.push_back(std::stoi(text.substr(start)));
  }
  return found;
}

}  // namespace

TEST_CASE("chat answers one question") {
  const std::string first = answer(with({"--prompt", "Hello"}, greedy));
  CHECK(answer(with({"--prompt", "Hello", demo()}, greedy)) == first);  // the demo model is the default
  CHECK(answer(greedy, "Hello") == first);                              // from a pipe
  CHECK(answer(greedy, "Hello\n") == first);
  CHECK(first.find("<think>") == std::string::npos);
  CHECK(first.find("<|im_end|>") == std::string::npos);
  CHECK(first.find('\x1b') == std::string::npos);

  const Words other_kv = {"--prompt", "Hello", "--temperature", "0", "--no-think", "--kv", "none"};
  CHECK(answer(other_kv) == first);
  CHECK(answer(with({"--prompt", "Hello", "--threads", "3", "--chunk", "2"}, greedy)) == first);
}

TEST_CASE("chat --model takes the name of a demo model or a directory") {
  const auto asked = [](const std::string& model) {
    return answer(with({"--prompt", "What is 17 + 25?", "--model", model}, greedy));
  };
  const std::string first = answer(with({"--prompt", "What is 17 + 25?"}, greedy));
  CHECK(asked("qwen3") == first);
  CHECK(asked(demo()) == first);
  CHECK_THAT(asked("qwen3_5"), has_text("42"));
  CHECK(asked(QWENLITE_DEMO_MODELS "/qwen3_5") == asked("qwen3_5"));
  CHECK(answer(with({"--prompt", "What is 17 + 25?", "qwen3_5"}, greedy)) == asked("qwen3_5"));
  check_failure("chat", {"--prompt", "Hello", "--model", "qwen9"},
                {"--model", "'qwen9'", "qwen3 or qwen3_5"});
  check_failure("chat", {"--prompt", "Hello", "qwen9"}, {"DIRECTORY", "'qwen9'", "qwen3 or qwen3_5"});
  check_usage_error("chat", {"--model", "qwen3", demo()}, "--model");
  check_usage_error("chat", {"--model", ""}, "--model");
}

TEST_CASE("chat answers with the Qwen3.5 demo model") {
  const Words hybrid = with({"--model", "qwen3_5"}, greedy);
  CHECK_THAT(answer(with({"--prompt", "\xE4\xBD\xA0\xE5\xA5\xBD"}, hybrid)),
             has_text("\xE4\xBD\xA0\xE5\xA5\xBD"));
  const Result talk =
      run("chat", with({"--interactive"}, hybrid), "My name is Anna.\nWhat is 2 + 3?\nWhat is my name?\n");
  CHECK(talk.status == 0);
  CHECK_THAT(talk.out, has_text("5"));
  CHECK_THAT(talk.out.substr(talk.out.find('5')), has_text("Anna"));

  // Unlike Qwen3 it thinks only when asked to.
  const Words question = {"--model", "qwen3_5", "--prompt", "What is 2 + 3?", "--temperature", "0"};
  CHECK(answer(question) == answer(with(question, {"--no-think"})));
  CHECK(answer(with(question, {"--think"})).rfind("<think>\n", 0) == 0);
}

TEST_CASE("chat answers with quantised weights") {
  for (const char* weights : {"int8", "int8:128", "int4:32:zeros"}) {
    INFO(weights);
    const Words words = with({"--prompt", "Hello", "--weights", weights}, greedy);
    CHECK(answer(with(words, {"--threads", "3", "--chunk", "2"})) == answer(words));
  }
  const Words words = with({"--prompt", "Hello", "--weights", "int8"}, greedy);
  CHECK(answer(words) == answer(with({"--prompt", "Hello"}, greedy)));
}

TEST_CASE("chat draws by its seed") {
  const auto draw = [](const char* seed) {
    return answer({"--prompt", "Tell me a story.", "--no-think", "--temperature", "2", "--top-p", "0.99",
                   "--top-k", "0", "--min-p", "0", "--seed", seed, "--max-new-tokens", "1000"});
  };
  CHECK(draw("7") == draw("7"));
  CHECK(draw("7") != draw("8"));
}

TEST_CASE("chat prints thinking only when asked for") {
  const Words words = {"--prompt", "What is 2 + 3?", "--temperature", "0"};
  const std::string thinking = answer(with(words, {"--think"}));
  CHECK(thinking.rfind("<think>\n", 0) == 0);
  const std::size_t end = thinking.find("</think>\n\n");
  REQUIRE(end != std::string::npos);
  const std::string plain = answer(words);  // Qwen3 thinks unless told not to
  CHECK(plain == thinking.substr(end + 10));
}

TEST_CASE("chat --stats tells sizes and speeds on standard error") {
  const Result result = run("chat", with({"--prompt", "Hello", "--stats", "--threads", "2"}, greedy));
  CHECK(result.status == 0);
  CHECK(result.out == answer(with({"--prompt", "Hello"}, greedy)));
  for (const char* part : {"0 reused,", "computed at", "tokens/s", "per token", "at the start", "at the end",
                           "isa ", "threads 2", "kv f32", "bytes used", "ended by stop", "weights BF16 "}) {
    CHECK_THAT(result.err, has_text(part));
  }
  const auto stats = [](const Words& more) {
    return run("chat", with({"--prompt", "Hello", "--stats", "--temperature", "0"}, more)).err;
  };
  const Json stored = run_json("inspect", {"explain", demo()})["weights"];
  CHECK_THAT(stats({"--kv", "none"}),
             has_text(", kv none: ") && has_text("stats: weights " + stored["dtypes"].get<std::string>() +
                                                 ", " + stored["bytes"].dump() + " bytes\n"));
  CHECK_THAT(
      stats({"--weights", "int4:32", "--embedding-weights", "int8"}),
      has_text(", kv bf16: ") && has_text("stats: weights int4 in groups of 32, embedding int8 by rows, "));
}

TEST_CASE("chat ends a reply at --max-new-tokens and says so") {
  const Result result = run("chat", with({"--prompt", "Tell me a story.", "--max-new-tokens", "3"}, greedy));
  CHECK(result.status == 0);
  CHECK(result.err == "note: the reply was cut off at --max-new-tokens\n");
  const Result thought = run("chat", {"--prompt", "Hello", "--temperature", "0", "--max-new-tokens", "1"});
  CHECK(thought.status == 0);
  CHECK(thought.err ==
        "note: the reply was cut off at --max-new-tokens while the model was still thinking, without an "
        "answer\n");
}

TEST_CASE("chat keeps a conversation and reuses what it computed") {
  const std::string questions = "Hello\n\n   \nWhat is your name?\r\nHello\n/exit\nnever asked\n";
  const Result result = run("chat", with({"--interactive", "--stats"}, greedy), questions);
  CHECK(result.status == 0);
  const std::vector<int> reused = numbers_before(result.err, "reused,");
  const std::vector<int> computed = numbers_before(result.err, "computed at");
  REQUIRE(reused.size() == 3);  // blank lines are no questions
  CHECK(reused[0] == 0);
  CHECK(reused[1] >= computed[0] - 4);  // all but the opening of the answer, which history renders otherwise
  CHECK(reused[2] > reused[1]);

  // The same conversation without any cache: the same words.
  Words cold = {"--interactive", "--temperature", "0", "--no-think", "--kv", "none"};
  cold.emplace_back("--stats");
  const Result recomputed = run("chat", cold, questions);
  CHECK(recomputed.out == result.out);
  CHECK(numbers_before(recomputed.err, "reused,") == std::vector<int>{0, 0, 0});
  CHECK(numbers_before(recomputed.err, "computed at") == numbers_before(recomputed.err, "tokens, 0 reused"));
  const std::string first = answer(with({"--prompt", "Hello"}, greedy));
  CHECK(result.out.rfind(first, 0) == 0);
  CHECK(run("chat", with({"--interactive"}, greedy), "").status == 0);
}

TEST_CASE("chat heeds the system message") {
  const Result with_system =
      run("chat", with({"--prompt", "Hello", "--system", "You are a pirate.", "--stats"}, greedy));
  const Result without = run("chat", with({"--prompt", "Hello", "--stats"}, greedy));
  CHECK(numbers_before(with_system.err, "computed at")[0] >
        numbers_before(without.err, "computed at")[0] + 4);
}

TEST_CASE("chat drops the oldest turns of a full context, and says so once") {
  std::string questions;
  for (int i = 0; i < 12; ++i) questions += "What is 2 + 3?\n";
  const Result result =
      run("chat", with({"--interactive", "--stats", "--context", "128"}, greedy), questions);
  CHECK(result.status == 0);
  CHECK(numbers_before(result.err, "reused,").size() == 12);
  const std::string note = "the oldest messages are left out";
  const std::size_t at = result.err.find(note);
  REQUIRE(at != std::string::npos);
  CHECK(result.err.find(note, at + 1) == std::string::npos);
}

TEST_CASE("chat explains that a message is too long") {
  std::string text;
  for (int i = 0; i < 100; ++i) text += "What is 2 + 3? ";
  check_failure("chat", with({"--prompt", text, "--context", "64"}, greedy),
                {"too long", "room for 63", "--context"});
  const Result loop =
      run("chat", with({"--interactive", "--context", "64", "--stats"}, greedy), text + "\nHello\n");
  CHECK(loop.status == 0);  // the conversation goes on
  CHECK_THAT(loop.err, has_text("too long"));
  CHECK(numbers_before(loop.err, "reused,").size() == 1);

  for (int i = 0; i < 300; ++i) text += "What is 2 + 3? ";
  const Result largest = run("chat", with({"--prompt", text}, greedy));  // --context is no help here
  CHECK_THAT(largest.err, has_text("room for 2047"));
  CHECK(largest.err.find("--context") == std::string::npos);
}

TEST_CASE("chat without room for an answer fails") {
  const Result stats = run("chat", {"--prompt", "Hello", "--stats", "--max-new-tokens", "1"});
  const int prompt = numbers_before(stats.err, "tokens, 0 reused").at(0);
  for (const int context : {10, 12}) {  // the last token of the reply has no room any more
    const std::string sum = "the prompt's " + std::to_string(prompt) + " tokens and the reply's " +
                            std::to_string(context + 1 - prompt) + " make " + std::to_string(context + 1);
    check_failure("chat", {"--prompt", "Hello", "--context", std::to_string(context)},
                  {"before there is an answer: " + sum + ", and there is room for " +
                   std::to_string(context) + " (--context makes it larger)"});
  }
  const Result loop = run("chat", {"--interactive", "--context", "10"}, "Hello\n");
  CHECK(loop.status == 0);  // a conversation goes on
  CHECK_THAT(loop.err, has_text("note: the reply was cut off") && has_text("the context is full"));
  const Result cut = run("chat", with({"--prompt", "Hello", "--context", "16"}, greedy));
  CHECK(cut.status == 0);  // what there is of an answer is one
  CHECK(cut.out.size() > 1);
}

TEST_CASE("chat names the file of a template that it does not know, and the option for it") {
  const TemporaryDirectory scratch;
  fs::copy(demo(), scratch.path());
  write_file(scratch.path() / "chat_template.jinja", "{{ messages }}");
  const std::string directory = scratch.path().string();
  const Words parts = {"'" + directory + "/chat_template.jinja': found an unknown text of 14 bytes",
                       "--family qwen3 or --family qwen3.5"};
  check_failure("chat", {"--prompt", "Hello", directory}, parts);
  check_failure("inspect", {"template", directory}, parts,
                R"({"messages":[{"role":"user","content":"Hi"}]})");
  const Words named = with({"--prompt", "Hello", "--family", "qwen3"}, greedy);
  CHECK(answer(with(named, {directory})) == answer(with(named, {demo()})));
  fs::remove(scratch.path() / "chat_template.jinja");
  Json config = Json::parse(read_file(scratch.path() / "tokenizer_config.json"));
  config["chat_template"] = "xyz";
  write_file(scratch.path() / "tokenizer_config.json", config.dump());
  check_failure(
      "chat", {"--prompt", "Hello", directory},
      {"'" + directory + "/tokenizer_config.json' chat_template: found an unknown text of 3 bytes"});
}

TEST_CASE("programs take --threads 0 for as many as there are cores") {
  const Json automatic = run_json("inspect", {"explain", tiny()})["threads"];
  CHECK(run_json("inspect", {"explain", tiny(), "--threads", "0"})["threads"] == automatic);
  CHECK(answer(with({"--prompt", "Hello", "--threads", "0"}, greedy)) ==
        answer(with({"--prompt", "Hello"}, greedy)));
  const TemporaryDirectory scratch;
  const std::string text = scratch.write("text", "Hello! Who are you?").string();
  run_json("perplexity", {demo(), "--text", text, "--threads", "0"});
  run_json("quantize", {demo(), (scratch.path() / "out").string(), "--threads", "0"});
  for (const char* bad : {"-1", "4097", "x", ""}) {
    INFO(bad);
    check_usage_error("chat", {"--prompt", "Hello", "--threads", bad}, "from 0 to 4096");
    check_usage_error("inspect", {"explain", tiny(), "--threads", bad}, "from 0 to 4096");
    check_usage_error("perplexity", {demo(), "--text", text, "--threads", bad}, "from 0 to 4096");
    check_usage_error("quantize", {demo(), "out", "--threads", bad}, "from 0 to 4096");
  }
  for (const char* program : {"chat", "perplexity", "quantize"}) {
    CHECK_THAT(run(program, {"--help"}).out, has_text("0 (default)"));
  }
}

TEST_CASE("formats of weights that are accepted are those that are told, and a wrong one is wrong usage") {
  const TemporaryDirectory scratch;
  const std::string text = scratch.write("text", "Hello!").string();
  const std::string out = (scratch.path() / "out").string();
  const std::string told =
      "expected int8, int4 or fp8, or with a group of 32, 64 or 128 as in int8:128 or "
      "int4:64:zeros; or bf16, f16 or f32 where weights are stored so";
  const std::string stored =
      ", expected bf16, as these weights are stored, or a quantised format: int8, int4 or fp8";
  struct Call {
    const char* program;
    Words words;
    std::string prefix;
  };
  for (const Call& call :
       {Call{"chat", {"--prompt", "Hello"}, "--"}, Call{"inspect", {"explain", demo()}, "--"},
        Call{"perplexity", {demo(), "--text", text}, "--"},
        Call{"perplexity", {demo(), "--text", text}, "--reference-"},
        Call{"quantize", {demo(), out, "--weights", "int4"}, "--"}}) {
    for (const std::string& option : {call.prefix + "weights", call.prefix + "embedding-weights"}) {
      const bool twice = option == call.words.at(call.words.size() - 2);
      Words words = call.words;
      if (twice) words = {words[0], words[1], "--embedding-weights", "int8"};
      words.insert(words.end(), {option, "int3"});
      check_usage_error(call.program, words, option + ": found 'int3', " + told);
      for (const char* other : {"f32", "f16"}) {
        words.back() = other;
        check_usage_error(call.program, words, option + ": found " + other + stored);
      }
    }
  }
  for (const char* good : {"bf16", "int8", "int8:row", "int8:64:zeros", "int4:32", "fp8"}) {
    INFO(good);
    CHECK(run("inspect", {"explain", demo(), "--weights", good}).status == 0);
  }
  CHECK_FALSE(fs::exists(out));
}

TEST_CASE("chat says in one line what is wrong with its arguments") {
  const std::string input = "Hello";
  check_usage_error("chat", {"--bogus"}, "--bogus", input);
  check_usage_error("chat", {"one", "two"}, "two", input);
  check_usage_error("chat", {"--think", "--no-think"}, "excludes", input);
  check_usage_error("chat", {"--kv", "int7"}, "expected bf16, f32, int8, fp8, int4 or none", input);
  for (const char* bad : {"", "int", "int3", "int8:", "int8:7", "int8:0", "fp8:64", "int4:row", "int4:64:x",
                          "int4:64:zeros:", "int4:64:zeros:1", "bf16:32", "int4 "}) {
    INFO(bad);
    check_usage_error("chat", {"--weights", bad}, "expected int8, int4 or fp8", input);
    check_usage_error("chat", {"--embedding-weights", bad}, "expected int8, int4 or fp8", input);
  }
  check_usage_error("chat", {}, "expected a question", "");
  check_usage_error("chat", {"--prompt", ""}, "expected a question");
  check_usage_error("chat", {"--prompt"}, "--prompt");
  for (const char* bad : {"-1", "nan", "inf", "1e9", "x", ""}) {
    INFO(bad);
    check_usage_error("chat", {"--temperature", bad}, "from 0 to 100", input);
    check_usage_error("chat", {"--top-p", bad}, "from 0 to 1", input);
    check_usage_error("chat", {"--min-p", bad}, "from 0 to 1", input);
    check_usage_error("chat", {"--top-k", bad}, "from 0 to", input);
    check_usage_error("chat", {"--max-new-tokens", bad}, "from 1 to", input);
    check_usage_error("chat", {"--context", bad}, "from 1 to", input);
  }
  check_usage_error("chat", {"--max-new-tokens", "0"}, "from 1 to", input);
  const Result help = run("chat", {"--help"});
  CHECK(help.status == 0);
  CHECK_THAT(help.out, has_text("pipe"));
  check_failure("chat", {"--prompt", "x", "/no/such/directory"}, {"/no/such/directory"});
  check_failure("chat", {"--prompt", "x", tiny()}, {"tokenizer.json"});
  check_usage_error("chat", {"--prompt", "x", "--context", "4096"},
                    "--context: found 4096, expected at most the model's 2048");
  check_usage_error("chat", {"--prompt", "x", "--interactive"}, "--prompt excludes --interactive");
  check_usage_error("chat", {"--prompt", "x", "--history", "file"}, "--prompt excludes --history");
  CHECK_THAT(run("chat", {"--history", "file"}, input).err, has_text("note: --history has no effect"));
}
