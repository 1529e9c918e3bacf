// SPDX-License-Identifier: Apache-2.0
//
// Runs one of the built example programs: arguments and standard input in, output and exit status out.
// Where the programs lie is told by QWENLITE_EXAMPLES, a compile definition or the environment variable.
#pragma once

#include <cstdlib>
#include <fcntl.h>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <nlohmann/json.hpp>
#include <stdexcept>
#include <string>
#include <sys/wait.h>
#include <unistd.h>
#include <utility>
#include <vector>

#include "catch_any.hpp"
#include "temporary_directory.hpp"

namespace example_tests {

namespace fs = std::filesystem;
using Json = nlohmann::ordered_json;
using Words = std::vector<std::string>;

inline std::string read_file(const fs::path& path) {
  std::ifstream file(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(file), std::istreambuf_iterator<char>()};
}

inline void write_file(const fs::path& path, const std::string& text) {
  std::ofstream(path, std::ios::binary) << text;
}

struct Result {
  int status = -1;
  std::string out;
  std::string err;
};

/// In the child: connects the standard streams to files and starts the program. Does not return.
[[noreturn]] inline void become(std::vector<char*> arguments, const fs::path& scratch) {
  const int in = open((scratch / "in").c_str(), O_RDONLY);
  const int out = open((scratch / "out").c_str(), O_WRONLY | O_CREAT, 0600);
  const int err = open((scratch / "err").c_str(), O_WRONLY | O_CREAT, 0600);
  dup2(in, STDIN_FILENO);
  dup2(out, STDOUT_FILENO);
  dup2(err, STDERR_FILENO);
  execv(arguments[0], arguments.data());
  _exit(127);
}

inline std::string path_of(const std::string& program) {
  const char* from_environment = std::getenv("QWENLITE_EXAMPLES");
  const fs::path directory = from_environment != nullptr ? from_environment : QWENLITE_EXAMPLES;
  return (directory / program).string();
}

inline Result run_words(Words words, const std::string& input = {}) {
  const TemporaryDirectory scratch;
  write_file(scratch.path() / "in", input);
  std::vector<char*> arguments;
  for (std::string& word : words) arguments.push_back(word.data());
  arguments.push_back(nullptr);
  const pid_t child = fork();
  if (child == 0) become(arguments, scratch.path());
  int status = 0;
  waitpid(child, &status, 0);
  Result result;
  result.status = WIFEXITED(status) ? WEXITSTATUS(status) : -WTERMSIG(status);
  result.out = read_file(scratch.path() / "out");
  result.err = read_file(scratch.path() / "err");
  if (result.status == 127) FAIL("cannot run " << words.front());
  return result;
}

inline Result run(const std::string& program, Words words, const std::string& input = {}) {
  words.insert(words.begin(), path_of(program));
  return run_words(std::move(words), input);
}

/// Runs a program by way of a shell, for its redirections, in a directory.
inline Result run_in_shell(const std::string& program, const std::string& rest, const fs::path& in = ".") {
  return run_words(
      {"/bin/sh", "-c",
       "cd '" + in.string() + "' && exec '" + fs::absolute(path_of(program)).string() + "' " + rest});
}

/// Runs a program that must succeed and print one JSON value on one line.
inline Json run_json(const std::string& program, Words words, const std::string& input = {}) {
  words.push_back("--json");
  const Result result = run(program, words, input);
  INFO(result.err);
  REQUIRE(result.status == 0);
  REQUIRE(result.out.find('\n') == result.out.size() - 1);
  return Json::parse(result.out);
}

inline bool is_one_line(const std::string& text) {
  return !text.empty() && text.find('\n') == text.size() - 1;
}

/// Wrong usage: status 2, one line on standard error that names the program and holds `part`.
inline void check_usage_error(const std::string& program, const Words& words, const std::string& part,
                              const std::string& input = {}) {
  const Result result = run(program, words, input);
  INFO("standard error: " << result.err);
  CHECK(result.status == 2);
  CHECK(result.out.empty());
  CHECK(is_one_line(result.err));
  CHECK(result.err.rfind(program, 0) == 0);
  CHECK_THAT(result.err, has_text(part));
}

/// A failure: status 1, one line `error: ...` on standard error that holds all `parts`.
inline void check_failure(const std::string& program, const Words& words, const Words& parts,
                          const std::string& input = {}) {
  const Result result = run(program, words, input);
  INFO("standard error: " << result.err);
  CHECK(result.status == 1);
  CHECK(is_one_line(result.err));
  CHECK(result.err.rfind("error: ", 0) == 0);
  for (const std::string& part : parts) CHECK_THAT(result.err, has_text(part));
}

inline std::string tiny() {
  return QWENLITE_TEST_DATA "/checkpoints/qwen3-tiny";
}
inline std::string demo() {
  return QWENLITE_DEMO_MODELS "/qwen3";
}

/// "1,2,3".
inline std::string joined(const std::vector<int>& ids) {
  std::string text;
  for (const int id : ids) text += (text.empty() ? "" : ",") + std::to_string(id);
  return text;
}

}  // namespace example_tests
