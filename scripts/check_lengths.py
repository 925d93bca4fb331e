#!/usr/bin/env python3
"""Prints the longest files and functions and the length of the spine; fails above the limits.

A function fits a screen, a file fits an evening. In formatted sources a function begins at column 0 (or 2, in a class); its body
opens with a line that ends in "{" and closes with "}" in the same column. The spine: docs/reading.md's forward pass and cache.
"""
import re
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
FILE_LIMIT, FUNCTION_LIMIT, SHOWN = 420, 70, 5
SPINE_LIMIT = 3380
SPINE = re.compile(r"kernels/(backend|step|weight)\.h|models/(spec/(spec\.h|rope\.(h|cpp))|"
                   r"run/(layer\.h|(decoder|activations)\.(h|cpp)))|"
                   r"engine/(\w+/)*(kv_cache|sequence|session|session_\w+|step_builder|scheduler)\.(h|cpp)")
OTHER = re.compile(r"(namespace|class|struct|union|enum|extern|using|typedef|public|private|protected|HWY_|TEST|INSTANTIATE)\b")


def functions(lines):
    """-> [(length, number of the first line)] of one C++ file."""
    head = None  # start of a declaration, possibly a function
    body = None
    for number, line in enumerate(lines, 1):
        text = line.strip()
        column = len(line) - len(line.lstrip())
        if body is not None:
            if column == body[1] and text.startswith("}"):
                yield number - body[0] + 1, body[0]
                body = None
            continue
        if not text or text.startswith(("//", "#", "}")) or OTHER.match(text):
            head = None
        elif column in (0, 2):
            head = (number, column)
        if head is not None and text.endswith("{") and "(" in "".join(lines[head[0] - 1 : number]):
            body, head = head, None
        elif text.endswith(";"):
            head = None


def main():
    names = subprocess.run(["git", "ls-files", "*.h", "*.cpp", "*.cu", "*.cuh"], cwd=ROOT, stdout=subprocess.PIPE, text=True,
                           check=True).stdout.split()
    files, bodies = [], []
    for name in names:
        lines = (ROOT / name).read_text(encoding="utf-8").splitlines()
        files.append((len(lines), name))
        bodies += [(length, f"{name}:{line}") for length, line in functions(lines)]
    failed = False
    for what, found, limit in (("files", files, FILE_LIMIT), ("functions", bodies, FUNCTION_LIMIT)):
        found.sort(reverse=True)
        lengths = [length for length, _ in found]
        print(f"{len(found)} {what}: median {lengths[len(lengths) // 2]} lines, limit {limit}; the longest:")
        for length, where in found[:SHOWN]:
            print(f"  {length:4} {where}")
        failed = failed or lengths[0] > limit
    spine = sum(length for length, name in files if SPINE.fullmatch(name))
    print(f"the spine: {spine} lines, limit {SPINE_LIMIT}")
    failed = failed or spine > SPINE_LIMIT
    sys.exit("check_lengths: beyond the limit; cut it where its parts have names" if failed else 0)


if __name__ == "__main__":
    main()
