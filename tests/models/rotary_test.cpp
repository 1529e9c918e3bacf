// SPDX-License-Identifier: Apache-2.0
//
// Rotary angles, plain and stretched, against values computed independently (in Python, double precision).
#include <vector>

#include <qwenlite/models/rotary.hpp>

#include "catch_any.hpp"

namespace ql = qwenlite;

namespace {

ql::RopeParameters plain(double theta) {
  ql::RopeParameters rope;
  rope.rope_theta = theta;
  return rope;
}

ql::RopeParameters yarn(double theta, double factor, ql::Index trained, double attention_factor) {
  ql::RopeParameters rope = plain(theta);
  rope.rope_type = ql::RopeType::yarn;
  rope.factor = factor;
  rope.original_max_position_embeddings = trained;
  rope.attention_factor = attention_factor;
  return rope;
}

}  // namespace

TEST_CASE("plain rotary frequencies fall from 1 by the base") {
  const ql::Rotary rotary(plain(1e6), 128);
  REQUIRE(rotary.half() == 64);
  CHECK(rotary.frequencies()[0] == 1);
  CHECK(rotary.frequencies()[1] == Approx(0.80584218776148179).epsilon(1e-14));
  CHECK(rotary.frequencies()[32] == Approx(1e-3).epsilon(1e-14));
  CHECK(rotary.frequencies()[63] == Approx(1.2409377607517192e-06).epsilon(1e-14));
  CHECK(rotary.scale() == 1);
}

TEST_CASE("YaRN keeps fast pairs, slows slow ones by the factor and lengthens all") {
  // Qwen3 as configured for 131,072 positions: the ramp goes from pair 23 to pair 40.
  const double attention_factor = 1.1386294361119891;  // 0.1 ln 4 + 1
  const ql::Rotary rotary(yarn(1e6, 4, 32768, attention_factor), 128);
  const ql::Rotary without(plain(1e6), 128);
  const auto ratio = [&](std::size_t i) { return rotary.frequencies()[i] / without.frequencies()[i]; };
  CHECK(ratio(0) == 1);
  CHECK(ratio(23) == 1);
  CHECK(ratio(24) == Approx(1 - 0.75 / 17).epsilon(1e-14));
  CHECK(ratio(31) == Approx(1 - 0.75 * 8 / 17).epsilon(1e-14));
  CHECK(ratio(39) == Approx(1 - 0.75 * 16 / 17).epsilon(1e-14));
  CHECK(ratio(40) == Approx(0.25).epsilon(1e-14));
  CHECK(ratio(63) == Approx(0.25).epsilon(1e-14));
  CHECK(rotary.scale() == attention_factor);
}

TEST_CASE("YaRN ends of the ramp: not rounded, and at the edge") {
  ql::RopeParameters rope = yarn(1e6, 4, 32768, 1);
  rope.truncate = false;  // 23.59... to 39.65...
  const ql::Rotary smooth(rope, 128);
  const ql::Rotary without(plain(1e6), 128);
  CHECK(smooth.frequencies()[24] / without.frequencies()[24] == Approx(0.98112484855466735).epsilon(1e-13));

  // Fewer positions than the fastest pair needs for 32 turns: the ramp starts at pair 0, ends at 13.
  const ql::Rotary edge(yarn(1e6, 4, 100, 1), 128);
  CHECK(edge.frequencies()[0] == 1);
  CHECK(edge.frequencies()[6] / without.frequencies()[6] == Approx(1 - 0.75 * 6 / 13).epsilon(1e-14));
  CHECK(edge.frequencies()[13] / without.frequencies()[13] == Approx(0.25).epsilon(1e-14));

  const ql::Rotary one(yarn(1e6, 1, 32768, 1), 128);  // factor 1 changes no bit
  CHECK(one.frequencies() == without.frequencies());
}

TEST_CASE("the table holds cosines and sines of position times frequency, far out too") {
  const ql::Rotary rotary(yarn(1000, 4, 256, 1.5), 8);
  std::vector<float> cos(12);
  std::vector<float> sin(12);
  rotary.fill(100000, 3, cos.data(), sin.data());
  for (std::size_t t = 0; t < 3; ++t) {
    for (std::size_t i = 0; i < 4; ++i) {
      const double angle = (100000 + static_cast<double>(t)) * rotary.frequencies()[i];
      CHECK(cos[t * 4 + i] == static_cast<float>(1.5 * std::cos(angle)));
      CHECK(sin[t * 4 + i] == static_cast<float>(1.5 * std::sin(angle)));
    }
  }
  rotary.fill(0, 1, cos.data(), sin.data());
  CHECK(cos[0] == 1.5F);
  CHECK(sin[3] == 0.0F);
}

TEST_CASE("only an even number of dimensions can turn") {
  CHECK_THROWS_AS(ql::Rotary(plain(1e4), 0), ql::Error);
  CHECK_THROWS_AS(ql::Rotary(plain(1e4), 63), ql::Error);
  ql::ModelConfig config;
  config.head_dim = 256;
  config.rope.partial_rotary_factor = 0.25;
  CHECK(ql::rotary_dim(config) == 64);
}
