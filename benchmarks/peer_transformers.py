#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""transformers (PyTorch on the CPU, bf16) behind the requests that `model_bench --on-demand` answers: "prefill N"
and "decode CONTEXT" on standard input, "SECONDS TOKENS" on standard output. Started by compare.py.

usage: peer_transformers.py CONFIG.json THREADS
Needs the packages torch and transformers. Weights are random, made from the configuration.
"""
import copy
import os
import sys
import time

STEPS, CHUNK = 16, 512


class Peer:
    def __init__(self, config_path, threads):
        os.environ["OMP_NUM_THREADS"] = str(threads)
        import torch
        import transformers
        import transformers.initialization
        torch.set_num_threads(threads)
        torch.manual_seed(1)
        self.torch = torch
        transformers.logging.set_verbosity_error()
        config = transformers.AutoConfig.from_pretrained(os.path.dirname(config_path))
        config = getattr(config, "text_config", None) or config
        with transformers.initialization.no_init_weights():  # it takes longer than all measurements
            self.model = transformers.AutoModelForCausalLM.from_config(config, dtype=torch.bfloat16).eval()
        self.fill()
        self.ids = torch.randint(0, config.vocab_size, (1, 1 << 14))
        self.contexts = {}

    def fill(self):
        """Matrices repeat a random million of numbers: speed does not depend on values."""
        numbers = self.torch.randn(1 << 20).mul_(0.02).to(self.torch.bfloat16)
        with self.torch.no_grad():
            for parameter in self.model.parameters():
                if parameter.dim() < 2:
                    parameter.fill_(0.5)
                    continue
                flat = parameter.view(-1)
                for start in range(0, flat.numel(), numbers.numel()):
                    part = flat[start:start + numbers.numel()]
                    part.copy_(numbers[:part.numel()])

    def run(self, first, count, cache):
        """The layers alone, in chunks, as a prompt needs them; returns what is remembered."""
        with self.torch.inference_mode():
            for start in range(first, first + count, CHUNK):
                ids = self.ids[:, start:min(start + CHUNK, first + count)]
                cache = self.model.model(input_ids=ids, past_key_values=cache, use_cache=True).past_key_values
        return cache

    def prefill(self, tokens):
        start = time.perf_counter()
        self.run(0, tokens, None)
        return time.perf_counter() - start, tokens

    def decode_after(self, context):
        if context not in self.contexts:
            self.contexts[context] = self.run(0, context, None)
        cache = copy.deepcopy(self.contexts[context])
        start = time.perf_counter()
        with self.torch.inference_mode():
            for step in range(STEPS):
                ids = self.ids[:, step:step + 1]
                cache = self.model(input_ids=ids, past_key_values=cache, use_cache=True).past_key_values
        return time.perf_counter() - start, STEPS


def main(arguments):
    if len(arguments) != 2:
        print(__doc__, file=sys.stderr)
        return 2
    peer = Peer(arguments[0], int(arguments[1]))
    for line in sys.stdin:
        what, number = line.split()
        seconds, tokens = (peer.prefill if what == "prefill" else peer.decode_after)(int(number))
        print(f"{seconds:.9f} {tokens}", flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
