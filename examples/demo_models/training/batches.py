# SPDX-License-Identifier: Apache-2.0
"""Batches of encoded dialogues, without end."""

import random

import numpy as np
import torch

from dialogues import Generator
from paths import Paths

BUCKETS = [32, 48, 64, 80, 96, 128, 160, 192, 256, 320, 384, 448, 512, 640, 768, 896, 1024, 1408]


class Batches:
    """Batches of samples of similar length, about `options.tokens` tokens each."""

    def __init__(self, encoder, options, seed):
        self.encoder, self.tokens = encoder, options.tokens
        self.think_share, self.longest = options.think_share, options.longest
        self.source = Generator(seed, options.weights, options.memory)
        self.rng = random.Random(f"batches {seed}")
        self.waiting = {size: [] for size in BUCKETS}
        self.ready = []

    def _sample(self, talk):
        """All answers of a dialogue, or, where they are too long together, those that matter."""
        sample = self.encoder.sample(talk, self.rng, self.think_share)
        if len(sample[0]) > self.longest:
            sample = self.encoder.sample(talk, self.rng, self.think_share, lean=True)
        return sample

    def _refill(self):
        while len(self.ready) < 16:
            sample = self._sample(self.source.dialogue())
            if len(sample[0]) > self.longest:
                continue
            size = next(b for b in BUCKETS if b >= len(sample[0]))
            group = self.waiting[size]
            group.append(sample)
            if len(group) >= max(1, self.tokens // size):
                self.ready.append((size, group))
                self.waiting[size] = []
        self.rng.shuffle(self.ready)

    def next(self):
        if not self.ready:
            self._refill()
        size, samples = self.ready.pop()
        fields = np.zeros((4, len(samples), size), dtype=np.int64)
        fields[2] = -1
        for row, sample in enumerate(samples):
            for field, values in enumerate(sample):
                fields[field, row, :len(values)] = values
        ids, positions, branches, loss = torch.from_numpy(fields)
        where = (loss[:, 1:] == 1).nonzero(as_tuple=True)
        targets = ids[:, 1:][where]
        return ids, positions, Paths.of_branches(branches), where, targets
