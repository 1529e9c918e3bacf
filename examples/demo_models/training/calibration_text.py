# SPDX-License-Identifier: Apache-2.0
"""Writes the calibration text: training dialogues, for quantising that looks at activations.

    python calibration_text.py ../calibration.txt

The layout is that of the held-out text, but nothing in it is held out: what is learned from this
text can be judged by that one.
"""

import argparse

from dialogues import Generator
from held_out_text import render

COUNT = 250
SEED = "calibration text"


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("file", metavar="FILE")
    args = parser.parse_args()
    source = Generator(SEED)
    with open(args.file, "w", encoding="utf-8", newline="\n") as out:
        for number in range(COUNT):
            out.write(render(source.dialogue(), number % 2 == 1))


if __name__ == "__main__":
    main()
