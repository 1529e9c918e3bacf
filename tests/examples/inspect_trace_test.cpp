// SPDX-License-Identifier: Apache-2.0
//
// inspect trace against a reference implementation in float64: every intermediate result of every token, by
// name. tests/data/layer_outputs/ holds the reference's results for five ids each, rounded to float32, and
// the ids themselves.
#include <cmath>
#include <set>

#include <qwenlite/checkpoint/safetensors.hpp>

#include "run_program.hpp"

using namespace example_tests;
using qwenlite::SafetensorsFile;
using qwenlite::TensorView;

namespace {

std::vector<int> ids_of(const SafetensorsFile& file) {
  const TensorView* tensor = file.find("ids");
  REQUIRE(tensor != nullptr);
  std::vector<int> ids;
  for (qwenlite::Index i = 0; i < tensor->shape[0]; ++i) {
    std::int64_t id = 0;
    std::memcpy(&id, tensor->data + i * 8, 8);
    ids.push_back(static_cast<int>(id));
  }
  return ids;
}

/// Largest difference between two float32 tensors of the same shape.
double worst_difference(const TensorView& a, const TensorView& b) {
  REQUIRE(a.shape == b.shape);
  REQUIRE(a.dtype == qwenlite::DType::f32);
  REQUIRE(b.dtype == qwenlite::DType::f32);
  qwenlite::Index elements = 0;
  REQUIRE(a.shape.elements(elements));
  double worst = 0;
  for (qwenlite::Index i = 0; i < elements; ++i) {
    float x = 0;
    float y = 0;
    std::memcpy(&x, a.data + i * 4, 4);
    std::memcpy(&y, b.data + i * 4, 4);
    const double difference = std::abs(static_cast<double>(x) - static_cast<double>(y));
    if (!(difference <= worst)) worst = difference;  // NaN comes through
  }
  return worst;
}

}  // namespace

TEST_CASE("inspect trace agrees with the reference in every intermediate result") {
  for (const std::string name : {"qwen3-tiny", "qwen3-tiny-untied-sharded", "qwen3-tiny-yarn"}) {
    const SafetensorsFile reference{fs::path(QWENLITE_TEST_DATA "/layer_outputs/" + name + ".safetensors")};
    const TemporaryDirectory scratch;
    const fs::path out = scratch.path() / "trace.safetensors";
    const Result result = run(
        "inspect", {"trace", QWENLITE_TEST_DATA "/checkpoints/" + name, "--ids", joined(ids_of(reference)),
                    "--all", "--precision", "exact", "--kv", "f32", "--chunk", "3", "--out", out.string()});
    INFO(name << ": " << result.err);
    REQUIRE(result.status == 0);
    const SafetensorsFile traced{out};
    std::set<std::string> expected;
    for (const auto& tensor : reference.tensors()) {
      if (tensor.name != "ids") expected.insert(tensor.name);
    }
    std::set<std::string> found;
    for (const auto& tensor : traced.tensors()) found.insert(tensor.name);
    CHECK(found == expected);
    for (const auto& tensor : traced.tensors()) {
      INFO(tensor.name);
      const TensorView* stored = reference.find(tensor.name);
      REQUIRE(stored != nullptr);
      const double worst = worst_difference(tensor.view, *stored);
      CHECK(worst < 1e-5);  // float32 rounding leaves up to 4e-6 in so few layers
      if (tensor.name == "embedding") CHECK(worst == 0);
    }
  }
}
