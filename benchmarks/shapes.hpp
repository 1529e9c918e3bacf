// SPDX-License-Identifier: Apache-2.0
//
// The built-in shapes: config.json of the published models (text part) and of a tiny one of each family for
// tests, as texts.
#pragma once

#include <array>
#include <string_view>

namespace bench {

struct BuiltInShape {
  std::string_view name;
  std::string_view config;       ///< config.json
  int first_byte_past_line = 0;  ///< where tensors begin in the published file, modulo 64
};

inline constexpr std::array<BuiltInShape, 4> built_in_shapes{
    {{"qwen3-0.6b", R"({"architectures": ["Qwen3ForCausalLM"], "model_type": "qwen3", "hidden_size": 1024,
"num_hidden_layers": 28, "num_attention_heads": 16, "num_key_value_heads": 8, "head_dim": 128,
"intermediate_size": 3072, "vocab_size": 151936, "max_position_embeddings": 40960, "rms_norm_eps": 1e-06,
"rope_theta": 1000000, "rope_scaling": null, "tie_word_embeddings": true, "hidden_act": "silu",
"attention_bias": false, "eos_token_id": 151645, "torch_dtype": "bfloat16"})",
      40},
     {"qwen3.5-0.8b", R"({"architectures": ["Qwen3_5ForCausalLM"], "model_type": "qwen3_5_text",
"hidden_size": 1024, "num_hidden_layers": 24, "num_attention_heads": 8, "num_key_value_heads": 2,
"head_dim": 256, "intermediate_size": 3584, "vocab_size": 248320, "max_position_embeddings": 262144,
"rms_norm_eps": 1e-06, "full_attention_interval": 4, "linear_conv_kernel_dim": 4, "linear_key_head_dim": 128,
"linear_num_key_heads": 16, "linear_num_value_heads": 16, "linear_value_head_dim": 128,
"attn_output_gate": true, "hidden_act": "silu", "attention_bias": false, "tie_word_embeddings": true,
"mamba_ssm_dtype": "float32", "eos_token_id": 248044, "dtype": "bfloat16", "rope_parameters":
{"rope_type": "default", "rope_theta": 10000000, "partial_rotary_factor": 0.25}})",
      8},
     {"qwen3-tiny", R"({"architectures": ["Qwen3ForCausalLM"], "model_type": "qwen3", "hidden_size": 64,
"num_hidden_layers": 2, "num_attention_heads": 4, "num_key_value_heads": 2, "head_dim": 32,
"intermediate_size": 96, "vocab_size": 512, "max_position_embeddings": 4096, "rms_norm_eps": 1e-06,
"rope_theta": 10000, "tie_word_embeddings": true, "eos_token_id": 510})",
      40},
     {"qwen3.5-tiny", R"({"architectures": ["Qwen3_5ForCausalLM"], "model_type": "qwen3_5_text",
"hidden_size": 64, "num_hidden_layers": 4, "num_attention_heads": 4, "num_key_value_heads": 2, "head_dim": 32,
"intermediate_size": 96, "vocab_size": 512, "max_position_embeddings": 4096, "rms_norm_eps": 1e-06,
"full_attention_interval": 4, "linear_conv_kernel_dim": 4, "linear_key_head_dim": 16,
"linear_num_key_heads": 4, "linear_num_value_heads": 8, "linear_value_head_dim": 16, "attn_output_gate": true,
"tie_word_embeddings": true, "eos_token_id": 510, "rope_parameters":
{"rope_type": "default", "rope_theta": 10000, "partial_rotary_factor": 0.25}})",
      8}}};

/// The shape of that name, or null.
[[nodiscard]] constexpr const BuiltInShape* built_in_shape(std::string_view name) {
  for (const BuiltInShape& shape : built_in_shapes) {
    if (shape.name == name) return &shape;
  }
  return nullptr;
}

}  // namespace bench
