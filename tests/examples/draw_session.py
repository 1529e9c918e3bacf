#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Draws a session with the chat program, as it stands on a real terminal (tmux), for the README.

usage: draw_session.py --chat build/release/examples/chat examples/chat/screenshot.svg
"""
import argparse
import html
import pathlib
import re
import sys
import tempfile
import unicodedata

import tmux_terminal

COLUMNS, ROWS = 106, 50  # of the terminal; empty rows are not drawn
CELL, LINE, PAD = 8.4, 19, 14
SEQUENCE = re.compile(r"\x1b\[([0-9;]*)m|\x1b\([A-Z0-9]|([^\x1b]+)")


def readme_session(t):
    """A session worth showing; leaves it on the screen."""
    t.start("--temperature", "0")
    t.say("What is 47 + 25?")
    t.say("/think off")
    t.say("你好，你是谁？")
    t.say("/stats")
    t.say("What is the capital of France?")


def cells(text):
    """Columns that a text takes."""
    return sum(0 if unicodedata.combining(c) else 2 if unicodedata.east_asian_width(c) in "WF" else 1
               for c in text)


def runs(line, style):
    """(column, text, style) of the stretches of one captured line; wide and narrow characters apart."""
    column, found = 0, []
    for match in SEQUENCE.finditer(line):
        codes, text = match.groups()
        if codes is not None:
            for code in codes.split(";"):
                style = {"1": "bold", "2": "dim"}.get(code, "" if code in ("", "0", "22") else style)
        for part in re.findall(r"[\u1100-\uffff]+|[^\u1100-\uffff]+", text or ""):
            found.append((column, part, style))
            column += cells(part)
    return found, style


def svg(lines, columns):
    """A picture of a captured screen. Each stretch has its own place and width, whatever the font."""
    width, height = round(columns * CELL + 2 * PAD), len(lines) * LINE + 2 * PAD
    out = [f'<svg xmlns="http://www.w3.org/2000/svg" width="{width}" height="{height}" '
           f'viewBox="0 0 {width} {height}" role="img" aria-label="A conversation with the demo model">',
           "<style>text{font:14px ui-monospace,SFMono-Regular,Menlo,Consolas,'DejaVu Sans Mono',"
           "'Noto Sans Mono CJK SC',monospace;fill:#d8dee9;white-space:pre}"
           ".dim{fill:#7a8394}.bold{fill:#8fbcff;font-weight:bold}</style>",
           f'<rect width="{width}" height="{height}" rx="8" fill="#1c2028"/>']
    style = ""
    for row, line in enumerate(lines):
        stretches, style = runs(line, style)
        for column, text, look in stretches:
            if not text.strip():
                continue
            lead = len(text) - len(text.lstrip(" "))
            text = text.strip(" ")
            mark = f' class="{look}"' if look else ""
            out.append(f'<text x="{PAD + (column + lead) * CELL:.1f}" y="{PAD + row * LINE + 14}" '
                       f'textLength="{cells(text) * CELL:.1f}"{mark}>{html.escape(text)}</text>')
    return "\n".join([*out, "</svg>"]) + "\n"


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--chat", required=True, help="the program")
    parser.add_argument("file", type=pathlib.Path, help="the picture to write")
    options = parser.parse_args()
    if tmux_terminal.missing():
        print(f"draw_session.py: {tmux_terminal.missing()}", file=sys.stderr)
        return 1
    with tempfile.TemporaryDirectory() as place:
        terminal = tmux_terminal.Terminal(place, options.chat, False, size=(COLUMNS, ROWS))
        try:
            readme_session(terminal)
            lines = [line.rstrip() for line in terminal.screen(colours=True, joined=False).split("\n")]
        finally:
            terminal.close()
    options.file.write_text(svg(lines, COLUMNS), encoding="utf-8")
    print(f"{options.file}: {len(lines)} lines")
    return 0


if __name__ == "__main__":
    sys.exit(main())
