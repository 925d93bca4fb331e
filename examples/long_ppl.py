#!/usr/bin/env python3
"""LongPPL (arXiv 2410.23771): perplexity over the tokens that a long context helps to predict.

    lariat perplexity -m MODEL -f book.txt --ctx 5120 --stride 1024 --losses short.json
    lariat perplexity -m MODEL -f book.txt --ctx 32768 --method growing --rope-scaling yarn --losses yarn.json
    lariat perplexity -m MODEL -f book.txt --ctx 32768 --method growing --rope-scaling dynamic-yarn --losses dynamic.json
    python3 examples/long_ppl.py short.json yarn.json dynamic.json

The first of the long files chooses the key tokens for all: those whose log-probability grows by more than --alpha over that in
short windows, and is above --beta; none of the first --trunc. The paper lets one model choose for all others (its evaluator).
"""
import argparse
import json
import math


def losses(file):
    """-> losses by token of the longest context; None: not scored"""
    with open(file, encoding="utf-8") as lines:
        return max((json.loads(line) for line in lines), key=lambda line: line.get("ctx", 0))["losses"]


parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
parser.add_argument("short")
parser.add_argument("long", nargs="+")
parser.add_argument("--alpha", type=float, default=2)
parser.add_argument("--beta", type=float, default=-2)
parser.add_argument("--trunc", type=int, default=4096)
options = parser.parse_args()

short, columns = losses(options.short), [losses(file) for file in options.long]
if any(len(column) != len(short) for column in columns):
    parser.error("the files have the losses of different texts")
scored = [i for i in range(options.trunc, len(short)) if all(column[i] is not None for column in [short, *columns])]
key = [i for i in scored if short[i] - columns[0][i] > options.alpha and -columns[0][i] > options.beta]
print(f"{len(key)} key tokens of {len(scored)}, chosen by {options.long[0]}")
for file, column in zip(options.long, columns, strict=True):
    print(f"{file}: {math.exp(sum(column[i] for i in key) / len(key)) if key else math.nan:.4f}")
