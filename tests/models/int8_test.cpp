// SPDX-License-Identifier: Apache-2.0
//
// Networks whose products take int8 activations: the same bits in any way of computing them, near the results
// of exact products, and what explain() says where nothing is int8.
#include <cmath>

#include "models/ways.hpp"

namespace ql = qwenlite;
using namespace models_test;
using ql::Format;
using ql::WeightFormat;

namespace {

const std::vector<WeightFormat>& formats() {
  static const std::vector<WeightFormat> list{{Format::int8}, {Format::int8, 0}, {Format::int4, 32, false}};
  return list;
}

ql::OpenOptions with(const ql::kernels::KernelTable* table, const WeightFormat& weights, Index chunk = 512,
                     int threads = 1) {
  return {.threads = threads,
          .precision = ql::Precision::int8,
          .kernels = table,
          .kv = ql::KvFormat::f32,
          .weights = weights,
          .chunk = chunk};
}

template <class Network>
void check_bits(const std::string& name) {
  const std::vector<int> tokens = random_tokens(80, 1);
  const ql::Checkpoint files(checkpoint_path(name));
  for (const ql::kernels::KernelTable* table : kernel_tests::all_tables()) {
    for (const WeightFormat& weights : formats()) {
      INFO(name << ", " << table->name << ", " << to_string(weights));
      const Network whole(files, with(table, weights));
      const Rows expected = at_once(whole, tokens);
      REQUIRE(expected.size() == tokens.size());
      for (const Index chunk : {1, 7, 64}) {
        if (is_slow(*table) && chunk != 7) continue;
        INFO("chunk " << chunk);
        CHECK(first_difference(at_once(Network(files, with(table, weights, chunk)), tokens), expected) == -1);
      }
      for (const int threads : {2, 5}) {
        INFO("threads " << threads);
        const Network other(files, with(table, weights, 512, threads));
        CHECK(first_difference(at_once(other, tokens), expected) == -1);
      }
      for (const Index step : {1, 5, 33}) {
        if (is_slow(*table) && step != 33) continue;
        INFO("step " << step);
        CHECK(first_difference(in_steps(whole, tokens, step), expected) == -1);
      }
      CHECK(first_difference(in_company(whole, tokens, 3), expected) == -1);
    }
  }
}

}  // namespace

TEST_CASE("int8 activations give the same bits in any chunks, steps, threads and company",
          "[bits][threads]") {
  check_bits<ql::Model<ql::Qwen3>>("qwen3-tiny");
  check_bits<ql::Model<ql::Qwen3_5>>("qwen3.5-tiny-gqa");
}

TEST_CASE("int8 activations stay near exact ones") {
  const std::vector<int> tokens = random_tokens(40, 8);
  for (const std::string& name : all_checkpoints) {
    for (const ql::kernels::KernelTable* table : kernel_tests::all_tables()) {
      const auto rows = [&](ql::Precision precision, const WeightFormat& weights) {
        ql::OpenOptions options = with(table, weights);
        options.precision = precision;
        const ql::AnyModel model = ql::open(checkpoint_path(name), options);
        auto session = model.new_session({.max_tokens = 64});
        return copied(model.logits(session, tokens, ql::Logits::all));
      };
      for (const WeightFormat& weights : formats()) {
        const double error =
            mean_error(rows(ql::Precision::int8, weights), rows(ql::Precision::exact, weights));
        INFO(name << ", " << table->name << ", " << to_string(weights) << ": " << error);
        CHECK(error > 0);
        CHECK(error < 0.1);  // the networks are random: errors do not cancel as in a trained one
      }
    }
  }
}

TEST_CASE("int8 activations pass the check against the scalar kernels") {
  for (const char* name : {"qwen3-tiny", "qwen3.5-tiny"}) {
    for (const ql::kernels::KernelTable* table : kernel_tests::all_tables()) {
      for (const WeightFormat& weights : formats()) {
        INFO(name << ", " << table->name << ", " << to_string(weights));
        ql::OpenOptions options = with(table, weights);
        options.check = true;
        const ql::AnyModel model = ql::open(checkpoint_path(name), options);
        auto session = model.new_session({.max_tokens = 32});
        CHECK_NOTHROW(model.logits(session, random_tokens(20, 6)));
        CHECK_NOTHROW(model.logits(session, random_tokens(1, 7)));
      }
    }
  }
}

TEST_CASE("explain says where int8 activations have no effect") {
  const ql::Checkpoint files(checkpoint_path("qwen3-tiny"));
  const auto explained = [&](const std::optional<WeightFormat>& weights) {
    return ql::open(files, {.threads = 1, .precision = ql::Precision::int8, .weights = weights}).explain();
  };
  for (const WeightFormat& weights : formats()) {
    CHECK(explained(weights).precision == "int8");
    CHECK(explained(weights).precision_reason == "asked for");
  }
  for (const std::optional<WeightFormat>& weights :
       {std::optional<WeightFormat>(), std::optional<WeightFormat>(Format::fp8)}) {
    CHECK(explained(weights).precision == "int8");
    CHECK_THAT(explained(weights).precision_reason, has_text("without effect"));
  }
  const auto logits = [&](ql::Precision precision) {
    const ql::AnyModel model = ql::open(files, {.threads = 1, .precision = precision});
    auto session = model.new_session({.max_tokens = 64});
    return copied(model.logits(session, random_tokens(20, 9), ql::Logits::all));
  };
  CHECK(first_difference(logits(ql::Precision::int8), logits(ql::Precision::exact)) == -1);
}
