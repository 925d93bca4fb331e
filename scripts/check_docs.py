#!/usr/bin/env python3
"""Budgets of README, docs and comments, and README's table of throughput, with numbers from docs/performance.md.

    scripts/check_docs.py [--fix]     --fix writes the table
"""

import re
import subprocess
import sys
import textwrap
from pathlib import Path

import check_words

ROOT = Path(__file__).resolve().parent.parent
README_LINES = 110
DOCS_LINES, DOCS_WORDS = 2705, 33_500  # may only fall
PROSE_WORDS = 83_310  # in C++ and CUDA
# README's rows: processor, section of docs/performance.md, test and weights there.
SPEED = [
    ("Zen 4 EPYC (AVX-512)", "Zen 4 EPYC", "prefill 512", "bf16"),
    ("", "Zen 4 EPYC", "prefill 512", "q4"),
    ("", "Zen 4 EPYC", "decode", "bf16"),
    ("", "Zen 4 EPYC", "decode", "q4"),
    ("Zen 3 EPYC (AVX2)", "Zen 3 EPYC", "decode", "bf16"),
    ("", "Zen 3 EPYC", "decode", "q4"),
    ("Xeon (AMX)", "AMX", "prefill 512", "bf16"),
    ("", "AMX", "decode", "bf16"),
]
COLUMNS = ("lariat", "llama.cpp", "transformers")


def rows_of(page, section):
    """-> [{column: cell}] of a section's first table; empty first cells repeat the one above."""
    text = re.search(rf"^## {re.escape(section)}.*?\n(.*?)(?=^## |\Z)", page, re.M | re.S)[1]
    lines = re.search(r"(?:^\|.*\n)+", text, re.M)[0].splitlines()
    cells = [[cell.strip() for cell in line.strip("|").split("|")] for line in lines]
    rows, above = [], ""
    for row in cells[2:]:
        above = row[0] or above
        named = list(zip(cells[0], row, strict=True))
        rows.append(dict(reversed(named)) | {cells[0][0]: above})  # of two columns of a name, the first
    return rows


def speed_table(page):
    lines = ["| processor | test | weights | " + " | ".join(COLUMNS) + " |", "|---" * (3 + len(COLUMNS)) + "|"]
    for name, section, test, weights in SPEED:
        row = next(row for row in rows_of(page, section)
                   if row.get("test", "decode") == test and row.get("weights", "bf16") == weights)  # fmt: skip
        numbers = [row.get(column, "").split(" ")[0].strip("-") for column in COLUMNS]
        lines.append(f"| {name} | {test} | {weights} | " + " | ".join(numbers) + " |")
    return "\n".join(lines)


def prose_words():
    names = subprocess.run(["git", "ls-files", "*.h", "*.cpp", "*.cu", "*.cuh"], cwd=ROOT, stdout=subprocess.PIPE, text=True,
                           check=True).stdout.split()  # fmt: skip
    words = 0
    for name in names:
        words += sum(len(prose.split()) for *_, prose in check_words.prose_in(ROOT / name))
    return words


def main():
    readme = (ROOT / "README.md").read_text(encoding="utf-8")
    docs = [path.read_text(encoding="utf-8") for path in (ROOT / "docs").rglob("*.md")]
    made = speed_table((ROOT / "docs" / "performance.md").read_text(encoding="utf-8"))
    wanted, marks = re.subn(r"(?s)(<!-- speed -->\n).*?(\n<!-- /speed -->)", lambda m: m[1] + made + m[2], readme)
    if "--fix" in sys.argv[1:]:
        (ROOT / "README.md").write_text(wanted, encoding="utf-8")
        readme = wanted
    failed = False
    for what, count, limit in [
        ("lines of README", readme.count("\n"), README_LINES),
        ("lines of docs", sum(page.count("\n") for page in docs), DOCS_LINES),
        ("words of docs", sum(len(page.split()) for page in docs), DOCS_WORDS),
        ("words of comments and messages", prose_words(), PROSE_WORDS),
    ]:
        print(f"{what}: {count}, limit {limit}")
        failed = failed or count > limit
    if marks != 1 or wanted != readme:
        print("README.md: the table between the speed marks is not docs/performance.md's; run scripts/check_docs.py --fix")
        failed = True
    example = (ROOT / "examples" / "error_bars.py").read_text(encoding="utf-8")
    if not any(textwrap.indent(example, " " * 6) in page for page in docs):
        print("docs/measuring.md: its Python differs from examples/error_bars.py; copy that file")
        failed = True
    sys.exit("check_docs: beyond a limit; cut what another page says" if failed else 0)


if __name__ == "__main__":
    main()
