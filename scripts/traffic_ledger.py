#!/usr/bin/env python3
"""What every CUDA kernel asks of device memory in two steps of configs/demo, and in a layer of Llama-3.1-8B, counted
under the SIMT shim.

    scripts/traffic_ledger.py [BUILD_DIR] [--markdown docs/gpu/traffic.md]

Runs SimtTraffic.* of BUILD_DIR/simt_test (a build that checks every access: no sanitizer), which writes one line per step
and kernel (tests/simt/traffic.h), and names the kernels by the program's symbols.
"""
import argparse
import os
import re
import subprocess
import sys
import tempfile
from pathlib import Path

from kernel_ledger import plain

ROOT = Path(__file__).resolve().parent.parent
STEPS = {"1": "One token behind 64", "64": "64 tokens at once"}
# What SimtTraffic.OfAnEighthOfLlama8B runs: all widths of the model divided by EIGHTH, on so many tokens.
EIGHTH, TOKENS, LAYER_TOKENS = 8, 128, 4096


def fail(text):
    sys.exit(f"traffic_ledger: error: {text}")


def symbols(program):
    """{address: symbol} of the program's functions, and the address that kernels are counted from"""
    text = subprocess.run(["nm", program], capture_output=True, text=True, check=True).stdout
    found = {int(address, 16): name for address, name in re.findall(r"^([0-9a-f]+) [tTwW] (\S+)$", text, re.M)}
    start = re.search(r"^([0-9a-f]+) \w __executable_start$", text, re.M)
    return found, int(start[1], 16) if start else 0


def measure(program):
    """-> {step: {kernel: [launches, accesses, sectors, ideal, distinct]}}"""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "traffic"
        done = subprocess.run([program, "--gtest_filter=SimtTraffic.*", "--gtest_brief=1"],
                              env={**os.environ, "LARIAT_SIMT_TRAFFIC": str(path)}, capture_output=True, text=True, check=False)
        if not path.exists():  # a failed test has counted, too
            fail(f"{program} counted nothing: {(done.stdout + done.stderr).strip()[-400:]}")
        lines = [line.split() for line in path.read_text().splitlines()]
    found, start = symbols(program)
    places = {place: found.get(int(place, 16) + start) for _, place, *_ in lines}
    if None in places.values():
        fail(f"{program} has no symbol for a kernel")
    names = plain(list(dict.fromkeys(places.values())))
    steps = {}
    for step, place, *figures in lines:
        kernel = re.sub(r"<.*", "", names[places[place]]).split("::")[-1]
        row = steps.setdefault(step, {}).setdefault(kernel, [0] * 5)
        for i, figure in enumerate(figures):
            row[i] += int(figure)
    return steps


def table(steps):
    lines = []
    for step, title in STEPS.items():
        lines += [f"**{title}**", "", "| kernel | launches | warp accesses | sectors | ideal | sectors / ideal | KiB asked for | KiB at least |",
                  "| --- | --- | --- | --- | --- | --- | --- | --- |"]
        for kernel, (launches, accesses, sectors, ideal, distinct) in sorted(steps[step].items()):
            lines.append(f"| `{kernel}` | {launches} | {accesses} | {sectors} | {ideal} | {sectors / max(ideal, 1):.2f} | "
                         f"{sectors / 32:.1f} | {distinct / 32:.1f} |")
        lines.append("")
    return "\n".join(lines + layer_table(steps["one-layer"], steps["two-layers"]))


def layer_table(one, two):
    """A layer is what two have beyond one; a token and a unit of width move as much in the whole model as in its eighth."""
    scale = 32 * EIGHTH * (LAYER_TOKENS // TOKENS)
    lines = [f"**A layer of Llama-3.1-8B in bf16, {LAYER_TOKENS:,} tokens at once, outside the products**", "",
             "| kernel | launches | MB at least |", "| --- | --- | --- |"]  # fmt: skip
    total = 0
    for kernel, (launches, *_, distinct) in sorted(two.items()):
        less = one.get(kernel, [0] * 5)
        if launches == less[0]:
            continue
        total += (distinct - less[-1]) * scale
        lines.append(f"| `{kernel}` | {launches - less[0]} | {(distinct - less[-1]) * scale / 1e6:.0f} |")
    return [*lines, f"| together | | {total / 1e6:.0f} |", ""]


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("build", nargs="?", default="build", type=Path)
    parser.add_argument("--markdown", type=Path, help="file whose table between <!-- traffic --> and <!-- /traffic --> is replaced")
    args = parser.parse_args()
    text = table(measure(str((args.build / "simt_test").resolve())))
    if args.markdown is None:
        print(text)
        return
    page = args.markdown.read_text()
    begin, end = "<!-- traffic -->\n", "<!-- /traffic -->"
    if begin not in page or end not in page:
        fail(f"{args.markdown} has no place for the table")
    args.markdown.write_text(page[:page.index(begin) + len(begin)] + text + page[page.index(end):])


if __name__ == "__main__":
    main()
