// SPDX-License-Identifier: Apache-2.0
//
// What the programs share: help and version, messages that quote what they were given, limits of the system,
// standard streams that are closed, full or directories, and options that have no effect.
#include <algorithm>
#include <sys/stat.h>

#include <qwenlite/error.hpp>

#include "run_program.hpp"
#include "sanitized.hpp"

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

TEST_CASE("wherever a checkpoint directory is expected, the name of a demo model will do") {
  const TemporaryDirectory scratch;
  const std::string text = scratch.write("text", "Hello! Who are you?").string();
  const std::string hybrid = QWENLITE_DEMO_MODELS "/qwen3_5";
  for (const std::string command : {"config", "tensors", "explain"}) {
    INFO(command);
    CHECK(run_json("inspect", {command, "qwen3_5"}) == run_json("inspect", {command, hybrid}));
    CHECK_THAT(run("inspect", {command, "--help"}).out, has_text("qwen3_5"));
  }
  CHECK(run("inspect", {"tokenize", "qwen3", "--text", "Hello!"}).out ==
        run("inspect", {"tokenize", demo(), "--text", "Hello!"}).out);
  CHECK(run_json("perplexity", {"qwen3_5", "--text", text}) ==
        run_json("perplexity", {hybrid, "--text", text}));
  const std::string expected = "expected a checkpoint directory or a demo model (qwen3 or qwen3_5)";
  check_failure("inspect", {"config", "qwen9"}, {"DIRECTORY: found 'qwen9', " + expected});
  check_failure("perplexity", {"qwen9", "--text", text}, {"DIRECTORY: found 'qwen9', " + expected});
  check_failure("perplexity", {"qwen3", "--text", text, "--reference", "qwen9"},
                {"--reference: found 'qwen9', " + expected});
  for (const char* program : {"chat", "perplexity"}) {
    CHECK_THAT(run(program, {"--help"}).out, has_text("qwen3_5"));
  }

  // What the user has under that name comes first.
  fs::create_directory(scratch.path() / "qwen3");
  const std::string empty = "error: 'qwen3': found no config.json";
  const auto here = [&](const std::string& program, const std::string& rest) {
    return run_in_shell(program, rest, scratch.path());
  };
  for (const char* rest : {"--prompt x qwen3", "--prompt x --model qwen3"}) {
    CHECK_THAT(here("chat", rest).err, has_text(empty));
  }
  CHECK_THAT(here("inspect", "config qwen3").err, has_text(empty));
  CHECK_THAT(here("perplexity", "qwen3 --text text").err, has_text(empty));
  CHECK(here("inspect", "config qwen3_5").status == 0);
  fs::copy(tiny(), scratch.path() / "qwen3", fs::copy_options::recursive);
  CHECK(here("inspect", "config qwen3 --json").out == run("inspect", {"config", tiny(), "--json"}).out);
}

TEST_CASE("an empty name of a checkpoint directory is called so") {
  const std::string told =
      "found an empty name, expected a checkpoint directory or a demo model (qwen3 or qwen3_5)";
  check_failure("quantize", {"", "out"}, {"SOURCE: " + told});
  check_failure("inspect", {"config", ""}, {"DIRECTORY: " + told});
  check_failure("perplexity", {"", "--text", "x"}, {"DIRECTORY: " + told});
}

TEST_CASE("an empty name given to an option is not taken as none") {
  const std::string told = ": found an empty name, expected a ";
  check_usage_error("inspect", {"trace", tiny(), "--ids", "1", "--out", ""},
                    "--out" + told + "file to write");
  check_usage_error("perplexity", {tiny(), "--text", ""}, "--text" + told + "file");
  check_usage_error("perplexity", {tiny(), "--text", "x", "--reference", ""},
                    "--reference" + told + "checkpoint directory or a demo model");
  for (const char* method : {"rtn", "gptq"}) {
    check_usage_error("quantize", {tiny(), "out", "--method", method, "--calibration", ""},
                      "--calibration" + told + "file");
  }
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

TEST_CASE("chat tells that it has too few open files") {
  if (is_sanitized) {
    WARN("SKIPPED: UBSan asks through a pipe of its own whether memory may be read");
    return;
  }
  std::string chat = "exec 3<&- 4<&- 5<&- 6<&- 7<&- 8<&- 9<&-; ulimit -n 4; ";
  chat += "exec '" + path_of("chat") + "' --prompt Hello";
  const Result result = run_words({"/bin/sh", "-c", chat});
  CHECK(result.status == 1);
  CHECK(result.err == "error: no pipe could be made: Too many open files\n");
}

TEST_CASE("what a message quotes is short and holds nothing that a terminal obeys") {
  const TemporaryDirectory scratch;
  const std::string text = scratch.write("text", "Hello!").string();
  const std::string evil = "\x1b[31m\x07\xC2\x9B" + std::string(50000, 'x') + "\n" + std::string(50000, 'x');
  const std::string shown = "'?[31m??xxx";
  const std::vector<Words> calls = {
      {"chat", "--kv", evil},
      {"chat", "--threads", evil},
      {"chat", "--weights", evil},
      {"chat", "--model", evil},
      {"chat", evil},
      {"chat", "one", evil},
      {"chat", "--" + evil},
      {"inspect", evil},
      {"inspect", "config", evil},
      {"inspect", "logits", demo(), "--ids", evil},
      {"inspect", "logits", demo(), "--ids", "@" + evil},
      {"perplexity", demo(), "--text", evil},
      {"quantize", demo(), "out", "--method", "gptq", "--calibration", evil},
      {"quantize", demo(), (scratch.path() / evil).string()},
  };
  const auto check = [&](const Result& result) {
    INFO(result.err.substr(0, 4000));
    CHECK((result.status == 1 || result.status == 2));
    CHECK(is_one_line(result.err));
    CHECK(result.err.size() < 3000);
    CHECK(result.err.find('\x1b') == std::string::npos);
    CHECK(result.err.find("\xC2\x9B") == std::string::npos);
    CHECK_THAT(result.err, has_text("?[31m??xxx"));
  };
  for (const Words& call : calls) {
    check(run(call.front(), {call.begin() + 1, call.end()}, "Hello"));
  }
  CHECK_THAT(run("chat", {"--kv", evil}, "Hello").err, has_text("--kv: found " + shown));
  for (const std::string variable : {"QWENLITE_ISA", "QWENLITE_CHECK"}) {
    const Result result = run_words({"/usr/bin/env", variable + "=" + evil, path_of("chat")}, "Hello");
    check(result);
    CHECK_THAT(result.err, has_text("error: " + variable + ": found " + shown));
  }
}

TEST_CASE("too little memory is told in a line that says what for") {
  if (is_sanitized) {
    WARN("SKIPPED: sanitizers reserve more address space than is allowed here");
    return;
  }
  const TemporaryDirectory scratch;
  const auto limited = [&](const std::string& limits, const std::string& call) {
    return run_words({"/bin/sh", "-c", limits + "; exec '" + path_of("") + call});
  };
  const std::string text = scratch.write("text", "").string();
  fs::resize_file(text, std::uintmax_t{60} << 20U);
  const Result tokens = limited("ulimit -v 120000", "inspect' tokenize '" + demo() + "' <'" + text + "'");
  CHECK(tokens.status == 1);
  CHECK(is_one_line(tokens.err));
  CHECK_THAT(tokens.err, has_text("error: out of memory: there is no room for "));

  // A key of a megabyte around many values costs its length once.
  const fs::path wide = scratch.path() / "wide";
  fs::create_directory(wide);
  std::string values = "0";
  for (int i = 0; i < 50000; ++i) values += ",0";
  const std::string json = read_file(fs::path(demo()) / "tokenizer.json");
  write_file(wide / "tokenizer.json",
             "{\"" + std::string(1000000, 'k') + "\":[" + values + "]," + json.substr(1));
  CHECK(limited("ulimit -v 1000000", "inspect' tokenize '" + wide.string() + "' --text hi").status == 0);

  // A thread's stack is as large as the limit for stacks, and here larger than all memory.
  const std::string limits = "ulimit -s 4000000 && ulimit -v 2000000";
  if (limited(limits, "inspect' config '" + demo() + "' >/dev/null").status != 0) {
    WARN("SKIPPED: the limit for stacks cannot be raised");
    return;
  }
  const Result chat = limited(limits, "chat' --prompt Hello");
  CHECK(chat.status == 1);
  CHECK(chat.err ==
        "error: the thread that waits for Ctrl-C could not be started: "
        "Resource temporarily unavailable\n");
  const Result threads = limited(limits, "inspect' explain '" + demo() + "' --threads 3");
  CHECK(threads.status == 1);
  CHECK(threads.err == "error: threads: found 3, expected at most 1, as the system refuses to start more\n");
}

TEST_CASE("the help tells what is required, and what holds when nothing is said") {
  const auto help = [](const Words& words) {
    std::string text = run(words.front(), {words.begin() + 1, words.end()}).out;
    for (std::size_t at = 0; (at = text.find('\n', at)) != std::string::npos;) {  // lines are broken anywhere
      const std::size_t end = std::min(text.find_first_not_of(" \n", at), text.size());
      text.replace(at, end - at, " ");
    }
    return text;
  };
  CHECK_THAT(help({"perplexity", "--help"}), has_text("--text FILE REQUIRED"));
  CHECK_THAT(help({"chat", "--help"}), has_text("(default: 4096, or the model's context if that is less)"));
  for (const Words& words :
       {Words{"chat", "--help"}, Words{"perplexity", "--help"}, Words{"inspect", "generate", "--help"}}) {
    CHECK_THAT(help(words), has_text("pass through the network together (default: 512)"));
    CHECK_THAT(help(words), has_text("int8 (or int8:row, the same: a scale for each row)"));
  }
  CHECK_THAT(help({"inspect", "logits", "--help"}), has_text("(default: 64)"));
  CHECK_THAT(help({"quantize", "--help"}), has_text("int8 (or int8:row, the same: a scale for each row)"));
}

TEST_CASE("input without an end is refused at a limit") {
  const auto check = [](const std::string& program, const std::string& rest, const std::string& place,
                        const std::string& limits) {
    INFO(program << " " << rest);
    const Result result = run_in_shell(program, rest);
    CHECK(result.status == 1);
    CHECK(result.err == "error: " + place + ": found more than " + limits + "\n");
  };
  const std::string small = "67108864 bytes, expected at most 64 MiB";
  check("inspect", "logits '" + demo() + "' --ids @/dev/zero", "'/dev/zero'", small);
  check("inspect", "logits '" + demo() + "' --ids @/dev/stdin </dev/zero", "'/dev/stdin'", small);
  check("inspect", "template '" + demo() + "' </dev/zero", "standard input", small);
  check("chat", "</dev/zero", "standard input", small);
  check("chat", "--interactive </dev/zero", "a line of standard input", small);
  const TemporaryDirectory scratch;
  const std::string text = scratch.write("text", "").string();
  fs::resize_file(text, (std::uintmax_t{1} << 30U) + 1);  // takes no place on a disk
  const std::string large = "1073741824 bytes, expected at most 1024 MiB";
  const std::string named = "'" + text + "'";
  check("perplexity", "'" + demo() + "' --text " + named, named, large);
  check("quantize", "'" + demo() + "' '" + text + ".out' --method awq --calibration " + named, named, large);
}

TEST_CASE("a pipe that nobody writes to is refused at once, one with a writer is read") {
  const TemporaryDirectory scratch;
  const std::string pipe = (scratch.path() / "pipe").string();
  REQUIRE(::mkfifo(pipe.c_str(), 0600) == 0);
  const std::string out = (scratch.path() / "out").string();
  for (const Words& words :
       {Words{"perplexity", demo(), "--text", pipe}, Words{"inspect", "logits", demo(), "--ids", "@" + pipe},
        Words{"quantize", demo(), out, "--method", "gptq", "--calibration", pipe}}) {
    INFO(words.front());
    Words limited = {"/usr/bin/timeout", "20", path_of(words.front())};
    limited.insert(limited.end(), words.begin() + 1, words.end());
    const Result result = run_words(limited);
    CHECK(result.status == 1);
    CHECK(result.err ==
          "error: '" + pipe + "': cannot be read: found a pipe that nobody writes to, expected a file\n");
  }
  const std::string read =
      "'" + path_of("inspect") + "' logits '" + demo() + "' --ids @/dev/fd/3 --json 3<&0";
  const Result result = run_words({"/bin/sh", "-c", "{ sleep 0.2; echo '[5, 6]'; } | " + read});
  CHECK(result.status == 0);
  CHECK(result.out == run("inspect", {"logits", demo(), "--ids", "5,6", "--json"}).out);
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

  const TemporaryDirectory scratch;
  const std::string text = scratch.write("text", "Hello! Who are you?").string();
  const std::string of_reference =
      run("perplexity", {demo(), "--text", text, "--reference-precision", "bf16"}).err;
  CHECK(of_reference.empty() == told.empty());
  if (told.empty()) return;
  CHECK(is_one_line(of_reference));
  CHECK(of_reference.rfind("note: --reference-precision bf16 has no effect here", 0) == 0);
}
