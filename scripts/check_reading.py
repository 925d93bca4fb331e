#!/usr/bin/env python3
"""Compares the code quoted in docs/reading.md with the sources.

A block that begins with ```cpp FILE quotes consecutive lines of FILE; a line with only … stands for skipped lines. Indentation
is ignored.
"""

import pathlib
import re
import sys

ROOT = pathlib.Path(__file__).resolve().parent.parent
PAGE = ROOT / "docs" / "reading.md"


def lines_of(text):
    return [line.strip() for line in text.splitlines() if line.strip()]


def find(part, source, start):
    """Index of `part` in `source` as consecutive lines, from `start` on; -1: not found."""
    for at in range(start, len(source) - len(part) + 1):
        if source[at:at + len(part)] == part:
            return at
    return -1


def main():
    page = PAGE.read_text(encoding="utf-8")
    blocks = re.findall(r"^```cpp (\S+)\n(.*?)^```$", page, re.M | re.S)
    if not blocks:
        sys.exit(f"{PAGE}: quotes no code")
    if len(blocks) != len(re.findall(r"^```\S", page, re.M)):
        sys.exit(f"{PAGE}: a block of code is not ```cpp FILE")
    failed = False
    for name, text in blocks:
        source, at = lines_of((ROOT / name).read_text(encoding="utf-8")), 0
        for part in re.split(r"^\s*…\s*$", text, flags=re.M):
            found = find(lines_of(part), source, at)
            if found < 0:
                print(f"docs/reading.md: {name} has no such lines, in this order:\n{part}")
                failed = True
                break
            at = found + len(lines_of(part))
    sys.exit(failed)


if __name__ == "__main__":
    main()
