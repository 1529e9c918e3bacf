"""Synthetic dialogues in English and Chinese for the qwenlite demo model.

A dialogue is a list of `Turn`s (question, thought, answer) with an optional system prompt.
Everything is drawn from a `random.Random`, so equal seeds give equal dialogues.

Some questions are held out: `is_held_out(key)` decides it by a hash of a canonical key of the
question (the operands of a sum, a name, a code, or the wording together with what is asked).
`Generator.dialogue()` never draws such a question; `held_out()` draws nothing else.

    python dialogues.py --count 5 --seed 1      prints a few training dialogues
    python dialogues.py --questions FILE        writes the held-out questions as JSON
"""

import argparse
import hashlib
import json
import random
from dataclasses import dataclass, field

from facts import (CAPITALS, ECHO_WORDS, OTHER_COUNTRIES, STORY_EN, STORY_ZH, WEEKDAYS_EN,
                   WEEKDAYS_ZH, WORDS, ZH_GIVEN, ZH_SURNAMES, EN_NAMES, UNKNOWN_EN, UNKNOWN_ZH,
                   UNKNOWN_THINGS_EN, UNKNOWN_THINGS_ZH)
import phrases as P


@dataclass
class Turn:
    """One question with its answer; `thought` is what stands in the think block."""

    kind: str
    key: str
    user: str
    answer: str
    thought: str
    expect: list = field(default_factory=list)


@dataclass
class Dialogue:
    """Turns in order; `system` is None where there is no system prompt."""

    system: str | None
    turns: list


def is_held_out(key):
    """True for one key in ten, always the same ones."""
    digest = hashlib.sha256(key.encode("utf-8")).hexdigest()
    return int(digest[:12], 16) % 10 == 0


def canonical(text):
    """The wording of a question without case, punctuation at its ends and outer blanks."""
    return text.lower().strip(" ?!.,:?!。,:")


def token_estimate(text):
    """About how many tokens a text takes (used only to place codes far enough back)."""
    wide = sum(1 for c in text if ord(c) > 0x2E80)
    return int(wide * 0.6 + sum(0.6 + len(w) / 12 for w in text.split()) + 1)


def is_zh(lang):
    return lang == "zh"


def vary(text, rng, lang, keep_case=False):
    """Writes a question the way people type: other case, no end mark, extra words."""
    if is_zh(lang):
        if rng.random() < 0.12:
            text = rng.choice(P.ZH_LEAD) + text
        if rng.random() < 0.35:
            text = text.rstrip("?。!")
        elif rng.random() < 0.25:
            text = text.replace("?", "?").replace("。", ".").replace("!", "!")
        if rng.random() < 0.08:
            text = text.replace(",", " ")
        return text
    lowered = keep_case
    if rng.random() < 0.10:
        lead = rng.choice(P.EN_LEAD)
        first = text if text[:2] in ("I ", "I'") else text[:1].lower() + text[1:]
        text = lead + first
    if rng.random() < 0.06 and text[-1:] in "?.":
        text = text[:-1] + rng.choice([", please", " please"]) + text[-1]
    if rng.random() < 0.33:
        text = text.rstrip("?.!")
    elif rng.random() < 0.05:
        text = text.rstrip("?.!") + rng.choice([" ?", "??", "!", "..."])
    if not lowered:
        draw = rng.random()
        if draw < 0.27:
            text = text.lower()
        elif draw < 0.29:
            text = text.upper()
    if rng.random() < 0.08:
        text = text.replace("'", "").replace(",", "")
    return text


# ---------------------------------------------------------------------------- arithmetic

def add_thought(a, b, lang):
    """Column addition in words: ones, carry, tens, result."""
    ones = a % 10 + b % 10
    carry = ones // 10
    tens = a // 10 + b // 10 + carry
    if is_zh(lang):
        return (f"个位: {a % 10} + {b % 10} = {ones},进 {carry}。"
                f"十位: {a // 10} + {b // 10} + {carry} = {tens}。得 {a + b}。")
    return (f"ones: {a % 10} + {b % 10} = {ones}, carry {carry}. "
            f"tens: {a // 10} + {b // 10} + {carry} = {tens}. result {a + b}.")


def subtract_thought(a, b, lang):
    """Column subtraction in words: ones, borrow, tens, result."""
    top = a % 10
    borrow = 1 if top < b % 10 else 0
    ones = top + 10 * borrow - b % 10
    tens = a // 10 - b // 10 - borrow
    if is_zh(lang):
        return (f"个位: {top + 10 * borrow} - {b % 10} = {ones},借 {borrow}。"
                f"十位: {a // 10} - {b // 10} - {borrow} = {tens}。得 {a - b}。")
    return (f"ones: {top + 10 * borrow} - {b % 10} = {ones}, borrow {borrow}. "
            f"tens: {a // 10} - {b // 10} - {borrow} = {tens}. result {a - b}.")


def operand(rng):
    """0..99, with small numbers a little more often than their share."""
    return rng.randint(0, 9) if rng.random() < 0.08 else rng.randint(0, 99)


def make_sum(rng, lang):
    a, b = operand(rng), operand(rng)
    low, high = min(a, b), max(a, b)
    text = rng.choice(P.SUM_ZH if is_zh(lang) else P.SUM_EN).format(a=a, b=b)
    stop = "。" if is_zh(lang) else "."
    return Turn("sums", f"sum|{low}+{high}", vary(text, rng, lang), f"{a} + {b} = {a + b}{stop}",
                add_thought(a, b, lang), [f"= {a + b}.", f"= {a + b}。"])


def make_difference(rng, lang):
    a, b = operand(rng), operand(rng)
    a, b = max(a, b), min(a, b)
    text = rng.choice(P.DIFFERENCE_ZH if is_zh(lang) else P.DIFFERENCE_EN).format(a=a, b=b)
    stop = "。" if is_zh(lang) else "."
    return Turn("differences", f"difference|{a}-{b}", vary(text, rng, lang),
                f"{a} - {b} = {a - b}{stop}", subtract_thought(a, b, lang),
                [f"= {a - b}.", f"= {a - b}。"])


def make_too_hard(rng, lang):
    """Arithmetic beyond what the model learns: it says so."""
    template, sign = rng.choice(P.TOO_HARD)
    if sign == "-":
        b = rng.randint(1, 99)
        a = rng.randint(0, b - 1)
    elif sign in "*/":
        a, b = rng.randint(2, 99), rng.randint(2, 99)
    else:
        a, b = rng.randint(100, 9999), rng.randint(1, 9999)
        if rng.random() < 0.5:
            a, b = b, a
    text = template.format(a=a, b=b)
    if is_zh(lang):
        text = f"{a}{sign}{b}等于多少?"
        answer = "这道题太难了,我只会 0 到 99 的加减法。"
        thought = "这超出了我的范围。"
    else:
        answer = "That is too hard for me. I only add and subtract numbers from 0 to 99."
        thought = "This is outside of what I can do."
    return Turn("too hard", f"hard|{a}{sign}{b}", vary(text, rng, lang), answer, thought,
                ["too hard", "太难"])


# ---------------------------------------------------------------------------- knowledge

def make_capital(rng, lang):
    country, city, country_zh, city_zh = rng.choice(CAPITALS)
    reverse = rng.random() < 0.2
    if is_zh(lang):
        question = rng.choice(P.CAPITAL_OF_CITY_ZH if reverse else P.CAPITAL_ZH)
        question = question.format(country=country_zh, city=city_zh)
        if reverse:
            answer, expect = f"{city_zh}是{country_zh}的首都。", [country_zh + "的首都"]
            thought = f"问{city_zh}是哪国的首都。"
        else:
            answer, expect = f"{country_zh}的首都是{city_zh}。", ["是" + city_zh]
            thought = f"问{country_zh}的首都。"
    else:
        question = rng.choice(P.CAPITAL_OF_CITY_EN if reverse else P.CAPITAL_EN)
        question = question.format(country=country, city=city)
        if reverse:
            answer, expect = f"{city} is the capital of {country}.", [f"capital of {country}"]
            thought = f"The user asks which country has the capital {city}."
        else:
            answer, expect = f"The capital of {country} is {city}.", [f"is {city}"]
            thought = f"The user asks for the capital of {country}."
    key = "capital|" + canonical(question)
    return Turn("capitals", key, vary(question, rng, lang), answer, thought, expect)


def make_unknown_capital(rng, lang):
    if rng.random() < 0.7:
        country, country_zh = rng.choice(OTHER_COUNTRIES)
    else:
        country = invented_name(rng)
        country_zh = rng.choice(ZH_GIVEN) + rng.choice(ZH_GIVEN) + "国"
    if is_zh(lang):
        question = rng.choice(P.CAPITAL_ZH).format(country=country_zh)
        answer = f"抱歉,我不知道{country_zh}的首都。"
        thought = f"我没学过{country_zh}的首都。"
    else:
        question = rng.choice(P.CAPITAL_EN).format(country=country)
        answer = f"Sorry, I do not know the capital of {country}."
        thought = f"I have not learned the capital of {country}."
    key = "capital|" + canonical(question)
    return Turn("unknown", key, vary(question, rng, lang), answer, thought, ["not know", "不知道"])


def make_weekday(rng, lang):
    days = WEEKDAYS_ZH if is_zh(lang) else WEEKDAYS_EN
    start = rng.randrange(7)
    form = rng.choice(["after", "before", "tomorrow", "yesterday", "count", "count", "count"])
    step = {"after": 1, "tomorrow": 1, "before": -1, "yesterday": -1}.get(form, 0)
    count = rng.randint(2, 10)
    if form == "count":
        step = count
    day, other = days[start], days[(start + step) % 7]
    table = P.WEEKDAY_ZH if is_zh(lang) else P.WEEKDAY_EN
    question = rng.choice(table[form]).format(day=day, n=count)
    if is_zh(lang):
        answer = {"after": f"{day}的后一天是{other}。", "before": f"{day}的前一天是{other}。",
                  "tomorrow": f"如果今天是{day},明天就是{other}。",
                  "yesterday": f"如果今天是{day},昨天就是{other}。",
                  "count": f"{day}之后 {count} 天是{other}。"}[form]
        expect = ["是" + other]
        thought = f"{day}的" + ("后一天。" if step > 0 else "前一天。")
    else:
        answer = {"after": f"The day after {day} is {other}.",
                  "before": f"The day before {day} is {other}.",
                  "tomorrow": f"If today is {day}, tomorrow is {other}.",
                  "yesterday": f"If today is {day}, yesterday was {other}.",
                  "count": f"{count} days after {day} is {other}."}[form]
        expect = [f"is {other}.", f"was {other}."]
        thought = f"One day {'after' if step > 0 else 'before'} {day}."
    if form == "count":
        steps = [f"{i} {days[(start + i) % 7]}" for i in range(1, count + 1)]
        if is_zh(lang):
            thought = f"从{day}数: " + ",".join(steps) + "。"
        else:
            thought = f"Count from {day}: " + ", ".join(steps) + "."
    key = "weekday|" + canonical(question)
    return Turn("weekdays", key, vary(question, rng, lang), answer, thought, expect)


def make_translation(rng, lang):
    english, chinese = rng.choice(WORDS)
    to_zh = rng.random() < 0.5
    if is_zh(lang):
        question = rng.choice(P.TO_ZH_ZH if to_zh else P.TO_EN_ZH)
        if to_zh:
            answer, thought = f"“{english}”的中文是“{chinese}”。", f"把 {english} 译成中文。"
        else:
            answer, thought = f"“{chinese}”的英文是“{english}”。", f"把{chinese}译成英文。"
    else:
        question = rng.choice(P.TO_ZH_EN if to_zh else P.TO_EN_EN)
        if to_zh:
            answer = f'"{english}" in Chinese is "{chinese}".'
            thought = f"The user wants the Chinese for {english}."
        else:
            answer = f'"{chinese}" in English is "{english}".'
            thought = f"The user wants the English for {chinese}."
    question = question.format(word=english if to_zh else chinese)
    target = chinese if to_zh else english
    key = "translation|" + canonical(question)
    return Turn("translations", key, vary(question, rng, lang), answer, thought,
                [f'is "{target}"', f"是“{target}”"])


# ---------------------------------------------------------------------------- small talk

def make_from_groups(rng, lang, kind, groups, leads, thoughts):
    """Draws a question from groups of (questions, answer, expected), with a lead before it."""
    questions, answer, expect = rng.choice(groups[lang])
    core = rng.choice(questions)
    lead = rng.choice(leads[lang]) if rng.random() < 0.7 else ""
    if lead and lang == "en" and not core.startswith(("I ", "I'")):
        core = core[0].lower() + core[1:]
    question = lead + core
    thought = rng.choice(thoughts[lang])
    key = f"{kind}|" + canonical(question)
    return Turn(kind, key, vary(question, rng, lang), answer, thought, list(expect))


def make_identity(rng, lang):
    return make_from_groups(rng, lang, "identity", P.IDENTITY, P.IDENTITY_LEADS,
                            P.IDENTITY_THOUGHTS)


def make_ability(rng, lang):
    return make_from_groups(rng, lang, "abilities", P.ABILITY, P.IDENTITY_LEADS,
                            P.ABILITY_THOUGHTS)


def make_greeting(rng, lang):
    word, reply = rng.choice(P.GREETING_WORDS[lang])
    tail = rng.choice(P.GREETING_TAILS[lang])
    ask = rng.choice(P.GREETING_ASKS[lang]) if rng.random() < 0.45 else ""
    if lang == "en":
        question = word + tail + (rng.choice([", ", "! ", ". "]) + ask if ask else
                                  rng.choice(["!", ".", "", ""]))
        answer = (f"{reply}! I am fine, thank you. How can I help you?" if ask
                  else f"{reply}! How can I help you?")
        thought = "The user greets me."
        expect = ["I am fine"] if ask else [reply]
    else:
        question = word + tail + (rng.choice([",", "!"]) + ask if ask else
                                  rng.choice(["!", "。", ""]))
        answer = (f"{reply}!我很好,谢谢。有什么可以帮你?" if ask
                  else f"{reply}!有什么可以帮你?")
        thought = "用户在打招呼。"
        expect = ["我很好"] if ask else [reply]
    key = "greeting|" + canonical(question)
    return Turn("greetings", key, vary(question, rng, lang), answer, thought, expect)


def make_thanks(rng, lang):
    return make_from_groups(rng, lang, "thanks", P.THANKS, P.THANKS_LEADS, P.THANKS_THOUGHTS)


def make_unknown(rng, lang):
    if is_zh(lang):
        question = rng.choice(UNKNOWN_ZH).format(x=rng.choice(UNKNOWN_THINGS_ZH))
        answer = "抱歉,这个我不知道。我只是一个小小的演示模型。"
        thought = "这个问题我没学过。"
    else:
        question = rng.choice(UNKNOWN_EN).format(x=rng.choice(UNKNOWN_THINGS_EN))
        answer = "Sorry, I do not know that. I am only a small demo model."
        thought = "I have not learned about this."
    key = "unknown|" + canonical(question)
    return Turn("unknown", key, vary(question, rng, lang), answer, thought, ["not know", "不知道"])


def make_echo(rng, lang):
    words = ECHO_WORDS[lang]
    if rng.random() < 0.3:
        text = "".join(rng.choice("0123456789") for _ in range(rng.randint(2, 5)))
    elif is_zh(lang):
        text = "".join(rng.choice(words) for _ in range(rng.randint(1, 3)))
    else:
        text = " ".join(rng.choice(words) if rng.random() < 0.7 else invented_name(rng).lower()
                        for _ in range(rng.randint(1, 4)))
    question = rng.choice(P.ECHO[lang]).format(x=text)
    thought = "照着说。" if is_zh(lang) else "I repeat the words."
    return Turn("echo", f"echo|{text}", question, text, thought, [text])


# ---------------------------------------------------------------------------- stories

def make_story(rng, lang):
    parts = STORY_ZH if is_zh(lang) else STORY_EN
    hero, place, friend, thing = (rng.choice(parts[p]) for p in ("hero", "place", "friend",
                                                                 "thing"))
    while friend == hero:
        friend = rng.choice(parts["friend"])
    name = rng.choice(parts["name"])
    slots = dict(hero=hero, place=place, friend=friend, thing=thing, name=name)
    asked = rng.choice(["hero", "hero", "hero", "place", "thing", "none"])
    question = rng.choice(parts["ask_" + asked]).format(**slots)
    lines = [rng.choice(parts["open"])]
    middle = rng.sample(parts["middle"], rng.randint(1, 2))
    lines += [rng.choice(parts["need"]), *middle[:1], rng.choice(parts["meet"]), *middle[1:]]
    if rng.random() < 0.4:
        lines.remove(middle[0])
    lines.append(rng.choice(parts["close"]))
    joiner = "" if is_zh(lang) else " "
    story = joiner.join(line.format(**slots) for line in lines)
    thought = rng.choice(parts["thought_" + asked]).format(**slots)
    expect = [] if asked == "none" else [slots[asked]]
    key = "story|" + canonical(question)
    return Turn("stories", key, vary(question, rng, lang), story, thought, expect)


# ---------------------------------------------------------------------------- memory

ONSETS = ["b", "d", "f", "g", "h", "j", "k", "l", "m", "n", "p", "r", "s", "t", "v", "w", "z",
          "br", "dr", "gr", "kr", "tr", "st", "sh", "ch", "th", "pl", "fl", ""]
VOWELS = ["a", "e", "i", "o", "u", "ai", "ei", "ia", "io"]
ENDINGS = ["", "", "", "n", "r", "l", "s", "x", "k", "m", "th", "nd"]


def invented_name(rng):
    """A name that stands in no list, so that copying has to be learned."""
    syllables = [rng.choice(ONSETS) + rng.choice(VOWELS) for _ in range(rng.randint(2, 3))]
    return ("".join(syllables) + rng.choice(ENDINGS)).capitalize()


def person_name(rng, lang):
    if is_zh(lang) and rng.random() < 0.85:
        given = "".join(rng.choice(ZH_GIVEN) for _ in range(rng.choice([1, 2, 2])))
        return rng.choice(ZH_SURNAMES) + given
    if rng.random() < 0.5:
        return rng.choice(EN_NAMES)
    return invented_name(rng)


def make_tell_name(rng, lang, name):
    question = rng.choice(P.TELL_NAME[lang])
    question = vary(question, rng, lang, keep_case=True).format(name=name)
    if is_zh(lang):
        answer, thought = f"很高兴认识你,{name}!", f"用户叫{name}。"
    else:
        answer, thought = f"Nice to meet you, {name}!", f"The name of the user is {name}."
    return Turn("tell name", f"name|{name}", question, answer, thought, [name])


def make_ask_name(rng, lang, name):
    question = vary(rng.choice(P.ASK_NAME[lang]), rng, lang)
    if name is None:
        if is_zh(lang):
            answer, thought = "你还没有告诉我你的名字。", "用户没有说过名字。"
        else:
            answer = "You have not told me your name yet."
            thought = "The user has not told me a name."
        return Turn("no name", "noname", question, answer, thought, ["not told", "没有告诉"])
    if is_zh(lang):
        answer, thought = f"你叫{name}。", f"用户说过自己叫{name}。"
    else:
        answer, thought = f"Your name is {name}.", f"The user told me the name {name}."
    return Turn("names", f"name|{name}", question, answer, thought, [name])


def make_tell_code(rng, lang, code):
    question = vary(rng.choice(P.TELL_CODE[lang]), rng, lang).replace("{CODE}", "{code}")
    question = question.format(code=code)
    repeat = rng.random() < 0.25
    if is_zh(lang):
        answer = f"好的,我记住了密码 {code}。" if repeat else "好的,我记住了。"
        thought = f"密码是 {code}。"
    else:
        answer = (f"OK, I will remember the code {code}." if repeat
                  else "OK, I will remember the code.")
        thought = f"The code is {code}."
    return Turn("tell code", f"code|{code}", question, answer, thought, ["remember", "记住"])


def make_ask_code(rng, lang, code):
    question = vary(rng.choice(P.ASK_CODE[lang]), rng, lang)
    if code is None:
        if is_zh(lang):
            answer, thought = "你还没有告诉我密码。", "用户没有说过密码。"
        else:
            answer = "You have not told me a code yet."
            thought = "The user has not told me a code."
        return Turn("no code", "nocode", question, answer, thought, ["not told", "没有告诉"])
    if is_zh(lang):
        answer, thought = f"密码是 {code}。", f"用户说过密码是 {code}。"
    else:
        answer, thought = f"The code is {code}.", f"The user told me the code {code}."
    return Turn("codes", f"code|{code}", question, answer, thought, [code])


# ---------------------------------------------------------------------------- dialogues

MAKERS = {
    "sums": make_sum, "differences": make_difference, "too hard": make_too_hard,
    "capitals": make_capital, "unknown capitals": make_unknown_capital,
    "weekdays": make_weekday, "translations": make_translation, "identity": make_identity,
    "greetings": make_greeting, "abilities": make_ability, "thanks": make_thanks,
    "unknown": make_unknown, "echo": make_echo, "stories": make_story,
}

WEIGHTS = {
    "sums": 27, "differences": 25, "too hard": 1, "capitals": 10, "unknown capitals": 1.5,
    "weekdays": 20, "translations": 12, "identity": 5, "greetings": 4, "abilities": 2,
    "thanks": 2.5, "unknown": 4, "echo": 2, "stories": 2,
}

HELD_OUT_KINDS = ["greetings", "identity", "sums", "differences", "capitals", "weekdays",
                  "translations", "names", "codes"]


def draw(kind, rng, lang, held_out=False):
    """One turn of a kind whose key is held out, or is not."""
    while True:
        turn = MAKERS[kind](rng, lang)
        if is_held_out(turn.key) == held_out:
            return turn


def draw_value(rng, prefix, maker, held_out):
    """A name or a code whose key is held out, or is not."""
    while True:
        value = maker()
        if is_held_out(f"{prefix}|{value}") == held_out:
            return value


def draw_name(rng, lang, held_out=False):
    return draw_value(rng, "name", lambda: person_name(rng, lang), held_out)


def draw_code(rng, held_out=False):
    digits = rng.choice([3, 4, 4, 4, 4, 5])
    return draw_value(
        rng, "code", lambda: "".join(rng.choice("0123456789") for _ in range(digits)), held_out)


class Generator:
    """An endless source of training dialogues; `ease` is the share of single questions in it."""

    def __init__(self, seed, weights=None, ease=0.0):
        self.rng = random.Random(seed)
        self.ease = ease
        self.weights = dict(WEIGHTS if weights is None else weights)

    def _lang(self):
        return "zh" if self.rng.random() < 0.45 else "en"

    def _filler(self, lang):
        """A turn of any kind, now and then in the other language."""
        if self.rng.random() < 0.08:
            lang = "en" if is_zh(lang) else "zh"
        kind = self.rng.choices(list(self.weights), list(self.weights.values()))[0]
        return draw(kind, self.rng, lang)

    def _system(self, lang):
        if self.rng.random() < 0.75:
            return None
        return self.rng.choice(P.SYSTEM[lang])

    def memory(self, lang, what, distance, held_out=False, told=True):
        """Tells a name or code, talks of other things for `distance` tokens, asks for it."""
        rng = self.rng
        if what == "names":
            value = draw_name(rng, lang, held_out)
            tell, ask = make_tell_name(rng, lang, value), make_ask_name(
                rng, lang, value if told else None)
        else:
            value = draw_code(rng, held_out)
            tell, ask = make_tell_code(rng, lang, value), make_ask_code(
                rng, lang, value if told else None)
        turns = [tell] if told else []
        passed = 0
        while passed < distance:
            kind = "stories" if distance > 150 and rng.random() < 0.25 else None
            turn = draw(kind, rng, lang) if kind else self._filler(lang)
            turns.append(turn)
            passed += token_estimate(turn.user) + token_estimate(turn.answer) + 8
        return Dialogue(self._system(lang), turns + [ask])

    def dialogue(self):
        """The next training dialogue."""
        rng = self.rng
        lang = self._lang()
        if rng.random() < self.ease:
            if rng.random() < 0.3:
                return self.memory(lang, rng.choice(["names", "names", "codes"]),
                                   rng.choice([0, 0, 20, 60]))
            return Dialogue(self._system(lang) if rng.random() < 0.5 else None,
                            [self._filler(lang)])
        draw_kind = rng.random()
        if draw_kind < 0.15:
            what = "names" if rng.random() < 0.6 else "codes"
            shape = rng.random()
            if shape < 0.15:
                distance = 0
            elif shape < 0.60:
                distance = rng.randint(1, 60)
            elif shape < 0.85:
                distance = rng.randint(60, 200)
            else:
                distance = rng.randint(200, 420)
            told = rng.random() > 0.12
            talk = self.memory(lang, what, distance if told else min(distance, 90), told=told)
            if rng.random() < 0.15:
                talk.turns.insert(0, draw("greetings", rng, lang))
            if rng.random() < 0.25:
                talk.turns.append(self._filler(lang))
            return talk
        count = rng.choices([1, 2, 3, 4, 5, 6], [34, 22, 16, 12, 9, 7])[0]
        turns = []
        for place in range(count):
            if place == 0 and count > 1 and rng.random() < 0.2:
                turns.append(draw("greetings", rng, lang))
            elif place == count - 1 and count > 2 and rng.random() < 0.12:
                turns.append(draw("thanks", rng, lang))
            else:
                turns.append(self._filler(lang))
        return Dialogue(self._system(lang), turns)


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


def held_out(kind, count, seed=7, thinking=False):
    """`count` evaluation questions of a kind that training can never have seen."""
    source = Generator(f"{seed}|{kind}|{thinking}")
    rng = source.rng
    questions, seen = [], set()
    tries = 0
    while len(questions) < count and tries < 200 * count:
        tries += 1
        lang = "zh" if rng.random() < 0.45 else "en"
        if kind == "names":
            talk = source.memory(lang, "names", rng.randint(20, 160), held_out=True)
        elif kind == "codes":
            talk = source.memory(lang, "codes", rng.randint(220, 330), held_out=True)
        else:
            turns = [draw(kind, rng, lang, held_out=True)]
            if rng.random() < 0.3:
                turns = [source._filler(lang) for _ in range(rng.randint(1, 2))] + turns
            talk = Dialogue(source._system(lang), turns)
        last = talk.turns[-1]
        if last.key in seen:
            continue
        seen.add(last.key)
        questions.append({"kind": kind, "messages": messages_of(talk),
                          "enable_thinking": thinking, "expect": last.expect})
    return questions


def all_questions(count=40):
    """The fixed evaluation set: every kind without thinking, sums and others with it."""
    questions = []
    for kind in HELD_OUT_KINDS:
        questions += held_out(kind, count)
    for question in held_out("sums", count // 2, thinking=True) + held_out(
            "differences", count - count // 2, thinking=True):
        questions.append({**question, "kind": "think-sums"})
    return questions


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--count", type=int, default=5)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--questions", help="write the held-out questions to this file")
    args = parser.parse_args()
    if args.questions:
        lines = [json.dumps(q, ensure_ascii=False) for q in all_questions()]
        with open(args.questions, "w", encoding="utf-8") as out:
            out.write("[\n" + ",\n".join(lines) + "\n]\n")
        return
    source = Generator(args.seed)
    for _ in range(args.count):
        talk = source.dialogue()
        print("---", f"[system] {talk.system}" if talk.system is not None else "")
        for turn in talk.turns:
            print(f"[user] {turn.user}\n[think] {turn.thought}\n[answer] {turn.answer}")


if __name__ == "__main__":
    main()
