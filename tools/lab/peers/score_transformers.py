#!/usr/bin/env python3
"""Scores of continuations in transformers vs `lariat score` on the same lines.

    tools/lab/peers/score_transformers.py --make TEXT >questions.jsonl     # 200 questions with four choices
    build/lariat score --model DIR --dtype f32 --kv-dtype f32 --file questions.jsonl >scores.jsonl
    tools/lab/peers/score_transformers.py --model DIR --file questions.jsonl --scores scores.jsonl

A question is a passage of the text after a common prefix; its choices are the true continuation and three other places of the
text, with the separating space alternately in the prompt and in the choice. Ids as in lm-evaluation-harness
(TemplateLM._encode_pair of lm_eval/api/model.py), with the tokenizer's BOS (add_bos_token=True there) unless --no-bos is given.
Every text is scored alone and whole, without a cache, in float32.
"""
import argparse
import json
import random
import sys

import torch
from transformers import AutoModelForCausalLM, AutoTokenizer


def questions(file, items):
    words, draw = open(file, encoding="utf-8").read().split()[:200_000], random.Random(0)
    place = lambda: draw.randrange(200, len(words) - 100)  # noqa: E731
    choice = lambda at: " ".join(words[at : at + 5])  # noqa: E731
    for i in range(items):
        at, answer = place(), draw.randrange(4)
        choices = [choice(at + 50 if n == answer else place()) for n in range(4)]
        prompt = " ".join(words[:150]) + "\n\n" + " ".join(words[at : at + 50])
        if i % 2 == 0:
            prompt += " "
        else:
            choices = [" " + text for text in choices]
        yield {"prompt": prompt, "choices": choices, "answer": answer}


def encode_pair(tokenizer, context, continuation, special):
    encode = lambda text: tokenizer.encode(text, add_special_tokens=special)  # noqa: E731
    spaces = len(context) - len(context.rstrip())
    if spaces > 0:
        continuation, context = context[-spaces:] + continuation, context[:-spaces]
    whole, before = encode(context + continuation), encode(context)
    return before, whole[len(before) :]


@torch.inference_mode()
def score(model, before, tokens):
    logits = model(torch.tensor([(before + tokens)[:-1]])).logits[0, len(before) - 1 :].double()
    rows = torch.log_softmax(logits, -1)
    return rows[torch.arange(len(tokens)), tokens].tolist(), logits.argmax(-1).tolist() == tokens


def compare(args):
    tokenizer = AutoTokenizer.from_pretrained(args.model)
    model = AutoModelForCausalLM.from_pretrained(args.model, dtype=torch.float32, attn_implementation="eager").eval()
    worst_token = worst_sum = 0.0
    n = tokens_equal = greedy_equal = best_equal = right = lines = 0
    for line, scored in zip(open(args.file, encoding="utf-8"), open(args.scores, encoding="utf-8"), strict=True):
        line, scored = json.loads(line), json.loads(scored)
        ours = scored.get("choices", [scored])
        sums = []
        for text, one in zip(line.get("choices", [line.get("continuation")]), ours, strict=True):
            before, tokens = encode_pair(tokenizer, line["prompt"], text, not args.no_bos)
            logprobs, greedy = score(model, before, tokens)
            sums.append(sum(logprobs))
            n += 1
            tokens_equal += tokens == one["tokens"]
            greedy_equal += greedy == one["greedy"]
            worst_token = max([worst_token, *(abs(a - b) for a, b in zip(logprobs, one["logprobs"]))])
            worst_sum = max(worst_sum, abs(sums[-1] - one["sum"]))
        best = sums.index(max(sums))
        best_equal += best == scored.get("best", 0)
        right += best == line.get("answer")
        lines += 1
    print(f"{lines} lines, {n} continuations: ids equal {tokens_equal}, greedy equal {greedy_equal}, best equal "
          f"{best_equal}, right {right}; largest difference of a token {worst_token:.2e}, of a sum {worst_sum:.2e}")
    sys.exit(0 if tokens_equal == n and best_equal == lines and worst_sum <= 1e-3 else 1)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--make", metavar="TEXT")
    parser.add_argument("--items", type=int, default=200)
    parser.add_argument("--model")
    parser.add_argument("--file")
    parser.add_argument("--scores")
    parser.add_argument("--no-bos", action="store_true")
    args = parser.parse_args()
    if args.make:
        for question in questions(args.make, args.items):
            print(json.dumps(question, ensure_ascii=False))
    else:
        compare(args)


if __name__ == "__main__":
    main()
