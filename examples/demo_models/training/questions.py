# SPDX-License-Identifier: Apache-2.0
"""The held-out questions: making them, judging answers to them, proving that they are held out.

    python questions.py --write FILE     writes the fixed set of questions as JSON
    python questions.py --check FILE     fails unless training can emit none of them
    python questions.py --self-test      shows that the check finds what it looks for
"""

import argparse
import copy
import itertools
import json
import random
import re
import sys

import phrases as P
from dialogues import Dialogue, Generator, draw
from turns import add_thought, is_held_out, subtract_thought

KINDS = ["greetings", "identity", "sums", "differences", "capitals", "weekdays", "translations",
         "names", "codes", "stories"]
WORDED_KINDS = ["greetings", "identity", "capitals", "weekdays", "translations", "stories"]
LEAST_OF_A_KIND = 30

# What a name or code is asked for after: turns and (estimated) tokens in between.
NAME_DISTANCE = dict(turns_between=(3, 5), tokens=(60, 200))
CODE_DISTANCE = dict(turns_between=(3, 3), tokens=(250, 380))
LONG_STORY_SENTENCES = 8


# ------------------------------------------------------------------------------ the questions

def messages_of(dialogue):
    """The dialogue as chat messages up to, not including, its last answer."""
    messages = []
    if dialogue.system is not None:
        messages.append({"role": "system", "content": dialogue.system})
    for turn in dialogue.turns[:-1]:
        messages.append({"role": "user", "content": turn.user})
        messages.append({"role": "assistant", "content": turn.answer})
    messages.append({"role": "user", "content": dialogue.turns[-1].user})
    return messages


def question_of(dialogue, thinking):
    """A question as stored: what to ask and what makes an answer right."""
    last = dialogue.turns[-1]
    question = {"kind": last.kind, "key": last.key, "messages": messages_of(dialogue),
                "enable_thinking": thinking, "expect": last.expect}
    if thinking and last.kind in ("sums", "differences"):
        question["thought"] = workings(last)
    if last.kind == "stories":
        question["sentences"] = LONG_STORY_SENTENCES
    return question


def workings(turn):
    """The working of a sum or difference in both languages: "3+4" may be asked in either."""
    a, b = (int(n) for n in re.findall(r"\d+", turn.answer)[:2])
    work = add_thought if turn.kind == "sums" else subtract_thought
    return [work(a, b, lang) for lang in ("en", "zh")]


def is_right(question, thought, answer):
    """Whether one of the expected texts stands in the answer, with the working where asked."""
    if not any(text in answer for text in question["expect"]):
        return False
    if len(re.findall("[.。!]", answer)) < question.get("sentences", 0):
        return False
    return any(text in thought for text in question.get("thought", [""]))


def _bare(text):
    return "".join(c for c in text.lower() if c.isalnum()).replace("please", "")


_LEADS = sorted((_bare(lead) for lead in P.EN_LEAD + P.ZH_LEAD), key=len, reverse=True)


def _wording(text):
    """A question without all that `vary` changes: case, marks, leads, polite words."""
    bare, before = _bare(text), None
    while bare != before:
        before = bare
        for lead in _LEADS:
            if bare.startswith(lead) and len(bare) > len(lead):
                bare = bare[len(lead):]
    return bare


class Seen:
    """The wordings of a kind that training uses, by drawing many."""

    def __init__(self, draws=60000):
        self.draws, self.memo = draws, {}

    def wordings(self, kind):
        if kind not in self.memo:
            rng = random.Random(f"seen {kind}")
            self.memo[kind] = {_wording(draw(kind, rng, rng.choice(["en", "zh"])).user)
                               for _ in range(self.draws)}
        return self.memo[kind]


def _dialogue(source, kind, lang):
    rng = source.rng
    if kind in ("names", "codes"):
        distance = NAME_DISTANCE if kind == "names" else CODE_DISTANCE
        return source.memory(lang, kind, rng.randint(*distance["tokens"]), held_out=True,
                             turns_between=rng.randint(*distance["turns_between"]))
    turns = [draw(kind, rng, lang, held_out=True)]
    if rng.random() < 0.3:
        turns = [source.filler(lang) for _ in range(rng.randint(1, 2))] + turns
    return Dialogue(source.system(lang), turns)


def held_out_dialogues(kind, source, draws, seen=Seen()):
    """Dialogues of a generator whose last question training can never have seen, each another one."""
    keys = set()
    for _ in range(draws):
        talk = _dialogue(source, kind, "zh" if source.rng.random() < 0.45 else "en")
        last = talk.turns[-1]
        known = kind in WORDED_KINDS and _wording(last.user) in seen.wordings(kind)
        if known or last.key in keys or not last.expect:
            continue
        keys.add(last.key)
        yield talk


def held_out(kind, count, seed=7, thinking=False):
    """`count` evaluation questions of a kind that training can never have seen."""
    talks = held_out_dialogues(kind, Generator(f"{seed}|{kind}|{thinking}"), 300 * count)
    return [question_of(talk, thinking) for talk in itertools.islice(talks, count)]


def all_questions(count):
    """The fixed set: every kind, without and with thinking."""
    return [q for thinking in (False, True) for kind in KINDS
            for q in held_out(kind, count, thinking=thinking)]


# ------------------------------------------------------------------------------ the check

def problems_of_key(question):
    """Whether the key is held out, and is the key of this question."""
    kind, key, last = question["kind"], question["key"], question["messages"][-1]["content"]
    if not is_held_out(key):
        yield "its key is in the training part"
    value = key.split("|", 1)[1]
    if kind in ("sums", "differences"):
        asked = [int(n) for n in re.findall(r"\d+", last)]
        named = [int(n) for n in re.split("[+-]", value)]
        if sorted(asked) != sorted(named):
            yield "its key is of other numbers"
    elif kind in ("names", "codes"):
        told = [m["content"] for m in question["messages"][:-1] if m["role"] == "user"]
        if not any(value in text for text in told) or value in last:
            yield "what its key names is not told before it is asked for"
        if not any(value in text for text in question["expect"]):
            yield "its key is not what is expected"
    elif _wording(value) != _wording(last):
        yield "its key has another wording"


def problems_of_set(questions):
    """Too few of a kind, or the same one twice."""
    for kind in KINDS:
        for thinking in (False, True):
            keys = [q["key"] for q in questions
                    if q["kind"] == kind and q["enable_thinking"] == thinking]
            if len(set(keys)) < LEAST_OF_A_KIND:
                yield f"{kind}: only {len(set(keys))} different questions"
            if len(set(keys)) < len(keys):
                yield f"{kind}: the same key twice"


def emitted(count, seed):
    """Keys and wordings of all questions in `count` training dialogues, by kind."""
    keys, wordings = set(), {kind: set() for kind in WORDED_KINDS}
    source = Generator(seed, ease=0.3)
    for _ in range(count):
        for turn in source.dialogue().turns:
            for asked in [turn, *turn.asides]:
                keys.add(asked.key)
                if asked.kind in wordings:
                    wordings[asked.kind].add(_wording(asked.user))
    return keys, wordings


def problems(questions, count=20000, seed="check"):
    """Everything wrong with a set of held-out questions, in words."""
    found = list(problems_of_set(questions))
    keys, wordings = emitted(count, seed)
    for question in questions:
        mine = list(problems_of_key(question))
        if question["key"] in keys:
            mine.append("training asks it")
        wording = _wording(question["messages"][-1]["content"])
        if wording in wordings.get(question["kind"], ()):
            mine.append("training asks it in these words")
        found += [f"{question['key']}: {text}" for text in mine]
    return found


def self_test():
    """Spoils a good set in every way that the check must notice."""
    good = all_questions(LEAST_OF_A_KIND)
    few = dict(count=1500, seed="self-test")
    failures = [f"a good set: {text}" for text in problems(good, **few)]

    def expect_problem(text, change):
        spoilt = copy.deepcopy(good)
        change(spoilt)
        if not any(text in problem for problem in problems(spoilt, **few)):
            failures.append(f"not noticed: {text}")

    def first(questions, kind):
        return next(q for q in questions if q["kind"] == kind)

    def train_on(questions):
        rng = random.Random("self-test")
        first(questions, "capitals")["messages"][-1]["content"] = draw("capitals", rng, "en").user

    trained = next(t for t in Generator("self-test", ease=0.3).dialogue().turns)
    expect_problem("only", lambda qs: qs.pop())
    expect_problem("twice", lambda qs: qs.append(qs[0]))
    expect_problem("training part", lambda qs: qs[0].update(key="greeting|hello"))
    expect_problem("training asks it", lambda qs: qs[0].update(key=trained.key))
    expect_problem("other numbers", lambda qs: first(qs, "sums").update(key="sum|1+2"))
    expect_problem("not told", lambda qs: first(qs, "names").update(key="name|Nobody"))
    expect_problem("not what is expected", lambda qs: first(qs, "codes").update(expect=["x"]))
    expect_problem("another wording", train_on)
    return failures


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--write", metavar="FILE")
    parser.add_argument("--check", metavar="FILE")
    parser.add_argument("--self-test", action="store_true")
    parser.add_argument("--count", type=int, default=40, help="questions of each kind and mode")
    args = parser.parse_args()
    found = []
    if args.write:
        lines = [json.dumps(q, ensure_ascii=False) for q in all_questions(args.count)]
        with open(args.write, "w", encoding="utf-8") as out:
            out.write("[\n" + ",\n".join(lines) + "\n]\n")
    if args.check:
        with open(args.check, encoding="utf-8") as file:
            questions = json.load(file)
        found += problems(questions)
        print(f"{len(questions)} questions, {len(found)} problems")
    if args.self_test:
        found += self_test()
    for text in found[:40]:
        print(text)
    sys.exit(1 if found else 0)


if __name__ == "__main__":
    main()
