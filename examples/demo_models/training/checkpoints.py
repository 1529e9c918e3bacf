# SPDX-License-Identifier: Apache-2.0
"""Reading and writing of checkpoints: config.json and model.safetensors."""

import json
import os

import numpy as np
import torch

from hybrid import Qwen3_5
from model import Qwen3

FAMILIES = {"qwen3": "qwen3", "qwen3_5_text": "qwen3_5"}  # by model_type
NETWORKS = {"qwen3": Qwen3, "qwen3_5": Qwen3_5}
TYPES = {"BF16": (np.int16, torch.bfloat16), "F32": (np.float32, torch.float32)}


def family_of(config):
    return FAMILIES[config["model_type"]]


def stored_type(name):
    """Decay rates and the gated norm keep their precision; all else is bfloat16."""
    return "F32" if name.endswith((".A_log", ".linear_attn.norm.weight")) else "BF16"


def save_safetensors(model, path):
    """Writes the weights in name order, through a temporary file."""
    header, blobs, offset = {"__metadata__": {"format": "pt"}}, [], 0
    for name, weight in sorted(model.state_dict().items()):
        kind = stored_type(name)
        numbers = weight.detach().to(TYPES[kind][1]).contiguous()
        blob = numbers.view(torch.int16 if kind == "BF16" else torch.int32).numpy().tobytes()
        header[name] = {"dtype": kind, "shape": list(weight.shape),
                        "data_offsets": [offset, offset + len(blob)]}
        blobs.append(blob)
        offset += len(blob)
    text = json.dumps(header, separators=(",", ":")).encode()
    text += b" " * (-len(text) % 8)
    with open(path + ".tmp", "wb") as out:
        out.write(len(text).to_bytes(8, "little") + text)
        for blob in blobs:
            out.write(blob)
    os.replace(path + ".tmp", path)


def read_safetensors(path):
    """The weights of a file by name, widened to float32."""
    with open(path, "rb") as file:
        size = int.from_bytes(file.read(8), "little")
        header = json.loads(file.read(size))
        data = file.read()
    weights = {}
    for name, entry in header.items():
        if name == "__metadata__":
            continue
        begin, end = entry["data_offsets"]
        numbers, kind = TYPES[entry["dtype"]]
        raw = torch.from_numpy(np.frombuffer(data[begin:end], dtype=numbers).copy())
        weights[name] = raw.view(kind).float().view(entry["shape"])
    return weights


def load_model(folder):
    """Reads config.json and model.safetensors as written by `save_safetensors`."""
    with open(os.path.join(folder, "config.json"), encoding="utf-8") as file:
        config = json.load(file)
    model = NETWORKS[family_of(config)](config)
    model.load_state_dict(read_safetensors(os.path.join(folder, "model.safetensors")))
    return model.eval()
