#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Writes a GGUF file with random weights of the shape that a config.json describes, for llama.cpp to run on.

usage: write_gguf.py CONFIG.json bf16|q8_0|q4_0 OUT.gguf
Needs the packages gguf and numpy. All matrices, the embedding included, are stored in the format asked for.
They repeat one random million of numbers: speed does not depend on values, and writing is quick.
"""
import json
import pathlib
import sys

import gguf
import numpy as np

FORMATS = {"bf16": gguf.GGMLQuantizationType.BF16, "q8_0": gguf.GGMLQuantizationType.Q8_0,
           "q4_0": gguf.GGMLQuantizationType.Q4_0}


class Writer:
    """A GGUF file under construction."""

    def __init__(self, out, config, kind):
        self.config, self.kind = config, kind
        self.hybrid = config["model_type"].startswith("qwen3_5")
        self.arch = "qwen35" if self.hybrid else "qwen3"
        self.file = gguf.GGUFWriter(out, self.arch)
        numbers = np.random.default_rng(1).normal(0, 0.02, 1 << 20).astype(np.float32)
        self.pool = gguf.quants.quantize(numbers.reshape(1024, 1024), kind).reshape(-1)

    def matrix(self, name, rows, cols):
        block, size = gguf.GGML_QUANT_SIZES[self.kind]
        count = rows * cols // block * size
        data = np.resize(self.pool, count).reshape(rows, cols // block * size)
        self.file.add_tensor(name + ".weight", data, raw_dtype=self.kind)

    def floats(self, name, *shape, value=1.0):
        self.file.add_tensor(name, np.full(shape, value, np.float32))

    def metadata(self):
        c, f = self.config, self.file
        rope = c.get("rope_parameters", c)
        f.add_context_length(c["max_position_embeddings"])
        f.add_embedding_length(c["hidden_size"])
        f.add_block_count(c["num_hidden_layers"])
        f.add_feed_forward_length(c["intermediate_size"])
        f.add_head_count(c["num_attention_heads"])
        f.add_head_count_kv(c["num_key_value_heads"])
        f.add_key_length(c["head_dim"])
        f.add_value_length(c["head_dim"])
        f.add_layer_norm_rms_eps(c["rms_norm_eps"])
        f.add_rope_freq_base(float(rope["rope_theta"]))
        f.add_vocab_size(c["vocab_size"])
        f.add_tokenizer_model("none")
        if self.hybrid:
            turning = int(c["head_dim"] * rope["partial_rotary_factor"])
            f.add_rope_dimension_count(turning)
            f.add_rope_dimension_sections([turning // 2, 0, 0, 0])
            f.add_ssm_conv_kernel(c["linear_conv_kernel_dim"])
            f.add_ssm_state_size(c["linear_key_head_dim"])
            f.add_ssm_group_count(c["linear_num_key_heads"])
            f.add_ssm_time_step_rank(c["linear_num_value_heads"])
            f.add_ssm_inner_size(c["linear_num_value_heads"] * c["linear_value_head_dim"])
            f.add_uint32(f"{self.arch}.full_attention_interval", c["full_attention_interval"])

    def attention(self, block):
        c = self.config
        query = c["num_attention_heads"] * c["head_dim"]
        kv = c["num_key_value_heads"] * c["head_dim"]
        self.matrix(f"{block}.attn_q", query * (2 if self.hybrid else 1), c["hidden_size"])
        self.matrix(f"{block}.attn_k", kv, c["hidden_size"])
        self.matrix(f"{block}.attn_v", kv, c["hidden_size"])
        self.matrix(f"{block}.attn_output", c["hidden_size"], query)
        self.floats(f"{block}.attn_q_norm.weight", c["head_dim"])
        self.floats(f"{block}.attn_k_norm.weight", c["head_dim"])

    def delta_net(self, block):
        c = self.config
        heads = c["linear_num_value_heads"]
        value = heads * c["linear_value_head_dim"]
        channels = 2 * c["linear_num_key_heads"] * c["linear_key_head_dim"] + value
        self.matrix(f"{block}.attn_qkv", channels, c["hidden_size"])
        self.matrix(f"{block}.attn_gate", value, c["hidden_size"])
        self.matrix(f"{block}.ssm_beta", heads, c["hidden_size"])
        self.matrix(f"{block}.ssm_alpha", heads, c["hidden_size"])
        self.matrix(f"{block}.ssm_out", c["hidden_size"], value)
        self.floats(f"{block}.ssm_conv1d.weight", channels, c["linear_conv_kernel_dim"], value=0.1)
        self.floats(f"{block}.ssm_dt.bias", heads, value=0.1)
        self.floats(f"{block}.ssm_a", heads, value=-0.05)
        self.floats(f"{block}.ssm_norm.weight", c["linear_value_head_dim"])

    def write(self):
        c = self.config
        self.metadata()
        self.matrix("token_embd", c["vocab_size"], c["hidden_size"])
        self.floats("output_norm.weight", c["hidden_size"])
        for layer in range(c["num_hidden_layers"]):
            block = f"blk.{layer}"
            self.floats(f"{block}.attn_norm.weight", c["hidden_size"])
            second = "post_attention_norm" if self.hybrid else "ffn_norm"
            self.floats(f"{block}.{second}.weight", c["hidden_size"])
            if self.hybrid and (layer + 1) % c["full_attention_interval"] != 0:
                self.delta_net(block)
            else:
                self.attention(block)
            self.matrix(f"{block}.ffn_gate", c["intermediate_size"], c["hidden_size"])
            self.matrix(f"{block}.ffn_up", c["intermediate_size"], c["hidden_size"])
            self.matrix(f"{block}.ffn_down", c["hidden_size"], c["intermediate_size"])
        self.file.write_header_to_file()
        self.file.write_kv_data_to_file()
        self.file.write_tensors_to_file()
        self.file.close()


def main(arguments):
    if len(arguments) != 3 or arguments[1] not in FORMATS:
        print(__doc__, file=sys.stderr)
        return 2
    config = json.loads(pathlib.Path(arguments[0]).read_text(encoding="utf-8"))
    Writer(arguments[2], config.get("text_config", config), FORMATS[arguments[1]]).write()
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
