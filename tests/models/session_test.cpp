// SPDX-License-Identifier: Apache-2.0
//
// Sessions, batches and models from the caller's side: limits, misuse, ownership, several of each at once.
#include <stdexcept>
#include <thread>

#include "models/tiny_models.hpp"

namespace ql = qwenlite;
using namespace models_test;

namespace {

using Dense = ql::Model<ql::Qwen3>;
using Uncached = ql::Model<ql::Qwen3, ql::NoCache>;
using Hybrid = ql::Model<ql::Qwen3_5>;

static_assert(std::is_copy_constructible_v<Dense> && std::is_nothrow_move_constructible_v<Dense>);
static_assert(std::is_move_constructible_v<Dense::Session> && !std::is_copy_constructible_v<Dense::Session>);
static_assert(ql::ModelShape<ql::Qwen3> && ql::ModelShape<ql::Qwen3_0_6B> && ql::ModelShape<ql::Qwen3_1_7B>);
static_assert(ql::ModelShape<ql::Qwen3_4B> && ql::ModelShape<ql::Qwen3_8B>);
static_assert(ql::ModelShape<ql::Qwen3_14B> && ql::ModelShape<ql::Qwen3_32B>);
static_assert(ql::StatePolicy<ql::Stateless>);

ql::Checkpoint tiny(const std::string& name = "qwen3-tiny") {
  return ql::Checkpoint(checkpoint_path(name));
}

/// The code and text of the error that f throws.
template <class F>
std::pair<ql::ErrorCode, std::string> error_of(const F& f) {
  try {
    f();
  } catch (const ql::Error& e) {
    return {e.code(), e.what()};
  }
  FAIL("no error");
  return {};
}

}  // namespace

TEMPLATE_TEST_CASE("a full session says how much was asked and how much fits", "", Dense, Uncached) {
  const TestType model(tiny(), {.threads = 1});
  auto session = model.new_session({.max_tokens = 10});
  REQUIRE(session.max_tokens() == 10);
  model.prefill(session, random_tokens(8, 1));
  const auto [code, text] = error_of([&] { model.logits(session, random_tokens(3, 2)); });
  CHECK(code == ql::ErrorCode::context_full);
  CHECK_THAT(text, has_text("11") && has_text("10"));
  CHECK(session.length() == 8);
  CHECK(model.logits(session, random_tokens(2, 2)).size() == 512);
  CHECK(session.length() == 10);
  CHECK(error_of([&] { model.prefill(session, random_tokens(1, 2)); }).first == ql::ErrorCode::context_full);
  session.truncate(9);
  model.prefill(session, random_tokens(1, 2));
  std::vector<int> expected = random_tokens(8, 1);
  for (const int id : {random_tokens(2, 2)[0], random_tokens(1, 2)[0]}) expected.push_back(id);
  CHECK(std::vector<int>(session.tokens().begin(), session.tokens().end()) == expected);
}

TEST_CASE("max_tokens is bounded by the positions of the model") {
  const Dense model(tiny("qwen3-tiny-yarn"), {.threads = 1});
  CHECK(model.new_session().max_tokens() == 1024);  // the whole context
  CHECK(model.new_session({.max_tokens = 1024}).max_tokens() == 1024);
  const auto [code, text] = error_of([&] { (void)model.new_session({.max_tokens = 1025}); });
  CHECK(code == ql::ErrorCode::bad_argument);
  CHECK_THAT(text, has_text("max_tokens") && has_text("1025") && has_text("1024"));
  CHECK_THROWS_AS(model.new_session({.max_tokens = -1}), ql::Error);
  CHECK(Dense(tiny(), {.threads = 1}).new_session().max_tokens() == 4096);
}

TEMPLATE_TEST_CASE("wrong calls are refused and change nothing", "", Dense, Uncached) {
  const TestType model(tiny(), {.threads = 1});
  const TestType other(tiny(), {.threads = 1});
  auto session = model.new_session({.max_tokens = 64});
  model.prefill(session, random_tokens(5, 1));
  const std::vector<int> none;
  const std::vector<int> high{1, 512};
  const std::vector<int> negative{-1};
  CHECK_THROWS_WITH(model.logits(session, none), has_text("at least one token"));
  CHECK_THROWS_WITH(model.logits(session, high), has_text("512") && has_text("511"));
  CHECK_THROWS_WITH(model.prefill(session, negative), has_text("-1"));
  CHECK_THROWS_WITH(other.logits(session, random_tokens(1, 1)), has_text("another model"));
  CHECK_THROWS_AS(session.truncate(6), ql::Error);
  CHECK_THROWS_AS(session.truncate(-1), ql::Error);
  const std::vector<Index> descending{1, 0};
  const std::vector<Index> outside{0, 3};
  CHECK_THROWS_AS(model.logits(session, random_tokens(3, 1), descending), ql::Error);
  CHECK_THROWS_AS(model.logits(session, random_tokens(3, 1), outside), ql::Error);
  CHECK(session.length() == 5);
}

TEST_CASE("a batch is used once between two clears, with sessions of its model") {
  const Dense model(tiny(), {.threads = 1});
  const Dense other(tiny(), {.threads = 1});
  auto a = model.new_session({.max_tokens = 64});
  auto b = model.new_session({.max_tokens = 64});
  auto foreign = other.new_session({.max_tokens = 64});
  Dense::Batch batch(model);
  CHECK(batch.add(a, random_tokens(5, 1)) == 0);
  CHECK_THROWS_WITH(batch.add(a, random_tokens(1, 1)), has_text("already"));
  CHECK_THROWS_WITH(batch.add(foreign, random_tokens(1, 1)), has_text("another model"));
  CHECK(batch.add(b, random_tokens(3, 2), ql::Logits::none) == 1);
  CHECK_THROWS_AS(batch.logits(0), ql::Error);
  CHECK_THROWS_WITH(other.forward(batch), has_text("another model"));
  model.forward(batch);
  CHECK(batch.logits(0).rows() == 1);
  CHECK(batch.logits(1).rows() == 0);
  CHECK_THROWS_AS(batch.hidden(0), ql::Error);
  CHECK_THROWS_WITH(batch.keep(true, true), has_text("cleared"));
  CHECK_THROWS_AS(batch.hidden(0), ql::Error);
  CHECK_THROWS_AS(batch.logits(2), ql::Error);
  CHECK_THROWS_AS(batch.add(a, random_tokens(1, 1)), ql::Error);
  CHECK_THROWS_AS(model.forward(batch), ql::Error);
  CHECK(a.length() == 5);

  batch.clear();
  batch.keep(true, true);
  batch.add(b, random_tokens(4, 3), ql::Logits::all);
  batch.add(a, random_tokens(2, 3), std::array<Index, 1>{0});
  model.forward(batch);
  CHECK(batch.hidden(0).rows() == 4);
  CHECK(batch.hidden(0).cols() == 64);
  CHECK(batch.logits(1).rows() == 1);

  batch.clear();
  batch.add(a, random_tokens(1, 4));
  model.prefill(a, random_tokens(1, 5));
  CHECK_THROWS_WITH(model.forward(batch), has_text("changed"));
}

TEST_CASE("chosen positions are rows of all positions") {
  const Dense model(tiny(), {.threads = 1, .chunk = 6});
  const std::vector<int> tokens = random_tokens(20, 1);
  auto session = model.new_session({.max_tokens = 64});
  const Rows all = copied(model.logits(session, tokens, ql::Logits::all));
  session.truncate(0);
  const Rows some = copied(model.logits(session, tokens, std::array<Index, 4>{0, 5, 6, 19}));
  CHECK(first_difference(some, {all[0], all[5], all[6], all[19]}) == -1);
  session.truncate(0);
  const auto last = model.logits(session, tokens);
  CHECK(same_bits({last.begin(), last.end()}, all.back()));
}

TEST_CASE("checkpoint and model may be dropped while a session lives") {
  std::optional<Dense::Session> session;
  Rows expected;
  {
    const Dense model(tiny(), {.threads = 2});
    session.emplace(model.new_session({.max_tokens = 64}));
    auto other = model.new_session({.max_tokens = 64});
    expected = copied(model.logits(other, random_tokens(9, 1), ql::Logits::all));
  }
  const Dense model = session->network();
  CHECK(first_difference(copied(model.logits(*session, random_tokens(9, 1), ql::Logits::all)), expected) ==
        -1);
  Dense::Session moved = *std::move(session);
  model.prefill(moved, random_tokens(1, 1));
  CHECK(moved.length() == 10);
}

TEST_CASE("an observer that throws leaves the session as it was") {
  const Dense model(tiny(), {.threads = 1});
  auto session = model.new_session({.max_tokens = 64});
  model.prefill(session, random_tokens(5, 1));
  CHECK_THROWS_AS(model.trace(session, random_tokens(20, 2),
                              [](std::string_view name, const ql::ConstMatrix<float>&) {
                                if (name == "model.layers.2.mlp") throw std::runtime_error("enough");
                              }),
                  std::runtime_error);
  CHECK(session.length() == 5);
  CHECK(session.kv().length() == 5);
  const Rows found = copied(model.logits(session, random_tokens(7, 3), ql::Logits::all));
  auto fresh = model.new_session({.max_tokens = 64});
  model.prefill(fresh, random_tokens(5, 1));
  CHECK(first_difference(found, copied(model.logits(fresh, random_tokens(7, 3), ql::Logits::all))) == -1);
}

TEST_CASE("a shape that differs from config.json is an error with the field and both values") {
  const auto [code, text] = error_of([] { (void)ql::Model<ql::Qwen3_0_6B>(tiny(), {.threads = 1}); });
  CHECK(code == ql::ErrorCode::bad_config);
  CHECK_THAT(text, has_text("hidden_size") && has_text("64") && has_text("1024") && has_text("Qwen3_0_6B"));
}

TEST_CASE("options that contradict each other or themselves are refused") {
  CHECK_THROWS_AS(Dense(tiny(), {.threads = -1}), ql::Error);
  CHECK_THROWS_AS(Dense(tiny(), {.threads = 2, .executor = std::make_shared<ql::ThreadPool>(1)}), ql::Error);
  CHECK_THROWS_WITH(Dense(tiny(), {.threads = 1, .chunk = 0}), has_text("chunk"));
  const ql::Model<ql::Qwen3, ql::KvCache<float>> fixed(tiny(), {.threads = 1, .kv = ql::KvFormat::bf16});
  CHECK_THROWS_WITH(fixed.new_session({.max_tokens = 8}), has_text("bf16") && has_text("f32"));
  CHECK_THROWS_AS(Dense(tiny("qwen3.5-tiny"), {.threads = 1}), ql::Error);
}

TEST_CASE("what generation needs to know is there") {
  const ql::AnyModel model = ql::open(checkpoint_path("qwen3-tiny"), {.threads = 1});
  CHECK(model.vocab_size() == 512);
  CHECK(model.token_count() == 512);
  CHECK(std::vector<int>(model.stop_ids().begin(), model.stop_ids().end()) == std::vector<int>{510, 509});
  CHECK(model.defaults().temperature == 0.6F);
  CHECK(model.defaults().top_k == 20);
  CHECK(model.defaults().top_p == 0.95F);
  CHECK(model.defaults().min_p == 0.0F);
  CHECK(model.config().num_hidden_layers == 4);
  auto session = model.new_session({.max_tokens = 100});
  CHECK(session.kv_capacity_bytes() >= 4 * 2 * 2 * 32 * 2 * 128);
  CHECK(session.bytes() > session.kv_capacity_bytes());
  const Index before = session.bytes();
  model.prefill(session, random_tokens(60, 1));
  (void)model.logits(session, random_tokens(1, 1));
  CHECK(session.bytes() == before);  // known beforehand
  CHECK(session.kv_used_bytes() > 0);

  ql::GenerationDefaults file;
  file.temperature = 0.9F;
  file.do_sample = false;
  CHECK(ql::with_card_values(file, ql::Qwen3::card_defaults()).temperature == 0.0F);
}

TEST_CASE("AnyOf keeps sessions of its networks apart") {
  using Networks = ql::AnyOf<Dense, Uncached>;
  const Networks cached = Dense(tiny(), {.threads = 1});
  const Networks uncached = Uncached(tiny(), {.threads = 1});
  auto a = cached.new_session({.max_tokens = 32});
  auto b = uncached.new_session({.max_tokens = 32});
  const Rows expected = copied(cached.logits(a, random_tokens(5, 1), ql::Logits::all));
  CHECK(first_difference(copied(uncached.logits(b, random_tokens(5, 1), ql::Logits::all)), expected) == -1);
  CHECK_THROWS_WITH(cached.logits(b, random_tokens(1, 1)), has_text("another model"));
  CHECK_THROWS_WITH(uncached.prefill(a, random_tokens(1, 1)), has_text("another model"));

  Networks::Batch batch(uncached);
  auto c = uncached.new_session({.max_tokens = 32});
  batch.add(c, random_tokens(5, 1), ql::Logits::all);
  CHECK_THROWS_WITH(cached.forward(batch), has_text("another model"));
  uncached.forward(batch);
  CHECK(first_difference(copied(batch.logits(0)), expected) == -1);
  CHECK(batch.size() == 1);
  CHECK(c.length() == 5);

  CHECK_THROWS_AS(
      (ql::open_as<Networks>(tiny("qwen3-tiny"), {.threads = 1}, [](const auto&) { return false; })),
      ql::Error);
}

TEST_CASE("Qwen3.5: open() chooses it, and its sessions behave as others do") {
  const ql::AnyModel model = ql::open(checkpoint_path("qwen3.5-tiny"), {.threads = 1});
  CHECK(model.config().model_type == "qwen3_5");
  CHECK(model.explain({.max_tokens = 64}).network.find("6 Gated DeltaNet, 2 attention") != std::string::npos);
  CHECK_FALSE(model.defaults().presence_penalty.has_value());  // the file has values of its own
  CHECK(ql::with_card_values({}, ql::Qwen3_5::card_defaults()).presence_penalty == 2.0F);
  auto session = model.new_session({.max_tokens = 10});
  model.prefill(session, random_tokens(8, 1));
  CHECK(error_of([&] { model.logits(session, random_tokens(3, 2)); }).first == ql::ErrorCode::context_full);
  CHECK(session.length() == 8);
  CHECK_THROWS_AS(session.truncate(9), ql::Error);
  session.remember();
  CHECK(session.truncate(7) == 0);  // nothing is processed again
  CHECK(model.logits(session, random_tokens(2, 2)).size() == 512);
  CHECK_THROWS_WITH(model.new_session({.max_tokens = 8, .snapshot_bytes = -1}), has_text("snapshot_bytes"));

  const auto [code, text] = error_of([] { (void)ql::Model<ql::Qwen3_5_0_8B>(tiny("qwen3.5-tiny")); });
  CHECK(code == ql::ErrorCode::bad_config);
  CHECK_THAT(text, has_text("hidden_size") && has_text("Qwen3_5_0_8B"));
  CHECK_THROWS_WITH(Hybrid(tiny(), {.threads = 1}), has_text("qwen3_5"));
}

TEST_CASE("two models with one pool, in turns and at once", "[threads]") {
  const auto pool = std::make_shared<ql::ThreadPool>(2);
  const Dense first(tiny(), {.executor = pool});
  const Dense second(tiny("qwen3-tiny-untied-sharded"), {.executor = pool});
  const std::vector<int> tokens = random_tokens(40, 1);
  const auto run = [&](const Dense& model) {
    auto session = model.new_session({.max_tokens = 64});
    return copied(model.logits(session, tokens, ql::Logits::all));
  };
  const Rows of_first = run(first);
  const Rows of_second = run(second);
  CHECK(first_difference(of_first, of_second) == 0);
  Rows at_once;
  std::thread other([&] { at_once = run(second); });
  const Rows again = run(first);
  other.join();
  CHECK(first_difference(again, of_first) == -1);
  CHECK(first_difference(at_once, of_second) == -1);
}

TEST_CASE("several callers of one model", "[threads]") {
  const Dense model(tiny(), {.threads = 2, .chunk = 16});
  const std::vector<int> tokens = random_tokens(50, 1);
  const auto run = [&] {
    auto session = model.new_session({.max_tokens = 64});
    model.prefill(session, part_of(tokens, 0, 30));
    Rows rows;
    for (Index t = 30; t < 50; ++t) {
      const auto row = model.logits(session, part_of(tokens, t, 1));
      rows.emplace_back(row.begin(), row.end());
    }
    return rows;
  };
  const Rows expected = run();
  std::array<Rows, 3> found;
  std::vector<std::thread> callers;
  for (Rows& rows : found) callers.emplace_back([&] { rows = run(); });
  for (std::thread& caller : callers) caller.join();
  for (const Rows& rows : found) CHECK(first_difference(rows, expected) == -1);
}
