// SPDX-License-Identifier: Apache-2.0
//
// Sampling options: hostile values, extreme ones, defaults, and the presets of the model cards.
#include <limits>
#include <optional>
#include <string>
#include <vector>

#include <qwenlite/generate/presets.hpp>

#include "catch_any.hpp"
#include "generate/reference_sampler.hpp"

using namespace sampler_test;
using ql::SamplingOptions;

TEST_CASE("hostile options are errors that name the option") {
  const auto rejected = [](const SamplingOptions& options, const std::string& name) {
    try {
      ql::Sampler sampler(options, 100);
    } catch (const ql::Error& e) {
      const std::string what = e.what();
      return e.code() == ql::ErrorCode::bad_argument && what.rfind(name + ": found ", 0) == 0 &&
             what.find("expected") != std::string::npos;
    }
    return false;
  };
  const double nan = std::numeric_limits<double>::quiet_NaN();
  const double inf = std::numeric_limits<double>::infinity();
  for (const double bad : {-1.0, -1e-9, nan, inf, -inf, 1e9, 1e308}) {
    INFO("value " << bad);
    CHECK(rejected({.temperature = bad}, "temperature"));
    CHECK(rejected({.top_p = bad}, "top_p"));
    CHECK(rejected({.min_p = bad}, "min_p"));
  }
  for (const double bad : {nan, inf, -inf, 1e9, -1e308, 100.001}) {
    INFO("value " << bad);
    CHECK(rejected({.repetition_penalty = bad}, "repetition_penalty"));
    CHECK(rejected({.presence_penalty = bad}, "presence_penalty"));
    CHECK(rejected({.frequency_penalty = bad}, "frequency_penalty"));
  }
  for (const double bad : {0.0, -1.0, 1e-9, 1e-300}) {
    CHECK(rejected({.repetition_penalty = bad}, "repetition_penalty"));
  }
  CHECK(rejected({.top_p = 1.0000001}, "top_p"));
  CHECK(rejected({.top_k = -1}, "top_k"));
  CHECK(rejected({.top_k = std::numeric_limits<Index>::min()}, "top_k"));
  CHECK_THROWS_AS(ql::Sampler({}, 0), ql::Error);
  CHECK_THROWS_AS(ql::Sampler({}, -5), ql::Error);
}

TEST_CASE("a logit bias that cannot be is an error that names the token") {
  const auto message = [](int token, double bias) {
    SamplingOptions options;
    options.logit_bias = {{1, 2.0}, {token, bias}};
    try {
      ql::Sampler sampler(options, 100);
    } catch (const ql::Error& e) {
      CHECK(e.code() == ql::ErrorCode::bad_argument);
      return std::string(e.what());
    }
    return std::string("no error");
  };
  const double inf = std::numeric_limits<double>::infinity();
  CHECK(message(100, 1.0) == "logit_bias: found token id 100, expected a token id from 0 to 99");
  CHECK(message(-1, 1.0) == "logit_bias: found token id -1, expected a token id from 0 to 99");
  CHECK(message(5, inf) ==
        "logit_bias of token 5: found inf, expected a number from -10000 to 10000, or -infinity to ban the "
        "token");
  CHECK_THAT(message(5, std::numeric_limits<double>::quiet_NaN()), has_text("logit_bias of token 5: found "));
  CHECK_THAT(message(5, 10000.5), has_text("found 10000.5, expected"));
  CHECK_THAT(message(5, -1e300), has_text("found -1e+300, expected"));
  CHECK(message(5, -inf) == "no error");
  CHECK(message(99, 10000.0) == "no error");
}

TEST_CASE("extreme but legal options draw a token") {
  const std::vector<float> logits = normal_logits(100, 1, 10);
  for (const SamplingOptions& options :
       {SamplingOptions{.temperature = 100.0}, SamplingOptions{.temperature = 1e-5},
        SamplingOptions{.temperature = 1e-300}, SamplingOptions{.top_k = 0},
        SamplingOptions{.top_k = std::numeric_limits<Index>::max()}, SamplingOptions{.top_p = 1e-300},
        SamplingOptions{.top_p = 1.0}, SamplingOptions{.min_p = 1.0},
        SamplingOptions{.top_p = 0.999999999999}, SamplingOptions{.min_p = 1e-300},
        SamplingOptions{.repetition_penalty = 100.0}, SamplingOptions{.repetition_penalty = 0.01},
        SamplingOptions{.presence_penalty = -100.0, .frequency_penalty = 100.0}}) {
    ql::Sampler sampler(options, 100);
    sampler.generated(7);
    const int id = sampler.sample(logits, 3);
    CHECK(id >= 0);
    CHECK(id < 100);
  }
}

TEST_CASE("fields that are not set come from the defaults") {
  struct {
    std::optional<float> temperature = 0.5F;
    std::optional<int> top_k = 20;
    std::optional<float> top_p;
    std::optional<float> min_p = 0.25F;
  } defaults;
  const SamplingOptions merged = SamplingOptions{.top_k = 3, .seed = 9}.or_else(defaults);
  CHECK(merged.temperature == 0.5);
  CHECK(merged.top_k == Index{3});
  CHECK(!merged.top_p.has_value());
  CHECK(merged.min_p == 0.25);
  CHECK(merged.seed == std::uint64_t{9});

  struct {
    std::optional<bool> do_sample = false;
    std::optional<float> temperature = 0.6F;
    std::optional<int> top_k;
    std::optional<float> top_p;
    std::optional<float> min_p;
  } fixed;
  CHECK(SamplingOptions{}.or_else(fixed).temperature == 0.0);
  CHECK(SamplingOptions{.temperature = 1.0}.or_else(fixed).temperature == 1.0);
}

TEST_CASE("penalties that are not set come from defaults that have them") {
  struct {
    std::optional<float> temperature;
    std::optional<int> top_k;
    std::optional<float> top_p;
    std::optional<float> min_p;
    std::optional<float> repetition_penalty = 1.5F;
    std::optional<float> presence_penalty = 0.5F;
  } defaults;
  const SamplingOptions own = SamplingOptions{.presence_penalty = 0.0}.or_else(defaults);
  CHECK(own.repetition_penalty == 1.5);
  CHECK(own.presence_penalty == 0.0);
  CHECK(!own.frequency_penalty.has_value());
  CHECK(SamplingOptions{}.or_else(SamplingOptions{.frequency_penalty = 0.25}).frequency_penalty == 0.25);
}

TEST_CASE("presets hold the values of the model cards") {
  const auto values = [](ql::SamplingPreset preset) {
    const SamplingOptions card = ql::options_of(preset);
    card.check();
    CHECK(card.top_k == Index{20});
    CHECK(card.min_p == 0.0);
    CHECK(card.repetition_penalty == 1.0);
    CHECK(!card.seed.has_value());
    return std::vector<double>{*card.temperature, *card.top_p, *card.presence_penalty};
  };
  CHECK(values(ql::SamplingPreset::qwen3_thinking) == std::vector<double>{0.6, 0.95, 0.0});
  CHECK(values(ql::SamplingPreset::qwen3_non_thinking) == std::vector<double>{0.7, 0.8, 0.0});
  CHECK(values(ql::SamplingPreset::qwen3_5_thinking) == std::vector<double>{1.0, 0.95, 1.5});
  CHECK(values(ql::SamplingPreset::qwen3_5_non_thinking) == std::vector<double>{1.0, 1.0, 2.0});
  CHECK(values(ql::SamplingPreset::qwen3_5_coding) == std::vector<double>{0.6, 0.95, 0.0});
  const SamplingOptions mine =
      SamplingOptions{.top_p = 0.5}.or_else(ql::options_of(ql::SamplingPreset::qwen3_non_thinking));
  CHECK(mine.top_p == 0.5);
  CHECK(mine.temperature == 0.7);
}

TEST_CASE("presets are found by name") {
  CHECK(ql::preset_named("qwen3-thinking") == ql::SamplingPreset::qwen3_thinking);
  CHECK(ql::preset_named("qwen3.5-coding") == ql::SamplingPreset::qwen3_5_coding);
  for (const ql::SamplingPreset preset : ql::sampling_presets) {
    CHECK(ql::preset_named(ql::name_of(preset)) == preset);
  }
  std::string message;
  try {
    (void)ql::preset_named("qwen4");
  } catch (const ql::Error& e) {
    CHECK(e.code() == ql::ErrorCode::bad_argument);
    message = e.what();
  }
  CHECK(message ==
        "sampling preset: found \"qwen4\", expected one of qwen3-thinking, qwen3-non-thinking, "
        "qwen3.5-thinking, "
        "qwen3.5-non-thinking, qwen3.5-coding");
}
