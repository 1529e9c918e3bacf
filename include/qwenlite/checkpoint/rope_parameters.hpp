// SPDX-License-Identifier: Apache-2.0
//
// RopeParameters: what turns queries and keys, whichever form of config.json it came from.
#pragma once

#include <cstdint>

#include <qwenlite/tensor.hpp>

namespace qwenlite {
inline namespace QWENLITE_ABI {

/// Kinds of rotary embedding: `rope_type` "default" and "yarn".
enum class RopeType : std::uint8_t { plain, yarn };

/// Rotary parameters, whichever form of config.json they came from.
struct RopeParameters {
  double rope_theta = 0;  ///< base of the wavelengths
  RopeType rope_type = RopeType::plain;
  double partial_rotary_factor = 1;  ///< share of head_dim that turns

  // YaRN only (arXiv:2309.00071; defaults as in transformers).
  double factor = 1;                           ///< as stated: not max / original positions
  Index original_max_position_embeddings = 0;  ///< positions of training
  double beta_fast = 32;                       ///< turns over the original positions: from here on unchanged
  double beta_slow = 1;                        ///< up to here stretched by `factor`
  double attention_factor = 1;                 ///< multiplies cos and sin; 0.1 ln(factor) + 1 unless stated
  bool truncate = true;                        ///< round the ramp's ends to whole dimensions
};

}  // namespace QWENLITE_ABI
}  // namespace qwenlite
