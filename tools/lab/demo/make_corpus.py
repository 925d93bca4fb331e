#!/usr/bin/env python3
"""Writes a synthetic corpus: stories with facts that recur later, and passkey documents.

    make_corpus.py --kind stories --megabytes 20 --out stories.txt
    make_corpus.py --kind passkey --docs 20000 --out passkey.txt
    make_corpus.py --kind recall --docs 20000 --out recall.txt
    make_corpus.py --kind stories --megabytes 1 --split heldout --out stories-heldout.txt

Documents end with a line <|endoftext|> (or --end). Document i is drawn from a generator seeded with (seed, split, kind, i): equal
arguments give equal bytes, a longer corpus starts with the shorter one, and the training and held-out splits are disjoint.
"""
import argparse
import random
import re
import sys

import words as w
from grammar import tell

END = "<|endoftext|>"

TASK = ("There is an important info hidden inside a lot of irrelevant text. Find it and memorize them. "
        "I will quiz you about the important information there.")
FILLER = ["The grass is green.", "The sky is blue.", "The sun is yellow.", "Here we go.",
          "There and back again."]
INFORMATION = "The pass key is {key}. Remember it. {key} is the pass key."
QUESTION = "What is the pass key? The pass key is"


def rough_tokens(text):
    """Words, digits, punctuation and line breaks: an estimate of the demo tokenizer's tokens."""
    return len(re.findall(r"\d|[^\W\d]+|[^\w\s]|\n", text))


def filler(rng, tokens, sentences):
    """About `tokens` tokens of filler: whole sentences, cut at a word half of the time.

    Published tests differ in where they cut the filler, and in whether it restarts after the information; so both vary here.
    """
    per_sentence = [rough_tokens(s) for s in sentences]
    out, total, i = [], 0, 0
    if rng.random() < 0.3:
        i = rng.randrange(len(sentences))
    while total < tokens:
        out.append(sentences[i % len(sentences)])
        total += per_sentence[i % len(sentences)]
        i += 1
    words = " ".join(out).split(" ")
    if rng.random() < 0.5:
        words = words[:max(0, len(words) - rng.randint(0, 4))]
    return " ".join(words)


def passkey_number(rng, repeats):
    """1 to 50000; a share `repeats` of the numbers has only two or three different digits.

    Induction finds two matches for the last digit in 38281; a model only learns to tell them apart if such numbers are frequent.
    """
    if repeats and rng.random() < repeats:
        digits = rng.sample("0123456789", rng.randint(2, 3))
        while True:
            number = "".join(rng.choices(digits, k=rng.choice([3, 4, 5, 5])))
            if number[0] != "0" and int(number) <= 50000:
                return int(number)
    return rng.randint(1, 50000)


def passkey(rng, max_tokens, repeats=0.0):
    key = passkey_number(rng, repeats)
    kind = rng.random()
    # Many documents fill the window; others are short, as the model learns retrieval on short ones first.
    if kind < 0.35:
        total = rng.randint(max_tokens - 60, max_tokens)
    elif kind < 0.7:
        total = rng.randint(60, max_tokens)
    else:
        total = rng.randint(60, 160)
    depth = rng.choice([0.0, 1.0, rng.random(), rng.random(), rng.random(), rng.random()])
    sentences = FILLER
    if rng.random() < 0.15:  # the same task in a haystack of stories
        sentences = re.split(r"(?<=[.!?]) ", tell(rng, 400).replace("\n", " "))
    info = INFORMATION.format(key=key)
    fixed = rough_tokens(TASK + info + QUESTION + str(key)) + 14
    room = max(0, total - fixed)
    before = filler(rng, room * depth, sentences) if room * depth >= 1 else ""
    after = filler(rng, room * (1 - depth), sentences) if room * (1 - depth) >= 1 else ""
    # At both ends one filler is empty; its empty line is kept or dropped at random.
    keep_empty = rng.random() < 0.5
    lines = [TASK, before, info, after, f"{QUESTION} {key}."]
    return "\n".join(line for line in lines if line or keep_empty)


def recall(rng):
    """Short, dense copying: repeated words and numbers. A model learns induction here first (words before numbers, as ten digits
    are easily confused); in passkey documents the few recallable tokens drown in filler."""
    form = rng.random()
    if form < 0.5:
        words = rng.choices(w.OBJECTS + w.COLORS + w.TRAITS + w.WILD + w.DAYS + w.GIRLS + w.BOYS, k=rng.randint(4, 20))
        line = " ".join(words)
        return "\n".join([f"Remember these words: {line}."] + [f"Say them again: {line}."] * rng.randint(1, 4))
    numbers = [rng.randint(1, 10 ** rng.randint(2, 5)) for _ in range(rng.randint(2, 6))]
    if form < 0.65:
        line = " ".join(str(n) for n in numbers)
        return "\n".join([f"Remember these numbers: {line}."] + [f"Say them again: {line}."] * rng.randint(1, 4))
    if form < 0.75:
        who = rng.sample(w.GIRLS + w.BOYS, len(numbers))
        facts = list(zip(who, numbers))
        said = [f"The pass key of {name} is {n}." for name, n in facts]
        rng.shuffle(facts)
        return " ".join(said) + "\n" + " ".join(f"What is the pass key of {name}? It is {n}." for name, n in facts)
    key = rng.randint(1, 50000)
    return "\n".join([INFORMATION.format(key=key)] * rng.randint(1, 2) + [f"{QUESTION} {key}."])


def story(rng, words):
    # From a single scene to several training windows.
    target = words or rng.choice([60, 120, 120, 200, 200, 300, 300, 400, 600, 900])
    return tell(rng, int(target * (0.7 + 0.6 * rng.random())))


def documents(kind, seed, split, passkey_tokens=512, words=None, repeats=0.0):
    index = 0
    while True:
        rng = random.Random(f"lariat/{seed}/{split}/{kind}/{index}")
        if kind == "passkey":
            yield passkey(rng, passkey_tokens, repeats)
        else:
            yield recall(rng) if kind == "recall" else story(rng, words)
        index += 1


def main():
    ap = argparse.ArgumentParser(description=__doc__.split("\n\n")[0])
    ap.add_argument("--kind", choices=["stories", "passkey", "recall"], default="stories")
    ap.add_argument("--split", choices=["train", "heldout"], default="train")
    ap.add_argument("--seed", type=int, default=1)
    ap.add_argument("--megabytes", type=float, help="stop after this much text")
    ap.add_argument("--docs", type=int, help="stop after this many documents")
    ap.add_argument("--passkey-tokens", type=int, default=512, help="approximate maximum length of passkey documents")
    ap.add_argument("--repeats", type=float, default=0.0, help="share of keys with two or three different digits")
    ap.add_argument("--words", type=int, help="length of a story, within 30%% (a mixture if not given)")
    ap.add_argument("--end", default=END, help="line after each document; '': an empty line, for plain text")
    ap.add_argument("--out", default="-")
    args = ap.parse_args()
    if args.megabytes is None and args.docs is None:
        ap.error("give --megabytes or --docs")
    out = sys.stdout.buffer if args.out == "-" else open(args.out, "wb")
    written = count = 0
    for doc in documents(args.kind, args.seed, args.split, args.passkey_tokens, args.words,
                         args.repeats):
        if args.docs is not None and count >= args.docs:
            break
        if args.megabytes is not None and written >= args.megabytes * 1e6:
            break
        data = f"{doc}\n{args.end}\n".encode()
        out.write(data)
        written += len(data)
        count += 1
    out.flush()
    print(f"{count} documents, {written} bytes", file=sys.stderr)


if __name__ == "__main__":
    main()
