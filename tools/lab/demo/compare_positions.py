#!/usr/bin/env python3
"""Perplexity by position method at 1, 2 and 4 times the training length, as a Markdown table and a figure.

    compare_positions.py --runs build/positions --text build/positions/heldout.txt --svg docs/positions.svg

--runs holds the output of `train.py --positions` for each kind. lariat measures rope and alibi; PyTorch measures sinusoidal and
learned, which lariat does not support, on the same windows of the same tokens.
"""
import argparse
import json
import math
import subprocess
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
import pages  # noqa: E402
import positions  # noqa: E402
from tokens import load_tokenizer  # noqa: E402

TIMES = [1, 2, 4]
SCALINGS = ["none", "linear", "ntk", "yarn", "dynamic-yarn"]


def by_lariat(lariat, folder, text, ctx, *rope):
    command = [lariat, "perplexity", "--model", folder, "--file", text, "--ctx", str(ctx), "--method", "chunks",
               "--max-tokens", "0", "--dtype", "f32", "--kv-dtype", "f32", "--device", "cpu", "--json", "--quiet", *rope]
    result = json.loads(subprocess.run(list(map(str, command)), check=True, capture_output=True, text=True).stdout)
    return result["results"][0]["ppl"], result["results"][0]["stderr"], result["results"][0]["tokens"]


def by_torch(model, tokens, ctx):
    losses = positions.chunk_losses(model, tokens, ctx)
    return *positions.perplexity(losses), len(losses)


def check_alike(lariat, torch_, name):
    """Fails unless both programs score the same tokens with the same result."""
    if lariat[2] != torch_[2] or abs(lariat[0] / torch_[0] - 1) > 1e-3:
        raise SystemExit(f"{name}: lariat says {lariat}, PyTorch {torch_}")


def measure(args):
    """[(name, [(perplexity, standard error) per length; None beyond the end of a table])]"""
    runs = Path(args.runs)
    tokens = load_tokenizer(runs / "rope" / "tokenizer.model").encode(Path(args.text).read_text())
    models = {kind: positions.load_body(runs / kind) for kind in positions.KINDS}
    trained = models["rope"].c.max_position_embeddings
    lengths = [trained * n for n in TIMES]
    rows = []
    for scaling in SCALINGS:
        options = [["--rope-scaling", scaling] for _ in lengths]
        if scaling in ("linear", "ntk", "yarn"):
            options = [o + ["--rope-factor", str(n)] for o, n in zip(options, TIMES)]
        cells = [by_lariat(args.lariat, runs / "rope" / "hf", args.text, n, *o) for n, o in zip(lengths, options)]
        rows.append(("RoPE" if scaling == "none" else f"RoPE, {scaling}", cells))
    rows.append(("ALiBi", [by_lariat(args.lariat, runs / "alibi" / "hf", args.text, n) for n in lengths]))
    for row, kind in ((rows[0], "rope"), (rows[-1], "alibi")):
        for cell, n in zip(row[1], lengths):
            check_alike(cell, by_torch(models[kind], tokens, n), f"{kind} at {n}")
    rows.append(("sinusoidal", [by_torch(models["sinusoidal"], tokens, n) for n in lengths]))
    rows.append(("learned", [by_torch(models["learned"], tokens, n) if n <= trained else None for n in lengths]))
    return lengths, rows


def table(lengths, rows):
    cells = [[name, *(f"{c[0]:.2f} ± {c[1]:.2f}" if c else "none" for c in row)] for name, row in rows]
    return pages.table(["positions", *lengths], cells)


def picture(lengths, rows):
    """Logarithmic perplexity by length, with non-overlapping names at the ends of the curves."""
    left, right, top, bottom, width, height = 60, 440, 66, 380, 640, 436
    finite = [c[0] for _, cells in rows for c in cells if c]
    high = math.log(max(finite) * 1.2)
    low = math.log(min(finite) / 1.15)

    def x(i):
        return left + (right - left) * i / (len(lengths) - 1)

    def y(value):
        return bottom - (bottom - top) * (math.log(value) - low) / (high - low)

    svg = pages.svg_text(left, 28, "start", "head", "Perplexity beyond the training length")
    svg += pages.svg_text(left, 47, "start", "note", f"trained on {lengths[0]} tokens; only the positions differ")
    for value in (2, 3, 5, 10, 20, 50, 100, 200, 500, 1000):
        if low <= math.log(value) <= high:
            svg += f'<path class="grid" d="M{left} {y(value):.1f}H{right}"/>\n'
            svg += pages.svg_text(left - 8, y(value) + 4, "end", "tick", value)
    for i, n in enumerate(lengths):
        svg += pages.svg_text(x(i), bottom + 20, "middle", "tick", n)
    svg += pages.svg_text(right, bottom + 42, "end", "note", "tokens in a window")
    ends = []
    for i, (name, cells) in enumerate(rows):
        points = [(x(k), y(c[0])) for k, c in enumerate(cells) if c]
        path = "L".join(f"{a:.1f} {b:.1f}" for a, b in points)
        if cells[-1]:
            ends.append((points[-1][1], i, name))
        else:  # a dot with its name, in an empty area
            path = f"{path}h0.01M{left + 16} {top + 12}h0.01"
            svg += pages.svg_text(left + 28, top + 16, "start", "label", f"{name}, none beyond {lengths[0]}")
        svg += f'<path class="curve c{i}" d="M{path}"/>\n'
    room = bottom
    for end, i, name in sorted(ends, reverse=True):  # from below, each a line above the previous one
        at = min(end, room)
        room = at - 18
        svg += f'<path class="curve c{i}" d="M{right} {end:.1f}L{right + 14} {at:.1f}h18"/>\n'
        svg += pages.svg_text(right + 40, at + 4, "start", "label", name)
    return pages.svg(width, height, "Perplexity by length and kind of positions", svg)


def main():
    ap = argparse.ArgumentParser(description=__doc__.split("\n\n")[0])
    ap.add_argument("--runs", required=True, help="folder with one run of train.py per kind")
    ap.add_argument("--text", required=True, help="held-out text")
    ap.add_argument("--lariat", default="build/lariat", help="the program")
    ap.add_argument("--svg", help="also draw the figure to this file")
    args = ap.parse_args()
    lengths, rows = measure(args)
    print(table(lengths, rows), flush=True)
    if args.svg:
        Path(args.svg).write_text(picture(lengths, rows))


if __name__ == "__main__":
    main()
