#!/usr/bin/env python3
"""The code that docs/reading.md quotes is the code of the files it names.

A block that begins with ```cpp FILE holds lines of FILE, one behind the other; a line of … alone stands for lines that are
left out. Indentation does not count.
"""

import pathlib
import re
import sys

ROOT = pathlib.Path(__file__).resolve().parent.parent
PAGE = ROOT / "docs" / "reading.md"


def lines_of(text):
    return [line.strip() for line in text.splitlines() if line.strip()]


def find(part, source, start):
    """Where `part` stands in `source` as neighbouring lines, from `start` on; -1: nowhere."""
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
