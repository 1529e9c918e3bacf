// SPDX-License-Identifier: Apache-2.0
//
// quantization_config: what is understood, what is refused by name, and which modules its rules mean.
#include <fstream>
#include <nlohmann/json.hpp>
#include <sstream>

#include <qwenlite/checkpoint/model_config.hpp>
#include <qwenlite/checkpoint/module_pattern-inl.hpp>

#include "checkpoint/packed_fixtures.hpp"

using namespace fixtures;
using namespace qwenlite;
using Json = nlohmann::ordered_json;

namespace {

Json fixture_json(const std::string& name) {
  std::ifstream file(packed_fixture(name) / "config.json");
  REQUIRE(file.good());
  return Json::parse(file);
}

QuantisationConfig parsed(const Json& config, std::vector<std::string>* warnings = nullptr) {
  std::vector<std::string> own;
  const std::string text = config.dump();
  return parse_model_config({text, "config.json"}, warnings != nullptr ? *warnings : own).quantisation;
}

/// The fixture's configuration with one field of quantization_config replaced; paths as "/weights/type".
QuantisationConfig with(const std::string& name, const std::string& path, const Json& value) {
  Json config = fixture_json(name);
  config["quantization_config"][Json::json_pointer(path)] = value;
  return parsed(config);
}

module_pattern::Match match(std::string_view pattern, std::string_view name) {
  return module_pattern::Expression(pattern, name).match();
}

using Kind = ExpectedForm::Kind;

}  // namespace

TEST_CASE("configurations in words") {
  const auto words = [](const char* name) { return to_string(parsed(fixture_json(name))); };
  CHECK(words("gptq-int4") == "GPTQ, 4 bits in groups of 32, symmetric, zero points stored less one");
  CHECK(words("gptq-int4-v2-zeros") == "GPTQ, 4 bits in groups of 64, with zero points");
  CHECK(words("gptq-int4-junk-zeros") == "GPTQ, 4 bits by rows, symmetric, zero points stored less one");
  CHECK(words("awq") == "AWQ, 4 bits in groups of 32, with zero points");
  CHECK(words("fp8") == "FP8, blocks of 128 x 128");
  CHECK(words("compressed-int8") == "compressed-tensors, 8 bits by rows, symmetric");
  CHECK(words("own") == "qwenlite, weights int4:32:zeros, embedding int8:row");
  std::vector<std::string> warnings;
  (void)parsed(fixture_json("fp8"), &warnings);
  REQUIRE(warnings.size() == 1);
  CHECK_THAT(warnings[0],
             has_text("'quantization_config.activation_scheme'") && has_text("not quantised here"));
  for (const auto& [who, told] : {std::pair{"qwenlite", 0}, std::pair{"another", 1}}) {
    Json config = fixture_json("fp8");
    config["quantization_config"]["quantized_by"] = who;
    warnings.clear();
    (void)parsed(config, &warnings);
    CHECK(std::ssize(warnings) == told);
    config["quantization_config"]["activation_scheme"] = "static";
    expect_error(ErrorCode::unsupported, {"activation_scheme'", "'static'"}, [&] { (void)parsed(config); });
  }
}

TEST_CASE("what would change results is refused by name") {
  struct Case {
    const char* fixture;
    const char* path;
    Json value;
  };
  const Json activations = {{"num_bits", 8}, {"type", "int"}};
  const std::vector<std::pair<Case, std::string>> cases = {
      {{"gptq-int4", "/quant_method", "bitsandbytes"}, "'bitsandbytes'"},
      {{"gptq-int4", "/quant_method", nullptr}, "nothing"},
      {{"gptq-int4", "/bits", 3}, "3"},
      {{"gptq-int4", "/checkpoint_format", "marlin"}, "'marlin'"},
      {{"gptq-int4", "/format", "bitblas"}, "'bitblas'"},
      {{"gptq-int4", "/pack_dtype", "int64"}, "'int64'"},
      {{"gptq-int4", "/is_marlin_format", true}, "true"},
      {{"gptq-int4", "/adapter", {{"name", "lora"}}}, "an object"},
      {{"awq", "/version", "gemv"}, "'gemv'"},
      {{"awq", "/bits", 8}, "8"},
      {{"awq", "/zero_point", false}, "false"},
      {{"fp8", "/fmt", "e5m2"}, "'e5m2'"},
      {{"fp8", "/activation_scheme", "static"}, "'static'"},
      {{"fp8", "/weight_block_size", nullptr}, "nothing"},
      {{"fp8", "/weight_block_size", {128}}, "a list of 1"},
      {{"compressed-int4", "/format", "nvfp4-pack-quantized"}, "'nvfp4-pack-quantized'"},
      {{"compressed-int4", "/kv_cache_scheme", activations}, "an object"},
      {{"compressed-int4", "/sparsity_config", {{"format", "sparse-24-bitmask"}}}, "an object"},
      {{"compressed-int4", "/transform_config", {{"R1", 1}}}, "an object"},
      {{"compressed-int4", "/config_groups/group_0/input_activations", activations}, "an object"},
      {{"compressed-int4", "/config_groups/group_0/weights/type", "float"}, "'float'"},
      {{"compressed-int4", "/config_groups/group_0/weights/num_bits", 2}, "2"},
      {{"compressed-int4", "/config_groups/group_0/weights/strategy", "token"}, "'token'"},
      {{"compressed-int4", "/config_groups/group_0/weights/dynamic", true}, "true"},
      {{"own", "/version", 2}, "2"},
      {{"own", "/group_order", "columns"}, "'columns'"}};
  for (const auto& [c, found] : cases) {
    INFO(c.fixture << c.path << " = " << c.value.dump());
    const std::string field(std::string_view(c.path).substr(std::string_view(c.path).rfind('/') + 1));
    expect_error(ErrorCode::unsupported, {"'config.json'", field + "'", "found " + found, "expected"},
                 [&, path = c.path, name = c.fixture, value = c.value] { (void)with(name, path, value); });
  }
}

TEST_CASE("impossible values in quantization_config are one error") {
  for (const auto& [path, value] :
       std::vector<std::pair<std::string, Json>>{{"/group_size", 0},
                                                 {"/group_size", -2},
                                                 {"/group_size", nullptr},
                                                 {"/group_size", "128"},
                                                 {"/bits", nullptr},
                                                 {"/bits", "4"},
                                                 {"/sym", 1},
                                                 {"/desc_act", "no"},
                                                 {"/dynamic", {1, 2}},
                                                 {"/dynamic/x", {{"bits", "4"}}},
                                                 {"/dynamic/x", 5},
                                                 {"/modules_to_not_convert", "lm_head"},
                                                 {"/modules_to_not_convert", {1}},
                                                 {"/format", "gptq_v2"}}) {
    INFO(path << " = " << value.dump());
    expect_error(ErrorCode::bad_config, {"'config.json'", "found"},
                 [&, p = path, v = value] { (void)with("gptq-int4", p, v); });
  }
  for (const char* name : {"weights", "embedding"}) {
    const std::string path = std::string("/") + name;
    const std::string field = "'quantization_config." + std::string(name) + "'";
    expect_error(ErrorCode::bad_config, {field, "found nothing", "a format of weights such as"},
                 [&] { (void)with("own", path, nullptr); });
    expect_error(ErrorCode::bad_config, {field, "found ''", "'int4:64'"},
                 [&] { (void)with("own", path, ""); });
    expect_error(ErrorCode::bad_config, {field, "found a list of 0", "a string"},
                 [&] { (void)with("own", path, Json::array()); });
  }
  Json config = fixture_json("gptq-int4");
  config["quantization_config"] = "gptq";
  expect_error(ErrorCode::bad_config, {"'quantization_config'", "an object"}, [&] { (void)parsed(config); });
  Json nested = fixture_json("gptq-hybrid");
  nested["text_config"]["quantization_config"] = nested["quantization_config"];
  nested.erase("quantization_config");
  CHECK((parsed(nested).method == QuantMethod::gptq));
}

TEST_CASE("expressions for names of modules") {
  using module_pattern::Match;
  const std::string name = "model.layers.12.linear_attn.in_proj_a";
  for (const char* pattern :
       {".*attn.*", "model\\.layers\\.\\d+\\.", ".*\\.linear_attn\\.in_proj_(a|b)$", "^model.*",
        ".*in_proj_[ab]", ".*layers\\.(1[0-9]|2[0-7])\\..*", "(?:model|language_model)\\..*", ".*a$",
        "model.l?ayers", "", "m+odel", ".*in_proj_[^bc]$", "(model\\.)*layers", "[\\w.]+$", ".*?attn"}) {
    INFO(pattern);
    CHECK((match(pattern, name) == Match::yes));
  }
  for (const char* pattern :
       {"attn", ".*mtp.*", ".*\\.in_proj_b", "layers.*", "model\\.layers\\.2\\.", ".*$x", ".*in_proj_[^a]$",
        "model\\.layer\\.", "(mtp|visual)", "modelx*layers"}) {
    INFO(pattern);
    CHECK((match(pattern, name) == Match::no));
  }
  for (const char* pattern : {"(?!mtp).*", ".*\\bmlp", "a{2}", "(a", "a)", "[a", "*", "(.*)\\1", "\\", "a**",
                              "((((((((a))))))))", "x{1,2}y"}) {
    INFO(pattern);
    CHECK((match(pattern, name) == Match::unknown));
  }
  const std::string hostile(900, 'a');  // takes forever where places are tried one after the other
  CHECK((match("((a*)*)*b", hostile) != Match::yes));
}

TEST_CASE("rules say which modules are packed, the first that matches") {
  const QuantisationConfig hybrid = parsed(fixture_json("gptq-hybrid"));
  const std::string layer = "model.language_model.layers.0.";
  CHECK((hybrid.expected(layer + "mlp.up_proj").kind == Kind::packed));
  CHECK((hybrid.expected(layer + "linear_attn.in_proj_qkv").kind == Kind::plain));
  CHECK((hybrid.expected(layer + "self_attn.q_proj").kind == Kind::plain));
  CHECK((hybrid.expected("mtp.layers.0.mlp.up_proj").kind == Kind::plain));
  CHECK((hybrid.expected("lm_head").kind == Kind::packed));  // named without a sign: nothing is skipped

  const QuantisationConfig mixed = parsed(fixture_json("gptq-int8-zeros"));
  const ExpectedForm down = mixed.expected("model.layers.0.mlp.down_proj");
  CHECK(down.bits == 4);
  CHECK((down.symmetric == true));
  CHECK(mixed.expected("model.layers.0.mlp.up_proj").bits == 8);

  const QuantisationConfig unknown = with("gptq-int4", "/dynamic", {{"-:(?!x).*", Json::object()}});
  CHECK((unknown.expected("model.layers.0.mlp.up_proj").kind == Kind::unknown));

  QuantisationConfig listed = with("awq", "/modules_to_not_convert", {"layers.1", "visual"});
  CHECK((listed.expected("model.layers.1.mlp.up_proj").kind == Kind::plain));
  CHECK((listed.expected("model.layers.10.mlp.up_proj").kind == Kind::packed));
  listed = with("awq", "/modules_to_not_convert", {"model.layers.3.self_attn.q_proj"});
  CHECK((listed.expected("model.language_model.layers.3.self_attn.q_proj").kind == Kind::packed));
  CHECK((listed.expected("model.language_model.layers.3.self_attn.q_proj", true).kind == Kind::plain));

  const QuantisationConfig only =
      with("gptq-int4", "/modules_in_block_to_quantize", {{"mlp.up_proj"}, {"mlp.down_proj"}});
  CHECK((only.expected("model.layers.0.mlp.up_proj").kind == Kind::packed));
  CHECK((only.expected("model.layers.0.self_attn.q_proj").kind == Kind::plain));

  Json groups = fixture_json("compressed-int4");
  Json second = groups["quantization_config"]["config_groups"]["group_0"];
  second["targets"] = {"re:.*down_proj$"};
  second["weights"]["num_bits"] = 8;
  groups["quantization_config"]["config_groups"]["group_1"] = second;
  const QuantisationConfig compressed = parsed(groups);
  CHECK(compressed.expected("model.layers.0.mlp.down_proj").bits == 8);
  CHECK(compressed.expected("model.layers.0.mlp.up_proj").bits == 4);
  CHECK((compressed.expected("lm_head").kind == Kind::plain));
}
