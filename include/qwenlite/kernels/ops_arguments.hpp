// SPDX-License-Identifier: Apache-2.0
//
// The arguments of operations (ops.hpp): packed activations, products, norms and pieces of sequences. Plain
// values without behaviour of their own.
#pragma once

#include <array>
#include <initializer_list>

#include <qwenlite/kernels/aligned_buffer.hpp>
#include <qwenlite/kernels/table.hpp>

namespace qwenlite {
inline namespace QWENLITE_ABI {

/// A set of weight formats, one bit each.
class FormatSet {
 public:
  constexpr FormatSet() = default;
  constexpr FormatSet(std::initializer_list<Format> formats) {
    for (const Format f : formats) insert(f);
  }
  constexpr void insert(Format f) noexcept { bits_ |= 1U << static_cast<unsigned>(f); }
  [[nodiscard]] constexpr bool contains(Format f) const noexcept {
    return (bits_ >> static_cast<unsigned>(f) & 1U) != 0;
  }
  [[nodiscard]] constexpr bool contains_quantised() const noexcept {
    return contains(Format::int8) || contains(Format::int4) || contains(Format::fp8);
  }

 private:
  unsigned bits_ = 0;
};

/// Activations ready for matrix products, in every layout that the products to come will need.
struct Packed {
  std::array<const std::byte*, kernels::layout_count> data{};  ///< by PackLayout; null where not packed
  Index columns = 0;                                           ///< tokens
  Index in = 0;
};

/// RMS normalisation: x * rsqrt(mean(x^2) + epsilon) * (weight + its offset).
struct NormSpec {
  VectorView weight{};  ///< [width]
  float epsilon = 1e-6F;
};

/// One product of a packed input: out[tokens, weight.rows] = weight * x, or += with `accumulate`.
struct Product {
  WeightView weight{};
  Matrix<float> out;
  bool accumulate = false;
};

/// A run of consecutive tokens of one sequence inside a batch: rows [row, row + count) of the activations
/// stand at positions [position, position + count) of the sequence, whose keys and values `cache` holds
/// (any class with `KvBlock block(layer, kv_head, index) const`).
template <class Kv>
struct Piece {
  const Kv* cache = nullptr;
  Index row = 0;
  Index count = 0;
  Index position = 0;
};

/// Cosine and sine of the rotary angles of each token: [tokens, half] each, half = rotary_dim / 2.
struct Angles {
  const float* cos = nullptr;
  const float* sin = nullptr;
  Index half = 0;
};

/// The sizes of one attention call.
struct AttentionShape {
  Index layer = 0;
  Index num_heads = 0;
  Index num_kv_heads = 0;
  Index head_dim = 0;
  float scale = 1;
};

/// Sizes that bound the scratch memory of a run of operations.
struct OpsLimits {
  Index tokens = 1;                                           ///< most activation rows in one call
  Index width = 1;                                            ///< widest input of a product
  Index head_dim = 1;                                         ///< of attention
  Index num_heads = 1;                                        ///< of attention
  Index num_kv_heads = 1;                                     ///< of attention
  Index pieces = 1;                                           ///< most sequences in one attention call
  Index max_tokens = 1;                                       ///< longest sequence
  FormatSet formats{Format::bf16, Format::f16, Format::f32};  ///< of the weights
};

}  // namespace QWENLITE_ABI
}  // namespace qwenlite
