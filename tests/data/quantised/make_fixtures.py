#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Writes tiny checkpoints packed in each published way, and what their matrices are.

usage: make_fixtures.py [OUT]      OUT is this script's directory by default

Each NAME/ has config.json, model.safetensors and expected.safetensors: the float32 matrices that the packed
ones stand for, by the definition of the format: (number - zero) * scale in float32, or value * scale for FP8.
Numbers, scales and zero points are chosen first and the matrices follow from them, so no rounding is shared
with a quantiser. Needs numpy; the same bytes come out every time.
"""
import json
import pathlib
import struct
import sys
import zlib

import numpy as np

DENSE = {"architectures": ["Qwen3ForCausalLM"], "model_type": "qwen3", "attention_bias": False, "eos_token_id": 30,
         "head_dim": 16, "hidden_act": "silu", "hidden_size": 64, "intermediate_size": 40,
         "max_position_embeddings": 4096, "num_attention_heads": 2, "num_hidden_layers": 1, "num_key_value_heads": 1,
         "rms_norm_eps": 1e-6, "rope_theta": 10000, "tie_word_embeddings": True, "torch_dtype": "bfloat16",
         "vocab_size": 32}
WIDE = {**DENSE, "hidden_size": 128, "intermediate_size": 132, "num_attention_heads": 1}
HYBRID = {"architectures": ["Qwen3_5ForConditionalGeneration"], "model_type": "qwen3_5", "tie_word_embeddings": False,
          "text_config": {
              "model_type": "qwen3_5_text", "attention_bias": False, "attn_output_gate": True, "eos_token_id": 30,
              "full_attention_interval": 2, "head_dim": 16, "hidden_act": "silu", "hidden_size": 64,
              "intermediate_size": 40, "layer_types": ["linear_attention", "full_attention"],
              "linear_conv_kernel_dim": 4, "linear_key_head_dim": 16, "linear_num_key_heads": 2,
              "linear_num_value_heads": 2, "linear_value_head_dim": 16, "max_position_embeddings": 4096,
              "mtp_num_hidden_layers": 1, "num_attention_heads": 2, "num_hidden_layers": 2, "num_key_value_heads": 1,
              "rms_norm_eps": 1e-6, "rope_parameters": {"rope_type": "default", "rope_theta": 10000,
                                                        "partial_rotary_factor": 0.5},
              "vocab_size": 32}}

DTYPES = {np.dtype("<f4"): "F32", np.dtype("<f2"): "F16", np.dtype("<i4"): "I32", np.dtype("<i8"): "I64",
          np.dtype("u1"): "U8", np.dtype("i1"): "I8"}


class Typed:
    """Bytes that numpy has no type for: BF16 or F8_E4M3."""

    def __init__(self, dtype, codes):
        self.dtype_name, self.codes = dtype, codes


def noise(name):
    return np.random.Generator(np.random.PCG64(zlib.crc32(name.encode())))


def bf16(values):
    """Rounded to nearest, ties to even: the 16-bit codes."""
    bits = np.ascontiguousarray(values, "<f4").view("<u4")
    return ((bits + 0x7FFF + (bits >> 16 & 1)) >> 16).astype("<u2")


def from_bf16(codes):
    return (codes.astype("<u4") << 16).view("<f4")


def e4m3(codes):
    """Values of F8_E4M3 codes, none of them NaN."""
    sign = np.where(codes & 0x80, -1.0, 1.0)
    exponent = (codes >> 3 & 15).astype(int)
    fraction = (codes & 7).astype(float)
    return (sign * np.where(exponent > 0, (8 + fraction) * 2.0 ** (exponent - 10), fraction * 2.0 ** -9)).astype("<f4")


def write_safetensors(path, tensors):
    header, data = {}, b""
    for name in sorted(tensors, key=lambda n: (-item_size(tensors[n]), n)):
        tensor = tensors[name]
        typed = isinstance(tensor, Typed)
        array = np.ascontiguousarray(tensor.codes if typed else tensor)
        header[name] = {"dtype": tensor.dtype_name if typed else DTYPES[array.dtype], "shape": list(array.shape),
                        "data_offsets": [len(data), len(data) + array.nbytes]}
        data += array.tobytes()
    text = json.dumps({"__metadata__": {"format": "pt"}, **header}, separators=(",", ":")).encode()
    text += b" " * (-(len(text) + 8) % 64)
    path.write_bytes(struct.pack("<Q", len(text)) + text + data)


def item_size(tensor):
    return (tensor.codes if isinstance(tensor, Typed) else np.asarray(tensor)).dtype.itemsize


# ------------------------------------------------------------------------------------------ networks
def matrices(config):
    """Names and [out, in] of all matrices but the embedding; then the other tensors and their shapes."""
    c = config.get("text_config", config)
    hidden, inner, head = c["hidden_size"], c["intermediate_size"], c["head_dim"]
    query, kv = c["num_attention_heads"] * head, c["num_key_value_heads"] * head
    hybrid = "layer_types" in c
    root = "model.language_model." if hybrid else "model."
    linear, other = {}, {f"{root}norm.weight": [hidden]}

    def attention(prefix):
        linear[prefix + "self_attn.q_proj"] = [query * (2 if hybrid else 1), hidden]
        linear[prefix + "self_attn.k_proj"] = linear[prefix + "self_attn.v_proj"] = [kv, hidden]
        linear[prefix + "self_attn.o_proj"] = [hidden, query]
        other[prefix + "self_attn.q_norm.weight"] = other[prefix + "self_attn.k_norm.weight"] = [head]

    def delta_net(prefix):
        heads, width = c["linear_num_value_heads"], c["linear_value_head_dim"] * c["linear_num_value_heads"]
        channels = 2 * c["linear_key_head_dim"] * c["linear_num_key_heads"] + width
        linear[prefix + "linear_attn.in_proj_qkv"] = [channels, hidden]
        linear[prefix + "linear_attn.in_proj_z"] = [width, hidden]
        linear[prefix + "linear_attn.out_proj"] = [hidden, width]
        for name in ("in_proj_a", "in_proj_b"):
            other[f"{prefix}linear_attn.{name}.weight"] = [heads, hidden]
        other[prefix + "linear_attn.conv1d.weight"] = [channels, 1, 4]
        other[prefix + "linear_attn.A_log"] = other[prefix + "linear_attn.dt_bias"] = [heads]
        other[prefix + "linear_attn.norm.weight"] = [c["linear_value_head_dim"]]

    def layer(prefix, mixer):
        mixer(prefix)
        linear[prefix + "mlp.gate_proj"] = linear[prefix + "mlp.up_proj"] = [inner, hidden]
        linear[prefix + "mlp.down_proj"] = [hidden, inner]
        for name in ("input_layernorm", "post_attention_layernorm"):
            other[f"{prefix}{name}.weight"] = [hidden]

    for i in range(c["num_hidden_layers"]):
        kind = c["layer_types"][i] if hybrid else "full_attention"
        layer(f"{root}layers.{i}.", attention if kind == "full_attention" else delta_net)
    if hybrid:
        layer("mtp.layers.0.", attention)
        linear["mtp.fc"] = [hidden, 2 * hidden]
        for name in ("pre_fc_norm_embedding", "pre_fc_norm_hidden", "norm"):
            other[f"mtp.{name}.weight"] = [hidden]
        other["model.visual.pos_embed.weight"] = [2, 8]
    other[root + "embed_tokens.weight"] = [c["vocab_size"], hidden]
    if not config["tie_word_embeddings"]:
        other["lm_head.weight"] = [c["vocab_size"], hidden]
    return linear, other


def plain(name, shape):
    """A tensor stored as BF16: norms about one (Qwen3.5's about zero are as good), the rest small noise."""
    values = noise(name).standard_normal(shape) * 0.1
    if name.endswith("norm.weight") and "model.layers" in name:
        values += 1
    if name.endswith("A_log"):
        return values.astype("<f4")
    return Typed("BF16", bf16(values))


# ------------------------------------------------------------------------------------------- packing
def words(numbers, bits, axis):
    """Numbers packed into 32-bit words along an axis, the first in the lowest bits; the last word is padded."""
    count = 32 // bits
    numbers = np.moveaxis(numbers.astype("<u4"), axis, -1)
    pad = -numbers.shape[-1] % count
    numbers = np.concatenate([numbers, np.zeros(numbers.shape[:-1] + (pad,), "<u4")], axis=-1)
    numbers = numbers.reshape(numbers.shape[:-1] + (-1, count))
    packed = np.zeros(numbers.shape[:-1], "<u4")
    for i in range(count):
        packed |= numbers[..., i] << np.uint32(bits * i)
    return np.moveaxis(packed, -1, axis).view("<i4")


def awq_words(numbers):
    """Eight columns to a word: bits 0 to 3 hold the first, then come 2, 4, 6, 1, 3, 5, 7."""
    numbers = numbers.astype("<u4").reshape(numbers.shape[0], -1, 8)
    packed = np.zeros(numbers.shape[:-1], "<u4")
    for place, column in enumerate([0, 2, 4, 6, 1, 3, 5, 7]):
        packed |= numbers[..., column] << np.uint32(4 * place)
    return packed.view("<i4")


class Parts:
    """Numbers [out, in], scales and zero points [out, groups] and the group of each column, at random."""

    def __init__(self, name, shape, bits, group, zeros=False, order=False, scale="F16"):
        random = noise(name + "/packed")
        rows, cols = shape
        group = cols if group < 0 else group
        groups = -(-cols // group)
        middle = 1 << (bits - 1)
        self.bits, self.cols = bits, cols
        self.group_of = np.arange(cols) // group
        if order:
            self.group_of = random.permutation(self.group_of)
        spread = random.standard_normal((rows, cols)) * middle / 3.5
        shift = random.integers(-middle // 3, middle // 3 + 1, (rows, groups)) if zeros else np.zeros((rows, groups), int)
        self.zeros = middle + shift
        self.numbers = np.clip(np.rint(spread + self.zeros[:, self.group_of]), 0, 2 * middle - 1).astype(int)
        scales = (0.5 + random.random((rows, groups))) * 0.5 / middle
        self.scales = {"F16": scales.astype("<f2"), "F32": scales.astype("<f4"), "BF16": bf16(scales)}[scale]
        self.scale_type = scale

    def stored_scales(self):
        return Typed("BF16", self.scales) if self.scale_type == "BF16" else self.scales

    def matrix(self):
        scales = from_bf16(self.scales) if self.scale_type == "BF16" else self.scales.astype("<f4")
        steps = (self.numbers - self.zeros[:, self.group_of]).astype("<f4")
        return steps * scales[:, self.group_of]


def pack_gptq(name, shape, bits=4, group=32, less_one=True, zeros=False, order=False, stored_zeros=None):
    parts = Parts(name, shape, bits, group, zeros, order)
    stored = parts.zeros - (1 if less_one else 0)
    if stored_zeros is not None:
        stored = stored_zeros(name, parts.zeros)
    packed = {".qweight": words(parts.numbers.T, bits, 0), ".scales": np.ascontiguousarray(parts.scales.T),
              ".qzeros": words(stored.T, bits, 1), ".g_idx": parts.group_of.astype("<i4")}
    return packed, parts.matrix()


def pack_awq(name, shape, group=32):
    parts = Parts(name, shape, 4, group, zeros=True)
    return {".qweight": awq_words(parts.numbers.T), ".scales": np.ascontiguousarray(parts.scales.T),
            ".qzeros": awq_words(parts.zeros.T)}, parts.matrix()


def pack_compressed(name, shape, bits=4, group=32, zeros=False, order=False, scale="BF16"):
    parts = Parts(name, shape, bits, group, zeros, order, scale)
    packed = {".weight_packed": words(parts.numbers, bits, 1), ".weight_scale": parts.stored_scales(),
              ".weight_shape": np.array(shape, "<i8")}
    if zeros:
        packed[".weight_zero_point"] = words(parts.zeros, bits, 0)
    if order:
        packed[".weight_g_idx"] = parts.group_of.astype("<i4")
    return packed, parts.matrix()


def pack_bytes(name, shape):
    parts = Parts(name, shape, 8, -1, scale="BF16")
    return {".weight": (parts.numbers - 128).astype("i1"), ".weight_scale": parts.stored_scales()}, parts.matrix()


def pack_fp8(name, shape, block=(128, 128), scale="BF16"):
    random = noise(name + "/packed")
    codes = random.integers(0, 256, shape).astype("u1")
    codes[(codes & 0x7F) == 0x7F] = 0  # NaN
    blocks = [-(-n // b) for n, b in zip(shape, block)]
    scales = (0.5 + random.random(blocks)) * 0.002
    stored = {"BF16": Typed("BF16", bf16(scales)), "F16": scales.astype("<f2"), "F32": scales.astype("<f4")}[scale]
    exact = from_bf16(stored.codes) if scale == "BF16" else stored.astype("<f4")
    spread = np.repeat(np.repeat(exact, block[0], 0), block[1], 1)[:shape[0], :shape[1]]
    return {".weight": Typed("F8_E4M3", codes), ".weight_scale_inv": stored}, e4m3(codes) * spread


def own_bytes(numbers, bits):
    """Rows in blocks of 128; in a block of 4-bit numbers, word l has element 16 j + l in bits 4 j to 4 j + 3."""
    rows, cols = numbers.shape
    padded = np.full((rows, -(-cols // 128) * 128), 1 << (bits - 1), "<u4")
    padded[:, :cols] = numbers
    if bits == 8:
        return padded.astype("u1")
    blocks = padded.reshape(rows, -1, 8, 16)
    packed = np.zeros((rows, blocks.shape[1], 16), "<u4")
    for j in range(8):
        packed |= blocks[:, :, j, :] << np.uint32(4 * j)
    return packed.reshape(rows, -1).view("u1")


def pack_own(name, shape, bits=4, group=32, zeros=False):
    parts = Parts(name, shape, bits, group, zeros)
    packed = {".weight.values": own_bytes(parts.numbers, bits), ".weight.scales": parts.scales}
    if zeros:
        packed[".weight.zeros"] = parts.zeros.astype("u1")
    return packed, parts.matrix()


# ------------------------------------------------------------------------------------------ fixtures
def gptq(**fields):
    return {"bits": 4, "group_size": 32, "desc_act": False, "sym": True, "lm_head": False, "quant_method": "gptq",
            "checkpoint_format": "gptq", "pack_dtype": "int32", "meta": {"quantizer": ["a test"]}, **fields}


def awq(**fields):
    return {"bits": 4, "group_size": 32, "zero_point": True, "version": "gemm", "quant_method": "awq",
            "modules_to_not_convert": None, **fields}


def fp8(**fields):
    return {"activation_scheme": "dynamic", "fmt": "e4m3", "quant_method": "fp8", "weight_block_size": [128, 128],
            "modules_to_not_convert": ["lm_head", "model.layers.0.input_layernorm"], **fields}


def compressed(**weights):
    scheme = {"actorder": None, "block_structure": None, "dynamic": False, "group_size": 32, "num_bits": 4,
              "observer": "minmax", "strategy": "group", "symmetric": True, "type": "int", **weights}
    return {"config_groups": {"group_0": {"input_activations": None, "output_activations": None, "targets": ["Linear"],
                                          "weights": scheme}},
            "format": "pack-quantized", "ignore": ["lm_head", "re:.*visual.*"], "kv_cache_scheme": None,
            "quant_method": "compressed-tensors", "quantization_status": "compressed"}


def junk(name, zeros):
    return noise(name + "/junk").integers(0, 16, zeros.shape)


MLP_ONLY = {"lm_head": {}, "model.language_model.embed_tokens": {}, "-:.*attn.*": {}, "-:.*shared_expert.*": {},
            "-:.*mtp.*": {}, "-:.*visual.*": {}}

FIXTURES = {  # name: (network, quantization_config, packing of a matrix)
    "gptq-int4": (DENSE, gptq(), pack_gptq),
    "gptq-int4-v1-zeros": (DENSE, gptq(sym=False), lambda n, s: pack_gptq(n, s, zeros=True)),
    "gptq-int4-v2-zeros": (DENSE, gptq(sym=False, checkpoint_format="gptq_v2", group_size=64),
                           lambda n, s: pack_gptq(n, s, group=64, less_one=False, zeros=True)),
    "gptq-int4-mislabelled": (DENSE, gptq(), lambda n, s: pack_gptq(n, s, less_one=False)),
    "gptq-int4-junk-zeros": (DENSE, gptq(group_size=-1), lambda n, s: pack_gptq(n, s, group=-1, stored_zeros=junk)),
    "gptq-int4-act-order": (DENSE, gptq(desc_act=True), lambda n, s: pack_gptq(n, s, order=True)),
    "gptq-int8-zeros": (DENSE, gptq(bits=8, sym=False, dynamic={"+:.*down.*": {"bits": 4, "sym": True}}),
                        lambda n, s: pack_gptq(n, s) if "down" in n else pack_gptq(n, s, bits=8, zeros=True)),
    "gptq-hybrid": (HYBRID, gptq(dynamic=MLP_ONLY), lambda n, s: pack_gptq(n, s) if is_mlp(n) else None),
    "awq": (DENSE, awq(), pack_awq),
    "fp8": (WIDE, fp8(), pack_fp8),
    "fp8-blocks": (DENSE, fp8(weight_block_size=[16, 48], modules_to_not_convert=["mlp"]),
                   lambda n, s: None if is_mlp(n) else pack_fp8(n, s, (16, 48), "F32")),
    "compressed-int4": (DENSE, compressed(), pack_compressed),
    "compressed-int4-zeros": (DENSE, compressed(symmetric=False, actorder="group"),
                              lambda n, s: pack_compressed(n, s, zeros=True, order="down" in n, scale="F16")),
    "compressed-int8": (DENSE, compressed(num_bits=8, strategy="channel", group_size=None),
                        lambda n, s: pack_compressed(n, s, 8, -1)),
    "compressed-bytes": (DENSE, {**compressed(num_bits=8, strategy="channel"), "format": "int-quantized"},
                         lambda n, s: pack_bytes(n, s)),
    "own": (DENSE, {"quant_method": "qwenlite", "version": 1, "method": "rtn", "weights": "int4:32:zeros",
                    "embedding": "int8:row"},
            lambda n, s: pack_own(n, s, 8, -1) if "embed" in n else pack_own(n, s, zeros=True)),
}


def is_mlp(name):
    return ".mlp." in name and not name.startswith("mtp.")


def write_fixture(place, name, config, quantisation, pack):
    directory = place / name
    directory.mkdir(exist_ok=True)
    linear, other = matrices(config)
    if quantisation["quant_method"] == "qwenlite":
        embedding = "model.embed_tokens"
        linear[embedding] = other.pop(embedding + ".weight")
    tensors, expected = {}, {}
    for module, shape in linear.items():
        packed = pack(module, shape)
        if packed is None:
            tensors[module + ".weight"] = plain(module, shape)
            continue
        tensors.update({module + suffix: tensor for suffix, tensor in packed[0].items()})
        expected[module + ".weight"] = packed[1].astype("<f4")
    for tensor, shape in other.items():
        tensors[tensor] = plain(tensor, shape)
    write_safetensors(directory / "model.safetensors", tensors)
    write_safetensors(directory / "expected.safetensors", expected)
    text = json.dumps({**config, "quantization_config": quantisation}, indent=2)
    (directory / "config.json").write_text(text + "\n")


def main(arguments):
    place = pathlib.Path(arguments[0]) if arguments else pathlib.Path(__file__).parent
    for name, (config, quantisation, pack) in FIXTURES.items():
        write_fixture(place, name, config, quantisation, pack)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
