# SPDX-License-Identifier: Apache-2.0
"""A terminal to try programs in: tmux, with a shell. Everything waits for text, with a generous limit, so a
busy machine only makes it slower."""
import os
import pathlib
import re
import shutil
import subprocess
import time

LIMIT = 120  # seconds for anything to appear


def missing():
    """Why there can be no terminal here, or nothing."""
    absent = [program for program in ("tmux", "bash") if shutil.which(program) is None]
    return f"no {' and no '.join(absent)} (Debian: apt-get install tmux)" if absent else ""


class Failed(Exception):
    pass


class Terminal:
    """A terminal of its own with a shell in it."""

    def __init__(self, place, chat, show, size=(80, 60)):
        self.place, self.chat, self.show = pathlib.Path(place), chat, show
        self.server = ["tmux", "-u", "-S", str(self.place / "socket"), "-f", "/dev/null"]
        environment = {"PATH": os.environ["PATH"], "LC_ALL": "C.UTF-8", "HOME": str(place), "TERM": "xterm"}
        for name in ("LD_LIBRARY_PATH", "ASAN_OPTIONS", "UBSAN_OPTIONS", "LSAN_OPTIONS"):
            if name in os.environ:
                environment[name] = os.environ[name]
        (self.place / ".bashrc").write_text("PS1='$ '; HISTFILE=\n")
        subprocess.run([*self.server, "new-session", "-d", "-x", str(size[0]), "-y", str(size[1]), "-c", place,
                        "exec bash"], check=True, env=environment)
        self.tmux("set-option", "-g", "history-limit", "5000")
        (self.place / "chat").symlink_to(os.path.abspath(chat))
        self.wait_line("$")

    def tmux(self, *words, **more):
        done = subprocess.run([*self.server, *words], check=True, capture_output=True, text=True, **more)
        return done.stdout

    def close(self):
        subprocess.run([*self.server, "kill-server"], capture_output=True)

    # ---------------------------------------------------------------------------------- reading

    def screen(self, colours=False, joined=True):
        """What the terminal shows, without the empty rest; wrapped lines joined."""
        words = ["capture-pane", "-p"] + (["-J"] if joined else []) + (["-e"] if colours else [])
        return "\n".join(line.rstrip() for line in self.tmux(*words).split("\n")).rstrip("\n")

    def last_line(self):
        return self.screen().rsplit("\n", 1)[-1]

    def wait(self, done, what):
        end = time.monotonic() + LIMIT
        while not done():
            if time.monotonic() > end:
                raise Failed(f"waited in vain for {what}; the screen:\n{self.screen()}")
            time.sleep(0.03)

    def wait_text(self, text):
        self.wait(lambda: text in self.screen(), repr(text))

    def wait_line(self, text):
        """Waits until the last line is `text`: a prompt, for instance."""
        self.wait(lambda: self.last_line() == text, f"a last line {text!r}")

    def expect(self, text, colours=False):
        if text not in self.screen(colours):
            raise Failed(f"expected {text!r} on the screen:\n{self.screen(colours)}")

    def expect_not(self, text, colours=False):
        if text in self.screen(colours):
            raise Failed(f"did not expect {text!r} on the screen:\n{self.screen(colours)}")

    def picture(self, title):
        if self.show:
            print(f"---- {title} ----\n{self.screen()}\n", flush=True)

    # ---------------------------------------------------------------------------------- writing

    def keys(self, *names):
        self.tmux("send-keys", *names)

    def type(self, text):
        self.tmux("send-keys", "-l", text)

    def paste(self, text):
        """As a terminal pastes: between brackets, if the program asked for them."""
        self.tmux("load-buffer", "-", input=text)
        self.tmux("paste-buffer", "-p")

    def enter(self, text, prompt="> "):
        """Types a line at the prompt, sees it there, and sends it."""
        self.wait_line(prompt.rstrip())
        self.type(text)
        self.wait_line((prompt + text).rstrip())
        self.keys("Enter")

    def say(self, text):
        """The same, and waits for the next prompt."""
        self.enter(text)
        self.wait_line(">")

    def clear(self):
        """At a prompt of chat: drops what was shown so far."""
        self.wait_line(">")
        self.keys("C-l")
        self.wait(lambda: self.screen() == ">", "a clear screen")

    def start(self, *words, before=""):
        self.enter(f"clear; {before} ./chat {' '.join(words)}".replace("  ", " "), prompt="$ ")
        self.wait_line(">")

    def end(self):
        self.wait_line(">")
        self.keys("C-d")
        self.wait_line("$")

    def expect_shell(self, status):
        """The program ended so, and left the terminal as a shell wants it."""
        self.wait_line("$")
        self.enter("echo status $?", prompt="$ ")
        self.wait(lambda: re.search(r"^status \d+\n\$$", self.screen(), re.M), "the status")
        self.expect(f"status {status}\n$")
        self.enter("clear; stty -a | tr -d ';'; echo settings", prompt="$ ")
        self.wait_text("\nsettings\n$")
        screen = self.screen()
        if "intr = ^C" not in screen or not {"icanon", "isig", "echo", "icrnl", "opost"} <= set(screen.split()):
            raise Failed("the terminal was not left as it was:\n" + screen)
