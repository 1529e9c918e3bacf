// SPDX-License-Identifier: Apache-2.0
//
// How much a cache of keys and values must hold: what a Model tells the KV policy it creates for a
// sequence, and the checked arithmetic that turns it into bytes.
#pragma once

#include <string>

#include <qwenlite/kernels/formats.hpp>

namespace qwenlite {
inline namespace QWENLITE_ABI {

/// Sizes of the keys and values of one sequence.
struct KvLayout {
  Index layers = 0;      ///< attention layers
  Index kv_heads = 0;    ///< key/value heads of a layer
  Index head_dim = 0;    ///< width of one key and of one value
  Index max_tokens = 0;  ///< most positions

  /// Blocks of 64 positions that hold max_tokens.
  [[nodiscard]] Index blocks() const noexcept {
    return max_tokens / block_positions + (max_tokens % block_positions != 0 ? 1 : 0);
  }

  /// Throws `bad_argument` unless every size is positive.
  void check() const {
    if (layers > 0 && kv_heads > 0 && head_dim > 0 && max_tokens > 0) return;
    throw Error(ErrorCode::bad_argument, "sizes of a key/value cache", to_string(), "positive numbers");
  }

  [[nodiscard]] std::string to_string() const {
    return joined({layers, " layers, ", kv_heads, " heads of ", head_dim, ", ", max_tokens, " tokens"});
  }
};

}  // namespace QWENLITE_ABI
}  // namespace qwenlite
