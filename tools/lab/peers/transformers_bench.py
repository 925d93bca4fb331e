#!/usr/bin/env python3
"""transformers on a CPU with llama-bench's options and output; run by tools/lab/peers/compare.py --transformers PYTHON.

    tools/lab/peers/transformers_bench.py -m configs/tinyllama-1.1b.json --dtype bf16 -t 2 -p 512 -n 64 -d 0 -r 1 -o json

-m: a checkpoint folder, or a config.json for random weights. Prefills -p tokens after -d others in the cache (random keys and
values), then decodes -n tokens greedily after as many; both after an untimed warm-up.
Prints a list of {n_prompt, n_gen, n_depth, avg_ts: tokens per second}. Needs torch and transformers.
"""
import argparse
import json
import os
import shutil
import sys
import tempfile
import time

import torch
from transformers import AutoConfig, AutoModelForCausalLM, DynamicCache

DTYPES = {"f32": torch.float32, "bf16": torch.bfloat16, "f16": torch.float16}


def load(path, dtype):
    if os.path.isdir(path):
        return AutoModelForCausalLM.from_pretrained(path, dtype=dtype)
    with tempfile.TemporaryDirectory() as folder:
        shutil.copy(path, os.path.join(folder, "config.json"))
        config = AutoConfig.from_pretrained(folder)
    return AutoModelForCausalLM.from_config(config, dtype=dtype)


def read(model, cache, ids):
    """-> argmax of the next token, [1, 1]"""
    return model(ids, past_key_values=cache, use_cache=True, logits_to_keep=1).logits[:, -1:].argmax(-1)


def fill(model, cache, depth):
    """A cache with random contents instead of a prefill of minutes: later steps cost the same."""
    config = model.config
    heads = config.num_attention_heads
    shape = (1, getattr(config, "num_key_value_heads", heads), depth,
             getattr(config, "head_dim", None) or config.hidden_size // heads)  # fmt: skip
    for layer in range(config.num_hidden_layers):
        cache.update(*(torch.randn(shape, dtype=model.dtype) for _ in range(2)), layer)


def seconds(model, args):
    """-> seconds for prefilling args.prompt tokens, for decoding args.gen"""
    ids = torch.randint(0, model.config.vocab_size, (1, max(args.prompt, 1)))
    cache = DynamicCache(config=model.config)
    if args.depth > 0:
        fill(model, cache, args.depth)
    start = time.perf_counter()
    if args.prompt > 0:
        read(model, cache, ids[:, :args.prompt])
    prompt = time.perf_counter() - start
    if args.prompt > 0:
        cache.crop(-args.prompt)
    token, start = ids[:, :1], time.perf_counter()
    for _ in range(args.gen):
        token = read(model, cache, token)
    return prompt, time.perf_counter() - start


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("-m", dest="model", required=True)
    parser.add_argument("--dtype", choices=DTYPES, default="bf16")
    for short, name, default in (("-t", "threads", os.cpu_count()), ("-p", "prompt", 512), ("-n", "gen", 64),
                                 ("-d", "depth", 0), ("-r", "reps", 1)):  # fmt: skip
        parser.add_argument(short, dest=name, type=int, default=default)
    parser.add_argument("-o", dest="output", choices=["json"], default="json")
    args = parser.parse_args()
    if not os.path.exists(args.model):
        sys.exit(f"transformers_bench: error: {args.model}: no such folder or config.json")
    torch.set_num_threads(args.threads)
    torch.manual_seed(1)
    with torch.inference_mode():
        model = load(args.model, DTYPES[args.dtype]).eval()
        seconds(model, args)
        times = [seconds(model, args) for _ in range(args.reps)]
    tests = ((args.prompt, 0, 0), (0, args.gen, 1))
    print(json.dumps([{"n_prompt": p, "n_gen": n, "n_depth": args.depth,
                       "avg_ts": sum((p + n) / pair[which] for pair in times) / args.reps}
                      for p, n, which in tests if p + n > 0]))  # fmt: skip


if __name__ == "__main__":
    main()
