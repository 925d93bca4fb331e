#!/usr/bin/env python3
"""Greedy answers inside a model's trained length, under scalings that follow the length and a static one.

    tools/lab/peers/native_window.py --model MODEL.gguf --text BOOK.txt [--lariat build/lariat] [--answers 20] [--tokens 48]

Continues passages of the text, of about 500 to 2,000 tokens, and counts the answers that differ from the unscaled model's.
"""

import argparse
import json
import subprocess

SETTINGS = {
    "none": ["--rope-scaling", "none"],
    "dynamic-yarn": ["--rope-scaling", "dynamic-yarn"],
    "dynamic": ["--rope-scaling", "dynamic", "--rope-factor", "2"],
    "jet-long": ["--position-method", "jet-long"],
    "yarn 4": ["--rope-scaling", "yarn", "--rope-factor", "4"],
}


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", required=True)
    parser.add_argument("--text", required=True)
    parser.add_argument("--lariat", default="build/lariat")
    parser.add_argument("--answers", type=int, default=20)
    parser.add_argument("--tokens", type=int, default=48)
    args = parser.parse_args()
    text = open(args.text, encoding="utf-8").read()
    prompts = []
    for i in range(args.answers):
        start = text.index(" ", i * (len(text) - 10_000) // args.answers)
        prompts.append(json.dumps({"prompt": text[start : start + 2000 + 6000 * i // args.answers].strip()}))
    answers = {}
    for name, options in SETTINGS.items():
        run = subprocess.run([args.lariat, "generate", "--model", args.model, "--prompts", "-", "--max-new-tokens", str(args.tokens),
                              "--device", "cpu", "--json", "--quiet", *options],
                             input="\n".join(prompts), stdout=subprocess.PIPE, text=True, check=True)  # fmt: skip
        answers[name] = [json.loads(line)["tokens"] for line in run.stdout.splitlines()]
    for name, own in answers.items():
        changed = sum(a != b for a, b in zip(own, answers["none"], strict=True))
        print(f"{name}: {changed} of {len(own)} answers differ from the unscaled model's")


if __name__ == "__main__":
    main()
