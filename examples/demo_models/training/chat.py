# SPDX-License-Identifier: Apache-2.0
"""The chat layouts of Qwen3 and Qwen3.5, the tokenizer files, the encoding of samples."""

import json
import os

from tokenizers import Regex, Tokenizer, decoders, models, normalizers, pre_tokenizers
from tokenizers import processors, trainers

# Where text is cut before the merges. Qwen3.5 counts combining marks as letters.
SPLIT_PATTERNS = {
    family: r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?" + word + r"+|\p{N}"
            r"| ?[^\s\p{L}" + mark + r"\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
    for family, word, mark in [("qwen3", r"\p{L}", ""), ("qwen3_5", r"[\p{L}\p{M}]", r"\p{M}")]
}

SPECIAL_TOKENS = [
    "<|endoftext|>", "<|im_start|>", "<|im_end|>", "<|object_ref_start|>", "<|object_ref_end|>",
    "<|box_start|>", "<|box_end|>", "<|quad_start|>", "<|quad_end|>", "<|vision_start|>",
    "<|vision_end|>", "<|vision_pad|>", "<|image_pad|>", "<|video_pad|>",
]
PLAIN_ADDED_TOKENS = [
    "<tool_call>", "</tool_call>", "<|fim_prefix|>", "<|fim_middle|>", "<|fim_suffix|>",
    "<|fim_pad|>", "<|repo_name|>", "<|file_sep|>", "<tool_response>", "</tool_response>",
    "<think>", "</think>",
]

THINK = "<think>\n"
NO_THINK = "<think>\n\n</think>\n\n"
ASSISTANT = "<|im_start|>assistant\n"

# How much more or less often than other kinds some are trained with a think block.
THINK_FACTOR = {"sums": 0.8, "differences": 0.8, "stories": 0.6, "identity": 1.4}


# ------------------------------------------------------------------------------ tokenizer

def byte_alphabet():
    """The 256 printable stand-ins of the bytes, in id order."""
    shown = [*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100)]
    return [chr(b) for b in shown] + [chr(0x100 + i) for i in range(256 - len(shown))]


def train_tokenizer(texts, vocab_size, family):
    """Trains byte-level BPE on texts; returns the list of merges in rank order."""
    tokenizer = Tokenizer(models.BPE())
    tokenizer.normalizer = normalizers.NFC()
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence([
        pre_tokenizers.Split(Regex(SPLIT_PATTERNS[family]), "isolated"),
        pre_tokenizers.ByteLevel(add_prefix_space=False, trim_offsets=False, use_regex=False),
    ])
    trainer = trainers.BpeTrainer(vocab_size=vocab_size, initial_alphabet=byte_alphabet(),
                                  min_frequency=8, max_token_length=24, show_progress=False)
    tokenizer.train_from_iterator(texts, trainer)
    merges = json.loads(tokenizer.to_str())["model"]["merges"]
    known, kept = set(byte_alphabet()), []
    for left, right in merges:
        if left + right not in known:
            known.add(left + right)
            kept.append([left, right])
    return kept


def added_token(content, special):
    return {"content": content, "single_word": False, "lstrip": False, "rstrip": False,
            "normalized": False, "special": special}


def tokenizer_json(merges, family):
    """The content of tokenizer.json: bytes, then merges by rank, then the added tokens."""
    tokens = byte_alphabet() + [left + right for left, right in merges]
    added = [added_token(t, True) for t in SPECIAL_TOKENS]
    added += [added_token(t, False) for t in PLAIN_ADDED_TOKENS]
    byte_level = {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": False,
                  "use_regex": False}
    return {
        "version": "1.0",
        "truncation": None,
        "padding": None,
        "added_tokens": [{"id": len(tokens) + i, **t} for i, t in enumerate(added)],
        "normalizer": {"type": "NFC"},
        "pre_tokenizer": {"type": "Sequence", "pretokenizers": [
            {"type": "Split", "pattern": {"Regex": SPLIT_PATTERNS[family]}, "behavior": "Isolated",
             "invert": False}, byte_level]},
        "post_processor": byte_level,
        "decoder": byte_level,
        "model": {
            "type": "BPE", "dropout": None, "unk_token": None, "continuing_subword_prefix": "",
            "end_of_word_suffix": "", "fuse_unk": False, "byte_fallback": False,
            "ignore_merges": False,
            "vocab": {token: i for i, token in enumerate(tokens)},
            "merges": merges,
        },
    }


def tokenizer_config(content, model_max_length, family):
    """The content of tokenizer_config.json that belongs to a tokenizer.json."""
    decoder = {}
    for token in content["added_tokens"]:
        entry = {k: v for k, v in token.items() if k != "id"}
        decoder[str(token["id"])] = entry
    regex = {} if family == "qwen3" else {"pretokenize_regex": SPLIT_PATTERNS[family]}
    return {
        "add_bos_token": False,
        "add_prefix_space": False,
        "added_tokens_decoder": decoder,
        "additional_special_tokens": SPECIAL_TOKENS[1:],
        "bos_token": None,
        "clean_up_tokenization_spaces": False,
        "eos_token": "<|im_end|>",
        "errors": "replace",
        "model_max_length": model_max_length,
        "pad_token": "<|endoftext|>",
        **regex,
        "split_special_tokens": False,
        "tokenizer_class": "Qwen2Tokenizer",
        "unk_token": None,
    }


def write_json(path, content, indent=None):
    """Writes JSON under a temporary name and renames it, so readers never see half a file."""
    separators = (",", ":") if indent is None else None
    with open(path + ".tmp", "w", encoding="utf-8") as out:
        json.dump(content, out, ensure_ascii=False, indent=indent, separators=separators)
        out.write("\n")
    os.replace(path + ".tmp", path)


def load_tokenizer(folder):
    return Tokenizer.from_file(os.path.join(folder, "tokenizer.json"))


# ------------------------------------------------------------------------------ chat text

def trimmed(content, family):
    """A message as the template renders it: Qwen3.5 leaves out white space at its ends."""
    return content if family == "qwen3" else content.strip()


def render_prompt(messages, thinking, family):
    """The prompt for the next answer (plain text contents, no tools). Qwen3 opens the think block
    itself; for Qwen3.5 the prompt does."""
    text = "".join(f"<|im_start|>{m['role']}\n{trimmed(m['content'], family)}<|im_end|>\n"
                   for m in messages)
    if thinking:
        return text + ASSISTANT + ("" if family == "qwen3" else THINK)
    return text + ASSISTANT + NO_THINK


def render_dialogue(talk, thinking=True):
    """A whole dialogue as text, with the think block in its last turn (tokenizer training)."""
    text = "" if talk.system is None else f"<|im_start|>system\n{talk.system}<|im_end|>\n"
    for turn in talk.turns:
        text += f"<|im_start|>user\n{turn.user}<|im_end|>\n{ASSISTANT}"
        if thinking:
            text += f"<think>\n{turn.thought}\n</think>\n\n"
        text += f"{turn.answer}<|im_end|>\n"
    return text


class SampleEncoder:
    """Turns a dialogue into ids, positions, branch numbers and a loss mask.

    Every answer is trained in the forms in which inference produces it: after the empty think
    block, and now and then with a think block. Later turns must not see these blocks, because
    the chat template drops them from the history. So an answer with its block is a *branch*: it
    sees the history before it and itself, and nothing that follows sees it; the history goes on
    with the bare answer at the positions it has at inference. Questions aside are branches too.
    A token of branch 0 (the history) sees earlier tokens of branch 0; a token of branch n sees
    earlier tokens of branches 0 and n. Only answers in branches carry loss.
    """

    def __init__(self, tokenizer, family):
        self.tokenizer, self.family = tokenizer, family
        self.memo = {}

    def encode(self, text):
        ids = self.memo.get(text)
        if ids is None:
            ids = self.tokenizer.encode(text, add_special_tokens=False).ids
            if len(self.memo) > 200000:
                self.memo.clear()
            self.memo[text] = ids
        return ids

    def sample(self, talk, rng, think_share, lean=False):
        """The fields of a dialogue. A `lean` one trains questions aside and the last answer only."""
        fields, trunk, branch = ([], [], [], []), 0, 0

        def put(text, branch, start, trained):
            piece = self.encode(text)
            if trained and fields[1][-1] != start - 1:
                raise ValueError("a trained token must follow the one that it is predicted from")
            fields[0].extend(piece)
            fields[1].extend(range(start, start + len(piece)))
            fields[2].extend([branch] * len(piece))
            fields[3].extend([trained] * len(piece))
            return start + len(piece)

        def asking(turn):
            return f"<|im_start|>user\n{trimmed(turn.user, self.family)}<|im_end|>\n{ASSISTANT}"

        def put_answer(turn, branch, start, thinking):
            if thinking:
                start = put(THINK, branch, start, self.family == "qwen3")
                start = put(f"{turn.thought}\n</think>\n\n", branch, start, True)
            else:
                start = put(NO_THINK, branch, start, False)
            put(turn.answer + "<|im_end|>", branch, start, True)

        def thinks(turn):
            return rng.random() < think_share * THINK_FACTOR.get(turn.kind, 1)

        if talk.system is not None:
            trunk = put(f"<|im_start|>system\n{talk.system}<|im_end|>\n", 0, trunk, False)
        for number, turn in enumerate(talk.turns, start=1):
            trunk = put(asking(turn), 0, trunk, False)
            # The think block first: <think> is predicted from the token that stands before it.
            last = number == len(talk.turns)
            forms = [True, False] if thinks(turn) else [False]
            for thinking in forms if last or not lean else []:
                branch += 1
                put_answer(turn, branch, trunk, thinking)
            if not last:
                trunk = put(f"{turn.answer}<|im_end|>\n", 0, trunk, False)
            for aside in turn.asides:
                branch += 1
                start = put(asking(aside), branch, trunk, False)
                put_answer(aside, branch, start, thinks(aside))
        return fields
