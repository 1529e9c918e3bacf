# SPDX-License-Identifier: Apache-2.0
"""How weights change: matrices by Muon, the rest by AdamW, at a rate that follows the clock."""

import torch


def schedule(progress, decay_from):
    """The share of the peak learning rate at a progress between 0 and 1."""
    warm = min(1.0, progress / 0.01 + 0.02)
    return warm * min(1.0, max(0.0, (1 - progress) / (1 - decay_from)))


def orthogonalised(matrices):
    """Moves all singular values of a stack of matrices close to one (Newton-Schulz)."""
    wide = matrices.shape[-2] <= matrices.shape[-1]
    x = matrices if wide else matrices.transpose(-2, -1)
    x = x / (x.norm(dim=(-2, -1), keepdim=True) + 1e-7)
    for _ in range(5):
        square = x @ x.transpose(-2, -1)
        x = 3.4445 * x + (-4.7750 * square + 2.0315 * square @ square) @ x
    return x if wide else x.transpose(-2, -1)


class Muon:
    """Momentum with orthogonalised updates, of the size that AdamW's updates have."""

    def __init__(self, weights, momentum=0.95, decay=0.05):
        self.momentum, self.decay = momentum, decay
        shapes = {}
        for weight in weights:
            shapes.setdefault(tuple(weight.shape), []).append(weight)
        self.groups = [(group, torch.zeros(len(group), *shape))
                       for shape, group in shapes.items()]

    @torch.no_grad()
    def step(self, rate):
        for group, speed in self.groups:
            gradient = torch.stack([w.grad for w in group])
            speed.lerp_(gradient, 1 - self.momentum)
            update = orthogonalised(gradient.lerp(speed, self.momentum))
            size = 0.2 * max(speed.shape[1:]) ** 0.5
            for weight, change in zip(group, update):
                weight.mul_(1 - rate * self.decay).add_(change, alpha=-rate * size)


class Optimizer:
    """Muon for the matrices inside the layers, AdamW for embedding, vectors and tiny matrices."""

    def __init__(self, named_weights, rate):
        self.weights = [w for _, w in named_weights]
        self.rate = rate
        inner = [w for n, w in named_weights
                 if w.dim() == 2 and min(w.shape) > 8 and "embed" not in n]
        outer = [w for w in self.weights if not any(w is matrix for matrix in inner)]
        self.muon = Muon(inner)
        self.adam = torch.optim.AdamW(outer, lr=rate, betas=(0.9, 0.97), eps=1e-9,
                                      weight_decay=0.0)

    def step(self, share):
        """One step from the gradients, at a share of the peak rate."""
        torch.nn.utils.clip_grad_norm_(self.weights, 1.0)
        for group in self.adam.param_groups:
            group["lr"] = self.rate * share
        self.adam.step()
        self.muon.step(self.rate * share)
