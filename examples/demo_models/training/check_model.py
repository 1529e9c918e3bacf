# SPDX-License-Identifier: Apache-2.0
"""Checks the delta rule and the token trees in double precision, with random weights.

    python check_model.py
"""

import random

import torch

from chat import SampleEncoder, load_tokenizer
from delta_rule import DeltaRule, step
from dialogues import Generator
from hybrid import Qwen3_5, make_config
from paths import Paths


def largest_difference(a, b):
    return ((a - b).abs().max() / b.abs().max()).item()


def check_recurrence(length=70):
    """The whole-sequence form against one step after the other, and its gradients."""
    shape = (2, 3, length, 8)
    q, k, v = (torch.nn.functional.normalize(torch.randn(shape), dim=-1) for _ in range(3))
    beta = torch.rand(shape[:3])
    g = -torch.rand(shape[:3]) * torch.tensor([1e-3, 0.1, 9.0])[:, None]
    inputs = [x.requires_grad_() for x in (q, k, v, beta, g)]
    paths = Paths.left_padded([length] * 2, length)
    whole = DeltaRule.apply(q, k, v, beta, g.cumsum(-1), paths.bias.double())
    state, steps = torch.zeros(2, 3, 8, 8), []
    for t in range(length):
        token = [x[:, :, t] for x in (q, k, v, beta, g.exp())]
        state, out = step(state, *token)
        steps.append(out)
    steps = torch.stack(steps, dim=2)
    weights = torch.randn(shape)
    found = torch.autograd.grad((whole * weights).sum(), inputs)
    expected = torch.autograd.grad((steps * weights).sum(), inputs)
    return max(largest_difference(whole, steps), *map(largest_difference, found, expected))


def tensors_of(sample):
    ids, positions, branches = (torch.tensor([values]) for values in sample[:3])
    return ids, positions, branches


def check_branches(folder):
    """A sample with branches against each of its paths as a sequence of its own."""
    tokenizer = load_tokenizer(folder)
    encoder = SampleEncoder(tokenizer, "qwen3_5")
    talk = next(t for t in iter(Generator("check").dialogue, None) if len(t.turns) > 2)
    ids, positions, branches = tensors_of(encoder.sample(talk, random.Random(1), 1.0))
    model = Qwen3_5(make_config(tokenizer.get_vocab_size(), 0, layers=4)).eval()
    paths = Paths.of_branches(branches)
    with torch.no_grad():
        hidden = model.model(ids, positions, paths)
        mtp = model.mtp_hidden(hidden, ids, positions, paths)
        worst = 0.0
        for branch in branches.unique().tolist():
            end = (branches[0] == branch).nonzero().max().item()
            path = paths.mask[0, 0, end].nonzero().flatten()
            alone = Paths.left_padded([len(path)], len(path))
            assert positions[0, path].tolist() == list(range(len(path)))
            own = model.model(ids[:, path], positions[:, path], alone)
            own_mtp = model.mtp_hidden(own, ids[:, path], positions[:, path], alone)
            worst = max(worst, largest_difference(hidden[:, path], own),
                        largest_difference(mtp[:, path[1:]], own_mtp[:, 1:]))
            worst = max(worst, check_steps(model, ids[:, path], own))
    return worst


def check_steps(model, ids, expected, prefix=5):
    """A prefix at once and then token by token, as in generation."""
    caches = [[] for _ in model.model.layers]
    rows = [model.model(ids[:, :prefix], torch.arange(prefix)[None],
                        Paths.left_padded([prefix], prefix), caches)]
    for t in range(prefix, ids.shape[1]):
        seen = Paths(torch.ones(1, 1, 1, t + 1, dtype=torch.bool), None)
        rows.append(model.model(ids[:, t:t + 1], torch.tensor([[t]]), seen, caches))
    return largest_difference(torch.cat(rows, dim=1), expected)


def main():
    torch.manual_seed(1)
    torch.set_default_dtype(torch.float64)
    results = {"delta rule against its steps": check_recurrence(),
               "branches and steps against paths": check_branches("../qwen3")}
    for what, difference in results.items():
        print(f"{what}: {difference:.1e}")
    if max(results.values()) > 1e-6:
        raise SystemExit("they differ")


if __name__ == "__main__":
    main()
