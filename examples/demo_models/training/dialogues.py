# SPDX-License-Identifier: Apache-2.0
"""Synthetic dialogues in English and Chinese for the qwenlite demo model.

A dialogue is a list of `Turn`s (question, thought, answer) with an optional system prompt.
Everything is drawn from a `random.Random`, so equal seeds give equal dialogues. Questions that
`is_held_out` are never drawn, unless asked for: questions.py asks.

    python dialogues.py --count 5 --seed 1      prints a few training dialogues
"""

import argparse
import random
from dataclasses import dataclass

import phrases as P
from talk import (draw_code, draw_name, make_ability, make_ask_code, make_ask_name, make_echo,
                  make_greeting, make_identity, make_story, make_tell_code, make_tell_name,
                  make_thanks, make_unknown)
from turns import (is_held_out, is_zh, make_capital, make_difference, make_sum, make_too_hard,
                   make_translation, make_unknown_capital, make_weekday)


@dataclass
class Dialogue:
    """Turns in order; `system` is None where there is no system prompt."""

    system: str | None
    turns: list


def token_estimate(text):
    """About how many tokens a text takes (used only to place codes far enough back)."""
    wide = sum(1 for c in text if ord(c) > 0x2E80)
    return int(wide * 0.6 + sum(0.6 + len(w) / 12 for w in text.split()) + 1)


MAKERS = {
    "sums": make_sum, "differences": make_difference, "too hard": make_too_hard,
    "capitals": make_capital, "unknown capitals": make_unknown_capital,
    "weekdays": make_weekday, "translations": make_translation, "identity": make_identity,
    "greetings": make_greeting, "abilities": make_ability, "thanks": make_thanks,
    "unknown": make_unknown, "echo": make_echo, "stories": make_story,
}

WEIGHTS = {
    "sums": 22, "differences": 44, "too hard": 1, "capitals": 11, "unknown capitals": 1.5,
    "weekdays": 20, "translations": 9, "identity": 10, "greetings": 4, "abilities": 2,
    "thanks": 2.5, "unknown": 4, "echo": 3, "stories": 4,
}


# The shares of dialogues in which a name or a code is told and asked for.
MEMORY = {"names": 0.143, "codes": 0.077}


def draw(kind, rng, lang, held_out=False):
    """One turn of a kind whose key is held out, or is not."""
    while True:
        turn = MAKERS[kind](rng, lang)
        if is_held_out(turn.key) == held_out:
            return turn


class Generator:
    """An endless source of training dialogues; `ease` is the share of single questions in it.

    `weights` and `memory` change single values of WEIGHTS and MEMORY.
    """

    def __init__(self, seed, weights=None, memory=None, ease=0.0):
        self.rng = random.Random(seed)
        self.ease = ease
        self.weights = {**WEIGHTS, **(weights or {})}
        self.memories = {**MEMORY, **(memory or {})}

    def _lang(self):
        return "zh" if self.rng.random() < 0.45 else "en"

    def filler(self, lang):
        """A turn of any kind, now and then in the other language."""
        if self.rng.random() < 0.08:
            lang = "en" if is_zh(lang) else "zh"
        kind = self.rng.choices(list(self.weights), list(self.weights.values()))[0]
        return draw(kind, self.rng, lang)

    def system(self, lang):
        if self.rng.random() < 0.75:
            return None
        return self.rng.choice(P.SYSTEM[lang])

    def _value(self, lang, what, held_out=False):
        """A name or a code: the turn that tells it, and a maker of questions for it."""
        rng = self.rng
        if what == "names":
            value = draw_name(rng, lang, held_out)
            return make_tell_name(rng, lang, value), lambda v=value: make_ask_name(rng, lang, v)
        value = draw_code(rng, held_out)
        return make_tell_code(rng, lang, value), lambda v=value: make_ask_code(rng, lang, v)

    def memory(self, lang, what, distance, held_out=False, told=True, turns_between=0):
        """Tells a name or code, talks of other things, and asks for it.

        Between lie at least `turns_between` turns and `distance` tokens. In training, the same
        may be asked aside after each of them, and the other thing may be told as well.
        """
        rng = self.rng
        tell, ask = self._value(lang, what, held_out)
        if not told:
            ask = (make_ask_name if what == "names" else make_ask_code)
            last = ask(rng, lang, None)
            turns, asks = [], []
        else:
            last, turns, asks = ask(), [tell], [ask, ask]
        other = not held_out and rng.random() < 0.3
        passed = 0
        between = 0
        while passed < distance or between < turns_between:
            if turns and asks and not held_out and rng.random() < 0.6:
                turns[-1].asides.append(rng.choice(asks)())
            if other:
                tell_other, ask_other = self._value(lang, "codes" if what == "names" else "names")
                turn, other = tell_other, False
                asks.append(ask_other)
            else:
                story = distance > 150 and rng.random() < 0.15
                turn = draw("stories", rng, lang) if story else self.filler(lang)
            turns.append(turn)
            between += 1
            passed += token_estimate(turn.user) + token_estimate(turn.answer) + 8
        return Dialogue(self.system(lang), turns + [last])

    def dialogue(self):
        """The next training dialogue."""
        rng = self.rng
        lang = self._lang()
        if rng.random() < self.ease:
            if rng.random() < 0.3:
                return self.memory(lang, rng.choice(["names", "names", "codes"]),
                                   rng.choice([0, 20, 60, 100]))
            return Dialogue(self.system(lang) if rng.random() < 0.5 else None,
                            [self.filler(lang)])
        share = sum(self.memories.values())
        if rng.random() < share:
            what = "names" if rng.random() * share < self.memories["names"] else "codes"
            shape = rng.random()
            if shape < 0.12:
                distance = 0
            elif shape < 0.40:
                distance = rng.randint(1, 60)
            elif shape < 0.75:
                distance = rng.randint(60, 200)
            else:
                distance = rng.randint(200, 420)
            told = rng.random() > 0.12
            talk = self.memory(lang, what, distance if told else min(distance, 90), told=told)
            if rng.random() < 0.15:
                talk.turns.insert(0, draw("greetings", rng, lang))
            if rng.random() < 0.25:
                talk.turns.append(self.filler(lang))
            return talk
        count = rng.choices([1, 2, 3, 4, 5, 6], [55, 18, 11, 7, 5, 4])[0]
        turns = []
        for place in range(count):
            if place == 0 and count > 1 and rng.random() < 0.2:
                turns.append(draw("greetings", rng, lang))
            elif place == count - 1 and count > 2 and rng.random() < 0.12:
                turns.append(draw("thanks", rng, lang))
            else:
                turns.append(self.filler(lang))
        return Dialogue(self.system(lang), turns)


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--count", type=int, default=5)
    parser.add_argument("--seed", type=int, default=1)
    args = parser.parse_args()
    source = Generator(args.seed)
    for _ in range(args.count):
        talk = source.dialogue()
        print("---", f"[system] {talk.system}" if talk.system is not None else "")
        for turn in talk.turns:
            print(f"[user] {turn.user}\n[think] {turn.thought}\n[answer] {turn.answer}")


if __name__ == "__main__":
    main()
