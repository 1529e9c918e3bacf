// SPDX-License-Identifier: Apache-2.0
#include <qwenlite/layers/linear.hpp>
#include <qwenlite/layers/mlp.hpp>
#include <qwenlite/layers/norm.hpp>

#include "catch_any.hpp"
#include "layers/random_weights.hpp"

namespace ql = qwenlite;
using namespace layers_test;

namespace {

struct MlpShape {
  ql::Runtime hidden_size;
  ql::Runtime intermediate_size;
};

const ql::TraceSink* const no_trace = nullptr;

}  // namespace

TEST_CASE("Linear multiplies weights of every format, and adds to what is there") {
  const auto dtype = GENERATE(ql::DType::bf16, ql::DType::f16, ql::DType::f32);
  const Index tokens = GENERATE(1, 3, 17);
  RandomWeights weights(1);
  weights.add("a.proj.weight", 37, 45, dtype, 0.2);
  const ql::Linear linear(weights.open().scope("a."), "proj", 37, 45);
  const RandomRows x(tokens, 45, 2);
  const Table product = times(x.exact, weights["a.proj.weight"]);

  for_each_table([&](const ql::kernels::KernelTable& table, ql::Precision precision) {
    INFO(table.name);
    TestOps run(table, precision);
    RandomRows out(tokens, 37, 3);
    Table sum = out.exact;
    for (std::size_t i = 0; i < sum.values.size(); ++i) sum.values[i] += product.values[i];
    const ql::Packed packed =
        run.ops.pack(ql::read_only(x.matrix()), nullptr, {linear.format()}, run.scratch);
    const std::array<ql::Product, 1> added{linear.into(out.matrix(), true)};
    run.ops.matmul(packed, added, run.scratch);
    CHECK(relative_error(out.matrix(), sum) < 2e-6);
    const std::array<ql::Product, 1> stored{linear.into(out.matrix())};
    run.ops.matmul(packed, stored, run.scratch);
    CHECK(relative_error(out.matrix(), product) < 2e-6);
  });
}

TEST_CASE("Linear names tensor and shapes when they do not fit") {
  RandomWeights weights(1);
  weights.add("a.proj.weight", 4, 6, ql::DType::bf16, 1);
  const ql::Weights all = weights.open();
  REQUIRE_THROWS_WITH(ql::Linear(all.scope("a."), "proj", 6, 4),
                      has_text("a.proj.weight") && has_text("[4, 6]") && has_text("[6, 4]"));
  REQUIRE_THROWS_WITH(ql::Linear(all.scope("b."), "proj", 4, 6), has_text("b.proj.weight"));
}

TEST_CASE("Embedding looks rows up, and is the output matrix of tied models") {
  const auto dtype = GENERATE(ql::DType::bf16, ql::DType::f16, ql::DType::f32);
  RandomWeights weights(5);
  const Table& rows = weights.add("embed_tokens.weight", 11, 13, dtype, 1);
  const ql::Embedding embedding(weights.open(), "embed_tokens", 11, 13);
  const std::vector<int> tokens{10, 0, 3, 3};
  for_each_table([&](const ql::kernels::KernelTable& table, ql::Precision precision) {
    INFO(table.name);
    TestOps run(table, precision);
    RandomRows out(4, 13, 6);
    embedding.lookup(run.ops, tokens, out.matrix());
    for (Index t = 0; t < 4; ++t) {
      for (Index i = 0; i < 13; ++i) {
        REQUIRE(static_cast<double>(out.matrix()(t, i)) == rows(tokens[static_cast<std::size_t>(t)], i));
      }
    }
  });
  REQUIRE(embedding.tied_head().weight().rows == 11);
  REQUIRE(embedding.tied_head().weight().cols == 13);
}

TEST_CASE("RmsNorm is x / sqrt(mean(x^2) + epsilon) * weight") {
  const Index width = GENERATE(1, 7, 33, 160);
  const float epsilon = GENERATE(1e-6F, 0.5F);
  RandomWeights weights(7);
  weights.add("n.norm.weight", 1, width, GENERATE(ql::DType::bf16, ql::DType::f32), 0.3, 1);
  const ql::RmsNorm norm(weights.open().scope("n."), "norm", width, epsilon);
  const RandomRows x(3, width, 8);
  const Table expected = normed(x.exact, weights["n.norm.weight"], static_cast<double>(epsilon));
  for_each_table([&](const ql::kernels::KernelTable& table, ql::Precision precision) {
    INFO(table.name);
    TestOps run(table, precision);
    RandomRows out(3, width, 9);
    norm.forward(run.ops, ql::read_only(x.matrix()), out.matrix());
    CHECK(relative_error(out.matrix(), expected) < 1e-6);
  });
}

TEST_CASE("Mlp is down(silu(gate x) * up x)") {
  const Index tokens = GENERATE(1, 5, 19);
  const MlpShape shape{{33}, {71}};
  RandomWeights weights(11);
  weights.add("mlp.gate_proj.weight", 71, 33, ql::DType::bf16, 0.3);
  weights.add("mlp.up_proj.weight", 71, 33, ql::DType::f32, 0.3);
  weights.add("mlp.down_proj.weight", 33, 71, ql::DType::f16, 0.2);
  const ql::Mlp mlp(weights.open().scope("mlp."), shape);
  REQUIRE(mlp.formats().contains(ql::Format::bf16));
  REQUIRE(mlp.formats().contains(ql::Format::f16));
  REQUIRE(mlp.formats().contains(ql::Format::f32));

  const RandomRows x(tokens, 33, 12);
  Table gated = times(x.exact, weights["mlp.gate_proj.weight"]);
  const Table up = times(x.exact, weights["mlp.up_proj.weight"]);
  for (std::size_t i = 0; i < gated.values.size(); ++i) {
    gated.values[i] = gated.values[i] / (1 + std::exp(-gated.values[i])) * up.values[i];
  }
  const Table expected = times(gated, weights["mlp.down_proj.weight"]);

  for_each_table([&](const ql::kernels::KernelTable& table, ql::Precision precision) {
    INFO(table.name);
    TestOps run(table, precision);
    const ql::Activations activations(tokens, {.hidden = 33, .attention = 1, .kv = 1, .gated = 71});
    const ql::Pass<int, int> pass{.ops = run.ops,
                                  .scratch = run.scratch,
                                  .activations = activations,
                                  .angles = {},
                                  .pieces = {},
                                  .memories = {},
                                  .trace = no_trace};
    RandomRows out(tokens, 33, 13);
    mlp.forward(pass, pass.pack(x.matrix(), mlp.input_formats()), out.matrix(), false);
    CHECK(relative_error(out.matrix(), expected) < 3e-6);
  });
}
