// SPDX-License-Identifier: Apache-2.0
//
// What chat and inspect share: help and version, standard streams that are closed, full or directories, and
// options that have no effect.
#include <algorithm>

#include <qwenlite/error.hpp>

#include "run_program.hpp"

using namespace example_tests;

TEST_CASE("programs say their version") {
  for (const char* program : {"chat", "inspect"}) {
    const Result result = run(program, {"--version"});
    CHECK(result.status == 0);
    CHECK(result.out == std::string(program) + " " + qwenlite::version + "\n");
    CHECK(result.err.empty());
  }
}

TEST_CASE("help is about what was asked for") {
  const std::string chat = run("chat", {"--help"}).out;
  CHECK_THAT(chat, has_text("qwen3.5-coding") && has_text("--stop TEXT ") && has_text("--version"));
  CHECK(chat.find("...\n") == std::string::npos);
  const Words silent = {"config", "tensors", "tokenize", "detokenize", "template"};
  for (const std::string command : {"config", "tensors", "tokenize", "detokenize", "template", "logits",
                                    "generate", "explain", "trace"}) {
    const std::string help = run("inspect", {command, "--help"}).out;
    INFO(help);
    CHECK_THAT(help, has_text("Usage: inspect " + command + " [OPTIONS]"));
    const bool runs = std::find(silent.begin(), silent.end(), command) == silent.end();
    for (const char* option : {"--threads", "--kv", "--weights", "--precision", "--chunk"}) {
      CHECK((help.find(option) != std::string::npos) == runs);
    }
  }
  // Accepted all the same.
  CHECK(run("inspect", {"config", tiny(), "--threads", "1", "--kv", "f32"}).status == 0);
}

TEST_CASE("output that cannot be written is a failure") {
  if (!fs::exists("/dev/full")) return;
  for (const char* rest : {"-h >/dev/full", "--version >/dev/full", "--version >&-"}) {
    for (const char* program : {"chat", "inspect"}) {
      const Result result = run_in_shell(program, rest);
      CHECK(result.status == 1);
      CHECK(result.err == "error: standard output: could not be written\n");
    }
  }
}

TEST_CASE("input that cannot be read is a failure") {
  const auto check = [](const std::string& program, const std::string& rest, const std::string& part) {
    const Result result = run_in_shell(program, rest);
    CHECK(result.status == 1);
    CHECK(is_one_line(result.err));
    CHECK_THAT(result.err, has_text("error: standard input: could not be read: " + part));
  };
  for (const std::string chat : {"", "--interactive "}) {
    check("chat", chat + "<&-", "it is closed");
    check("chat", chat + "</", "Is a directory");
  }
  check("inspect", "tokenize '" + demo() + "' <&-", "it is closed");
  check("inspect", "template '" + demo() + "' </", "Is a directory");
  CHECK(run_in_shell("chat", "--prompt Hello --temperature 0 <&- 2>&-").status == 0);
}

TEST_CASE("a precision without effect is told once") {
  const Words answer = {"--prompt", "Hello", "--temperature", "0", "--precision"};
  const auto errors = [&](Words words, const char* precision) {
    words.emplace_back(precision);
    return run("chat", std::move(words)).err;
  };
  CHECK(errors(answer, "exact").empty());
  const Json explained = run_json("inspect", {"explain", demo(), "--precision", "bf16"});
  const std::string reason = explained["precision"]["reason"];
  const std::string told = errors(answer, "bf16");
  if (reason.find("without effect") == std::string::npos) {
    CHECK(told.empty());
  } else {
    CHECK(is_one_line(told));
    CHECK(told.rfind("note: --precision bf16 has no effect here", 0) == 0);
  }
}
