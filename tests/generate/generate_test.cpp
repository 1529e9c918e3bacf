// SPDX-License-Identifier: Apache-2.0
//
// The generation loop on a model of three tokens that counts upwards: every reason to end, what is handed
// out and what is in the session afterwards, pieces, progress and cancelling.
#include <algorithm>
#include <string>
#include <utility>
#include <vector>

#include "catch_any.hpp"
#include "generate/fake_model.hpp"

using namespace generate_test;
using ql::FinishReason;

namespace {

std::string error_of(const Ids& prompt, const ql::GenerateOptions& options, ql::ErrorCode code) {
  FakeModel model;
  FakeSession session{.limit = 10};
  try {
    (void)run(model, session, prompt, options);
  } catch (const ql::Error& e) {
    CHECK(e.code() == code);
    CHECK(session.seen.empty());
    return e.what();
  }
  return "no error";
}

}  // namespace

TEST_CASE("generation ends at max_new_tokens") {
  FakeModel model;
  FakeSession session;
  const Run r = run(model, session, {0}, {.max_new_tokens = 4});
  CHECK(r.out == Ids{1, 2, 0, 1});
  CHECK(r.stats.finish_reason == FinishReason::length);
  CHECK(r.stats.generated_tokens == 4);
  CHECK(r.stats.prompt_tokens == 1);
  CHECK(r.stats.decode_steps == 3);
  CHECK(r.stats.last_token == 1);
  CHECK(session.seen == Ids{0, 1, 2, 0});  // the last one was not needed
  CHECK(r.stats.time_to_first_token >= r.stats.prefill_seconds);
}

TEST_CASE("generation ends at a stop id, which is not handed out") {
  FakeModel model{.stops = {2, 77}};
  FakeSession session;
  const Run r = run(model, session, {0}, {});
  CHECK(r.out == Ids{1});
  CHECK(r.stats.finish_reason == FinishReason::stop);
  CHECK(r.stats.last_token == 2);
  CHECK(session.seen == Ids{0, 1});  // every token handed out is in the session
  CHECK(r.stats.decode_steps == 1);

  SECTION("at once") {
    FakeSession empty;
    const Run none = run(model, empty, {1}, {});
    CHECK(none.out.empty());
    CHECK(none.stats.generated_tokens == 0);
    CHECK(none.stats.finish_reason == FinishReason::stop);
    CHECK(empty.seen == Ids{1});
  }
  SECTION("ignored on request, but not the caller's own") {
    FakeSession other;
    const Run all = run(model, other, {0}, {.max_new_tokens = 5, .ignore_eos = true});
    CHECK(all.out == Ids{1, 2, 0, 1, 2});
    FakeSession third;
    const Run own = run(model, third, {0}, {.ignore_eos = true, .stop_ids = {0}});
    CHECK(own.out == Ids{1, 2});
    CHECK(own.stats.finish_reason == FinishReason::stop);
  }
  SECTION("the caller's own beside the model's") {
    FakeSession other;
    CHECK(run(model, other, {0}, {.stop_ids = {1}}).out.empty());
  }
}

TEST_CASE("generation ends when the context is full") {
  FakeModel model;
  FakeSession session{.limit = 6};
  const Run r = run(model, session, {0, 1, 2}, {});
  CHECK(r.out == Ids{0, 1, 2, 0});  // three more have room, a fourth needs none
  CHECK(r.stats.finish_reason == FinishReason::context);
  CHECK(session.length() == 6);

  FakeSession second{.limit = 6};
  CHECK(run(model, second, {0, 1, 2}, {.max_new_tokens = 5}).stats.finish_reason == FinishReason::context);
  FakeSession third{.limit = 6};
  const Run exact = run(model, third, {0, 1, 2}, {.max_new_tokens = 4});
  CHECK(exact.stats.finish_reason == FinishReason::length);
  CHECK(exact.out.size() == 4);

  FakeSession full{.limit = 3};
  const Run one = run(model, full, {0, 1, 2}, {});
  CHECK(one.out == Ids{0});
  CHECK(one.stats.finish_reason == FinishReason::context);
}

TEST_CASE("generation ends when the callback says so") {
  FakeModel model;
  FakeSession session;
  int calls = 0;
  const Ids prompt = {0};
  const ql::GenerateStats stats = ql::generate(model, session, prompt, {}, [&](int token) {
    ++calls;
    return token != 0;
  });
  CHECK(calls == 3);
  CHECK(stats.generated_tokens == 3);
  CHECK(stats.finish_reason == FinishReason::callback);
  CHECK(session.seen == Ids{0, 1, 2});
}

TEST_CASE("cancelling works while drawing and while the prompt is processed") {
  FakeModel model;
  std::stop_source source;
  SECTION("while drawing") {
    FakeSession session;
    Ids out;
    const Ids prompt = {0};
    const auto stats = ql::generate(model, session, prompt, {.cancel = source.get_token()}, [&](int token) {
      out.push_back(token);
      if (out.size() == 2) source.request_stop();
      return true;
    });
    CHECK(out == Ids{1, 2});
    CHECK(stats.finish_reason == FinishReason::cancelled);
  }
  SECTION("inside the prompt") {
    FakeSession session;
    const auto stop_at_4 = [&](Index done, Index) {
      if (done >= 4) source.request_stop();
    };
    const Run r = run(model, session, Ids(10, 1),
                      {.prefill_piece = 2, .progress = stop_at_4, .cancel = source.get_token()});
    CHECK(r.out.empty());
    CHECK(r.stats.finish_reason == FinishReason::cancelled);
    CHECK(r.stats.prompt_tokens == 4);
    CHECK(r.stats.last_token == -1);
    CHECK(session.length() == 4);
  }
  SECTION("before anything") {
    FakeSession session;
    source.request_stop();
    const Run r = run(model, session, {0}, {.cancel = source.get_token()});
    CHECK(r.stats.finish_reason == FinishReason::cancelled);
    CHECK(session.length() == 0);
    CHECK(r.stats.tokens_per_second() == 0);
    CHECK(r.stats.prefill_tokens_per_second() == 0);
  }
}

TEST_CASE("the prompt is processed in pieces, with progress") {
  FakeModel model;
  std::vector<std::pair<Index, Index>> seen;
  const auto note = [&](Index done, Index total) { seen.emplace_back(done, total); };
  FakeSession session{.limit = 1000};
  (void)run(model, session, Ids(10, 0), {.max_new_tokens = 1, .prefill_piece = 4, .progress = note});
  CHECK(model.pieces == std::vector<std::size_t>{4, 4, 2});
  CHECK(seen == std::vector<std::pair<Index, Index>>{{4, 10}, {8, 10}, {10, 10}});

  model.pieces.clear();
  (void)run(model, session, Ids(8, 0), {.max_new_tokens = 1, .prefill_piece = 4});
  CHECK(model.pieces == std::vector<std::size_t>{4, 4});

  model.pieces.clear();  // pieces would make a session that remembers nothing start over each time
  ForgetfulSession forgetful;
  (void)run(model, forgetful, Ids(10, 0), {.max_new_tokens = 1, .prefill_piece = 4});
  CHECK(model.pieces == std::vector<std::size_t>{10});
}

TEST_CASE("the last token continues where generation ended") {
  FakeModel model{.suggested = {}, .unit = 0.7F};
  const ql::SamplingOptions sampling{.temperature = 1.0, .seed = 5};
  FakeSession whole;
  const Run r = run(model, whole, {0, 1}, {.max_new_tokens = 40, .sampling = sampling});
  FakeSession parts;
  Run head = run(model, parts, {0, 1}, {.max_new_tokens = 17, .sampling = sampling});
  const Run tail = run(model, parts, {head.stats.last_token}, {.max_new_tokens = 23, .sampling = sampling});
  head.out.insert(head.out.end(), tail.out.begin(), tail.out.end());
  CHECK(head.out == r.out);
  CHECK(parts.seen == whole.seen);
  CHECK(std::count(r.out.begin(), r.out.end(), 0) > 3);
  Ids by_rule;
  for (int i = 0; i < 40; ++i) by_rule.push_back((2 + i) % 3);
  CHECK(r.out != by_rule);  // it did draw
}

TEST_CASE("sampling fields that are not set come from the model") {
  FakeModel model{.unit = 0.1F};
  FakeSession greedy;
  CHECK(run(model, greedy, {0}, {.max_new_tokens = 6}).out == Ids{1, 2, 0, 1, 2, 0});
  FakeSession warm;
  const ql::GenerateOptions options{.max_new_tokens = 200, .sampling = {.temperature = 1.0, .seed = 3}};
  const Run r = run(model, warm, {0}, options);
  CHECK(std::count(r.out.begin(), r.out.end(), 0) > 30);
  CHECK(*std::max_element(r.out.begin(), r.out.end()) == 2);  // padding never
  model.suggested.do_sample = false;
  model.suggested.temperature = 1.0F;
  FakeSession fixed;
  CHECK(run(model, fixed, {0}, {.max_new_tokens = 3}).out == Ids{1, 2, 0});
}

TEST_CASE("wrong arguments are errors before anything is processed") {
  using ql::ErrorCode;
  CHECK(error_of({}, {}, ErrorCode::bad_argument) == "tokens of the prompt: found 0, expected at least 1");
  CHECK(error_of({0}, {.max_new_tokens = 0}, ErrorCode::bad_argument) ==
        "max_new_tokens: found 0, expected at least 1");
  CHECK(error_of({0}, {.max_new_tokens = -4}, ErrorCode::bad_argument) ==
        "max_new_tokens: found -4, expected at least 1");
  CHECK(error_of({0}, {.prefill_piece = 0}, ErrorCode::bad_argument) ==
        "prefill_piece: found 0, expected at least 1");
  CHECK(error_of({0}, {.sampling = {.top_p = 2.0}}, ErrorCode::bad_argument).rfind("top_p: found 2", 0) == 0);
  CHECK(error_of(Ids(11, 0), {}, ErrorCode::context_full) ==
        "prompt: found 11 tokens, expected at most 10, the room left of the session's 10");
}

TEST_CASE("every finish reason has a name") {
  for (const auto& [reason, name] :
       {std::pair{FinishReason::stop, "stop"}, std::pair{FinishReason::length, "length"},
        std::pair{FinishReason::context, "context"}, std::pair{FinishReason::callback, "callback"},
        std::pair{FinishReason::cancelled, "cancelled"}}) {
    CHECK(ql::name_of(reason) == name);
  }
}
