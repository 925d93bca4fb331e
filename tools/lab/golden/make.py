#!/usr/bin/env python3
"""Regenerates golden files: results of other programs for comparison with lariat (tests/golden/README.md).

    tools/lab/golden/make.py NAME... [--shared DIR]      a checkpoint of tests/golden/checkpoints, or one of --list
    tools/lab/golden/make.py --all [--shared DIR]

Golden files contain their inputs; a new checkpoint needs a row in families.def. DIR holds published tokenizers and a model with
its text; without DIR, their goldens stay unchanged.
"""

import argparse
import os
import pathlib
import sys

os.environ["HF_HUB_OFFLINE"] = "1"

import blocks  # noqa: E402
import checkpoints  # noqa: E402
import forms  # noqa: E402
import models  # noqa: E402
import own_tokenizers  # noqa: E402
import rope  # noqa: E402
import texts  # noqa: E402

MAKERS = (rope.frequencies, rope.rope_logits, rope.growing, models.demo, models.generation, models.score, models.keys,
          models.ties, models.divergence, texts.patterns, texts.roles, texts.stops,
          own_tokenizers.own_tokenizers, forms.forms, blocks.gguf_blocks)  # fmt: skip
SHARED = (texts.tokenizers, texts.settings, texts.chat_templates, models.perplexity)  # argument: the folder, or None


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("names", nargs="*", metavar="NAME")
    parser.add_argument("--all", action="store_true", help="every one")
    parser.add_argument("--list", action="store_true", help="print the names that are not checkpoints")
    parser.add_argument("--shared", type=pathlib.Path, help="the folder with tokenizers/, cases/, models/ and text/")
    args = parser.parse_args()
    known = {name: lambda name=name: checkpoints.make(name) for name in checkpoints.NAMES}
    known |= {maker.__name__: maker for maker in MAKERS}
    known |= {maker.__name__: lambda maker=maker: maker(args.shared) for maker in SHARED}
    if args.list:
        print(*(maker.__name__ for maker in MAKERS + SHARED), sep="\n")
    elif not args.all and not args.names:
        parser.error("name a golden, or give --all")
    for name in args.names or (known if args.all else ()):
        if name not in known:
            sys.exit(f"make: error: {name}: no such golden; see --list and models/families/families.def")
        known[name]()
        if name not in checkpoints.NAMES:
            print(name, flush=True)


if __name__ == "__main__":
    main()
