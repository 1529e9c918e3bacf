// SPDX-License-Identifier: Apache-2.0
//
// Fixtures of published ways to pack matrices: each packed matrix unpacks to exactly the expected numbers,
// and files that say one thing and hold another are refused, by name.
#include <fstream>
#include <functional>
#include <iterator>
#include <nlohmann/json.hpp>

#include <qwenlite/checkpoint/checkpoint.hpp>
#include <qwenlite/checkpoint/packed_unpack.hpp>

#include "checkpoint/packed_fixtures.hpp"

using namespace fixtures;
using namespace qwenlite;

namespace {

using Json = nlohmann::ordered_json;

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
  expect_error(
      ErrorCode::bad_tensor,
      {"'model.language_model.layers.1.mlp.up_proj.weight'", "expected a packed one (GPTQ) by the rules of"},
      [&] { packed.check_plain("model.language_model.layers.1.mlp.up_proj.weight"); });
}

TEST_CASE("a packed matrix needs a store") {
  const Checkpoint files(packed_fixture("gptq-int4"));
  CHECK(files.weights().contains("model.layers.0.mlp.up_proj.weight"));
  expect_error(ErrorCode::unsupported, {"'model.layers.0.mlp.up_proj.weight'", "a packed matrix"}, [&] {
    (void)files.weights().product("model.layers.0.mlp.up_proj.weight", 40, 64, MatrixUse::layer);
  });
}

namespace {

constexpr const char* first_matrix = "model.layers.0.self_attn.q_proj.weight";

/// Opens the weights of a fixture under the configuration of another, or with one value of its own changed,
/// or without any, and takes a matrix; returns the message of the error.
std::string relabelled(const std::string& fixture, const std::function<void(Json&)>& change,
                       const char* matrix = first_matrix, const Shape& shape = {32, 64}) {
  const TemporaryDirectory place;
  fs::copy(packed_fixture(fixture), place.path(), fs::copy_options::recursive);
  std::ifstream in(place.path() / "config.json");
  Json config = Json::parse(in);
  change(config);
  place.write("config.json", config.dump());
  try {
    const Checkpoint files(place.path());
    (void)files.weights().product(matrix, shape[0], shape[1], MatrixUse::layer);
  } catch (const Error& e) {
    CHECK((e.code() == ErrorCode::bad_tensor || e.code() == ErrorCode::bad_config));
    return e.what();
  }
  return "no error";
}

Json quantisation_of(const std::string& fixture) {
  std::ifstream in(packed_fixture(fixture) / "config.json");
  return Json::parse(in)["quantization_config"];
}

}  // namespace

TEST_CASE("packed matrices under the label of another way are told by tensor, found and expected") {
  const auto under = [](const std::string& label) {
    return [label](Json& config) { config["quantization_config"] = quantisation_of(label); };
  };
  const std::string q_proj = "model.layers.0.self_attn.q_proj";
  const std::string place = "config.json': field 'quantization_config'";
  CHECK_THAT(relabelled("gptq-int4", under("own")),
             has_text(q_proj + ".weight': found '" + q_proj + ".qweight', as GPTQ and AWQ pack a matrix") &&
                 has_text("expected a packed one (qwenlite) by the rules of '") && has_text(place));
  CHECK_THAT(relabelled("compressed-int4", under("awq")),
             has_text("found '" + q_proj + ".weight_packed', as compressed-tensors packs a matrix") &&
                 has_text("expected a packed one (AWQ)"));
  CHECK_THAT(
      relabelled("own", under("gptq-int4"), "model.embed_tokens.weight"),
      has_text("found 'model.embed_tokens.weight.values', as qwenlite packs a matrix, expected shape [") &&
          has_text("or a matrix packed by GPTQ as in '") && has_text(place));
  CHECK_THAT(relabelled("fp8", under("gptq-int4")),
             has_text("found a plain matrix of F8_E4M3, expected a packed one (GPTQ)"));
  CHECK_THAT(
      relabelled("gptq-int4", under("awq")),
      has_text(q_proj + ".qweight': found shape [8, 32], expected shape [64, 4], which follows from AWQ, "
                        "4 bits in groups of 32, in '") &&
          has_text(place));
  const auto unlabelled = [](Json& config) { config.erase("quantization_config"); };
  CHECK_THAT(relabelled("gptq-int4", unlabelled),
             has_text("as GPTQ and AWQ pack a matrix, expected shape [") &&
                 has_text("config.json has no 'quantization_config'"));
  CHECK_THAT(relabelled("fp8", unlabelled, first_matrix, {16, 128}),
             has_text("found dtype F8_E4M3, expected BF16, F16 or F32, since "
                      "config.json has no 'quantization_config'"));
}

TEST_CASE("bits and groups that contradict the tensors are told by tensor, found and expected") {
  const auto with = [](const char* field, const Json& value) {
    return [=](Json& config) { config["quantization_config"][field] = value; };
  };
  CHECK_THAT(
      relabelled("gptq-int4", with("bits", 8)),
      has_text(".qweight': found shape [8, 32], expected shape [16, 32], which follows from GPTQ, 8 bits"));
  CHECK_THAT(
      relabelled("gptq-int4", with("group_size", 16)),
      has_text(".scales': found shape [2, 32], expected shape [4, 32], which follows from GPTQ, 4 bits in "
               "groups of 16, in '"));
  CHECK_THAT(
      relabelled("awq", with("group_size", -1)),
      has_text(".scales': found shape [2, 32], expected shape [1, 32], which follows from AWQ, 4 bits by "
               "rows, in '"));
  CHECK_THAT(
      relabelled("fp8", with("weight_block_size", Json::array({64, 64})), first_matrix, {16, 128}),
      has_text(".weight_scale_inv': found shape [1, 1], expected shape [1, 2], which follows from FP8 in "
               "blocks of 64 x 64, in '"));
}

TEST_CASE("what our own configuration tells of the weights is held against the tensors") {
  const auto with = [](const char* field, const char* word) {
    return [=](Json& config) { config["quantization_config"][field] = word; };
  };
  const std::string found = "q_proj.weight.values': found int4 in groups of 32 with zero points, expected ";
  for (const auto& [word, expected] :
       {std::pair{"int8:128", "int8 in groups of 128, "}, std::pair{"int4:32", "int4 in groups of 32, "},
        std::pair{"int4:64:zeros", "int4 in groups of 64 with zero points, "},
        std::pair{"fp8", "fp8 in blocks of 128, "}, std::pair{"bf16", "bf16, "}}) {
    CHECK_THAT(relabelled("own", with("weights", word)),
               has_text(found + expected + "which is 'weights' in '") && has_text("'quantization_config'"));
  }
  CHECK_THAT(relabelled("own", with("embedding", "int4:64"), "model.embed_tokens.weight"),
             has_text("embed_tokens.weight.values': found int8 ") &&
                 has_text("expected int4 in groups of 64, which is 'embedding' in '"));
  CHECK_THAT(relabelled("own", with("weights", "int5")),
             has_text("config.json': field 'quantization_config': weights: found 'int5', expected a format"));
  const Checkpoint fixture(packed_fixture("own"));
  CHECK(packed_of(fixture).matrix("model.layers.0.self_attn.q_proj.weight", 32, 64).bits == 4);
}
