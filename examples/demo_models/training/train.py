# SPDX-License-Identifier: Apache-2.0
"""Trains a demo model on endless synthetic dialogues, on the CPU.

    python train.py --family qwen3 --out ../qwen3 --minutes 150
    python train.py --family qwen3_5 --out ../qwen3_5 --minutes 95 --embedding-from ../qwen3
    python train.py --family qwen3_5 --out ../qwen3_5 --minutes 8 --resume ../qwen3_5 --only-mtp

Several single-threaded workers share the work: each computes gradients of its own batch, and
the gradients are averaged once a step. On a busy machine this is faster than one process with
several threads. Matrices inside the layers are trained with orthogonalised momentum (Muon), the
embedding and the norms with AdamW.

The learning rate follows the wall clock: warm-up, constant, then a linear fall to zero over the
last part of the time. A checkpoint (bfloat16 safetensors) is written every few minutes.
"""

import argparse
import json
import math
import os
import time

import numpy as np
import torch
import torch.nn.functional as F

import hybrid
import model as plain
from batches import Batches
from chat import SampleEncoder, load_tokenizer, write_json
from checkpoints import load_model, read_safetensors, save_safetensors
from optimizers import Optimizer, schedule


def new_model(family, tokenizer):
    """A model of a family with random weights."""
    vocab = math.ceil(tokenizer.get_vocab_size() / 32) * 32
    end, pad = tokenizer.token_to_id("<|im_end|>"), tokenizer.token_to_id("<|endoftext|>")
    if family == "qwen3":
        return plain.Qwen3(plain.make_config(vocab, end, pad))
    return hybrid.Qwen3_5(hybrid.make_config(vocab, pad))


@torch.no_grad()
def take_embedding(model, folder):
    """Starts from the embedding of another model with the same tokenizer."""
    weights = read_safetensors(os.path.join(folder, "model.safetensors"))
    model.model.embed_tokens.weight.copy_(weights["model.embed_tokens.weight"])


def write_model_files(model, tokenizer, folder):
    """config.json, generation_config.json and the weights; each is replaced in one step."""
    end, pad = tokenizer.token_to_id("<|im_end|>"), tokenizer.token_to_id("<|endoftext|>")
    write_json(os.path.join(folder, "config.json"), model.config, indent=2)
    write_json(os.path.join(folder, "generation_config.json"), {
        "bos_token_id": pad, "do_sample": True, "eos_token_id": [end, pad], "pad_token_id": pad,
        "temperature": 0.6, "top_k": 20, "top_p": 0.95, "transformers_version": "4.51.0",
    }, indent=2)
    save_safetensors(model, os.path.join(folder, "model.safetensors"))


def next_loss(model, batch):
    """The loss of the trained tokens."""
    ids, positions, paths, where, targets = batch
    hidden = model.model(ids, positions, paths)
    return F.cross_entropy(model.logits(hidden[where]), targets)


def mtp_loss(model, batch):
    """The loss of the trained tokens, each predicted one token earlier; only the head learns."""
    ids, positions, paths, where, targets = batch
    with torch.no_grad():
        hidden = model.model(ids, positions, paths)
    further = model.mtp_hidden(hidden, ids, positions, paths)
    return F.cross_entropy(model.logits(further[where]), targets)


def average_gradients(weights, progress, rank, workers):
    """Averages the gradients over the workers; returns the progress that worker 0 reports."""
    if workers == 1:
        return progress
    report = torch.tensor([progress * workers if rank == 0 else 0.0])
    flat = torch.cat([w.grad.view(-1) for w in weights] + [report])
    torch.distributed.all_reduce(flat)
    flat /= workers
    place = 0
    for weight in weights:
        weight.grad.copy_(flat[place:place + weight.numel()].view_as(weight))
        place += weight.numel()
    return flat[-1].item()


class Report:
    """Prints what happens now and then, and says when a checkpoint is due."""

    def __init__(self, save_minutes):
        self.save_minutes = save_minutes
        self.start = self.saved = self.logged = time.time()
        self.losses, self.steps, self.tokens = [], 0, 0

    def elapsed(self):
        return time.time() - self.start

    def step(self, loss, tokens, rate):
        self.losses.append(loss)
        self.steps += 1
        self.tokens += tokens
        if time.time() - self.logged > 20:
            print(f"{self.elapsed():6.0f}s step {self.steps} loss {np.mean(self.losses):.4f} "
                  f"rate {rate:.5f} {self.tokens / self.elapsed():.0f} tokens/s", flush=True)
            self.logged, self.losses = time.time(), []

    def save_now(self):
        due = time.time() - self.saved > self.save_minutes * 60
        self.saved = time.time() if due else self.saved
        return due


def start_model(args, tokenizer):
    """The model to train and, by name, those of its weights that learn."""
    model = load_model(args.resume).train() if args.resume else new_model(args.family, tokenizer)
    if args.embedding_from:
        take_embedding(model, args.embedding_from)
    for name, weight in model.named_parameters():
        weight.requires_grad_(name.startswith("mtp.") == args.only_mtp)
    return model, [(n, w) for n, w in model.named_parameters() if w.requires_grad]


def work(rank, args):
    """The training loop of one worker; worker 0 reports and writes checkpoints."""
    torch.set_num_threads(args.threads)
    torch.set_flush_denormal(True)
    if args.workers > 1:
        torch.distributed.init_process_group("gloo", rank=rank, world_size=args.workers)
    torch.manual_seed(args.seed)
    tokenizer = load_tokenizer(args.out)
    model, learning = start_model(args, tokenizer)
    weights = [w for _, w in learning]
    optimizer = Optimizer(learning, args.lr)
    batches = Batches(SampleEncoder(tokenizer, args.family), args, f"{args.seed} {rank}")
    loss_of = mtp_loss if args.only_mtp else next_loss
    if rank == 0:
        print(f"{sum(w.numel() for w in weights)} parameters learn", flush=True)

    report, progress = Report(args.save_minutes), 0.0
    while progress < 1:
        batches.source.ease = args.ease * max(0.0, 1 - progress / 0.5)
        batch = batches.next()
        loss = loss_of(model, batch)
        model.zero_grad()
        loss.backward()
        last = report.steps + 1 >= args.max_steps
        progress = 1.0 if last else report.elapsed() / (args.minutes * 60)
        progress = average_gradients(weights, progress, rank, args.workers)
        share = schedule(progress, args.decay_from)
        optimizer.step(share)
        report.step(loss.item(), batch[0].numel() * args.workers, args.lr * share)
        if rank == 0 and report.save_now():
            write_model_files(model, tokenizer, args.out)
    if rank == 0:
        write_model_files(model, tokenizer, args.out)
        print(f"done after {report.elapsed():.0f}s, {report.steps} steps, {report.tokens} tokens",
              flush=True)


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--family", choices=["qwen3", "qwen3_5"], default="qwen3")
    parser.add_argument("--out", required=True, help="folder with tokenizer.json; gets the model")
    parser.add_argument("--minutes", type=float, default=70)
    parser.add_argument("--max-steps", type=int, default=10**9)
    parser.add_argument("--tokens", type=int, default=2048, help="tokens in a batch of one worker")
    parser.add_argument("--longest", type=int, default=1408, help="longest sample")
    parser.add_argument("--lr", type=float, default=3e-3)
    parser.add_argument("--decay-from", type=float, default=0.6)
    parser.add_argument("--think-share", type=float, default=0.4)
    parser.add_argument("--ease", type=float, default=0.9,
                        help="share of single questions at first; it falls to zero by half time")
    parser.add_argument("--weights", type=json.loads,
                        help="other weights of kinds of turns, as JSON")
    parser.add_argument("--memory", type=json.loads,
                        help="other shares of dialogues that ask for names and codes, as JSON")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--workers", type=int, default=1)
    parser.add_argument("--threads", type=int, default=1, help="threads of one worker")
    parser.add_argument("--save-minutes", type=float, default=5)
    parser.add_argument("--resume", help="folder of a checkpoint to start from")
    parser.add_argument("--embedding-from", help="folder of a model whose embedding to start from")
    parser.add_argument("--only-mtp", action="store_true",
                        help="train only the multi-token-prediction head of a finished model")
    args = parser.parse_args()

    if args.workers == 1:
        work(0, args)
        return
    os.environ.setdefault("MASTER_ADDR", "127.0.0.1")
    os.environ.setdefault("MASTER_PORT", str(29500 + os.getpid() % 1000))
    torch.multiprocessing.spawn(work, (args,), nprocs=args.workers)


if __name__ == "__main__":
    main()
