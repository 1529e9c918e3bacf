// SPDX-License-Identifier: Apache-2.0
//
// The mask hook in the generation loop: what it is told, what it can do, a budget for thinking, and replies
// that are stopped and continued with penalties and a hook.
#include <algorithm>
#include <set>
#include <stdexcept>
#include <string>
#include <vector>

#include "catch_any.hpp"
#include "generate/fake_model.hpp"

using namespace generate_test;
using ql::FinishReason;
using ql::GenerateOptions;
using ql::MaskContext;
using ql::TokenMask;

namespace {

constexpr int open_id = 38;
constexpr int close_id = 39;

/// What a hook was told before one draw.
struct Told {
  Ids generated;
  Index position;
  bool inside_think;
  Index think_tokens;
};

GenerateOptions babble(Index tokens) {
  return {.max_new_tokens = tokens, .sampling = {.temperature = 1.0, .seed = 7}};
}

/// Forces the tokens of `script`, one after the other.
ql::MaskHook forcing(const Ids& script, std::vector<Told>* told = nullptr) {
  return [script, told](const MaskContext& reply, TokenMask& mask) {
    const Ids generated(reply.generated.begin(), reply.generated.end());
    if (told != nullptr) {
      told->push_back({generated, reply.position, reply.inside_think, reply.think_tokens});
    }
    mask.force(script[reply.generated.size()]);
  };
}

}  // namespace

TEST_CASE("the hook is told the reply, the position and where the think block is") {
  const BabblingModel model;
  FakeSession session;
  std::vector<Told> told;
  const Ids script = {1, open_id, 2, 3, close_id, 4, open_id, 5};
  GenerateOptions options = babble(8);
  options.mask = forcing(script, &told);
  SECTION("a block that the reply opens") {
    options.think = {.open = open_id, .close = close_id};
    CHECK(run(model, session, {9, 9, 9}, options).out == script);
    const std::vector<bool> inside = {false, false, true, true, true, false, false, true};
    const std::vector<Index> tokens = {0, 0, 0, 1, 2, 0, 0, 0};
    REQUIRE(told.size() == 8);
    for (std::size_t i = 0; i < 8; ++i) {
      INFO("draw " << i);
      CHECK(told[i].generated == Ids(script.begin(), script.begin() + static_cast<Index>(i)));
      CHECK(told[i].position == 3 + static_cast<Index>(i));
      CHECK(told[i].inside_think == inside[i]);
      CHECK(told[i].think_tokens == tokens[i]);
    }
  }
  SECTION("a block that the prompt opens") {
    options.think = {.open = open_id, .close = close_id, .open_at_start = true};
    (void)run(model, session, {9}, options);
    REQUIRE(told.size() == 8);
    CHECK(told[0].inside_think);
    CHECK(told[0].think_tokens == 0);
    CHECK(told[4].inside_think);
    CHECK(told[4].think_tokens == 4);
    CHECK(!told[5].inside_think);
    CHECK(told[7].inside_think);
    CHECK(told[7].think_tokens == 0);
  }
  SECTION("no block") {
    (void)run(model, session, {9}, options);
    CHECK(std::none_of(told.begin(), told.end(), [](const Told& t) { return t.inside_think; }));
  }
}

TEST_CASE("what the hook bans is never drawn, and a hook without wishes changes nothing") {
  const BabblingModel model;
  FakeSession plain;
  const Run without = run(model, plain, {0}, babble(60));
  GenerateOptions options = babble(60);
  options.mask = [](const MaskContext&, TokenMask&) {};
  FakeSession idle;
  CHECK(run(model, idle, {0}, options).out == without.out);

  options.mask = [](const MaskContext& reply, TokenMask& mask) {
    for (const int token : reply.generated) mask.ban(token);
  };
  options.max_new_tokens = 40;
  FakeSession session;
  const Run once = run(model, session, {0}, options);
  CHECK(std::set<int>(once.out.begin(), once.out.end()).size() == 40);
  CHECK(std::set<int>(without.out.begin(), without.out.end()).size() < 40);

  options.max_new_tokens = 41;  // there is no further one
  FakeSession last;
  CHECK_THROWS_WITH(run(model, last, {0}, options), has_text("tokens to draw from: found none"));
  CHECK(last.length() == 41);  // the prompt and all that was handed out
}

TEST_CASE("a budget closes the think block and the answer follows") {
  const BabblingModel model;
  GenerateOptions options = babble(30);
  options.think = {.open = open_id, .close = close_id, .open_at_start = true};
  options.mask = [](const MaskContext& reply, TokenMask& mask) {
    mask.ban(open_id);
    if (!reply.inside_think) return mask.ban(close_id);
    if (reply.think_tokens >= 10) return mask.force(close_id);
    mask.ban(close_id);
  };
  FakeSession session;
  const Ids out = run(model, session, {0}, options).out;
  CHECK(out.size() == 30);
  CHECK(std::find(out.begin(), out.end(), close_id) - out.begin() == 10);
  CHECK(std::count(out.begin(), out.end(), close_id) == 1);
}

TEST_CASE("a forced stop id ends the reply") {
  BabblingModel model;
  model.stops = {5};
  GenerateOptions options = babble(20);
  options.mask = forcing({1, 2, 5});
  FakeSession session;
  const Run r = run(model, session, {0}, options);
  CHECK(r.out == Ids{1, 2});
  CHECK(r.stats.finish_reason == FinishReason::stop);
  CHECK(r.stats.last_token == 5);
}

TEST_CASE("a reply stopped and continued is the same reply, penalties and hook included") {
  const BabblingModel model;
  GenerateOptions options = babble(60);
  options.sampling.repetition_penalty = 1.3;
  options.sampling.frequency_penalty = 0.4;
  options.think = {.open = open_id, .close = close_id, .open_at_start = true};
  std::vector<Index> inside;
  options.mask = [&](const MaskContext& reply, TokenMask& mask) {
    inside.push_back(reply.think_tokens);
    if (reply.inside_think && reply.think_tokens >= 25) mask.force(close_id);
    if (!reply.generated.empty()) mask.ban(reply.generated.back());
  };
  FakeSession whole;
  const Run r = run(model, whole, {0}, options);
  const std::vector<Index> inside_whole = std::exchange(inside, {});
  for (const Index first : {1, 20, 26, 40}) {
    INFO("stopped after " << first);
    inside.clear();
    FakeSession parts;
    options.max_new_tokens = first;
    options.already_generated.clear();
    const Run head = run(model, parts, {0}, options);
    options.max_new_tokens = 60 - first;
    options.already_generated = head.out;
    const Run tail = run(model, parts, {head.stats.last_token}, options);
    Ids joined = head.out;
    joined.insert(joined.end(), tail.out.begin(), tail.out.end());
    CHECK(joined == r.out);
    CHECK(inside == inside_whole);
  }
  options.already_generated.clear();  // not told of the first part, penalties know nothing of it
  options.mask = {};
  options.max_new_tokens = 60;
  FakeSession one;
  const Run unmasked = run(model, one, {0}, options);
  FakeSession two;
  options.max_new_tokens = 30;
  Run untold = run(model, two, {0}, options);
  const Run rest = run(model, two, {untold.stats.last_token}, options);
  untold.out.insert(untold.out.end(), rest.out.begin(), rest.out.end());
  CHECK(untold.out != unmasked.out);
}

TEST_CASE("penalties count generated tokens, not the prompt") {
  const FakeModel model;  // after 0 comes 1, one above the others
  GenerateOptions options{.max_new_tokens = 3, .sampling = {.temperature = 0.0, .presence_penalty = 5.0}};
  FakeSession session;
  CHECK(run(model, session, {1, 2, 0}, options).out == Ids{1, 2, 0});
  options.max_new_tokens = 1;
  options.already_generated = {2};
  FakeSession continued;
  CHECK(run(model, continued, {1}, options).out == Ids{0});  // it would have been 2
}

TEST_CASE("wrong ids for the hook are errors before anything is processed") {
  const BabblingModel model;
  const auto message = [&](GenerateOptions options) {
    FakeSession session;
    try {
      (void)run(model, session, {0}, options);
    } catch (const ql::Error& e) {
      CHECK(e.code() == ql::ErrorCode::bad_argument);
      CHECK(session.seen.empty());
      return std::string(e.what());
    }
    return std::string("no error");
  };
  GenerateOptions options = babble(1);
  options.mask = [](const MaskContext&, TokenMask&) {};
  options.think = {.open = 40};
  CHECK(message(options) == "think.open: found 40, expected -1 (none) or a token id up to 39");
  options.think = {.close = -2};
  CHECK(message(options) == "think.close: found -2, expected -1 (none) or a token id up to 39");
  options.think = {};
  options.already_generated = {3, 99};
  CHECK(message(options) == "generated token: found 99, expected an id from 0 to 39");
}

TEST_CASE("what the hook throws passes through and leaves a session that can go on") {
  const BabblingModel model;
  FakeSession whole;
  const Run expected = run(model, whole, {0}, babble(20));
  GenerateOptions options = babble(20);
  options.mask = [](const MaskContext& reply, TokenMask&) {
    if (reply.generated.size() == 8) throw std::runtime_error("enough");
  };
  FakeSession session;
  Ids out;
  const Ids prompt = {0};
  const auto collect = [&](int token) {
    out.push_back(token);
    return true;
  };
  CHECK_THROWS_WITH(ql::generate(model, session, prompt, options, collect), "enough");
  CHECK(out == Ids(expected.out.begin(), expected.out.begin() + 8));
  CHECK(session.length() == 9);
  session.seen.pop_back();  // cut back by one, the last token is the prompt that continues
  (void)ql::generate(model, session, Ids{out.back()}, babble(12), collect);
  CHECK(out == expected.out);
}
