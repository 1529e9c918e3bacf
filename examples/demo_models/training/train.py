# SPDX-License-Identifier: Apache-2.0
"""Trains the demo model on endless synthetic dialogues, on the CPU.

    python train.py --out ../qwen3 --minutes 70

Several single-threaded workers share the work: each computes gradients of its own batch, and
the gradients are averaged once a step. On a busy machine this is faster than one process with
several threads. Matrices inside the layers are trained with orthogonalised momentum (Muon), the
embedding and the norms with AdamW.

The learning rate follows the wall clock: warm-up, constant, then a linear fall to zero over the
last part of the time. A checkpoint (bfloat16 safetensors) is written every few minutes.
"""

import argparse
import math
import os
import random
import time

import numpy as np
import torch
import torch.nn.functional as F

from chat import SampleEncoder, load_tokenizer, write_json
from dialogues import Generator
from model import Qwen3, load_model, make_config, save_safetensors

BUCKETS = [32, 48, 64, 80, 96, 128, 160, 192, 256, 320, 384, 512, 768, 1024, 1408]


class Batches:
    """Batches of samples of similar length, about `tokens` tokens each."""

    def __init__(self, encoder, seed, tokens, think_share):
        self.encoder, self.tokens, self.think_share = encoder, tokens, think_share
        self.source = Generator(seed)
        self.rng = random.Random(f"batches {seed}")
        self.waiting = {size: [] for size in BUCKETS}
        self.ready = []

    def _refill(self):
        while len(self.ready) < 16:
            sample = self.encoder.sample(self.source.dialogue(), self.rng, self.think_share)
            size = next((b for b in BUCKETS if b >= len(sample[0])), None)
            if size is None:
                continue
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
        visible = (branches[:, None, :] == 0) | (branches[:, None, :] == branches[:, :, None])
        mask = visible & torch.ones(size, size, dtype=torch.bool).tril()
        where = (loss[:, 1:] == 1).nonzero(as_tuple=True)
        targets = ids[:, 1:][where]
        return ids, positions, mask[:, None], where, targets


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


def write_model_files(model, config, tokenizer, folder):
    """config.json, generation_config.json and the weights; each is replaced in one step."""
    end, pad = tokenizer.token_to_id("<|im_end|>"), tokenizer.token_to_id("<|endoftext|>")
    write_json(os.path.join(folder, "config.json"), config, indent=2)
    write_json(os.path.join(folder, "generation_config.json"), {
        "bos_token_id": pad, "do_sample": True, "eos_token_id": [end, pad], "pad_token_id": pad,
        "temperature": 0.6, "top_k": 20, "top_p": 0.95, "transformers_version": "4.51.0",
    }, indent=2)
    save_safetensors(model, os.path.join(folder, "model.safetensors"))


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--out", required=True, help="folder with tokenizer.json; gets the model")
    parser.add_argument("--minutes", type=float, default=70)
    parser.add_argument("--max-steps", type=int, default=10**9)
    parser.add_argument("--tokens", type=int, default=2048, help="tokens in a batch of one worker")
    parser.add_argument("--lr", type=float, default=3e-3)
    parser.add_argument("--decay-from", type=float, default=0.6)
    parser.add_argument("--think-share", type=float, default=0.4)
    parser.add_argument("--ease", type=float, default=0.9,
                        help="share of single questions at first; it falls to zero by half time")
    parser.add_argument("--layers", type=int, default=6)
    parser.add_argument("--hidden", type=int, default=128)
    parser.add_argument("--heads", type=int, default=4)
    parser.add_argument("--intermediate", type=int, default=352)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--threads", type=int, default=1, help="threads of one worker")
    parser.add_argument("--save-minutes", type=float, default=5)
    parser.add_argument("--resume", help="folder of a checkpoint to start from")
    args = parser.parse_args()

    if args.workers == 1:
        work(0, args)
        return
    os.environ.setdefault("MASTER_ADDR", "127.0.0.1")
    os.environ.setdefault("MASTER_PORT", str(29500 + os.getpid() % 1000))
    torch.multiprocessing.spawn(work, (args,), nprocs=args.workers)


def average_gradients(model, progress, rank, workers):
    """Averages the gradients over the workers; returns the progress that worker 0 reports."""
    if workers == 1:
        return progress
    weights = list(model.parameters())
    report = torch.tensor([progress * workers if rank == 0 else 0.0])
    flat = torch.cat([w.grad.view(-1) for w in weights] + [report])
    torch.distributed.all_reduce(flat)
    flat /= workers
    place = 0
    for weight in weights:
        weight.grad.copy_(flat[place:place + weight.numel()].view_as(weight))
        place += weight.numel()
    return flat[-1].item()


def work(rank, args):
    """The training loop of one worker; worker 0 reports and writes checkpoints."""
    torch.set_num_threads(args.threads)
    if args.workers > 1:
        torch.distributed.init_process_group("gloo", rank=rank, world_size=args.workers)
    torch.manual_seed(args.seed)
    tokenizer = load_tokenizer(args.out)
    vocab = math.ceil(tokenizer.get_vocab_size() / 32) * 32
    config = make_config(vocab, tokenizer.token_to_id("<|im_end|>"),
                         tokenizer.token_to_id("<|endoftext|>"), layers=args.layers,
                         hidden=args.hidden, heads=args.heads, kv_heads=args.heads // 2,
                         intermediate=args.intermediate)
    model = load_model(args.resume).train() if args.resume else Qwen3(config)
    config = model.config
    inner = [w for n, w in model.named_parameters() if w.dim() == 2 and "embed" not in n]
    outer = [w for n, w in model.named_parameters() if w.dim() != 2 or "embed" in n]
    muon = Muon(inner)
    adam = torch.optim.AdamW(outer, lr=args.lr, betas=(0.9, 0.97), eps=1e-9, weight_decay=0.0)
    batches = Batches(SampleEncoder(tokenizer), f"{args.seed} {rank}", args.tokens,
                      args.think_share)
    if rank == 0:
        print(f"{sum(p.numel() for p in model.parameters())} parameters", flush=True)

    start = saved = logged = time.time()
    total, losses, seen, step, progress = args.minutes * 60, [], 0, 0, 0.0
    while progress < 1:
        batches.source.ease = args.ease * max(0.0, 1 - progress / 0.5)
        ids, positions, mask, where, targets = batches.next()
        hidden = model.model(ids, positions, mask)
        loss = F.cross_entropy(model.logits(hidden[where]), targets)
        model.zero_grad()
        loss.backward()
        progress = (time.time() - start) / total if step + 1 < args.max_steps else 1.0
        progress = average_gradients(model, progress, rank, args.workers)
        rate = args.lr * schedule(progress, args.decay_from)
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        for group in adam.param_groups:
            group["lr"] = rate
        adam.step()
        muon.step(rate)
        step += 1
        seen += ids.numel() * args.workers
        losses.append(loss.item())
        now = time.time()
        if rank == 0 and now - logged > 20:
            print(f"{now - start:6.0f}s step {step} loss {np.mean(losses):.4f} lr {rate:.5f} "
                  f"{seen / (now - start):.0f} tokens/s", flush=True)
            logged, losses = now, []
        if rank == 0 and now - saved > args.save_minutes * 60:
            write_model_files(model, config, tokenizer, args.out)
            saved = now
    if rank == 0:
        write_model_files(model, config, tokenizer, args.out)
        print(f"done after {time.time() - start:.0f}s, {step} steps, {seen} tokens", flush=True)


if __name__ == "__main__":
    main()
