# SPDX-License-Identifier: Apache-2.0
"""Greedy answers of a model, several at a time."""

import torch

from paths import Paths


class Continuations:
    """What has been answered so far to each prompt, and which answers go on."""

    def __init__(self, count, stop_ids):
        self.texts, self.running = [[] for _ in range(count)], [True] * count
        self.stop_ids = stop_ids

    def add(self, tokens):
        for i, token in enumerate(tokens):
            self.running[i] = self.running[i] and token not in self.stop_ids
            if self.running[i]:
                self.texts[i].append(token)


@torch.no_grad()
def generate(model, prompts, stop_ids, limit):
    """Greedy continuations of several prompts (lists of ids) at once."""
    longest = max(len(p) for p in prompts)
    pads = torch.tensor([longest - len(p) for p in prompts])
    ids = torch.tensor([[0] * (longest - len(p)) + p for p in prompts])
    positions = (torch.arange(longest)[None, :] - pads[:, None]).clamp(min=0)
    caches = [[] for _ in model.model.layers]
    paths = Paths.left_padded([len(p) for p in prompts], longest)
    hidden = model.model(ids, positions, paths, caches)[:, -1]
    answers = Continuations(len(prompts), stop_ids)
    longest_text = model.config["max_position_embeddings"]
    for length in range(longest, min(longest + limit, longest_text)):
        best = model.logits(hidden).argmax(-1)
        answers.add(best.tolist())
        if not any(answers.running):
            break
        real = torch.arange(length + 1)[None, :] >= pads[:, None]
        paths = Paths(real[:, None, None], None)
        hidden = model.model(best[:, None], (length - pads)[:, None], paths, caches)[:, -1]
    return answers.texts
