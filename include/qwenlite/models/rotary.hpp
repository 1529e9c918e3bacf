// SPDX-License-Identifier: Apache-2.0
//
// Rotary position embedding: how fast each pair of dimensions turns, plain or stretched by YaRN
// (arXiv:2309.00071), and the table of cosines and sines for the tokens of a pass.
//
// Angles are formed in double: position * frequency needs more than 24 bits at long contexts.
#pragma once

#include <algorithm>
#include <cmath>
#include <numbers>
#include <vector>

#include <qwenlite/checkpoint/model_config.hpp>

namespace qwenlite {
inline namespace QWENLITE_ABI {

/// Dimensions of a head that turn.
[[nodiscard]] inline Index rotary_dim(const ModelConfig& config) noexcept {
  return static_cast<Index>(static_cast<double>(config.head_dim) * config.rope.partial_rotary_factor);
}

/// The turning of one model's heads.
class Rotary {
 public:
  /// `dims` dimensions of each head turn: pair (i, i + dims / 2) by position * frequency[i].
  Rotary(const RopeParameters& rope, Index dims);

  [[nodiscard]] Index half() const noexcept { return static_cast<Index>(frequencies_.size()); }

  /// Angle per position of each pair, [half].
  [[nodiscard]] const std::vector<double>& frequencies() const noexcept { return frequencies_; }

  /// Factor on every cosine and sine (YaRN's attention factor; 1 otherwise).
  [[nodiscard]] double scale() const noexcept { return scale_; }

  /// Cosines and sines of positions first, first + 1, ...: both [count, half].
  void fill(Index first, Index count, float* cos, float* sin) const noexcept {
    for (Index t = 0; t < count; ++t) {
      const auto position = static_cast<double>(first + t);
      for (const double frequency : frequencies_) {
        const double angle = position * frequency;
        *cos++ = static_cast<float>(std::cos(angle) * scale_);
        *sin++ = static_cast<float>(std::sin(angle) * scale_);
      }
    }
  }

 private:
  void stretch(const RopeParameters& rope, double dims);

  std::vector<double> frequencies_;
  double scale_ = 1;
};

inline Rotary::Rotary(const RopeParameters& rope, Index dims) {
  if (dims <= 0 || dims % 2 != 0) {
    throw Error(ErrorCode::bad_config, "config.json: rotary dimensions of a head", dims,
                "a positive even number");
  }
  const auto width = static_cast<double>(dims);
  frequencies_.resize(static_cast<std::size_t>(dims / 2));
  for (std::size_t i = 0; i < frequencies_.size(); ++i) {
    frequencies_[i] = std::pow(rope.rope_theta, -2 * static_cast<double>(i) / width);
  }
  if (rope.rope_type == RopeType::yarn) stretch(rope, width);
}

/// A pair that turns more than beta_fast times within the positions of training keeps its speed, one that
/// turns less than beta_slow times is slowed by `factor`; between the two the share grows linearly.
inline void Rotary::stretch(const RopeParameters& rope, double dims) {
  const auto trained = static_cast<double>(rope.original_max_position_embeddings);
  const auto pair_turning = [&](double turns) {  // the fractional pair that turns so often
    return dims * std::log(trained / (turns * 2 * std::numbers::pi)) / (2 * std::log(rope.rope_theta));
  };
  double low = pair_turning(rope.beta_fast);
  double high = pair_turning(rope.beta_slow);
  if (rope.truncate) {
    low = std::floor(low);
    high = std::ceil(high);
  }
  low = std::max(low, 0.0);
  high = std::min(high, dims - 1);
  const double ramp = high == low ? 0.001 : high - low;
  for (std::size_t i = 0; i < frequencies_.size(); ++i) {
    const double slowed = std::clamp((static_cast<double>(i) - low) / ramp, 0.0, 1.0);
    frequencies_[i] *= 1 - slowed * (1 - 1 / rope.factor);
  }
  scale_ = rope.attention_factor;
}

}  // namespace QWENLITE_ABI
}  // namespace qwenlite
