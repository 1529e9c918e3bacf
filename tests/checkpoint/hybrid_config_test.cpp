// SPDX-License-Identifier: Apache-2.0
//
// config.json of Qwen3.5: as published with a vision part, and as a text model alone.
#include <nlohmann/json.hpp>

#include <qwenlite/checkpoint/model_config.hpp>

#include "catch_any.hpp"
#include "checkpoint/fixtures.hpp"

using namespace fixtures;
using namespace qwenlite;
using Json = nlohmann::ordered_json;

namespace {

/// The text part of the published config.json of the 0.8B, with the layers' kinds by interval.
Json text_part() {
  return Json::parse(R"({
    "attention_bias": false, "attn_output_gate": true, "dtype": "bfloat16", "eos_token_id": 248044,
    "full_attention_interval": 4, "head_dim": 256, "hidden_act": "silu", "hidden_size": 1024,
    "intermediate_size": 3584, "linear_conv_kernel_dim": 4, "linear_key_head_dim": 128,
    "linear_num_key_heads": 16, "linear_num_value_heads": 16, "linear_value_head_dim": 128,
    "mamba_ssm_dtype": "float32", "max_position_embeddings": 262144, "mlp_only_layers": [],
    "model_type": "qwen3_5_text", "mtp_num_hidden_layers": 1, "mtp_use_dedicated_embeddings": false,
    "num_attention_heads": 8, "num_hidden_layers": 24, "num_key_value_heads": 2, "rms_norm_eps": 1e-06,
    "rope_parameters": {"mrope_interleaved": true, "mrope_section": [11, 11, 10],
                        "partial_rotary_factor": 0.25, "rope_theta": 10000000, "rope_type": "default"},
    "tie_word_embeddings": true, "use_cache": true, "vocab_size": 248320})");
}

Json published(const Json& text) {
  return {{"architectures", {"Qwen3_5ForConditionalGeneration"}},
          {"image_token_id", 248056},
          {"model_type", "qwen3_5"},
          {"text_config", text},
          {"tie_word_embeddings", true},
          {"vision_config", {{"model_type", "qwen3_5"}, {"hidden_size", 768}, {"num_heads", 12}}}};
}

ModelConfig parse(const Json& json) {
  std::vector<std::string> warnings;
  ModelConfig config = parse_model_config({json.dump(), "config.json"}, warnings);
  CHECK(warnings.empty());
  return config;
}

Json with(const char* field, const Json& value) {
  Json json = text_part();
  json[field] = value;
  return json;
}
Json without(const char* field) {
  Json json = text_part();
  json.erase(field);
  return json;
}

}  // namespace

TEST_CASE("Qwen3.5: config.json as published, and flat") {
  for (const Json& json : {published(text_part()), text_part()}) {
    const ModelConfig config = parse(json);
    CHECK(config.model_type == "qwen3_5");
    CHECK(config.hidden_size == 1024);
    CHECK(config.num_hidden_layers == 24);
    CHECK(config.head_dim == 256);
    CHECK(config.tie_word_embeddings);
    CHECK(config.eos_token_ids == std::vector<int>{248044});
    CHECK(config.rope.rope_theta == 1e7);
    CHECK(config.rope.rope_type == RopeType::plain);
    CHECK(config.rope.partial_rotary_factor == 0.25);
    CHECK(config.context_limit() == 262144);
    CHECK(config.linear_num_key_heads == 16);
    CHECK(config.linear_num_value_heads == 16);
    CHECK(config.linear_key_head_dim == 128);
    CHECK(config.linear_value_head_dim == 128);
    CHECK(config.linear_conv_kernel_dim == 4);
    CHECK(config.mtp_num_hidden_layers == 1);
    CHECK(config.layers_of(LayerType::full_attention) == 6);
    CHECK(config.layers_of(LayerType::linear_attention) == 18);
  }
}

TEST_CASE("Qwen3.5: the kind of each layer is listed, or follows from the interval") {
  const ModelConfig by_interval = parse(text_part());
  for (std::size_t i = 0; i < 24; ++i) {
    CHECK((by_interval.layer_types[i] == LayerType::full_attention) == (i % 4 == 3));
  }
  Json list(std::vector<std::string>(24, "linear_attention"));
  list[5] = "full_attention";
  Json alone = without("full_attention_interval");
  alone["layer_types"] = list;
  const ModelConfig listed = parse(alone);
  CHECK(listed.layers_of(LayerType::full_attention) == 1);
  CHECK(listed.layer_types[5] == LayerType::full_attention);

  // Both are allowed if they agree.
  expect_error(ErrorCode::bad_config,
               {"field 'full_attention_interval': found 4, expected what 'layer_types' lists"},
               [&] { parse(with("layer_types", list)); });
  alone["full_attention_interval"] = 6;  // of 24 layers, so it is not the sixth alone
  expect_error(ErrorCode::bad_config, {"'full_attention_interval'", "found 6"}, [&] { parse(alone); });
  Json both = text_part();
  both["layer_types"] = Json::array();
  for (int i = 0; i < 24; ++i) {
    both["layer_types"].push_back(i % 4 == 3 ? "full_attention" : "linear_attention");
  }
  CHECK(parse(both).layer_types == by_interval.layer_types);
  both["full_attention_interval"] = "4";
  expect_error(ErrorCode::bad_config, {"'full_attention_interval'", "'4'"}, [&] { parse(both); });

  expect_error(ErrorCode::bad_config, {"'full_attention_interval'", "nothing"},
               [] { parse(without("full_attention_interval")); });
  expect_error(ErrorCode::bad_config, {"'layer_types'", "24"},
               [] { parse(with("layer_types", Json(std::vector<std::string>(23, "linear_attention")))); });
  list[0] = "sliding_attention";
  expect_error(ErrorCode::unsupported, {"'layer_types'", "'sliding_attention'"},
               [&] { parse(with("layer_types", list)); });
  for (const char* only : {"linear_attention", "full_attention"}) {
    alone = without("full_attention_interval");
    alone["layer_types"] = std::vector<std::string>(24, only);
    expect_error(ErrorCode::unsupported, {"'layer_types'", "both"}, [&] { parse(alone); });
  }
}

TEST_CASE("Qwen3.5: shares of the rotary dimensions are checked") {
  const auto shares = [](const Json& value) {
    Json json = text_part();
    json["rope_parameters"]["mrope_section"] = value;
    return json;
  };
  for (const Json& right : {Json{11, 11, 10}, Json{32, 0, 0}, Json{0, 31, 1}, Json()}) {
    CHECK(parse(shares(right)).rope.partial_rotary_factor == 0.25);
  }
  const auto refused = [&](const Json& value, const std::string& found, const std::string& expected) {
    INFO(value.dump());
    expect_error(ErrorCode::bad_config, {"field 'rope_parameters.mrope_section': found " + found, expected},
                 [&] { parse(shares(value)); });
  };
  refused({11, 11, 11}, "shares that sum to 33", "expected 32");
  refused({11, 11, 9}, "shares that sum to 31", "expected 32");
  refused({22, 22, 20}, "shares that sum to 64", "expected 32");  // dimensions, not pairs of them
  refused({43, -11, 0}, "43", "an integer from 0 to 32");
  refused({11, -11, 32}, "-11", "an integer from 0 to 32");
  refused({10.5, 10.5, 11}, "10.5", "an integer");
  refused({11, 11, "10"}, "'10'", "an integer");
  refused({11, 11, nullptr}, "null", "an integer");
  refused({9223372036854775807, 9223372036854775807, 34}, "9223372036854775807", "from 0 to 32");
  refused({16, 16}, "a list of 2", "a list of 3");
  refused({11, 11, 10, 0}, "a list of 4", "a list of 3");
  refused(Json::array(), "a list of 0", "a list of 3");
  refused(32, "32", "a list of 3");
  refused(Json::object(), "an object", "a list of 3");

  Json older = text_part();
  older["rope_scaling"] = older["rope_parameters"];
  older["rope_scaling"]["mrope_section"] = {11, 11, 12};
  older.erase("rope_parameters");
  expect_error(ErrorCode::bad_config, {"'rope_scaling.mrope_section'", "34"}, [&] { parse(older); });
}

TEST_CASE("Qwen3.5: what would be computed wrongly is refused") {
  expect_error(ErrorCode::unsupported, {"'attn_output_gate'"},
               [] { parse(with("attn_output_gate", false)); });
  expect_error(ErrorCode::unsupported, {"'mlp_only_layers'"}, [] { parse(with("mlp_only_layers", {1})); });
  expect_error(ErrorCode::unsupported, {"'model_type'", "'qwen3_5_moe_text'"},
               [] { parse(with("model_type", "qwen3_5_moe_text")); });
  expect_error(ErrorCode::unsupported, {"'architectures'", "'Qwen3ForCausalLM'", "Qwen3_5"},
               [] { parse(with("architectures", {"Qwen3ForCausalLM"})); });
  expect_error(ErrorCode::bad_config, {"'linear_num_value_heads'", "24", "16"},
               [] { parse(with("linear_num_value_heads", 24)); });
  CHECK(parse(with("linear_num_value_heads", 32)).linear_num_value_heads == 32);
  for (const char* field : {"linear_num_key_heads", "linear_num_value_heads", "linear_key_head_dim",
                            "linear_value_head_dim", "linear_conv_kernel_dim"}) {
    expect_error(ErrorCode::bad_config, {std::string("'") + field + "'", "nothing"},
                 [&] { parse(without(field)); });
    expect_error(ErrorCode::bad_config, {std::string("'") + field + "'"}, [&] { parse(with(field, 0)); });
  }
}

TEST_CASE("Qwen3.5: how much of a head turns is said, and an even number of dimensions") {
  Json json = text_part();
  json["rope_parameters"].erase("mrope_section");
  json["rope_parameters"].erase("partial_rotary_factor");
  expect_error(ErrorCode::bad_config, {"'partial_rotary_factor'", "nothing"}, [&] { parse(json); });
  json["partial_rotary_factor"] = 0.5;
  CHECK(parse(json).rope.partial_rotary_factor == 0.5);
  json["partial_rotary_factor"] = 1;
  CHECK(parse(json).rope.partial_rotary_factor == 1);
  json["partial_rotary_factor"] = 0.005;  // one dimension
  expect_error(ErrorCode::bad_config, {"'partial_rotary_factor'", "256", "even"}, [&] { parse(json); });
}
