# SPDX-License-Identifier: Apache-2.0
"""Writes the held-out text: conversations whose last question training can never have seen.

    python held_out_text.py ../../../tests/data/demo/held_out.txt

The layout is that of the chat, one conversation after the other, each ended by <|endoftext|>. As at
inference, earlier answers are bare and the last one follows its think block, which is empty in half
of them. Only that last answer is what a model should be judged by (`perplexity --conversations`).
"""

import argparse
import itertools

from dialogues import Generator
from questions import KINDS, held_out_dialogues, messages_of

# Conversations of each kind: stories are long, and so is what lies before a name or a code.
COUNTS = {"stories": 6, "names": 6, "codes": 4}
COUNT = 16
SEED = "held-out text"


def render(talk, thinking):
    """A whole conversation in the forms in which it is read and answered."""
    last = talk.turns[-1]
    text = "".join(f"<|im_start|>{m['role']}\n{m['content']}<|im_end|>\n" for m in messages_of(talk))
    thought = f"<think>\n{last.thought}\n</think>" if thinking else "<think>\n\n</think>"
    return f"{text}<|im_start|>assistant\n{thought}\n\n{last.answer}<|im_end|>\n<|endoftext|>\n"


def conversations():
    """All of them, the kinds in turn."""
    kinds = []
    for kind in KINDS:
        count = COUNTS.get(kind, COUNT)
        talks = held_out_dialogues(kind, Generator(f"{SEED}|{kind}"), 300 * count)
        kinds.append([render(talk, number % 2 == 1)
                      for number, talk in enumerate(itertools.islice(talks, count))])
    rows = itertools.zip_longest(*kinds)
    return [text for row in rows for text in row if text is not None]


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("file", metavar="FILE")
    args = parser.parse_args()
    with open(args.file, "w", encoding="utf-8", newline="\n") as out:
        out.write("".join(conversations()))


if __name__ == "__main__":
    main()
