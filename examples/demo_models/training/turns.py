# SPDX-License-Identifier: Apache-2.0
"""Single questions with their answers: arithmetic, capitals, weekdays, translations.

A question has a canonical key (the operands of a sum, a name, a code, or the wording together
with what is asked), and `is_held_out(key)` decides by its hash whether training may use it.
"""

import hashlib
from dataclasses import dataclass, field

import phrases as P
from facts import CAPITALS, OTHER_COUNTRIES, WEEKDAYS_EN, WEEKDAYS_ZH, WORDS, ZH_GIVEN


@dataclass
class Turn:
    """One question with its answer; `thought` is what stands in the think block.

    `asides` are questions that could come next, learned without being part of the dialogue.
    """

    kind: str
    key: str
    user: str
    answer: str
    thought: str
    expect: list = field(default_factory=list)
    asides: list = field(default_factory=list)


def is_held_out(key):
    """True for one key in ten, always the same ones."""
    digest = hashlib.sha256(key.encode("utf-8")).hexdigest()
    return int(digest[:12], 16) % 10 == 0


def canonical(text):
    """The wording of a question without case, punctuation at its ends and outer blanks."""
    return text.lower().strip(" ?!.,:?!。,:")


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

ONSETS = ["b", "d", "f", "g", "h", "j", "k", "l", "m", "n", "p", "r", "s", "t", "v", "w", "z",
          "br", "dr", "gr", "kr", "tr", "st", "sh", "ch", "th", "pl", "fl", "", "c", "qu", "y", "sk"]
INNER_ONSETS = ONSETS + ["tt", "mm", "ll"]
VOWELS = ["a", "e", "i", "o", "u", "ai", "ei", "ia", "io"]
ENDINGS = ["", "", "", "n", "r", "l", "s", "x", "k", "m", "th", "nd", "ck", "ck", "ly", "ly", "to",
           "ne", "ry", "ve"]


def invented_name(rng):
    """A name that stands in no list, so that copying has to be learned."""
    text = rng.choice(ONSETS) + rng.choice(VOWELS)
    for _ in range(rng.choice([0, 1, 1, 1, 2, 2])):
        text += rng.choice(INNER_ONSETS) + rng.choice(VOWELS)
    return (text + rng.choice(ENDINGS)).capitalize()


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
    form = rng.choice(["after", "before", "tomorrow", "yesterday"] + ["count"] * 6)
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
