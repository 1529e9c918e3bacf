// SPDX-License-Identifier: Apache-2.0
//
// How large the sizes in a config.json may be.
#pragma once

#include <qwenlite/tensor.hpp>

namespace qwenlite {
inline namespace QWENLITE_ABI {

/// Upper bounds on sizes: far above any real model, low enough that layers x 2 x kv heads x head_dim
/// x positions x 4 bytes, and every matrix, stay inside Index.
namespace size_limits {
inline constexpr Index hidden_size = Index{1} << 18;
inline constexpr Index num_hidden_layers = 1024;
inline constexpr Index num_attention_heads = 2048;
inline constexpr Index head_dim = 1024;
inline constexpr Index linear_conv_kernel_dim = 64;
inline constexpr Index intermediate_size = Index{1} << 20;
inline constexpr Index vocab_size = Index{1} << 24;
inline constexpr Index max_position_embeddings = Index{1} << 27;
}  // namespace size_limits

}  // namespace QWENLITE_ABI
}  // namespace qwenlite
