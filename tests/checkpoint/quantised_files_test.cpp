// SPDX-License-Identifier: Apache-2.0
//
// Fixtures of published ways to pack matrices: each packed matrix unpacks to exactly the expected numbers,
// and files that say one thing and hold another are refused, by name.
#include <fstream>
#include <iterator>

#include <qwenlite/checkpoint/checkpoint.hpp>
#include <qwenlite/checkpoint/packed_unpack.hpp>

#include "checkpoint/packed_fixtures.hpp"

using namespace fixtures;
using namespace qwenlite;

namespace {

struct Unpacked {
  Index matrices = 0;
  Index mapped = 0;
  Index floats = 0;
  bool odd[packed_oddities] = {};
};

/// Unpacks all that is expected and compares it, bit by bit.
Unpacked compare_all(const std::string& name) {
  const Checkpoint files(packed_fixture(name));
  const SafetensorsFile expected(packed_fixture(name) / "expected.safetensors");
  const PackedTensors packed = packed_of(files);
  Unpacked result;
  for (const NamedTensor& tensor : expected.tensors()) {
    INFO(name << ": " << tensor.name);
    REQUIRE(packed.has(tensor.name));
    const Index rows = tensor.view.shape[0];
    const Index cols = tensor.view.shape[1];
    const PackedMatrix matrix = packed.matrix(tensor.name, rows, cols);
    const UnpackedMatrix made = unpack(matrix);
    CHECK(first_difference(made.view, tensor.view) == -1);
    CHECK(first_difference(unpack(matrix, true).view, tensor.view) == -1);
    ++result.matrices;
    result.mapped += made.mapped ? 1 : 0;
    result.floats += made.view.format == Format::f32 ? 1 : 0;
    for (Index i = 0; i < packed_oddities; ++i) result.odd[i] = result.odd[i] || made.odd[i];
  }
  return result;
}

bool has(const Unpacked& result, PackedOddity oddity) {
  return result.odd[static_cast<std::size_t>(oddity)];
}

}  // namespace

TEST_CASE("packed matrices unpack to exactly what they stand for") {
  for (const char* name : {"gptq-int4", "gptq-int4-v1-zeros", "gptq-int4-v2-zeros", "gptq-int8-zeros", "awq",
                           "compressed-int4", "compressed-int8", "compressed-bytes"}) {
    const Unpacked result = compare_all(name);
    INFO(name);
    CHECK(result.matrices == 7);
    CHECK(result.mapped == 0);
    CHECK(result.floats == 0);
    for (const bool odd : result.odd) CHECK_FALSE(odd);
  }
}

TEST_CASE("what lies in the file as it is computed with stays there") {
  const Unpacked own = compare_all("own");
  CHECK(own.matrices == 8);
  CHECK(own.mapped == 8);
  const Unpacked blocks = compare_all("fp8");
  CHECK(blocks.matrices == 7);
  CHECK(blocks.mapped == 5);  // all whose rows are whole blocks of 128
  CHECK(blocks.floats == 0);
}

TEST_CASE("what has no exact form in groups becomes float32, and that is said") {
  const Unpacked order = compare_all("gptq-int4-act-order");
  CHECK(order.floats == 6);  // all but the one of a single group
  CHECK(has(order, PackedOddity::other_groups));
  const Unpacked compressed = compare_all("compressed-int4-zeros");
  CHECK(compressed.floats == 1);
  CHECK(has(compressed, PackedOddity::other_groups));
  const Unpacked blocks = compare_all("fp8-blocks");
  CHECK(blocks.matrices == 4);
  CHECK(blocks.floats == 4);
  CHECK(has(blocks, PackedOddity::other_blocks));
}

TEST_CASE("symmetric files are read as symmetric, whatever their zero points say") {
  const Unpacked labels = compare_all("gptq-int4-mislabelled");
  CHECK(has(labels, PackedOddity::mislabelled_zeros));
  CHECK_FALSE(has(labels, PackedOddity::ignored_zeros));
  const Unpacked junk = compare_all("gptq-int4-junk-zeros");
  CHECK(has(junk, PackedOddity::ignored_zeros));
  CHECK(junk.floats == 0);  // groups that are whole rows
}

TEST_CASE("which matrices of a hybrid network are packed is decided one by one") {
  const Unpacked hybrid = compare_all("gptq-hybrid");
  CHECK(hybrid.matrices == 6);
  const Checkpoint files(packed_fixture("gptq-hybrid"));
  const PackedTensors packed = packed_of(files);
  CHECK_FALSE(packed.has("model.language_model.layers.1.self_attn.q_proj.weight"));
  CHECK_FALSE(packed.has("mtp.layers.0.mlp.up_proj.weight"));
  packed.check_plain("model.language_model.layers.1.self_attn.q_proj.weight");
  packed.check_plain("model.language_model.layers.0.linear_attn.in_proj_qkv.weight");
  packed.check_plain("mtp.layers.0.mlp.up_proj.weight");
  packed.check_plain("lm_head.weight");
  expect_error(ErrorCode::bad_tensor,
               {"'model.language_model.layers.1.mlp.up_proj.weight'", "a plain matrix"},
               [&] { packed.check_plain("model.language_model.layers.1.mlp.up_proj.weight"); });
}

TEST_CASE("a packed matrix needs a store") {
  const Checkpoint files(packed_fixture("gptq-int4"));
  CHECK(files.weights().contains("model.layers.0.mlp.up_proj.weight"));
  expect_error(ErrorCode::unsupported, {"'model.layers.0.mlp.up_proj.weight'", "a packed matrix"}, [&] {
    (void)files.weights().product("model.layers.0.mlp.up_proj.weight", 40, 64, MatrixUse::layer);
  });
}
