// SPDX-License-Identifier: Apache-2.0
#include <qwenlite/checkpoint/weights.hpp>

#include "checkpoint/fixtures.hpp"

using namespace fixtures;
using namespace qwenlite;

namespace {

/// Tensors of three layers and some others, without values.
Weights sample() {
  static const Bytes file = [] {
    std::string header = "{";
    Index at = 0;
    const auto add = [&](const std::string& name, const char* dtype, const Shape& shape, Index bytes) {
      header += (at == 0 ? "\"" : ",\"") + name + "\":{\"dtype\":\"" + dtype +
                "\",\"shape\":" + shape.to_string() + ",\"data_offsets\":[" + std::to_string(at) + "," +
                std::to_string(at + bytes) + "]}";
      at += bytes;
    };
    add("model.embed_tokens.weight", "BF16", {4, 2}, 16);
    add("model.norm.weight", "F32", {2}, 8);
    for (int i = 0; i < 3; ++i) add("model.layers." + std::to_string(i) + ".w.weight", "F16", {2, 2}, 8);
    add("lm_head.weight", "BF16", {4, 2}, 16);
    add("mtp.fc.weight", "BF16", {2, 2}, 8);
    add("model.ids", "I64", {2}, 16);
    add("model.flags", "BOOL", {2, 2}, 4);
    add("model.eight", "F8_E4M3", {2, 2}, 4);
    add("model.double", "F64", {1}, 8);
    return safetensors(header + "}", static_cast<std::size_t>(at));
  }();
  const std::vector<NamedBytes> named = {{"w.safetensors", file}};
  return Weights(std::make_shared<const TensorFiles>(std::span(named)));
}

}  // namespace

TEST_CASE("weights are found relative to their scope, with shape and format") {
  const Weights weights = sample();
  const Weights model = weights.scope("model.");
  const WeightView embed = model.matrix("embed_tokens.weight", 4, 2);
  CHECK(embed.rows == 4);
  CHECK(embed.cols == 2);
  CHECK(embed.format == Format::bf16);
  CHECK(embed.data == weights.tensor("model.embed_tokens.weight", Shape{4, 2}).data);
  CHECK(model.vector("norm.weight", 2).format == Format::f32);
  CHECK(model.vector("norm.weight", 2).size == 2);
  const Weights layer = model.scope("layers.1.");
  CHECK(layer.prefix() == "model.layers.1.");
  CHECK(layer.matrix("w.weight", 2, 2).format == Format::f16);
  CHECK(layer.contains("w.weight"));
  CHECK_FALSE(layer.contains("v.weight"));
  CHECK_FALSE(weights.contains("embed_tokens.weight"));
  CHECK(model.tensor("ids", Shape{2}).dtype == DType::i64);
}

TEST_CASE("a weight that does not fit is an error that names the tensor and both sides") {
  const Weights model = sample().scope("model.");
  constexpr auto bad = ErrorCode::bad_tensor;
  expect_error(bad, {"w.safetensors", "'model.layers.3.w.weight'", "found none", "[2, 2]"},
               [&] { (void)model.scope("layers.3.").matrix("w.weight", 2, 2); });
  expect_error(
      bad, {"w.safetensors", "'model.embed_tokens.weight'", "found shape [4, 2]", "expected shape [4, 3]"},
      [&] { (void)model.matrix("embed_tokens.weight", 4, 3); });
  expect_error(bad, {"found shape [4, 2]", "expected shape [2, 4]"},
               [&] { (void)model.matrix("embed_tokens.weight", 2, 4); });
  expect_error(bad, {"found shape [4, 2]", "expected shape [8]"},
               [&] { (void)model.vector("embed_tokens.weight", 8); });
  expect_error(bad, {"found shape [2]", "expected shape [2, 1]"},
               [&] { (void)model.matrix("norm.weight", 2, 1); });
  expect_error(bad, {"'model.ids'", "dtype I64", "BF16, F16 or F32"}, [&] { (void)model.vector("ids", 2); });
  expect_error(bad, {"'model.flags'", "dtype BOOL"}, [&] { (void)model.matrix("flags", 2, 2); });
  expect_error(bad, {"'model.eight'", "dtype F8_E4M3"}, [&] { (void)model.matrix("eight", 2, 2); });
  expect_error(bad, {"'model.double'", "dtype F64"}, [&] { (void)model.vector("double", 1); });
}

TEST_CASE("tensors nobody took are reported, first five by name") {
  const Weights weights = sample();
  expect_error(ErrorCode::bad_tensor,
               {"w.safetensors", "found 11", "'lm_head.weight'", "'model.double'", "'model.eight'",
                "'model.embed_tokens.weight'", "'model.flags', ..."},
               [&] { weights.expect_all_used(); });

  const Weights model = weights.scope("model.");  // takes below count for all handles
  (void)model.matrix("embed_tokens.weight", 4, 2);
  (void)model.vector("norm.weight", 2);
  for (int i = 0; i < 3; ++i) (void)model.scope("layers." + std::to_string(i) + ".").matrix("w.weight", 2, 2);
  expect_error(ErrorCode::bad_tensor, {"found 6"}, [&] { weights.expect_all_used(); });
  (void)model.contains("ids");  // only asking
  expect_error(ErrorCode::bad_tensor, {"found 4 ('model.double', 'model.eight', 'model.flags', 'model.ids')"},
               [&] {
                 weights.expect_all_used({"lm_head.", "mtp."});
               });
  for (const char* name : {"flags", "eight"}) (void)model.tensor(name, Shape{2, 2});
  (void)model.tensor("ids", Shape{2});
  expect_error(ErrorCode::bad_tensor, {"found 1 ('model.double')"}, [&] {
    weights.expect_all_used({"lm_head.", "mtp."});
  });
  CHECK_NOTHROW(weights.expect_all_used({"lm_head.", "mtp.", "model.dou"}));

  model.scope("layers.").expect_all_used();  // only what lies under the prefix
  expect_error(ErrorCode::bad_tensor, {"'model.double'"}, [&] {
    model.expect_all_used({"lm_head.", "mtp."});
  });
  CHECK_NOTHROW(model.expect_all_used({"double"}));
}

TEST_CASE("a failed lookup does not count as taken, and every Weights starts afresh") {
  const Weights weights = sample();
  const Weights norm = weights.scope("model.norm.");
  CHECK_THROWS_AS((void)norm.vector("weight", 3), Error);
  expect_error(ErrorCode::bad_tensor, {"found 1 ('model.norm.weight')"}, [&] { norm.expect_all_used(); });
  (void)norm.vector("weight", 2);
  CHECK_NOTHROW(norm.expect_all_used());
  const Weights again(weights.files());
  expect_error(ErrorCode::bad_tensor, {"found 1"}, [&] { again.scope("model.norm.").expect_all_used(); });
}

TEST_CASE("a handle keeps the files open") {
  const TemporaryDirectory place;
  place.write("model.safetensors",
              safetensors(R"({"a":{"dtype":"F32","shape":[1],"data_offsets":[0,4]}})", 4));
  std::optional<Weights> inner;
  {
    const Weights outer(std::make_shared<const TensorFiles>(ModelDirectory(place.path())));
    inner = outer.scope("");
  }
  CHECK(bytes_of(inner->tensor("a", Shape{1})).size() == 4);
}
