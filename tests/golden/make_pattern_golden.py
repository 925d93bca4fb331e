#!/usr/bin/env python3
"""Makes tests/golden/tokenizers/patterns.json: what HF tokenizers' Split makes of texts, pattern by pattern.

Run:  python3 tests/golden/make_pattern_golden.py
Needs: tokenizers 0.23.3 (its patterns are Oniguruma 6.9's).

Writes {"texts": [...], "pieces": {pattern: [bytes of each piece of each text]}, "refused": [patterns that both
refuse]}.
"""

import json
import pathlib
import random

from tokenizers import Regex, pre_tokenizers

from tokenizer_texts import CASES, fuzz

OUT = pathlib.Path(__file__).resolve().parent / "tokenizers" / "patterns.json"

BLOOM = r" ?[^(\s|[.,!?…。，、।۔،])]+"
# Letters that are not Han, as Kimi K2 splits them.
LETTERS = r"[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}&&[^\p{Han}]]"
LOWER = r"[\p{Ll}\p{Lm}\p{Lo}\p{M}&&[^\p{Han}]]"
ENDINGS = r"(?i:'s|'t|'re|'ve|'m|'ll|'d)?"
KIMI = (
    rf"[\p{{Han}}]+|{LETTERS}*{LOWER}+{ENDINGS}|{LETTERS}+{LOWER}*{ENDINGS}"
    r"|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
)
# fmt: off
PATTERNS = [
    BLOOM, KIMI,
    # nested, negated inside, intersections
    r"[a[b]]", r"[^a[^b]]", r"[[^a]b]+", r"[a-c&&[^b]]+", r"[^a-c&&b]+", r"[a-z&&b\]]", r"[a-c[^\s]&&[^b]]",
    r"[a-b&&b-c&&[^c]]", r"[a&&]", r"[&&a]", r"[^&&a]", r"[a&&&b]", r"[&a]+", r"[a&b]+", r"[ -~&&[^a-z]]+",
    r"[^ -~&&[^a-z]]+", r"[\p{P}\p{S}&&[^_]]+", r"[\p{L}\p{M}[0-9]]+", r"[^\p{L}[^\s]]+", r"(?<=[a-z&&[^b]])[A-Z]",
    # \S and \W inside
    r"[\S]+", r"[^\S\n]+", r"[^\S\r\n]+", r"(?i)[^\S\r\n]+", r"[\W\n]+", r"[\S&&\D]+", r"[[^\d]&&[^\s]]+",
    r"\w+", r"[\w]+", r"[^\w]+", r"\W+", r"[\w-]+",
    # POSIX brackets
    *(rf"[[:{sign}{name}:]]+" for sign in ("", "^") for name in
      "alnum alpha ascii blank cntrl digit graph lower print punct space upper word xdigit".split()),
    r"[^[:alpha:]]+", r"[^[:^alpha:][:digit:]]+", r"[[:^alpha:]&&[^ ]]+", r"[[:punct:][:space:]]+",
    # what stands where in a class
    r"[]a]+", r"[^]a]+", r"[a-c-e]+", r"[a-c-e-g]+", r"[--/]+", r"[-a]+", r"[a-]+", r"[a-&&-a]+", r"[[a]-c]+",
    r"[\[\]]+", r"[\^a]+", r"[a\-z]+", r"[\x41\t\x{4e00}-\x{9fff}]+",
    # scripts alone, and options
    r"\p{Han}+", r"\P{Han}+", r"\p{^Han}+", r"\p{Greek}+|\p{Latin}+|\p{Hiragana}+|\p{Common}+",
    r"a(?i)b|c", r"((?i)a|b)C", r"(?i)a(?-i)B", r"(?i:x(?-i:Y))", r"(?m)a.", r"(?m:\n.)", r"(?#[x)a", r"\x{41}|a{,3}b",
]
REFUSED = [r"[\w-a]", r"[a-\d]", r"[[:alpha:]-c]", r"[\xe9]", r"\xe9", r"[]", r"[[]a]", r"[a[]]", r"[[:foo:]]"]
# fmt: on


def random_class(rnd, depth=0):
    simple = [*"abxyz19_ .,é河▁", r"\-", r"\]", r"\[", r"\n", "a-f", "A-Z", "0-9", "!-/", "一-龥", "à-ÿ", r"\x{301}"]
    named = [r"\s", r"\S", r"\w", r"\W", r"\d", r"\p{L}", r"\P{L}", r"\p{^N}", r"\p{Lu}", r"\p{Han}", r"\p{M}"]
    posix = ["[:alnum:]", "[:^alpha:]", "[:punct:]", "[:^space:]", "[:upper:]"]

    def item():
        kind = rnd.random()
        if kind < 0.25 and depth < 3:
            return random_class(rnd, depth + 1)
        return rnd.choice(simple if kind < 0.6 else named if kind < 0.9 else posix)

    sides = ["".join(item() for _ in range(rnd.randrange(1, 4))) for _ in range(rnd.choice([1, 1, 1, 2, 3]))]
    return "[" + rnd.choice(["", "", "^"]) + "&&".join(sides) + "]"


def main():
    rnd = random.Random(4)
    texts = [text for text in CASES if 2 < len(text) < 45][::2] + fuzz(6, 1)
    texts += ["abcABC 12-\n]x[&^_ éÉ", "aBbAcCXY bC a\nb", "²³¼ x² a-c,e f g.+-/ ĳ", "、。々漢〇 ι か"]
    patterns = PATTERNS + [random_class(rnd) + rnd.choice(["", "+", "*", "{1,3}", "?"]) for _ in range(60)]
    pieces = {}
    for pattern in patterns:
        split = pre_tokenizers.Split(Regex(pattern), "isolated")
        pieces[pattern] = [[len(piece.encode()) for piece, _ in split.pre_tokenize_str(text)] for text in texts]
    for pattern in REFUSED:
        try:
            Regex(pattern)
        except Exception:  # the binding raises no narrower one
            continue
        raise AssertionError(f"{pattern} is taken")
    value = {"texts": texts, "pieces": pieces, "refused": REFUSED}
    OUT.write_text(json.dumps(value, ensure_ascii=True, separators=(",", ":")) + "\n")


if __name__ == "__main__":
    main()
