#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""qwenlite from Python, through the C interface and nothing but the standard library.

usage: qwenlite.py LIBRARY DIRECTORY [QUESTION]
LIBRARY is the shared library (libqwenlite_c.so), DIRECTORY a checkpoint. Prints the answer as it comes.
"""
import ctypes
import json
import sys
from ctypes import POINTER, c_char_p, c_double, c_int32, c_int64, c_size_t, c_uint64, c_void_p

RECEIVER = ctypes.CFUNCTYPE(c_int32, c_void_p, c_size_t, c_void_p)


class Options(ctypes.Structure):
    _fields_ = [("max_new_tokens", c_int64), ("temperature", c_double), ("seed", c_uint64), ("stop", c_char_p)]


IDS = POINTER(c_int32)
SIGNATURES = {
    "version": (c_char_p, []),
    "error": (c_char_p, []),
    "open": (c_void_p, [c_char_p, c_int32]),
    "close": (None, [c_void_p]),
    "tokenize": (c_int64, [c_void_p, c_char_p, IDS, c_size_t]),
    "tokenize_chat": (c_int64, [c_void_p, c_char_p, IDS, c_size_t]),
    "detokenize": (c_int64, [c_void_p, IDS, c_size_t, c_char_p, c_size_t]),
    "session_new": (c_void_p, [c_void_p, c_int64]),
    "session_free": (None, [c_void_p]),
    "session_length": (c_int64, [c_void_p]),
    "session_truncate": (c_int32, [c_void_p, c_int64]),
    "next": (c_int32, [c_void_p, IDS, c_size_t]),
    "generate": (c_int64, [c_void_p, IDS, c_size_t, POINTER(Options), RECEIVER, c_void_p]),
}


class Model:
    """A checkpoint, opened. Failures raise RuntimeError with the library's own words."""

    def __init__(self, library, directory, threads=0):
        self.lib = ctypes.CDLL(library)
        for name, (result, arguments) in SIGNATURES.items():
            function = getattr(self.lib, "qwenlite_" + name)
            function.restype, function.argtypes = result, arguments
        self.handle = self.lib.qwenlite_open(directory.encode(), threads)
        self.check(self.handle)

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.lib.qwenlite_close(self.handle)

    def check(self, result):
        if result is None or result < 0:
            raise RuntimeError(self.lib.qwenlite_error().decode())
        return result

    def tokenize_chat(self, messages, **options):
        """The prompt of a conversation: token ids as a ctypes array."""
        request = json.dumps({"messages": messages, **options}).encode()
        size = self.check(self.lib.qwenlite_tokenize_chat(self.handle, request, None, 0))
        ids = (c_int32 * size)()
        self.check(self.lib.qwenlite_tokenize_chat(self.handle, request, ids, size))
        return ids

    def answer(self, messages, receive, think=False, temperature=-1.0, seed=0, stop=None, max_new_tokens=0):
        """Hands the reply to receive(text) as it comes; returns the number of tokens."""
        failures = []

        def on_text(text, length, _):  # an exception must not cross the library: kept, and raised afterwards
            try:
                receive(ctypes.string_at(text, length).decode())
                return 1
            except BaseException as failure:
                failures.append(failure)
                return 0

        ids = self.tokenize_chat(messages, enable_thinking=think)
        options = Options(max_new_tokens, temperature, seed, stop.encode() if stop is not None else None)
        session = self.check(self.lib.qwenlite_session_new(self.handle, 0))
        try:
            count = self.lib.qwenlite_generate(session, ids, len(ids), options, RECEIVER(on_text), None)
            if failures:
                raise failures[0]
            return self.check(count)
        finally:
            self.lib.qwenlite_session_free(session)


def main(arguments):
    if len(arguments) not in (2, 3):
        print(__doc__, file=sys.stderr)
        return 2
    question = arguments[2] if len(arguments) == 3 else "Hello! Who are you?"
    try:
        with Model(*arguments[:2]) as model:
            model.answer([{"role": "user", "content": question}], lambda text: print(text, end="", flush=True),
                         temperature=0.0)
            print()
    except (OSError, RuntimeError) as problem:
        print("qwenlite.py:", problem, file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
