#!/usr/bin/env python3
"""Perplexity of a growing context in transformers: the metric of `lariat perplexity --method growing`, with its cache.

    tools/lab/peers/growing_transformers.py --model MODEL --file TEXT --ctx 16384 --step 32 --rope-type dynamic --factor 2

Reads the text once (after a BOS if the tokenizer adds one), --step tokens per forward pass, float32 on CPU, through a
DynamicCache, until the context holds --ctx tokens. Each token is scored once, by the logits of the pass with the previous token,
so with the cache at that moment. With --max-tokens of n times --ctx, reads n stretches of the text, each from an empty cache.

transformers 5.23 recomputes the frequencies of "dynamic" in every pass that is longer than all before (dynamic_rope_update,
modeling_rope_utils.py) and rotates new keys by them. DynamicCache holds rotated keys, which are never re-rotated: keys of earlier
passes become stale. "frequency_updates" in the output counts the passes that changed the frequencies.
"""
import argparse
import json
import math
import sys

import torch
from real_model_transformers import source
from transformers import AutoConfig, AutoModelForCausalLM, AutoTokenizer, DynamicCache


def read_tokens(args):
    """-> one list of args.ctx ids per stretch"""
    tokenizer = AutoTokenizer.from_pretrained(**source(args.model))
    with open(args.file, encoding="utf-8") as file:
        text = file.read(32 * max(args.ctx, args.max_tokens))  # prose has 4 or 5 characters per token
    bos = tokenizer("a")["input_ids"][: -len(tokenizer("a", add_special_tokens=False)["input_ids"])]
    ids, holds = tokenizer(text, add_special_tokens=False)["input_ids"], args.ctx - len(bos)
    stretches = max(args.max_tokens // holds, 1)
    if len(ids) < stretches * holds:
        sys.exit(f"growing_transformers: error: {args.file}: {len(ids)} tokens; {stretches * holds} are needed")
    return [bos + ids[i * holds : (i + 1) * holds] for i in range(stretches)]


def load_model(args):
    config = AutoConfig.from_pretrained(**source(args.model))
    if args.rope_type:
        rope = {"rope_type": args.rope_type, "rope_theta": config.rope_parameters["rope_theta"]}
        if args.rope_type in ("yarn", "llama3"):
            rope["original_max_position_embeddings"] = config.max_position_embeddings
        config.rope_parameters = rope | ({"factor": args.factor} if args.rope_type != "default" else {})
    return AutoModelForCausalLM.from_pretrained(**source(args.model), config=config, dtype=torch.float32).eval()


def grow(model, tokens, step, losses):
    """Appends the loss of every token except the first; -> number of passes that changed the frequencies."""
    rotary, cache, updates = model.model.rotary_emb, DynamicCache(config=model.config), 0
    for begin in range(0, len(tokens) - 1, step):  # the last token is predicted, not read
        end, before = min(begin + step, len(tokens) - 1), rotary.inv_freq.clone()
        logits = model(torch.tensor([tokens[begin:end]]), past_key_values=cache, use_cache=True).logits[0]
        losses += torch.nn.functional.cross_entropy(
            logits.double(), torch.tensor(tokens[begin + 1 : end + 1]), reduction="none").tolist()  # fmt: skip
        updates += not torch.equal(before, rotary.inv_freq)
        if begin // step % 16 == 0:
            print(f"\rgrowing_transformers: {end} of {len(tokens)}", end="", file=sys.stderr)
    print(file=sys.stderr)
    return updates


def summary(args, stretches, updates):
    losses = torch.tensor(stretches, dtype=torch.float64)  # [stretches, ctx - 1]
    nll, mean = losses.sum().item(), losses.mean().item()
    edges = [i * args.ctx // args.buckets for i in range(args.buckets + 1)]
    positions = []
    for begin, end in zip(edges, edges[1:]):
        part = losses[:, max(begin - 1, 0) : end - 1]
        if part.numel():
            positions.append({"from": begin, "to": end, "tokens": part.numel(), "loss": part.mean().item()})
    spread = losses.std().item() / math.sqrt(losses.numel())
    return {"results": [{"ctx": args.ctx, "step": args.step, "window_method": "growing", "tokens": losses.numel(), "nll": nll,
                         "ppl": math.exp(mean), "stderr": math.exp(mean) * spread, "complete": True,
                         "positions": positions}],
            "program": "transformers", "rope_type": args.rope_type, "factor": args.factor,
            "frequency_updates": updates}  # fmt: skip


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--model", required=True, help="Hugging Face checkpoint folder, or a GGUF file")
    parser.add_argument("--file", required=True, help="the text")
    parser.add_argument("--ctx", type=int, default=16384, help="tokens of the whole context (default: %(default)s)")
    parser.add_argument("--step", type=int, default=32, help="tokens per forward pass (default: %(default)s)")
    parser.add_argument("--rope-type", help="dynamic, yarn, linear, default (default: the model's own)")
    parser.add_argument("--factor", type=float, default=2.0, help="scaling factor (default: %(default)s)")
    parser.add_argument("--max-tokens", type=int, default=0, help="n times --ctx: n stretches (default: one)")
    parser.add_argument("--buckets", type=int, default=32, help="number of position buckets (default: %(default)s)")
    parser.add_argument("--threads", type=int, default=0, help="CPU threads; 0: all cores (default: %(default)s)")
    parser.add_argument("--json", action="store_true", help="one JSON object on stdout")
    args = parser.parse_args()
    if args.threads:
        torch.set_num_threads(args.threads)
    stretches, losses, updates = read_tokens(args), [], 0
    model = load_model(args)
    with torch.inference_mode():
        for tokens in stretches:
            losses.append([])
            updates += grow(model, tokens, args.step, losses[-1])
    if args.rope_type == "dynamic" and args.ctx > model.config.max_position_embeddings + args.step and updates == 0:
        sys.exit("growing_transformers: error: this transformers did not move the frequencies")
    result = summary(args, losses, updates)
    if args.json:
        print(json.dumps(result))
        return
    print("| positions | tokens | perplexity |\n|---|---|---|")
    for part in result["results"][0]["positions"]:
        print(f"| {part['from']} .. {part['to']} | {part['tokens']} | {math.exp(part['loss']):.2f} |")
    print(f"\n{result['results'][0]['tokens']} tokens: {result['results'][0]['ppl']:.3f}; {updates} changes of the frequencies")


if __name__ == "__main__":
    main()
