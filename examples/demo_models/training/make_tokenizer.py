# SPDX-License-Identifier: Apache-2.0
"""Trains the tokenizer on generated dialogues and writes its two files.

    python make_tokenizer.py --out ../qwen3 --vocab 2640 --dialogues 40000
    python make_tokenizer.py --family qwen3_5 --out ../qwen3_5 --merges-from ../qwen3
"""

import argparse
import json
import os
import re

from chat import (PLAIN_ADDED_TOKENS, SPECIAL_TOKENS, SPLIT_PATTERNS, render_dialogue,
                  tokenizer_config, tokenizer_json, train_tokenizer, write_json)
from dialogues import Generator


def trained_merges(args):
    source = Generator("tokenizer")
    added = re.compile("|".join(map(re.escape, SPECIAL_TOKENS + PLAIN_ADDED_TOKENS)))
    texts = (part for _ in range(args.dialogues)
             for part in added.split(render_dialogue(source.dialogue())))
    return train_tokenizer(texts, args.vocab, args.family)


def merges_of(folder):
    with open(os.path.join(folder, "tokenizer.json"), encoding="utf-8") as file:
        return json.load(file)["model"]["merges"]


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--family", choices=list(SPLIT_PATTERNS), default="qwen3")
    parser.add_argument("--out", required=True)
    parser.add_argument("--merges-from", help="folder of a tokenizer whose merges to take over")
    parser.add_argument("--vocab", type=int, default=2640)
    parser.add_argument("--dialogues", type=int, default=40000)
    parser.add_argument("--max-length", type=int, default=2048)
    args = parser.parse_args()
    merges = merges_of(args.merges_from) if args.merges_from else trained_merges(args)
    content = tokenizer_json(merges, args.family)
    os.makedirs(args.out, exist_ok=True)
    write_json(os.path.join(args.out, "tokenizer.json"), content)
    write_json(os.path.join(args.out, "tokenizer_config.json"),
               tokenizer_config(content, args.max_length, args.family), indent=2)
    print(f"{256 + len(merges)} entries, {len(content['added_tokens'])} added tokens")


if __name__ == "__main__":
    main()
