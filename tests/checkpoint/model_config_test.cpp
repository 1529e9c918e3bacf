// SPDX-License-Identifier: Apache-2.0
#include <cmath>
#include <nlohmann/json.hpp>

#include <qwenlite/checkpoint/model_config.hpp>

#include "checkpoint/fixtures.hpp"

using namespace fixtures;
using namespace qwenlite;
using Json = nlohmann::ordered_json;

namespace {

/// config.json of a small network; every test changes what it is about.
Json base() {
  return Json::parse(R"({
    "architectures": ["Qwen3ForCausalLM"], "model_type": "qwen3", "attention_bias": false,
    "bos_token_id": 151643, "eos_token_id": 151645, "head_dim": 128, "hidden_act": "silu",
    "hidden_size": 1024, "intermediate_size": 3072, "max_position_embeddings": 40960,
    "max_window_layers": 28, "num_attention_heads": 16, "num_hidden_layers": 28,
    "num_key_value_heads": 8, "rms_norm_eps": 1e-06, "rope_scaling": null, "rope_theta": 1000000,
    "sliding_window": null, "tie_word_embeddings": true, "torch_dtype": "bfloat16",
    "use_cache": true, "use_sliding_window": false, "vocab_size": 151936})");
}

struct Parsed {
  ModelConfig config;
  std::vector<std::string> warnings;
};

Parsed parse(const std::string& text) {
  Parsed result;
  result.config = parse_model_config({text, "config.json"}, result.warnings);
  return result;
}
Parsed parse(const Json& json) {
  return parse(json.dump());
}

/// base() with one field set (or removed, given "discarded").
Json with(const std::string& field, const Json& value) {
  Json json = base();
  json[field] = value;
  return json;
}
Json without(const std::string& field) {
  Json json = base();
  json.erase(field);
  return json;
}

struct Size {
  const char* name;
  Index hidden;
  Index layers;
  Index heads;
  Index kv_heads;
  Index intermediate;
  bool tied;
};

}  // namespace

TEST_CASE("config.json of every dense Qwen3") {
  for (const Size& size :
       {Size{"0.6B", 1024, 28, 16, 8, 3072, true}, Size{"1.7B", 2048, 28, 16, 8, 6144, true},
        Size{"4B", 2560, 36, 32, 8, 9728, true}, Size{"8B", 4096, 36, 32, 8, 12288, false},
        Size{"14B", 5120, 40, 40, 8, 17408, false}, Size{"32B", 5120, 64, 64, 8, 25600, false}}) {
    INFO(size.name);
    Json json = base();
    json["hidden_size"] = size.hidden;
    json["num_hidden_layers"] = json["max_window_layers"] = size.layers;
    json["num_attention_heads"] = size.heads;
    json["num_key_value_heads"] = size.kv_heads;
    json["intermediate_size"] = size.intermediate;
    json["tie_word_embeddings"] = size.tied;
    const auto [config, warnings] = parse(json);
    CHECK(config.model_type == "qwen3");
    CHECK(config.hidden_size == size.hidden);
    CHECK(config.num_hidden_layers == size.layers);
    CHECK(config.num_attention_heads == size.heads);
    CHECK(config.num_key_value_heads == size.kv_heads);
    CHECK(config.intermediate_size == size.intermediate);
    CHECK(config.tie_word_embeddings == size.tied);
    CHECK(config.head_dim == 128);
    CHECK(config.vocab_size == 151936);
    CHECK(config.rms_norm_eps == 1e-6F);
    CHECK(config.max_position_embeddings == 40960);
    CHECK(config.context_limit() == 40960);
    CHECK(config.rope.rope_theta == 1e6);
    CHECK(config.rope.rope_type == RopeType::plain);
    CHECK(config.eos_token_ids == std::vector<int>{151645});
    CHECK(config.bos_token_id == 151643);
    CHECK_FALSE(config.pad_token_id.has_value());
    CHECK(warnings.empty());
  }
}

TEST_CASE("fields that older or newer files leave out") {
  CHECK(parse(without("head_dim")).config.head_dim == 64);
  CHECK(parse(without("num_key_value_heads")).config.num_key_value_heads == 16);
  CHECK(parse(with("head_dim", nullptr)).config.head_dim == 64);
  CHECK_FALSE(parse(without("tie_word_embeddings")).config.tie_word_embeddings);
  CHECK(parse(without("architectures")).config.hidden_size == 1024);
  CHECK(parse(with("architectures", {"Qwen3Model"})).config.hidden_size == 1024);
  CHECK(parse(without("hidden_act")).config.hidden_size == 1024);
  CHECK(parse(with("layer_types", Json(std::vector<std::string>(28, "full_attention")))).config.hidden_size ==
        1024);
  CHECK(parse(with("num_experts", 0)).config.hidden_size == 1024);
  CHECK(parse(with("sliding_window", 4096)).config.hidden_size == 1024);  // not in use
}

TEST_CASE("text fields may lie under text_config, with tokens and tying at either level") {
  Json json = {{"model_type", "outer"}, {"tie_word_embeddings", true}, {"eos_token_id", {5, 6}}};
  Json text = base();
  text.erase("tie_word_embeddings");
  text.erase("eos_token_id");
  text.erase("architectures");
  text.erase("rope_theta");
  text["rope_parameters"] = {{"rope_theta", 5e6}, {"rope_type", "default"}};
  json["text_config"] = text;
  const ModelConfig config = parse(json).config;
  CHECK(config.hidden_size == 1024);
  CHECK(config.tie_word_embeddings);
  CHECK(config.eos_token_ids == std::vector<int>{5, 6});
  CHECK(config.rope.rope_theta == 5e6);
  json["text_config"]["hidden_size"] = 0;
  expect_error(ErrorCode::bad_config, {"'text_config.hidden_size'"}, [&] { parse(json); });
  json["text_config"]["hidden_size"] = 1024;
  json["text_config"]["rope_parameters"].erase("rope_theta");
  expect_error(ErrorCode::bad_config, {"'text_config.rope_theta'", "found nothing"}, [&] { parse(json); });
}

TEST_CASE("a field that stands twice is refused at any depth") {
  const std::string text = base().dump();
  const auto twice = [&](const std::string& field) { return "{" + field + "," + text.substr(1); };
  expect_error(ErrorCode::bad_file, {"'config.json'", "'hidden_size' stands twice"},
               [&] { parse(twice(R"("hidden_size":8)")); });
  expect_error(ErrorCode::bad_file, {"'config.json'", "'type' stands twice"},
               [&] { parse(twice(R"("other":{"type":1,"type":1})")); });
}

TEST_CASE("end-of-sequence ids: one, a list, none, repeated") {
  CHECK(parse(with("eos_token_id", 7)).config.eos_token_ids == std::vector<int>{7});
  CHECK(parse(with("eos_token_id", {7, 3, 7})).config.eos_token_ids == std::vector<int>{7, 3});
  CHECK(parse(with("eos_token_id", Json::array())).config.eos_token_ids.empty());
  CHECK(parse(with("eos_token_id", nullptr)).config.eos_token_ids.empty());
  CHECK(parse(without("eos_token_id")).config.eos_token_ids.empty());
  CHECK(parse(with("pad_token_id", 9)).config.pad_token_id == 9);
  CHECK_FALSE(parse(with("pad_token_id", -1)).config.pad_token_id.has_value());
}

TEST_CASE("the rotary base: flat, nested, both, none") {
  CHECK(parse(base()).config.rope.rope_theta == 1e6);
  Json nested = without("rope_theta");
  nested["rope_parameters"] = {{"rope_theta", 5000000}, {"rope_type", "default"}};
  CHECK(parse(nested).config.rope.rope_theta == 5e6);
  CHECK(parse(nested).warnings.empty());
  SECTION("both, equal") {
    nested["rope_theta"] = 5e6;
    CHECK(parse(nested).config.rope.rope_theta == 5e6);
    CHECK(parse(nested).warnings.empty());
  }
  SECTION("both, different: nested wins, and it is said") {
    nested["rope_theta"] = 10000;
    const Parsed parsed = parse(nested);
    CHECK(parsed.config.rope.rope_theta == 5e6);
    REQUIRE(parsed.warnings.size() == 1);
    CHECK_THAT(parsed.warnings[0], has_text("'rope_theta'") && has_text("10000") && has_text("5e+06"));
  }
  SECTION("none is an error, never a default") {
    expect_error(ErrorCode::bad_config, {"config.json", "'rope_theta'", "found nothing"},
                 [] { parse(without("rope_theta")); });
    nested["rope_parameters"].erase("rope_theta");
    expect_error(ErrorCode::bad_config, {"'rope_theta'"}, [&] { parse(nested); });
    nested["rope_parameters"]["rope_theta"] = nullptr;
    expect_error(ErrorCode::bad_config, {"'rope_theta'"}, [&] { parse(nested); });
  }
  SECTION("values that cannot be") {
    for (const Json& value : {Json(0), Json(1), Json(-5), Json("1e6"), Json(true), Json(1e300)}) {
      expect_error(ErrorCode::bad_config, {"'rope_theta'"}, [&] { parse(with("rope_theta", value)); });
      nested["rope_parameters"]["rope_theta"] = value;
      expect_error(ErrorCode::bad_config, {"'rope_parameters.rope_theta'"}, [&] { parse(nested); });
    }
  }
  SECTION("partial rotation is not Qwen3") {
    CHECK(parse(with("partial_rotary_factor", 1.0)).config.rope.partial_rotary_factor == 1);
    expect_error(ErrorCode::unsupported, {"'partial_rotary_factor'", "0.25"},
                 [] { parse(with("partial_rotary_factor", 0.25)); });
  }
}

TEST_CASE("YaRN") {
  const Json yarn = {{"rope_type", "yarn"}, {"factor", 4.0}, {"original_max_position_embeddings", 10240}};
  SECTION("defaults, in rope_scaling") {
    const Parsed parsed = parse(with("rope_scaling", yarn));
    const RopeParameters& rope = parsed.config.rope;
    CHECK(rope.rope_type == RopeType::yarn);
    CHECK(rope.rope_theta == 1e6);
    CHECK(rope.factor == 4);
    CHECK(rope.original_max_position_embeddings == 10240);
    CHECK(rope.beta_fast == 32);
    CHECK(rope.beta_slow == 1);
    CHECK(rope.attention_factor == Approx(0.1 * std::log(4.0) + 1).epsilon(1e-12));
    CHECK(rope.truncate);
    CHECK(parsed.warnings.empty());
  }
  SECTION("everything stated, in rope_parameters, with the older name of the type") {
    Json json = without("rope_theta");
    json["rope_parameters"] = {
        {"type", "yarn"},    {"factor", 2},      {"original_max_position_embeddings", 20480},
        {"beta_fast", 16},   {"beta_slow", 0.5}, {"attention_factor", 1.5},
        {"truncate", false}, {"rope_theta", 5e5}};
    const RopeParameters rope = parse(json).config.rope;
    CHECK(rope.rope_theta == 5e5);
    CHECK(rope.factor == 2);
    CHECK(rope.beta_fast == 16);
    CHECK(rope.beta_slow == 0.5);
    CHECK(rope.attention_factor == 1.5);
    CHECK_FALSE(rope.truncate);
  }
  SECTION("the stated factor counts, whatever the lengths say") {
    Json published = yarn;
    published["original_max_position_embeddings"] = 32768;
    const Parsed parsed = parse(with("rope_scaling", published));
    CHECK(parsed.config.rope.factor == 4);
    CHECK(parsed.config.context_limit() == 131072);
    REQUIRE(parsed.warnings.size() == 1);
    CHECK_THAT(parsed.warnings[0], has_text("'rope_scaling.factor'") && has_text("1.25"));
  }
  SECTION("without the length of training, max_position_embeddings is it") {
    Json shorter = yarn;
    shorter.erase("original_max_position_embeddings");
    CHECK(parse(with("rope_scaling", shorter)).config.rope.original_max_position_embeddings == 40960);
  }
  SECTION("a factor of 1 is no YaRN; one below does not shrink the scores") {
    Json one = yarn;
    one["factor"] = 1.0;
    one["original_max_position_embeddings"] = 40960;
    CHECK(parse(with("rope_scaling", one)).config.rope.rope_type == RopeType::plain);
    one["attention_factor"] = 1.25;
    CHECK(parse(with("rope_scaling", one)).config.rope.rope_type == RopeType::yarn);
    Json half = yarn;
    half["factor"] = 0.5;
    CHECK(parse(with("rope_scaling", half)).config.rope.attention_factor == 1);
  }
  SECTION("type default, or an object without a type, is plain") {
    CHECK(parse(with("rope_scaling", {{"type", "default"}})).config.rope.rope_type == RopeType::plain);
    CHECK(parse(with("rope_scaling", Json::object())).config.rope.rope_type == RopeType::plain);
  }
  SECTION("the newer object counts when the older one says something else") {
    Json json = with("rope_scaling", yarn);
    json["rope_parameters"] = {{"rope_type", "default"}, {"rope_theta", 1e6}};
    const Parsed parsed = parse(json);
    CHECK(parsed.config.rope.rope_type == RopeType::plain);
    REQUIRE(parsed.warnings.size() == 1);
    CHECK_THAT(parsed.warnings[0], has_text("rope_scaling"));
  }
  SECTION("what cannot be") {
    const auto refused = [&](const std::string& field, const Json& value,
                             ErrorCode code = ErrorCode::bad_config) {
      INFO(field << " = " << value.dump());
      Json changed = yarn;
      changed[field] = value;
      expect_error(code, {"config.json", "rope_scaling." + field},
                   [&] { parse(with("rope_scaling", changed)); });
    };
    for (const Json& value : {Json(0), Json(-1.0), Json("4"), Json(1e30), Json(nullptr)})
      refused("factor", value);
    for (const Json& value : {Json(0), Json(-1), Json(1.5), Json("x"), Json(1e18)}) {
      refused("original_max_position_embeddings", value);
    }
    for (const Json& value : {Json(0), Json(0.5), Json(false)}) refused("beta_fast", value);
    for (const Json& value : {Json(0), Json(33), Json::array()}) {
      if (value == 33) continue;  // named as beta_fast, below
      refused("beta_slow", value);
    }
    for (const Json& value : {Json(0), Json(-2), Json("1")}) refused("attention_factor", value);
    refused("truncate", 1);
    refused("rope_type", "llama3", ErrorCode::unsupported);
    refused("rope_type", "linear", ErrorCode::unsupported);
    refused("rope_type", "", ErrorCode::unsupported);
    refused("rope_type", 4);
    refused("type", "linear");  // contradicts rope_type
    refused("mscale", 1.0, ErrorCode::unsupported);
    refused("mscale_all_dim", 1.0, ErrorCode::unsupported);
    Json slow = yarn;
    slow["beta_slow"] = 33;
    expect_error(ErrorCode::bad_config, {"beta_fast", "33"}, [&] { parse(with("rope_scaling", slow)); });
    expect_error(ErrorCode::bad_config, {"'rope_scaling'", "an object"},
                 [&] { parse(with("rope_scaling", "yarn")); });
    expect_error(ErrorCode::bad_config, {"'rope_parameters'"}, [&] {
      parse(with("rope_parameters", {1, 2}));
    });
  }
}

TEST_CASE("networks of another kind are unsupported, by name") {
  struct Case {
    const char* field;
    Json value;
  };
  for (const Case& c :
       {Case{"model_type", "qwen3_moe"}, Case{"model_type", "llama"}, Case{"model_type", "qwen2"},
        Case{"model_type", ""}, Case{"architectures", {"Qwen3MoeForCausalLM"}},
        Case{"architectures", {"Qwen3ForSequenceClassification"}}, Case{"num_experts", 128},
        Case{"num_experts_per_tok", 8}, Case{"moe_intermediate_size", 768}, Case{"num_local_experts", 8},
        Case{"hidden_act", "gelu"}, Case{"use_sliding_window", true}, Case{"attention_bias", true}}) {
    INFO(c.field << " = " << c.value.dump());
    expect_error(ErrorCode::unsupported,
                 {"'config.json'", std::string("field '") + c.field + "'", "found", "expected"},
                 [&] { parse(with(c.field, c.value)); });
  }
  Json mixed(std::vector<std::string>(28, "full_attention"));
  mixed[3] = "sliding_attention";
  expect_error(ErrorCode::unsupported, {"'layer_types'", "'sliding_attention'"},
               [&] { parse(with("layer_types", mixed)); });
}

TEST_CASE("impossible values are one error that names file, field, found and expected") {
  struct Case {
    const char* field;
    Json value;
  };
  const Json nothing = nullptr;
  std::vector<Case> cases = {{"rms_norm_eps", -1e-6},
                             {"rms_norm_eps", 0},
                             {"rms_norm_eps", 1e-60},
                             {"rms_norm_eps", 2},
                             {"rms_norm_eps", "1e-6"},
                             {"rms_norm_eps", nothing},
                             {"head_dim", 127},
                             {"head_dim", 0},
                             {"head_dim", 2048},
                             {"vocab_size", 0},
                             {"num_key_value_heads", 3},
                             {"num_key_value_heads", 32},
                             {"num_key_value_heads", 0},
                             {"model_type", 3},
                             {"model_type", nothing},
                             {"architectures", "Qwen3ForCausalLM"},
                             {"hidden_act", 1},
                             {"attention_bias", "false"},
                             {"tie_word_embeddings", 1},
                             {"eos_token_id", "x"},
                             {"eos_token_id", -1},
                             {"eos_token_id", {1, "x"}},
                             {"eos_token_id", 1.5},
                             {"eos_token_id", 4294967296},
                             {"eos_token_id", {{"id", 1}}},
                             {"bos_token_id", "x"},
                             {"layer_types", "full_attention"},
                             {"layer_types", {"full_attention"}},
                             {"text_config", 1}};
  for (const char* field : {"hidden_size", "num_hidden_layers", "num_attention_heads", "intermediate_size",
                            "vocab_size", "max_position_embeddings"}) {
    for (const Json& value : {nothing, Json(0), Json(-1), Json(1.5), Json("1024"), Json(true), Json::array(),
                              Json(std::int64_t{1} << 40), Json(~std::uint64_t{0})}) {
      cases.push_back({field, value});
    }
  }
  for (const Case& c : cases) {
    INFO(c.field << " = " << c.value.dump());
    expect_error(ErrorCode::bad_config,
                 {"'config.json'", std::string("field '") + c.field + "'", "found", "expected"},
                 [&] { parse(with(c.field, c.value)); });
  }
  for (const auto& [value, found] :
       {std::pair{1000.0, "1000.0"}, std::pair{-2.0, "-2.0"}, std::pair{1234567.0, "1234567.0"},
        std::pair{0.5, "0.5"}, std::pair{1e-6, "1e-06"}}) {
    expect_error(ErrorCode::bad_config, {std::string("found ") + found + ", expected an integer from 1"},
                 [&, v = value] { parse(with("hidden_size", v)); });
  }
  Json uneven = without("head_dim");
  uneven["hidden_size"] = 1000;
  expect_error(ErrorCode::bad_config, {"'head_dim'", "1000"}, [&] { parse(uneven); });
  uneven["hidden_size"] = 16 * 65;
  expect_error(ErrorCode::bad_config, {"'head_dim'", "found 65", "even"}, [&] { parse(uneven); });
}

TEST_CASE("text that is no JSON object is refused") {
  struct Case {
    const char* name;
    std::string text;
    const char* part;
  };
  const std::string good = base().dump();
  std::string deep = "{\"a\":";
  for (int i = 0; i < 10'000; ++i) deep += "[";
  std::string wide = "{\"a\":[0";
  for (int i = 0; i < 70'000; ++i) wide += ",0";
  for (const Case& c :
       {Case{"empty", "", "not valid JSON at byte 1"},
        Case{"cut", good.substr(0, good.size() / 2), "not valid JSON"}, Case{"a list", "[]", "found array"},
        Case{"a string", "\"config\"", "found string"}, Case{"null", "null", "found null"},
        Case{"NaN", "{\"rms_norm_eps\": NaN}", "not valid JSON at byte"},
        Case{"invalid UTF-8", "{\"\xC0\x80\":1}", "not valid JSON"},
        Case{"a number out of range", "{\"rms_norm_eps\": 1e999}", "out of range"},
        Case{"text behind it", good + "}", "not valid JSON"},
        Case{"zero byte", good + std::string("\0x", 2), "zero byte"},
        Case{"10,000 deep", deep, "nested more than 32 deep"},
        Case{"70,000 values", wide + "]}", "more than 65536 values"}}) {
    INFO(c.name);
    expect_error(ErrorCode::bad_file, {"'config.json'", c.part}, [&] { parse(c.text); });
  }
  CHECK(parse("\xEF\xBB\xBF" + good).config.hidden_size == 1024);  // a byte-order mark is harmless
  CHECK(parse(" \n" + good + "\r\n ").config.hidden_size == 1024);
}
