#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""llama.cpp behind the requests that `model_bench --on-demand` answers: "prefill N" and "decode CONTEXT" on
standard input, "SECONDS TOKENS" on standard output. Started by compare.py.

usage: peer_llama.py MODEL.gguf THREADS
Needs the package llama-cpp-python. Prompts go in batches of 512 without logits, as ours do.
"""
import os
import random
import sys
import time

STEPS, CHUNK = 16, 512


class Peer:
    def __init__(self, path, threads, most_tokens):
        import llama_cpp
        self.llama = llama_cpp
        self.silent = llama_cpp.llama_log_callback(lambda level, text, data: None)
        llama_cpp.llama_log_set(self.silent, None)
        llama_cpp.llama_backend_init()
        model_params = llama_cpp.llama_model_default_params()
        self.model = llama_cpp.llama_model_load_from_file(path.encode(), model_params)
        if not self.model:
            raise SystemExit(f"peer_llama.py: llama.cpp cannot load {path}")
        params = llama_cpp.llama_context_default_params()
        params.n_ctx = most_tokens
        params.n_batch = params.n_ubatch = CHUNK
        params.n_threads = params.n_threads_batch = threads
        self.context = llama_cpp.llama_init_from_model(self.model, params)
        self.memory = llama_cpp.llama_get_memory(self.context)
        self.batch = llama_cpp.llama_batch_init(CHUNK, 0, 1)
        vocabulary = llama_cpp.llama_vocab_n_tokens(llama_cpp.llama_model_get_vocab(self.model))
        draw = random.Random(1)
        self.ids = [draw.randrange(vocabulary) for _ in range(most_tokens)]
        self.length = 0

    def decode(self, ids, logits):
        """Processes ids after what is remembered; with logits of the last one, if asked for."""
        for start in range(0, len(ids), CHUNK):
            part = ids[start:start + CHUNK]
            self.batch.n_tokens = len(part)
            for i, token in enumerate(part):
                self.batch.token[i] = token
                self.batch.pos[i] = self.length + i
                self.batch.n_seq_id[i] = 1
                self.batch.seq_id[i][0] = 0
                self.batch.logits[i] = logits and start + i == len(ids) - 1
            if self.llama.llama_decode(self.context, self.batch) != 0:
                raise SystemExit("peer_llama.py: llama_decode failed")
            self.length += len(part)
        if logits:
            self.llama.llama_get_logits(self.context)
        self.llama.llama_synchronize(self.context)

    def forget(self):
        self.llama.llama_memory_clear(self.memory, True)
        self.length = 0

    def prefill(self, tokens):
        self.forget()
        start = time.perf_counter()
        self.decode(self.ids[:tokens], False)
        return time.perf_counter() - start, tokens

    def decode_after(self, context):
        """Goes back to the context where the memory can, else processes it again; that is not timed."""
        back = self.length >= context and self.llama.llama_memory_seq_rm(self.memory, 0, context, -1)
        if back:
            self.length = context
        else:
            self.forget()
            self.decode(self.ids[:context], False)
        start = time.perf_counter()
        for step in range(STEPS):
            self.decode([self.ids[step]], True)
        return time.perf_counter() - start, STEPS


def main(arguments):
    if len(arguments) != 2:
        print(__doc__, file=sys.stderr)
        return 2
    peer = Peer(arguments[0], int(arguments[1]), int(os.environ.get("PEER_TOKENS", "1024")))
    for line in sys.stdin:
        what, number = line.split()
        seconds, tokens = (peer.prefill if what == "prefill" else peer.decode_after)(int(number))
        print(f"{seconds:.9f} {tokens}", flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
