// SPDX-License-Identifier: Apache-2.0
//
// What calibration sees of a network: the input of every product, the same as in a forward, for texts read
// together.
#include <qwenlite/model.hpp>
#include <qwenlite/quantize/layer_quantiser.hpp>
#include <qwenlite/quantize/quantise_checkpoint.hpp>

#include "models/tiny_models.hpp"

namespace ql = qwenlite;
using namespace models_test;
using ql::Format;

namespace {

std::vector<std::vector<int>> texts() {
  return {random_tokens(40, 1), random_tokens(1, 2), random_tokens(130, 3), random_tokens(500, 4),
          random_tokens(70, 5)};
}

/// Inputs of one group of products.
struct Seen {
  std::vector<ql::WeightView> weights;
  Rows rows;
};

template <class Shape>
std::vector<Seen> inputs_of(ql::CalibrationRun<Shape>& run, const ql::Decoder<Shape>& network,
                            std::size_t layer) {
  std::vector<Seen> all;
  run.observe(network.layers[layer],
              [&](const ql::ConstMatrix<float>& input, std::span<const ql::WeightView> weights) {
                auto seen = std::find_if(all.begin(), all.end(), [&](const Seen& s) {
                  return s.weights.front().data == weights.front().data;
                });
                if (seen == all.end()) {
                  all.push_back({{weights.begin(), weights.end()}, {}});
                  seen = all.end() - 1;
                }
                for (std::vector<float>& row : copied(input)) seen->rows.push_back(std::move(row));
              });
  return all;
}

/// Rows of an intermediate result of all texts, each read alone.
template <class Shape>
Rows traced(const ql::Checkpoint& files, const std::string& wanted) {
  const ql::Model<Shape> model(files,
                               {.threads = 1, .precision = ql::Precision::exact, .kv = ql::KvFormat::f32});
  Rows rows;
  for (const std::vector<int>& text : texts()) {
    auto session = model.new_session({.max_tokens = 512});
    model.trace(session, text, [&](std::string_view name, const ql::ConstMatrix<float>& found) {
      if (name != wanted) return;
      for (std::vector<float>& row : copied(found)) rows.push_back(std::move(row));
    });
  }
  return rows;
}

template <class Shape>
void check_network(const std::string& name) {
  INFO(name);
  const ql::Checkpoint files(checkpoint_path(name));
  const ql::Decoder<Shape> network(files, ql::OpenOptions{.threads = 2});
  const std::vector<std::vector<int>> all_texts = texts();
  ql::CalibrationRun<Shape> run(network, all_texts);
  CHECK(run.tokens() == 741);

  const std::vector<Seen> first = inputs_of(run, network, 0);
  const std::vector<Seen> again = inputs_of(run, network, 0);  // observing does not advance
  REQUIRE(first.size() == 4);
  REQUIRE(again.size() == 4);
  std::size_t matrices = 0;
  for (std::size_t i = 0; i < first.size(); ++i) {
    CHECK(first_difference(first[i].rows, again[i].rows) == -1);
    CHECK(first[i].rows.size() == 741);
    for (const ql::WeightView& w : first[i].weights) {
      CHECK(w.cols == static_cast<Index>(first[i].rows.front().size()));
    }
    matrices += first[i].weights.size();
  }
  CHECK(matrices == 7 + (first[0].weights.size() - 3));

  // The next layer's first input is the norm of what the first layer gives.
  run.advance(network.layers[0]);
  const std::vector<Seen> second = inputs_of(run, network, 1);
  const Rows outputs = traced<Shape>(files, ql::layer_prefix(ql::text_scope(files.weights()), 0) + "output");
  const ql::Weights scope = ql::text_scope(files.weights()).scope("layers.1.");
  const typename Shape::Norm norm(scope, "input_layernorm", files.config().hidden_size,
                                  files.config().rms_norm_eps);
  REQUIRE(outputs.size() == 741);
  Rows normed;
  for (const std::vector<float>& row : outputs) {
    normed.push_back(row);
    run.ops().table().rms_norm(row.data(), norm.spec().weight, norm.spec().epsilon, normed.back().data());
  }
  CHECK(first_difference(second[0].rows, normed) == -1);
}

}  // namespace

TEST_CASE("calibration sees the inputs of all products, as in a forward", "[threads]") {
  check_network<ql::Qwen3>("qwen3-tiny");
  check_network<ql::Qwen3_5>("qwen3.5-tiny");
  check_network<ql::Qwen3_5>("qwen3.5-tiny-gqa");
}

TEST_CASE("a network tells which matrices it takes products of") {
  const auto names = [](const auto& network) {
    std::vector<std::string> found;
    for (const ql::SourceMatrix& m : ql::product_matrices(network)) found.push_back(m.name);
    return found;
  };
  const ql::Checkpoint dense(checkpoint_path("qwen3-tiny-untied-sharded"));
  const auto found = names(ql::Decoder<ql::Qwen3>(dense, ql::OpenOptions{.threads = 1}));
  CHECK(static_cast<Index>(found.size()) == 7 * dense.config().num_hidden_layers + 2);
  CHECK(found.front() == "model.embed_tokens.weight");
  CHECK(found[1] == "model.layers.0.self_attn.q_proj.weight");
  CHECK(found.back() == "lm_head.weight");

  const ql::Checkpoint hybrid(checkpoint_path("qwen3.5-tiny"));
  const auto mixed = names(ql::Decoder<ql::Qwen3_5>(hybrid, ql::OpenOptions{.threads = 1}));
  const auto has = [&](const std::string& end) {
    return std::any_of(mixed.begin(), mixed.end(), [&](const std::string& n) { return n.ends_with(end); });
  };
  CHECK(has("layers.0.linear_attn.in_proj_qkv.weight"));
  CHECK(has("mtp.fc.weight"));
  CHECK(has("mtp.layers.0.mlp.down_proj.weight"));
  CHECK_FALSE(has("in_proj_a.weight"));
  CHECK_FALSE(has("in_proj_b.weight"));
  CHECK_FALSE(has("conv1d.weight"));
}

TEST_CASE("calibration refuses what the network cannot read") {
  const ql::Checkpoint files(checkpoint_path("qwen3-tiny"));
  const ql::Decoder<ql::Qwen3> network(files, ql::OpenOptions{.threads = 1});
  const auto run = [&](const std::vector<int>& text) {
    const std::vector<std::vector<int>> all{text};
    ql::CalibrationRun<ql::Qwen3> started(network, all);
  };
  CHECK_THROWS_AS(run({}), ql::Error);
  CHECK_THROWS_AS(run({-1}), ql::Error);
  CHECK_THROWS_AS(run({static_cast<int>(files.config().vocab_size)}), ql::Error);
  CHECK_THROWS_AS(run(random_tokens(files.config().context_limit() + 1, 1)), ql::Error);
}

TEST_CASE("texts are cut at their ends, and taken from all over") {
  const std::vector<int> ids{1, 2, 0, 3, 0, 4, 5, 6, 7, 8};
  using Texts = std::vector<std::vector<int>>;
  CHECK(ql::calibration_texts(ids, 0, 100, 100) == Texts{{1, 2, 0}, {3, 0}, {4, 5, 6, 7, 8}});
  CHECK(ql::calibration_texts(ids, 0, 2, 100) == Texts{{1, 2}, {0}, {3, 0}, {4, 5}, {6, 7}, {8}});
  CHECK(ql::calibration_texts(ids, -1, 100, 100) == Texts{ids});
  const Texts some = ql::calibration_texts(ids, -1, 1, 5);
  CHECK(some.size() == 5);
  CHECK(some.back() == std::vector<int>{8});
  CHECK(ql::calibration_texts({}, 0, 10, 10).empty());
}
