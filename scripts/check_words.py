#!/usr/bin/env python3
"""Counts household words and fragments in comments and messages; fails above a limit. The counts may only fall: use the field's
terms, then replace rows of LIMITS by printed rows. Counts reasons in comments too, because shorter comments lost some; fails
below LEAST_REASONS."""
import re
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
OPENING = "opens with Of, That, Those, What or Whose"
WORDS = {"behind": r"behind", "beside": r"beside", "heeded": r"heed(s|ed)?", "anew": r"anew", "goes on": r"go(es)? on",
         "put away": r"put away", "passed over": r"passed over", "likeliest": r"likeliest", "nobody": r"(no|some)body",
         "those of": r"(that|those) (of|that|which|who)", "what is": r"what (is|are|it|the|a|an|all|this|these)",
         "who": r"who(ever)?", "so many": r"(as|so) many", "of its own": r"of (its|their|one's) own",
         "is said": r"(is|are) said|says? so", "is none": r"(is|are) none"}  # fmt: skip
LIMITS = {  # in the order of WORDS, then OPENING
    'kernels': [0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 2, 0, 0, 0, 0, 0, 0],
    'models': [0, 0, 0, 0, 0, 0, 0, 0, 0, 1, 0, 0, 1, 1, 0, 0, 0],
    'engine': [0, 0, 0, 4, 0, 0, 0, 0, 0, 0, 3, 0, 0, 0, 0, 0, 0],
    'tools': [3, 1, 0, 1, 1, 0, 0, 0, 0, 1, 2, 4, 0, 0, 0, 0, 0],
    'tests': [0, 0, 0, 1, 0, 0, 0, 0, 2, 0, 3, 1, 0, 0, 0, 0, 0],
    'scripts': [0, 0, 0, 3, 0, 0, 0, 0, 0, 0, 2, 0, 0, 0, 0, 0, 0],
}
REASON = re.compile(r"\b(because|so that|otherwise|measured)\b")
LEAST_REASONS = {"kernels": 19, "models": 5, "engine": 12, "tools": 8}  # deleted code may take a few along
MARK = re.compile(r'(//|#(?!!|\s*(include|define|undef|ifn?def|if|elif|else|endif|pragma|error|line)\b)|""")\s*')


def prose_in(path):
    """-> (the line, the mark of a comment that begins it, its comment, its comment and messages) of each line of a file."""
    for line in path.read_text(encoding="utf-8", errors="replace").splitlines():
        text = line.strip()
        mark, trailing = MARK.match(text), re.search(r"\s(//|#)\s(.*)", text)
        comment = text[mark.end():] if mark else trailing[2] if trailing else ""
        strings = [s for s in re.findall(r'"((?:[^"\\]|\\.)*)"', text) if s.count(" ") > 2]
        yield text, mark, comment, " ".join([comment, *strings])


def hits_in(path):
    """-> (line number, entries of WORDS or OPENING, whether a comment gives a reason, the line) of each line of a file."""
    block = False  # whether the previous line is a comment
    for number, (text, mark, comment, prose) in enumerate(prose_in(path), 1):
        prose = prose.lower()
        found = [word for word, pattern in WORDS.items() if re.search(rf"\b({pattern})\b", prose)]
        opens = re.match(r"(Of|That|Those|What|Whose)\b", comment) and not (mark and block)
        block = bool(mark)
        yield number, found + [OPENING] * bool(opens), bool(REASON.search(comment)), text


def main():
    names = subprocess.run(["git", "ls-files", "--", *LIMITS], cwd=ROOT, stdout=subprocess.PIPE, text=True, check=True).stdout
    failed = False
    for folder, limits in LIMITS.items():
        places, reasons = {word: [] for word in (*WORDS, OPENING)}, 0
        files = re.findall(rf"^{folder}/.*\.(?:h|cpp|cuh?|py|sh)$", names, re.M)
        for name in files:
            for number, found, reason, text in hits_in(ROOT / name):
                reasons += reason
                for word in found:
                    places[word].append(f"{name}:{number}: {text}")
        print(f"    {folder!r}: {[len(lines) for lines in places.values()]},  # {reasons} reasons")
        if files and reasons < LEAST_REASONS.get(folder, 0):
            print(f"{folder}: {reasons} reasons in comments, at least {LEAST_REASONS[folder]}: restore lost ones")
            failed = True
        for (word, lines), limit in zip(places.items(), limits, strict=True):
            if len(lines) > limit:
                print(f"{folder}: {word!r} {len(lines)} times, limit {limit}:", *lines, sep="\n  ")
                failed = True
    sys.exit("check_words: above a limit, or below LEAST_REASONS; use the field's terms, and keep the reasons" if failed else 0)


if __name__ == "__main__":
    main()
