# SPDX-License-Identifier: Apache-2.0
"""Greedy accuracy per kind on held-out questions, with the exported bfloat16 weights.

    python evaluate.py ../qwen3_5                        both modes, fresh held-out questions
    python evaluate.py ../qwen3_5 --questions FILE         the questions of a JSON file
    python evaluate.py ../qwen3_5 --ask "What is 3 + 4?"   one question, both modes
"""

import argparse
import json

import torch

from chat import load_tokenizer, render_prompt
from checkpoints import family_of, load_model
from generation import generate
from questions import KINDS, held_out, is_right

LIMIT = 256


def answers(model, tokenizer, questions, batch=24):
    """The greedy continuation of every question as (thought, answer) texts."""
    stop = {tokenizer.token_to_id("<|im_end|>"), tokenizer.token_to_id("<|endoftext|>")}
    family = family_of(model.config)
    texts = [render_prompt(q["messages"], q["enable_thinking"], family) for q in questions]
    prompts = [tokenizer.encode(text, add_special_tokens=False).ids for text in texts]
    order = sorted(range(len(prompts)), key=lambda i: len(prompts[i]))
    texts = [None] * len(prompts)
    for begin in range(0, len(order), batch):
        rows = order[begin:begin + batch]
        for row, ids in zip(rows, generate(model, [prompts[i] for i in rows], stop, LIMIT)):
            texts[row] = tokenizer.decode(ids, skip_special_tokens=False)
    return [split_thought(text) for text in texts]


def split_thought(text):
    """Parts the think block from the answer; no block gives an empty thought."""
    if "</think>" not in text:
        return "", text.strip()
    thought, answer = text.split("</think>", 1)
    return thought.replace("<think>", "").strip(), answer.strip()


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("model")
    parser.add_argument("--questions", help="a JSON file of questions")
    parser.add_argument("--ask", help="one question")
    parser.add_argument("--count", type=int, default=100, help="questions of each kind and mode")
    parser.add_argument("--kinds", help="only these kinds, separated by commas")
    parser.add_argument("--seed", type=int, default=11)
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--show", type=int, default=0, help="print this many mistakes a kind")
    args = parser.parse_args()
    torch.set_num_threads(args.threads)
    model, tokenizer = load_model(args.model), load_tokenizer(args.model)

    if args.ask:
        for thinking in (False, True):
            question = {"messages": [{"role": "user", "content": args.ask}],
                        "enable_thinking": thinking}
            thought, answer = answers(model, tokenizer, [question])[0]
            print(f"[think] {thought}\n[answer] {answer}" if thinking else f"[answer] {answer}")
        return

    if args.questions:
        with open(args.questions, encoding="utf-8") as file:
            questions = json.load(file)
    else:
        kinds = args.kinds.split(",") if args.kinds else KINDS
        questions = [q for thinking in (False, True) for kind in kinds
                     for q in held_out(kind, args.count, args.seed, thinking)]
    results = answers(model, tokenizer, questions)
    table = {}
    for question, (thought, answer) in zip(questions, results):
        row = table.setdefault((question["kind"], question["enable_thinking"]), [])
        row.append(is_right(question, thought, answer))
        if not row[-1] and row.count(False) <= args.show:
            print(f"wrong [{question['kind']}] {question['messages'][-1]['content']!r}: "
                  f"({thought}) {answer!r}, expected {question['expect']}")
    for (kind, thinking), row in table.items():
        mode = "thinking" if thinking else "no thinking"
        share = 100 * sum(row) / len(row)
        print(f"{kind:14} {mode:12} {sum(row):4} of {len(row):4}  {share:5.1f} %")


if __name__ == "__main__":
    main()
