// SPDX-License-Identifier: Apache-2.0
//
// The C interface: called from C++, from Python, and what its library shows of itself.
#include <thread>

#include "qwenlite_c.h"
#include "run_program.hpp"
#include "sanitized.hpp"

using namespace example_tests;

namespace {

struct Close {
  void operator()(qwenlite_model* model) const { qwenlite_close(model); }
  void operator()(qwenlite_session* session) const { qwenlite_session_free(session); }
};
using Model = std::unique_ptr<qwenlite_model, Close>;
using Session = std::unique_ptr<qwenlite_session, Close>;
using Ids = std::vector<int32_t>;

Model open_demo() {
  Model model(qwenlite_open(demo().c_str(), 1));
  INFO(qwenlite_error());
  REQUIRE(model != nullptr);
  return model;
}

Ids hello(const Model& model) {
  const char* json = R"({"messages":[{"role":"user","content":"Hello"}],"enable_thinking":false})";
  Ids ids(static_cast<std::size_t>(qwenlite_tokenize_chat(model.get(), json, nullptr, 0)));
  REQUIRE(!ids.empty());
  CHECK(qwenlite_tokenize_chat(model.get(), json, ids.data(), ids.size()) == std::ssize(ids));
  return ids;
}

std::string text_of(const Model& model, const Ids& ids) {
  std::string text(1000, '\0');
  const auto length = qwenlite_detokenize(model.get(), ids.data(), ids.size(), text.data(), text.size());
  REQUIRE((length >= 0 && length < std::ssize(text)));
  text.resize(static_cast<std::size_t>(length));
  return text;
}

int32_t append(const char* text, size_t length, void* user) {
  static_cast<std::string*>(user)->append(text, length);
  return 1;
}

std::string generate(const Session& session, const Ids& ids, const qwenlite_options& options) {
  std::string text;
  INFO(qwenlite_error());
  CHECK(qwenlite_generate(session.get(), ids.data(), ids.size(), &options, append, &text) > 0);
  return text;
}

/// The call failed, and the complaint holds `part`.
void check_failed(int64_t result, const std::string& part) {
  CHECK(result < 0);
  CHECK_THAT(qwenlite_error(), has_text(part));
}

}  // namespace

TEST_CASE("the C interface turns text into tokens and back") {
  const Model model = open_demo();
  const std::string text = "What is 2 + 3? 你好";
  Ids ids(100, -1);
  const int64_t count = qwenlite_tokenize(model.get(), text.c_str(), ids.data(), ids.size());
  REQUIRE(count > 3);
  CHECK(ids[static_cast<std::size_t>(count)] == -1);
  Ids two(3, -1);
  CHECK(qwenlite_tokenize(model.get(), text.c_str(), two.data(), 2) == count);  // the first two are written
  CHECK(two == Ids{ids[0], ids[1], -1});

  ids.resize(static_cast<std::size_t>(count));
  CHECK(text_of(model, ids) == text);
  std::string room(6, 'x');
  CHECK(qwenlite_detokenize(model.get(), ids.data(), ids.size(), room.data(), 5) == std::ssize(text));
  CHECK(room == std::string("What\0x", 6));
  CHECK(qwenlite_detokenize(model.get(), nullptr, 0, nullptr, 0) == 0);
}

TEST_CASE("the C interface generates") {
  Model model = open_demo();
  const Ids prompt = hello(model);
  const Session session(qwenlite_session_new(model.get(), 200));
  const std::string answer = generate(session, prompt, {0, 0, 0, nullptr});
  CHECK(answer + "\n" == run("chat", {"--prompt", "Hello", "--temperature", "0", "--no-think", demo()}).out);
  CHECK(qwenlite_session_length(session.get()) > std::ssize(prompt));

  Ids ids;  // token by token
  CHECK(qwenlite_session_truncate(session.get(), 0) == 0);
  int32_t next = qwenlite_next(session.get(), prompt.data(), prompt.size());
  while (text_of(model, {next}) != "<|im_end|>" && ids.size() < 100) {
    ids.push_back(next);
    next = qwenlite_next(session.get(), &next, 1);
  }
  CHECK(text_of(model, ids) == answer);

  const std::string stop = answer.substr(answer.size() / 2, 3);
  CHECK(qwenlite_session_truncate(session.get(), 0) == 0);
  CHECK(generate(session, prompt, {0, 0, 0, stop.c_str()}) == answer.substr(0, answer.find(stop)));

  model.reset();  // the session keeps the weights
  const auto draw = [&](uint64_t seed) {
    CHECK(qwenlite_session_truncate(session.get(), 0) == 0);
    return generate(session, prompt, {40, 30.0, seed, nullptr});
  };
  const std::string seventh = draw(7);
  CHECK(draw(7) == seventh);
  CHECK(draw(8) != seventh);
}

TEST_CASE("the C interface ends a reply when the receiver wants no more") {
  const Model model = open_demo();
  const Ids prompt = hello(model);
  const Session session(qwenlite_session_new(model.get(), 0));
  int calls = 0;
  const auto once = [](const char*, size_t, void* user) -> int32_t {
    ++*static_cast<int*>(user);
    return 0;
  };
  CHECK(qwenlite_generate(session.get(), prompt.data(), prompt.size(), nullptr, once, &calls) > 0);
  CHECK(calls == 1);

  const auto thrower = [](const char*, size_t, void*) -> int32_t { throw 1; };
  CHECK(qwenlite_session_truncate(session.get(), 0) == 0);
  check_failed(qwenlite_generate(session.get(), prompt.data(), prompt.size(), nullptr, thrower, nullptr),
               "threw");
}

TEST_CASE("the C interface says what went wrong") {
  const Model model = open_demo();
  const Session session(qwenlite_session_new(model.get(), 4));
  const Ids ids(5, 1);
  CHECK(qwenlite_open("/no/such/directory", 0) == nullptr);
  CHECK_THAT(qwenlite_error(), has_text("/no/such/directory"));
  CHECK(std::string(qwenlite_error_code()) == "io");
  std::thread([] {  // errors belong to a thread
    CHECK(std::string(qwenlite_error()).empty());
    CHECK(std::string(qwenlite_error_code()).empty());
  })
      .join();
  CHECK(qwenlite_open(nullptr, 0) == nullptr);
  CHECK(std::string(qwenlite_error_code()) == "bad_argument");
  CHECK_THAT(qwenlite_error(), has_text("directory"));
  CHECK(qwenlite_open(demo().c_str(), -1) == nullptr);
  CHECK_THAT(qwenlite_error(), has_text("threads"));
  CHECK(qwenlite_session_new(nullptr, 0) == nullptr);
  CHECK_THAT(qwenlite_error(), has_text("model"));
  CHECK(qwenlite_session_new(model.get(), -1) == nullptr);
  CHECK_THAT(qwenlite_error(), has_text("max_tokens"));

  check_failed(qwenlite_tokenize(nullptr, "x", nullptr, 0), "model");
  check_failed(qwenlite_tokenize(model.get(), nullptr, nullptr, 0), "text");
  check_failed(qwenlite_tokenize(model.get(), "x", nullptr, 1), "ids");
  check_failed(qwenlite_tokenize_chat(model.get(), "{", nullptr, 0), "JSON");
  CHECK(std::string(qwenlite_error_code()) == "bad_text");
  check_failed(qwenlite_detokenize(model.get(), nullptr, 1, nullptr, 0), "ids");
  check_failed(qwenlite_next(session.get(), nullptr, 0), "token");
  check_failed(qwenlite_next(session.get(), ids.data(), 5), "at most 4");
  CHECK(std::string(qwenlite_error_code()) == "context_full");
  check_failed(qwenlite_session_truncate(session.get(), 1), "truncate");
  check_failed(qwenlite_session_length(nullptr), "session");
  check_failed(qwenlite_generate(session.get(), ids.data(), 1, nullptr, nullptr, nullptr), "receiver");
  std::string text;
  check_failed(qwenlite_generate(session.get(), ids.data(), 5, nullptr, append, &text), "at most 4");
  const qwenlite_options negative{-1, 0, 0, nullptr};
  check_failed(qwenlite_generate(session.get(), ids.data(), 1, &negative, append, &text), "max_new_tokens");
  CHECK(qwenlite_session_length(session.get()) == 0);
  qwenlite_close(nullptr);
  qwenlite_session_free(nullptr);
  CHECK(std::string(qwenlite_version()).find('.') != std::string::npos);
}

TEST_CASE("the C library exports its interface and nothing else") {
  const Result symbols = run("/usr/bin/nm", {"-D", "--defined-only", QWENLITE_EXAMPLES "/libqwenlite_c.so"});
  if (symbols.status != 0) {
    WARN("SKIPPED: /usr/bin/nm cannot list the symbols of libqwenlite_c.so: " << symbols.err);
    return;
  }
  std::istringstream lines(symbols.out);
  std::string address;
  std::string kind;
  std::string name;
  int count = 0;
  while (lines >> address >> kind >> name) {
    INFO(name);
    CHECK(name.rfind("qwenlite_", 0) == 0);
    CHECK(kind == "T");
    ++count;
  }
  CHECK(count == 14);
}

TEST_CASE("qwenlite.py streams an answer") {
  if (is_sanitized || run("/usr/bin/env", {"python3", "--version"}).status != 0) {
    WARN("SKIPPED: qwenlite.py needs python3, and a library without sanitizers");
    return;
  }
  const Words call = {"python3", "-B", QWENLITE_DEMO_MODELS "/../c_api/qwenlite.py",
                      QWENLITE_EXAMPLES "/libqwenlite_c.so"};
  const auto python = [&](Words words) {
    words.insert(words.begin(), call.begin(), call.end());
    return run("/usr/bin/env", words);
  };
  const Result result = python({demo(), "What is 2 + 3?"});
  INFO(result.err);
  CHECK(result.status == 0);
  CHECK(result.out ==
        run("chat", {"--prompt", "What is 2 + 3?", "--temperature", "0", "--no-think", demo()}).out);
  const Result failure = python({"/no/such/directory"});
  CHECK(failure.status == 1);
  CHECK(is_one_line(failure.err));
  CHECK_THAT(failure.err, has_text("/no/such/directory"));
}
