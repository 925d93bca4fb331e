#!/usr/bin/env python3
"""For scripts/real_model.sh, as JSON: lariat's logits and greedy tokens vs transformers' (float32), and transformers' throughput.

    tools/lab/peers/real_model_transformers.py logits --model MODEL --text FILE --lariat build/lariat
    tools/lab/peers/real_model_transformers.py speed --model MODEL --text FILE --threads 2
"""
import argparse
import json
import os
import statistics
import subprocess
import tempfile
import time

import torch
from safetensors.torch import load_file
from transformers import AutoModelForCausalLM, AutoTokenizer

PROMPT, NEW, SHORT = 512, 64, 64


def source(path):
    """Arguments of from_pretrained for a folder or a GGUF file."""
    folder, name = os.path.split(path)
    gguf = path.endswith(".gguf")
    return {"pretrained_model_name_or_path": (folder or ".") if gguf else path, "gguf_file": name if gguf else None}


def logits(args, model, tokenizer, ids):
    """A prefill of 512 tokens, and 64 greedy tokens after about 64, each by both programs."""
    # A cut word may encode differently: shortens the text until its ids match.
    short = next(n for n in range(SHORT, 0, -1) if tokenizer(tokenizer.decode(ids[:n]))["input_ids"] == ids[:n])
    with tempfile.TemporaryDirectory() as folder:
        out, prompt = os.path.join(folder, "logits.safetensors"), os.path.join(folder, "prompt.txt")
        subprocess.run([args.lariat, "logits", "--model", args.model, "--tokens", ",".join(map(str, ids)), "--dtype", "f32",
                        "--kv-dtype", "f32", "--out", out, "--quiet"], check=True)  # fmt: skip
        ours = load_file(out)["logits"]
        with open(prompt, "w", encoding="utf-8", newline="") as file:
            file.write(tokenizer.decode(ids[:short]))
        done = subprocess.run([args.lariat, "generate", "--model", args.model, "--prompt-file", prompt, "-n", str(NEW),
                               "--ignore-eos", "--dtype", "f32", "--kv-dtype", "f32", "--json", "--quiet"],
                              check=True, capture_output=True)  # fmt: skip
    theirs = model(torch.tensor([ids])).logits[0]
    greedy = model.generate(torch.tensor([ids[:short]]), max_new_tokens=NEW, min_new_tokens=NEW, do_sample=False)
    pairs = zip(json.loads(done.stdout)["tokens"], greedy[0, short:].tolist())
    same = next((i for i, (a, b) in enumerate(pairs) if a != b), NEW)
    return {"tokens": len(ids), "ratio": ((ours - theirs).abs().max() / theirs.abs().max()).item(),
            "same_top": (ours.argmax(1) == theirs.argmax(1)).double().mean().item(), "greedy": NEW,
            "greedy_same": same}  # fmt: skip


def speed(args, model, tokenizer, ids):
    """Medians of three, tokens per second; decoding is the cost of 64 more tokens after the first."""
    x, times = torch.tensor([ids]), {1: [], NEW + 1: []}
    for count in (1, *list(times) * 3):
        start = time.perf_counter()
        model.generate(x, max_new_tokens=count, min_new_tokens=count, do_sample=False)
        times[count].append(time.perf_counter() - start)
    first = statistics.median(times[1][1:])
    return {"threads": torch.get_num_threads(), "pp": PROMPT / first,
            "tg": NEW / (statistics.median(times[NEW + 1]) - first)}  # fmt: skip


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("what", choices=("logits", "speed"))
    for name in ("--model", "--text", "--lariat"):
        parser.add_argument(name)
    parser.add_argument("--threads", type=int, default=os.cpu_count())
    arguments = parser.parse_args()
    torch.set_num_threads(arguments.threads)
    where = source(arguments.model)
    tokenizer = AutoTokenizer.from_pretrained(**where)
    with open(arguments.text, encoding="utf-8") as book:
        tokens = tokenizer(book.read(40000)[5000:], add_special_tokens=False)["input_ids"][:PROMPT]
    with torch.inference_mode():
        model = AutoModelForCausalLM.from_pretrained(**where, dtype=torch.float32).eval()
        print(json.dumps({"logits": logits, "speed": speed}[arguments.what](arguments, model, tokenizer, tokens)))
