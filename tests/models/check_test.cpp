// SPDX-License-Identifier: Apache-2.0
//
// OpenOptions::check and QWENLITE_CHECK: whole networks on right kernels pass with the bits they have anyway,
// one faulty kernel is caught in the layer where it strikes, and the session stays as it was.
#include <cstdlib>

#include <qwenlite/generate/generate.hpp>

#include "environment_variable.hpp"
#include "models/ways.hpp"

namespace ql = qwenlite;
using namespace models_test;

namespace {

using Dense = ql::Model<ql::Qwen3>;

const ql::kernels::KernelTable& right() {
  return ql::kernels::active();
}

/// A fault in the second of the tiny network's products with 128 inputs: the first to come is layer 0's
/// down projection.
void faulty_matmul(const ql::kernels::MatmulArgs& a) {
  right().matmul(a);
  if (a.in == 128) a.out[0] += 0.25F;
}

template <class Network>
Rows run(const Network& model, const std::vector<int>& tokens) {
  auto session = model.new_session({.max_tokens = 128});
  Rows rows = copied(model.logits(session, part_of(tokens, 0, 70), ql::Logits::all));
  for (Index t = 70; t < 73; ++t) {
    const auto row = model.logits(session, part_of(tokens, t, 1));
    rows.emplace_back(row.begin(), row.end());
  }
  return rows;
}

}  // namespace

TEST_CASE("checked networks pass on right kernels and give the same bits") {
  const std::vector<int> tokens = random_tokens(73, 1);
  for (const std::string& name : dense_checkpoints) {
    const ql::Checkpoint files(checkpoint_path(name));
    for (const ql::kernels::KernelTable* table : compared_tables()) {
      for (const ql::Precision precision : {ql::Precision::exact, ql::Precision::bf16}) {
        const bool rounds = rounds_to_bf16(table->layout(ql::Format::bf16, precision));
        if (precision == ql::Precision::bf16 && !rounds) continue;  // without effect
        INFO(name << " " << table->name << " " << name_of(precision));
        ql::OpenOptions options{.threads = 2, .precision = precision, .kernels = table, .chunk = 64};
        const Rows expected = run(Dense(files, options), tokens);
        options.check = true;
        Rows found;
        REQUIRE_NOTHROW(found = run(Dense(files, options), tokens));
        CHECK(first_difference(found, expected) == -1);
      }
    }
  }
}

TEST_CASE("a checked Qwen3.5 passes on right kernels, and names a faulty one", "[long]") {
  const std::vector<int> tokens = random_tokens(73, 2);
  using Hybrid = ql::Model<ql::Qwen3_5>;
  for (const std::string& name : hybrid_checkpoints) {
    const ql::Checkpoint files(checkpoint_path(name));
    for (const ql::kernels::KernelTable* table : ql::kernels::supported()) {
      INFO(name << " " << table->name);
      ql::OpenOptions options{.threads = 2, .kernels = table, .chunk = 64};
      const Rows expected = run(Hybrid(files, options), tokens);
      options.check = true;
      Rows found;
      REQUIRE_NOTHROW(found = run(Hybrid(files, options), tokens));
      CHECK(first_difference(found, expected) == -1);
    }
  }
  ql::kernels::KernelTable table = right();
  table.sigmoid_mul = [](const float* gate, const float* x, float* out, Index n) {
    right().silu_mul(gate, x, out, n);
  };
  const Hybrid model(ql::Checkpoint(checkpoint_path("qwen3.5-tiny")),
                     {.threads = 1, .kernels = &table, .check = true});
  auto session = model.new_session({.max_tokens = 64});
  CHECK_THROWS_WITH(model.prefill(session, random_tokens(5, 1)), has_text("output gates of 4 heads"));
}

TEST_CASE("a network on a faulty kernel names it and leaves the session as it was") {
  ql::kernels::KernelTable table = right();
  table.name = "doubtful";
  table.matmul = faulty_matmul;
  const Dense model(ql::Checkpoint(checkpoint_path("qwen3-tiny")),
                    {.threads = 2, .precision = ql::Precision::exact, .kernels = &table, .check = true});
  REQUIRE(model.config().hidden_size == 64);
  auto session = model.new_session({.max_tokens = 64});
  std::string message;
  try {
    model.prefill(session, random_tokens(5, 1));
  } catch (const ql::Error& e) {
    CHECK(e.code() == ql::ErrorCode::numeric);
    message = e.what();
  }
  CHECK_THAT(message,
             has_text("doubtful kernels, exact precision") && has_text("weights [64, 128] and 5 tokens"));
  CHECK_THAT(message, has_text("token 0, weight row 0: found"));
  CHECK(session.length() == 0);
  CHECK_THROWS_AS(ql::generate(model, session, random_tokens(5, 1), {}, [](int) { return true; }), ql::Error);

  const Dense unchecked(ql::Checkpoint(checkpoint_path("qwen3-tiny")), {.threads = 2, .kernels = &table});
  auto other = unchecked.new_session({.max_tokens = 64});
  CHECK_NOTHROW(unchecked.prefill(other, random_tokens(5, 1)));
}

TEST_CASE("a fault in the output matrix is caught too") {
  ql::kernels::KernelTable table = right();
  table.matmul = [](const ql::kernels::MatmulArgs& a) {
    right().matmul(a);
    if (a.rows == 32 && a.out_stride == 512) a.out[1] += 0.25F;  // logits of a single token
  };
  const Dense model(ql::Checkpoint(checkpoint_path("qwen3-tiny")),
                    {.threads = 1, .kernels = &table, .check = true});
  auto session = model.new_session({.max_tokens = 64});
  CHECK_NOTHROW(model.prefill(session, random_tokens(5, 1)));
  CHECK_THROWS_WITH(model.logits(session, random_tokens(1, 1)),
                    has_text("weights [512, 64]") && has_text("exact precision"));
  CHECK(session.length() == 5);
}

TEST_CASE("QWENLITE_CHECK is read when a model is opened") {
  const ql::Checkpoint files(checkpoint_path("qwen3-tiny"));
  {
    const Variable on("QWENLITE_CHECK", "1");
    const Dense model(files, {.threads = 1});
    CHECK(model.ops().checked());
    CHECK(model.explain().check_reason == "QWENLITE_CHECK=1");
  }
  for (const char* off : {"", "0"}) {
    const Variable variable("QWENLITE_CHECK", off);
    CHECK_FALSE(Dense(files, {.threads = 1}).ops().checked());
    CHECK(Dense(files, {.threads = 1, .check = true}).ops().checked());
  }
  const Variable wrong("QWENLITE_CHECK", "yes");
  CHECK_THROWS_WITH(Dense(files, {.threads = 1}), has_text("QWENLITE_CHECK") && has_text("'yes'"));
}
