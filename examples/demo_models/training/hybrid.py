# SPDX-License-Identifier: Apache-2.0
"""A plain PyTorch version of the Qwen3.5 network (text part), for training and for evaluation.

Three layers of gated delta rule for each layer of gated attention, and a head that predicts one
token further. Parameter names are those of the checkpoint; MLP and rotation are Qwen3's.
"""

import math

import torch
import torch.nn.functional as F
from torch import nn

from delta_rule import DeltaRule, solve, step
from model import MLP, rotate, rotation_tables


def make_config(vocab_size, end_of_text, layers=8, hidden=128, heads=4, intermediate=152):
    """The content of config.json: the flat, text-only form."""
    kinds = ["full_attention" if i % 4 == 3 else "linear_attention" for i in range(layers)]
    return {
        "architectures": ["Qwen3_5ForCausalLM"],
        "attention_bias": False,
        "attention_dropout": 0.0,
        "attn_output_gate": True,
        "dtype": "bfloat16",
        "eos_token_id": end_of_text,
        "full_attention_interval": 4,
        "head_dim": 32,
        "hidden_act": "silu",
        "hidden_size": hidden,
        "initializer_range": 0.02,
        "intermediate_size": intermediate,
        "layer_types": kinds,
        "linear_conv_kernel_dim": 4,
        "linear_key_head_dim": 32,
        "linear_num_key_heads": 3,
        "linear_num_value_heads": 3,
        "linear_value_head_dim": 32,
        "mamba_ssm_dtype": "float32",
        "max_position_embeddings": 2048,
        "mlp_only_layers": [],
        "model_type": "qwen3_5_text",
        "mtp_num_hidden_layers": 1,
        "mtp_use_dedicated_embeddings": False,
        "num_attention_heads": heads,
        "num_hidden_layers": layers,
        "num_key_value_heads": heads // 2,
        "rms_norm_eps": 1e-06,
        "rope_parameters": {
            "mrope_interleaved": True,
            "mrope_section": [2, 1, 1],
            "partial_rotary_factor": 0.25,
            "rope_theta": 10000,
            "rope_type": "default",
        },
        "tie_word_embeddings": True,
        "use_cache": True,
        "vocab_size": vocab_size,
    }


class CentredNorm(nn.Module):
    """RMSNorm whose stored weight is its distance from one."""

    def __init__(self, size, eps):
        super().__init__()
        self.weight = nn.Parameter(torch.zeros(size))
        self.eps = eps

    def forward(self, x):
        return (1 + self.weight) * (x * torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + self.eps))


class GatedNorm(nn.Module):
    """RMSNorm with a plain weight, then a gate."""

    def __init__(self, size, eps):
        super().__init__()
        self.weight = nn.Parameter(torch.ones(size))
        self.eps = eps

    def forward(self, x, gate):
        normed = x * torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + self.eps)
        return self.weight * normed * F.silu(gate)


def unit(x):
    return x * torch.rsqrt(x.pow(2).sum(-1, keepdim=True) + 1e-6)


class GatedAttention(nn.Module):
    def __init__(self, c):
        super().__init__()
        self.heads, self.kv_heads = c["num_attention_heads"], c["num_key_value_heads"]
        self.head_dim = c["head_dim"]
        hidden, eps = c["hidden_size"], c["rms_norm_eps"]
        self.q_proj = nn.Linear(hidden, self.heads * self.head_dim * 2, bias=False)
        self.k_proj = nn.Linear(hidden, self.kv_heads * self.head_dim, bias=False)
        self.v_proj = nn.Linear(hidden, self.kv_heads * self.head_dim, bias=False)
        self.o_proj = nn.Linear(self.heads * self.head_dim, hidden, bias=False)
        self.q_norm = CentredNorm(self.head_dim, eps)
        self.k_norm = CentredNorm(self.head_dim, eps)

    def _turn(self, x, cos, sin):
        """Only the first dimensions of a head turn with the position."""
        turning = cos.shape[-1]
        return torch.cat([rotate(x[..., :turning], cos, sin), x[..., turning:]], dim=-1)

    def forward(self, x, rotation, mask, cache=None):
        batch, length, _ = x.shape
        q, gate = self.q_proj(x).view(batch, length, self.heads, -1).chunk(2, dim=-1)
        k = self.k_proj(x).view(batch, length, self.kv_heads, self.head_dim)
        v = self.v_proj(x).view(batch, length, self.kv_heads, self.head_dim).transpose(1, 2)
        q = self._turn(self.q_norm(q), *rotation).transpose(1, 2)
        k = self._turn(self.k_norm(k), *rotation).transpose(1, 2)
        if cache is not None:
            if cache:
                k, v = torch.cat([cache[0], k], dim=2), torch.cat([cache[1], v], dim=2)
            cache[:] = [k, v]
        group = self.heads // self.kv_heads
        k, v = k.repeat_interleave(group, dim=1), v.repeat_interleave(group, dim=1)
        out = F.scaled_dot_product_attention(q, k, v, attn_mask=mask).transpose(1, 2)
        return self.o_proj((out * torch.sigmoid(gate)).reshape(batch, length, -1))


class GatedDeltaNet(nn.Module):
    def __init__(self, c):
        super().__init__()
        self.key_heads, self.value_heads = c["linear_num_key_heads"], c["linear_num_value_heads"]
        self.key_dim, self.value_dim = c["linear_key_head_dim"], c["linear_value_head_dim"]
        self.taps = c["linear_conv_kernel_dim"]
        hidden, values = c["hidden_size"], self.value_heads * self.value_dim
        self.keys = self.key_heads * self.key_dim
        self.in_proj_qkv = nn.Linear(hidden, 2 * self.keys + values, bias=False)
        self.in_proj_z = nn.Linear(hidden, values, bias=False)
        self.in_proj_b = nn.Linear(hidden, self.value_heads, bias=False)
        self.in_proj_a = nn.Linear(hidden, self.value_heads, bias=False)
        self.conv1d = nn.Conv1d(2 * self.keys + values, 2 * self.keys + values, self.taps,
                                groups=2 * self.keys + values, bias=False)
        self.A_log = nn.Parameter(torch.empty(self.value_heads).uniform_(1, 16).log())
        steps = torch.exp(torch.empty(self.value_heads).uniform_(math.log(1e-3), math.log(0.1)))
        self.dt_bias = nn.Parameter(steps + torch.log(-torch.expm1(-steps)))
        self.norm = GatedNorm(self.value_dim, c["rms_norm_eps"])
        self.out_proj = nn.Linear(values, hidden, bias=False)

    def forward(self, x, paths, cache=None):
        """`cache` gets the convolution's last inputs and the memory, or the layer goes on from them."""
        mixed = self.in_proj_qkv(x)
        beta = torch.sigmoid(self.in_proj_b(x))
        log_decay = -self.A_log.exp() * F.softplus(self.in_proj_a(x) + self.dt_bias)
        if cache:
            out = self._step(mixed, beta, log_decay, cache)
        else:
            out = self._whole(mixed, beta, log_decay, paths, cache)
        gate = self.in_proj_z(x).view(out.shape)
        return self.out_proj(self.norm(out, gate).flatten(2))

    def _whole(self, mixed, beta, log_decay, paths, cache):
        earlier = paths.before(mixed, self.taps - 1)
        q, k, v = self._heads([mixed, *earlier])
        gamma = paths.along(log_decay).transpose(1, 2).contiguous()
        beta = beta.transpose(1, 2).contiguous()
        if cache is None:
            return DeltaRule.apply(q, k, v, beta, gamma, paths.bias).transpose(1, 2)
        out, writes, decay, _, _ = solve(q, k, v, beta, gamma, paths.bias)
        state = (k * decay[..., -1, :, None]).transpose(-2, -1) @ writes
        newest_first = torch.stack([mixed[:, -1], *[e[:, -1] for e in earlier[:-1]]], dim=1)
        cache[:] = [newest_first, state]
        return out.transpose(1, 2)

    def _step(self, mixed, beta, log_decay, cache):
        history, state = cache
        q, k, v = self._heads([mixed, *history.split(1, dim=1)])
        state, out = step(state, q[:, :, 0], k[:, :, 0], v[:, :, 0], beta[:, 0],
                          log_decay[:, 0].exp())
        cache[:] = [torch.cat([mixed, history[:, :-1]], dim=1), state]
        return out[:, None]

    def _heads(self, newest_first):
        """Convolution over the tokens and those before them; q, k and v of each value head."""
        weights = self.conv1d.weight[:, 0].unbind(-1)
        mixed = sum(x * w for x, w in zip(newest_first, reversed(weights)))
        sizes = [self.keys, self.keys, self.value_heads * self.value_dim]
        parts = F.silu(mixed).split(sizes, dim=-1)
        q, k = (unit(part.unflatten(-1, (self.key_heads, self.key_dim))) for part in parts[:2])
        v = parts[2].unflatten(-1, (self.value_heads, self.value_dim))
        group = self.value_heads // self.key_heads
        if group > 1:
            q, k = q.repeat_interleave(group, dim=2), k.repeat_interleave(group, dim=2)
        q = q * self.key_dim ** -0.5
        return [x.transpose(1, 2).contiguous() for x in (q, k, v)]


class Layer(nn.Module):
    def __init__(self, c, kind):
        super().__init__()
        self.input_layernorm = CentredNorm(c["hidden_size"], c["rms_norm_eps"])
        self.linear = kind == "linear_attention"
        if self.linear:
            self.linear_attn = GatedDeltaNet(c)
        else:
            self.self_attn = GatedAttention(c)
        self.post_attention_layernorm = CentredNorm(c["hidden_size"], c["rms_norm_eps"])
        self.mlp = MLP(c)

    def forward(self, h, rotation, paths, cache=None):
        x = self.input_layernorm(h)
        if self.linear:
            h = h + self.linear_attn(x, paths, cache)
        else:
            h = h + self.self_attn(x, rotation, paths.mask, cache)
        return h + self.mlp(self.post_attention_layernorm(h))


class Backbone(nn.Module):
    """Embedding, layers and final norm."""

    def __init__(self, c):
        super().__init__()
        self.embed_tokens = nn.Embedding(c["vocab_size"], c["hidden_size"])
        self.layers = nn.ModuleList(Layer(c, kind) for kind in c["layer_types"])
        self.norm = CentredNorm(c["hidden_size"], c["rms_norm_eps"])
        rope = c["rope_parameters"]
        cos, sin = rotation_tables(int(c["head_dim"] * rope["partial_rotary_factor"]),
                                   rope["rope_theta"], c["max_position_embeddings"])
        self.register_buffer("cos", cos, persistent=False)
        self.register_buffer("sin", sin, persistent=False)

    def rotation(self, positions):
        return self.cos[positions][:, :, None, :], self.sin[positions][:, :, None, :]

    def forward(self, ids, positions, paths, caches=None):
        h = self.embed_tokens(ids)
        rotation = self.rotation(positions)
        for i, layer in enumerate(self.layers):
            h = layer(h, rotation, paths, None if caches is None else caches[i])
        return self.norm(h)


class NextToken(nn.Module):
    """The multi-token-prediction head: from a hidden state and the token that followed it to a
    hidden state that predicts the token after that."""

    def __init__(self, c):
        super().__init__()
        hidden, eps = c["hidden_size"], c["rms_norm_eps"]
        self.pre_fc_norm_embedding = CentredNorm(hidden, eps)
        self.pre_fc_norm_hidden = CentredNorm(hidden, eps)
        self.fc = nn.Linear(2 * hidden, hidden, bias=False)
        self.layers = nn.ModuleList([Layer(c, "full_attention")])
        self.norm = CentredNorm(hidden, eps)

    def forward(self, hidden, following, rotation, paths):
        joined = torch.cat([self.pre_fc_norm_embedding(following),
                            self.pre_fc_norm_hidden(hidden)], dim=-1)
        return self.norm(self.layers[0](self.fc(joined), rotation, paths))


class Qwen3_5(nn.Module):
    def __init__(self, config):
        super().__init__()
        self.config = config
        self.model = Backbone(config)
        self.mtp = NextToken(config)
        depth = config["num_hidden_layers"]
        for name, weight in self.named_parameters():
            if weight.dim() == 2:
                small = name.endswith(("o_proj.weight", "out_proj.weight", "down_proj.weight"))
                std = 0.02 if "embed" in name else weight.shape[1] ** -0.5 * 0.7
                nn.init.normal_(weight, std=std / (2 * depth) ** 0.5 if small else std)

    def logits(self, hidden):
        """The output matrix is the embedding."""
        return F.linear(hidden, self.model.embed_tokens.weight)

    def mtp_hidden(self, hidden, ids, positions, paths):
        """At each token but the first of a path: what predicts the token after it, from the
        hidden state of the token before it. Nothing sees the first tokens, which have no row."""
        before = paths.before(hidden, 1)[0]
        rotation = self.model.rotation((positions - 1).clamp(min=0))
        return self.mtp(before, self.model.embed_tokens(ids), rotation, paths.without_first())
