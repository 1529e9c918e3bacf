#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Talks to the chat program through a real terminal (tmux) and checks what stands on the screen.

usage: terminal_session.py --chat PROGRAM [--no-readline] [--only NAME] [--print]
--print shows the captured screens. Exit status 77, loudly, where tmux is missing.
"""
import argparse
import json
import os
import pathlib
import re
import signal
import sys
import tempfile

from tmux_terminal import Failed, Terminal, missing

SLOW = "QWENLITE_ISA=scalar"  # no instruction set: so slow that an answer can be interrupted
CHECKS = []


def check(function):
    CHECKS.append(function)
    return function


def saved(t, name="saved.json"):
    """The messages of the conversation, by way of a file."""
    t.say(f"/save! {name}")
    return json.loads((t.place / name).read_text())["messages"]


def child_of_shell(t):
    """The process that the shell runs."""
    shell = t.tmux("display-message", "-p", "#{pane_pid}").strip()
    return int(pathlib.Path(f"/proc/{shell}/task/{shell}/children").read_text().split()[0])


def blocked_signals(t):
    """Numbers of the signals that the main thread of that process blocks."""
    status = pathlib.Path(f"/proc/{child_of_shell(t)}/status").read_text()
    mask = int(re.search(r"^SigBlk:\s*(\w+)", status, re.M).group(1), 16)
    return [number for number in range(1, 65) if mask >> (number - 1) & 1]


GREEDY = ("--temperature", "0", "--kv", "f32")
STORY = "Tell me a long story about a fox."


# -------------------------------------------------------------------------------------- the checks

@check
def answers_and_thinking(t):
    """/think switches thinking, which is dimmed; /stats, /help and commands that do not exist."""
    t.start(*GREEDY)
    t.say("What is 23 + 45?")
    t.picture("a first answer, with thinking")
    dimmed = re.search(r"\x1b\[2m(.*?)\x1b\[0?m", t.screen(colours=True), re.S)
    if not dimmed or not dimmed.group(1).strip():
        raise Failed("no dimmed thinking:\n" + t.screen(colours=True))
    t.clear()
    t.say("/think off")
    t.expect("answers without thinking")
    t.say("What is 23 + 45?")
    t.expect_not("\x1b[2m", colours=True)
    t.say("/think")
    t.expect("thinks before it answers")
    t.say("/stats on")
    t.say("Hello")
    t.expect("stats: prompt")
    t.expect(" reused, ")
    t.picture("/think off, /think, /stats on")
    t.clear()
    t.say("/help")
    t.expect("/system [TEXT|off]")
    t.say("/bogus word")
    t.expect("there is no command '/bogus'; there are /help")
    t.say("/think perhaps")
    t.expect("expected on or off")
    t.picture("/help and commands that are wrong")
    t.end()
    t.expect_shell(0)


@check
def ctrl_c_stops_the_answer(t):
    """Ctrl-C while answering: the program goes on, and so does the conversation."""
    t.start(*GREEDY[:2], "--no-think", "--kv", "none", "--threads", "1", before=SLOW)
    t.enter(STORY)
    t.wait(lambda: re.search(r"story about a fox\.\n\w+ \w+", t.screen()), "the beginning of the story")
    t.keys("C-c")
    t.wait_line(">")
    t.picture("Ctrl-C during an answer")
    t.expect("note: stopped; what was written stays in the conversation")
    messages = saved(t)
    if [m["role"] for m in messages] != ["user", "assistant"] or not messages[1]["content"]:
        raise Failed(f"not what was said: {messages}")
    t.say("/reset")
    t.say("Hello")
    t.expect_not("note: stopped; the question")
    if len(saved(t)) != 2:
        raise Failed("the conversation did not go on")
    t.end()
    t.expect_shell(0)


@check
def suspended_at_the_prompt(t):
    """Ctrl-Z at the prompt, then fg: the same signals are blocked, Ctrl-C still stops an answer and nothing else."""
    t.start(*GREEDY[:2], "--no-think", "--kv", "none", "--threads", "1", before=SLOW)
    for _ in range(2):
        t.type("half")
        t.wait_line("> half")
        blocked = blocked_signals(t)
        t.keys("C-z")
        t.wait_text("Stopped")
        t.wait_line("$")
        t.enter("clear; fg", prompt="$ ")
        def shown_again():  # readline leaves that to the user
            t.keys("C-l")
            return t.screen() == "> half"
        t.wait(shown_again, "the line again")
        if blocked_signals(t) != blocked:
            raise Failed(f"blocked signals were {blocked}, and are {blocked_signals(t)} after fg")
        t.keys("C-u")
        t.wait_line(">")
        t.enter(STORY)
        t.wait(lambda: re.search(r"story about a fox\.\n\w+ \w+", t.screen()), "the beginning of the story")
        t.keys("C-c")
        t.wait_line(">")
        t.picture("Ctrl-C after Ctrl-Z and fg")
        t.expect("note: stopped; what was written stays in the conversation")
        t.say("/reset")
        t.clear()
    t.end()
    t.expect_shell(0)


@check
def ctrl_c_stops_reading(t):
    """A long prompt has a progress bar, Ctrl-C stops that too, and nothing of the bar is left."""
    t.start(*GREEDY, "--no-think", "--threads", "1", before=SLOW)
    t.paste("Repeat this: " + "one two three four five six seven eight nine ten. " * 70)
    t.wait(lambda: t.last_line().endswith("ten."), "the pasted text")
    t.keys("Enter")
    t.wait(lambda: re.search(r"\[#*\.*\] reading \d+ of \d+ tokens", t.screen()), "the progress bar")
    t.picture("a progress bar while a long prompt is read")
    t.keys("C-c")
    t.wait_line(">")
    t.picture("the same after Ctrl-C")
    t.expect("note: stopped; the question is taken back")
    t.expect_not("reading")
    t.clear()
    t.say("Hello")
    if len(saved(t)) != 2:
        raise Failed("the question was not taken back")
    t.end()


@check
def ctrl_c_at_the_prompt(t):
    """It drops a line; twice on an empty one ends. SIGTERM ends at once. The terminal is left as it was."""
    t.start()
    t.type("half a li")
    t.wait_line("> half a li")
    t.keys("C-c")
    t.wait_line(">")
    t.expect("> half a li^C")
    t.keys("C-c")
    t.wait_text("note: Ctrl-C once more, or Ctrl-D, ends")
    t.wait_line(">")
    t.say("/think off")  # anything else between the two, and they do not count together
    t.keys("C-c")
    t.wait(lambda: t.screen().count("once more") == 2, "the note again")
    t.picture("Ctrl-C at the prompt")
    t.wait_line(">")
    t.keys("C-c")
    t.expect_shell(0)
    t.start()
    t.type("half a li")
    t.wait_line("> half a li")
    os.kill(child_of_shell(t), 15)
    t.wait_text("Terminated")
    t.expect_shell(143)


@check
def in_the_middle_of_thinking(t):
    """Ctrl-Z and Ctrl-C while dimmed text is written: the shell's text is not dimmed, what follows after fg is."""
    def dimmed_shell():
        return "\x1b[2m" in t.screen(colours=True).rsplit("\n", 1)[-1]

    # Without a cache each token costs the whole prompt again, so a long one gives seconds of thinking.
    (t.place / "system").write_text("You are a helpful assistant. " * 20)
    t.enter(f"clear; {SLOW} ./chat --temperature 0 --kv none --threads 1 --system \"$(cat system)\" "
            "--prompt 'What is 23 + 45?'", prompt="$ ")
    t.wait(lambda: re.search(r"\x1b\[2m\w+\S* \w", t.screen(colours=True)), "dimmed text")
    t.keys("C-z")
    t.wait_text("Stopped")
    t.wait_line("$")
    t.picture("Ctrl-Z in the middle of thinking")
    if dimmed_shell():
        raise Failed("Ctrl-Z left the terminal dimmed")
    t.enter("clear; fg", prompt="$ ")
    t.wait(lambda: "Stopped" not in t.screen() and "\x1b[2m" in t.screen(colours=True), "more dimmed text")
    t.picture("fg in the middle of thinking")
    t.keys("C-c")
    t.wait_text("note: stopped\n")  # there is no conversation to speak of
    t.expect_shell(130)
    if dimmed_shell():
        raise Failed("Ctrl-C left the terminal dimmed")


@check
def pasted_lines(t):
    """Several pasted lines are one message; a backslash continues a line."""
    lines = "Repeat these words:\n\n  red green blue\nsecond"
    t.start(*GREEDY, "--no-think")
    t.paste(lines + "\n")
    t.wait_text("\nsecond")
    t.type("!")
    t.wait_line("!")
    t.keys("Enter")
    t.wait_line(">")
    t.picture("a paste of several lines")
    t.enter("Repeat: \\")
    t.enter("red", prompt=". ")
    t.wait_line(">")
    asked = [m["content"] for m in saved(t) if m["role"] == "user"]
    if asked != [lines + "\n!", "Repeat: \nred"]:
        raise Failed(f"other messages than were typed: {asked}")
    t.keys("Up", "Up", "Up")  # the history has it as one message again
    t.wait_line("!")
    t.keys("C-c")
    t.end()


@check
def plain_lines(t):
    """Without a line editor (here: TERM=dumb) every line is a message, and all the rest works."""
    t.start(*GREEDY, "--no-think", before="TERM=dumb")
    t.say("Hello")
    t.enter("Repeat: \\")
    t.enter("red", prompt=". ")
    t.wait_line(">")
    t.type("half a li")
    t.wait_line("> half a li")
    t.keys("C-c")
    t.wait_line(">")
    asked = [m["content"] for m in saved(t) if m["role"] == "user"]
    if asked != ["Hello", "Repeat: \nred"]:
        raise Failed(f"other messages than were typed: {asked}")
    t.expect_not("\x1b[2m", colours=True)
    t.end()
    t.expect_shell(0)


@check
def wide_characters(t):
    """Chinese, edited: wide characters go one by one, in a C locale too."""
    for locale in ("LC_ALL=C.UTF-8", "LC_ALL=C"):
        t.start(*GREEDY, "--no-think", before=locale)
        t.type("你好世界")
        t.wait_line("> 你好世界")
        t.keys("BSpace", "BSpace")
        t.wait_line("> 你好")
        t.keys("Left")
        t.type("é们")
        t.wait_line("> 你é们好")
        t.keys("BSpace", "BSpace", "End")
        t.wait_line("> 你好")
        t.keys("Enter")
        t.wait_line(">")
        t.picture(f"Chinese, edited ({locale})")
        if saved(t)[0]["content"] != "你好":
            raise Failed(f"other text than was typed: {saved(t)[0]}")
        t.end()


@check
def full_context(t):
    """When the context is full the oldest turns go, which is said once. A message without room is refused."""
    t.start(*GREEDY, "--no-think", "--context", "128")
    for _ in range(8):
        t.say("What is 12 + 34?")
    t.picture("a full context")
    note = "note: the context is full; the oldest messages are left out from now on"
    if t.screen().count(note) != 1:
        raise Failed(f"expected one note, found {t.screen().count(note)}:\n{t.screen()}")
    messages = saved(t)
    if len(messages) >= 16 or not all(m["content"] for m in messages):
        raise Failed(f"expected fewer messages, all with content: {messages}")
    t.clear()
    t.paste("What is 1 + 2? " * 40)
    t.wait_text("2?")
    t.keys("Enter")
    t.wait_text("note: the message is too long")
    t.wait_line(">")
    t.picture("a message that is too long")
    t.say("Hello")
    t.end()


@check
def saved_and_loaded(t):
    """/save never overwrites, /save! does; /load, /reset and /system; hostile text from a file stays text."""
    t.start(*GREEDY, "--no-think", "--system", "'Be kind.'")
    t.say("My name is Ada.")
    t.say("/save one.json")
    t.expect("note: saved 3 messages to one.json")
    t.say("/save one.json")
    t.expect("exists already (/save! replaces it)")
    t.say("/save! one.json")
    t.say("/save no/such/place.json")
    t.expect("note: /save: no/such/place.json: ")
    before = (t.place / "one.json").read_text()
    t.say("//reset")  # a message, not a command
    if saved(t)[-2]["content"] != "/reset":
        raise Failed("// did not give one slash")
    t.say("/reset")
    if saved(t) != [{"role": "system", "content": "Be kind."}]:
        raise Failed(f"/reset left {saved(t)}")
    t.say("/load one.json")
    t.expect("note: loaded 3 messages (")
    t.picture("/save and /load")
    t.say("/save two.json")
    if (t.place / "two.json").read_text() != before:
        raise Failed("a conversation changed by being loaded and saved")
    t.clear()
    (t.place / "bad.json").write_text('{"messages": [{"role": "nobody"}]}')
    t.say("/load bad.json")
    t.say("/load absent.json")
    t.say("/load .")
    t.expect("note: /load: bad.json: ")
    t.expect("note: /load: absent.json: ")
    t.expect("note: /load: .: ")
    if saved(t) != json.loads(before)["messages"]:
        raise Failed("a failed /load changed the conversation")
    hostile = "\x1b[31mred\x07\x9b32mgreen"
    (t.place / "hostile.json").write_text(json.dumps({"messages": [{"role": "system", "content": hostile}]}))
    t.say("/load hostile.json")
    t.say("/system")
    t.expect("the system message is: ^[[31mred^G<U+009B>32mgreen")
    t.expect_not("\x1b[31m", colours=True)
    t.say("/system off")
    t.expect("there is no system message")
    t.picture("files that are wrong, and one that is hostile")
    if list(t.place.glob("*.json.*")):
        raise Failed("temporary files were left behind")
    t.end()


@check
def no_colour(t):
    """NO_COLOR: thinking stands between its tags, and nothing on the screen is dimmed or bold."""
    t.start(*GREEDY, before="NO_COLOR=1")
    t.say("What is 23 + 45?")
    t.picture("NO_COLOR")
    t.expect("<think>\n")
    t.expect("\n</think>\n")
    for sequence in ("\x1b[1m", "\x1b[2m"):
        t.expect_not(sequence, colours=True)
    t.end()


@check
def history(t):
    """Nothing typed is kept unless --history says where; several lines come back as one entry."""
    t.start(*GREEDY, "--no-think", "--history", "lines")
    t.paste("Repeat: red\ngreen")
    t.wait_line("green")
    t.keys("Enter")
    t.wait_line(">")
    t.end()
    if (t.place / "lines").stat().st_mode & 0o077:
        raise Failed("others may read the history")
    t.start(*GREEDY, "--no-think", "--history", "lines")
    t.keys("Up")
    t.wait_line("green")
    t.expect("> Repeat: red\ngreen")
    t.keys("C-c")
    t.end()
    extra = {p.name for p in t.place.iterdir()} - {".bashrc", "lines", "socket", "chat"}
    if extra:
        raise Failed(f"files nobody asked for: {extra}")


# ------------------------------------------------------------------------------------------- running

NEED_READLINE = {answers_and_thinking, suspended_at_the_prompt, ctrl_c_stops_reading, ctrl_c_at_the_prompt,
                 pasted_lines, wide_characters, full_context, saved_and_loaded, history}


def run_check(function, options):
    with tempfile.TemporaryDirectory() as place:
        t = Terminal(place, options.chat, options.print)
        try:
            function(t)
        finally:
            t.close()


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--chat", required=True, help="the program")
    parser.add_argument("--no-readline", action="store_true", help="it was built without readline")
    parser.add_argument("--only", help="run this check")
    parser.add_argument("--print", action="store_true", help="show the captured screens")
    options = parser.parse_args()
    if missing():
        print(f"SKIPPED: the terminal session: {missing()}", file=sys.stderr)
        return 77
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))  # the servers end too
    failed = 0
    for function in CHECKS:
        if options.only and function.__name__ != options.only:
            continue
        if options.no_readline and function in NEED_READLINE:
            print(f"SKIPPED: {function.__name__} needs a chat built with readline", flush=True)
            continue
        try:
            run_check(function, options)
            print(f"ok: {function.__name__}", flush=True)
        except Failed as e:
            failed += 1
            print(f"FAILED: {function.__name__}: {e}", flush=True)
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
