# SPDX-License-Identifier: Apache-2.0
"""Questions of small talk, stories, and names and codes to remember."""

import phrases as P
from facts import (ECHO_WORDS, EN_NAMES, STORY_EN, STORY_ZH, UNKNOWN_EN, UNKNOWN_THINGS_EN,
                   UNKNOWN_THINGS_ZH, UNKNOWN_ZH, ZH_GIVEN, ZH_SURNAMES)
from turns import Turn, canonical, invented_name, is_held_out, is_zh, vary


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
        text = draw_code(rng, digits=rng.randint(2, 5))
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
    asked = rng.choice(["hero", "hero", "both", "both", "place", "thing", "none"])
    question = rng.choice(parts["ask_" + asked]).format(**slots)
    middle = rng.sample(parts["middle"], rng.randint(2, 3))
    lines = [rng.choice(parts[p]) for p in ("open", "detail", "need")] + middle[:1]
    lines += [rng.choice(parts["meet"]), rng.choice(parts["help"]), *middle[1:]]
    lines += [rng.choice(parts["close"]), rng.choice(parts["end"])]
    joiner = "" if is_zh(lang) else " "
    story = joiner.join(line.format(**slots) for line in lines)
    thought = rng.choice(parts["thought_" + asked]).format(**slots)
    expect = [] if asked == "none" else [slots["hero" if asked == "both" else asked]]
    key = "story|" + canonical(question)
    return Turn("stories", key, vary(question, rng, lang), story, thought, expect)


# ---------------------------------------------------------------------------- memory

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
    return Turn("names", f"name|{name}", question, answer, thought,
                [f"is {name}.", f"你叫{name}。"])


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
    return Turn("codes", f"code|{code}", question, answer, thought,
                [f"code is {code}.", f"密码是 {code}。"])


def draw_value(rng, prefix, maker, held_out):
    """A name or a code whose key is held out, or is not."""
    while True:
        value = maker()
        if is_held_out(f"{prefix}|{value}") == held_out:
            return value


def draw_name(rng, lang, held_out=False):
    return draw_value(rng, "name", lambda: person_name(rng, lang), held_out)


def draw_code(rng, held_out=False, digits=None):
    digits = rng.choice([3, 4, 4, 4, 4, 5]) if digits is None else digits
    return draw_value(
        rng, "code", lambda: "".join(rng.choice("0123456789") for _ in range(digits)), held_out)
