// SPDX-License-Identifier: Apache-2.0
//
// The matrices of the two models, as rows [out] and columns [in].
#pragma once

#include <qwenlite/tensor.hpp>

namespace bench {

struct MatmulShape {
  const char* name;
  qwenlite::Index rows;
  qwenlite::Index in;
  qwenlite::Index past_line;  ///< bytes past a 64-byte line where it begins in the published file
};

inline constexpr MatmulShape matmul_shapes[] = {
    {"0.6b.qkv_proj", 4096, 1024, 40},   {"0.6b.o_proj", 1024, 2048, 40},
    {"0.6b.gate_up", 6144, 1024, 40},    {"0.6b.down_proj", 1024, 3072, 40},
    {"0.8b.in_proj_qkv", 6144, 1024, 8}, {"0.8b.in_proj_z", 2048, 1024, 8},
    {"0.8b.out_proj", 1024, 2048, 8},    {"0.8b.q_gate_proj", 4096, 1024, 8},
    {"0.8b.gate_up", 7168, 1024, 8},     {"0.8b.down_proj", 1024, 3584, 8},
};
/// The output matrices, which few tokens pass.
inline constexpr MatmulShape head_shapes[] = {{"0.6b.lm_head", 151936, 1024, 40},
                                              {"0.8b.lm_head", 248320, 1024, 8}};

}  // namespace bench
