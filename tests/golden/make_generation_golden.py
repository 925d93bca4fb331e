#!/usr/bin/env python3
"""Write tests/golden/generation.json: what transformers makes of a generation_config.json.

    python3 tests/golden/make_generation_golden.py --model configs/demo --out tests/golden/generation.json

keys: every key of transformers' GenerationConfig, with the value at which it changes nothing (null: none but null).
sampling: files, and the sampling that generate() does for them: null where it is greedy.
greedy: files beside the checkpoint of --model, and the ids that generate() writes then, with the smallest distance of
the best from the second-best score on the way.
"""
import argparse
import json
import shutil
import tempfile
from pathlib import Path

import torch
import transformers
from transformers import AutoModelForCausalLM, AutoTokenizer, GenerationConfig

SAMPLING = [
    {},
    {"temperature": 0.6, "top_p": 0.9},
    {"do_sample": False, "top_k": 20},
    {"do_sample": True},
    {"do_sample": True, "temperature": 0.6, "top_p": 0.9},
    {"do_sample": True, "temperature": 0.7, "top_p": 0.8, "top_k": 20, "min_p": 0.05},
    {"do_sample": True, "top_k": 0},
    {"do_sample": True, "temperature": None, "top_k": None},
]
GREEDY = [
    {"bos_token_id": 1, "eos_token_id": 2, "repetition_penalty": 3.0},
    {"bos_token_id": 1, "eos_token_id": 2, "repetition_penalty": 1.3, "temperature": 0.6, "top_p": 0.9},
]
PROMPT, TOKENS = "The sea", 60


def keys():
    config = GenerationConfig()
    defaults = config._get_default_generation_params()
    return {key: defaults.get(key) for key in sorted(config.to_dict() | defaults)}


def sampling(model, file):
    """The warpers of transformers' logits processors, as numbers."""
    model.generation_config = GenerationConfig.from_dict(dict(file))
    config, _ = model._prepare_generation_config(None)
    processors = model._get_logits_processor(config, input_ids_seq_length=1, device="cpu")
    if not config.do_sample:
        return None
    found = {"temperature": 1.0, "top_k": 0, "top_p": 1.0, "min_p": 0.0}
    for processor in processors:
        for key in found:
            if hasattr(processor, key):
                found[key] = getattr(processor, key)
    return found


@torch.no_grad()
def greedy(folder, prompt):
    model = AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32).eval()
    out = model.generate(prompt, max_new_tokens=TOKENS, output_scores=True, return_dict_in_generate=True)
    margins = [(top[0] - top[1]).item() for top in (scores[0].topk(2).values for scores in out.scores)]
    return out.sequences[0, prompt.shape[1] :].tolist(), min(margins)


def main():
    ap = argparse.ArgumentParser(description=__doc__.split("\n\n")[0])
    ap.add_argument("--model", default="configs/demo")
    ap.add_argument("--out", default="tests/golden/generation.json")
    args = ap.parse_args()
    tokenizer = AutoTokenizer.from_pretrained(args.model)
    prompt = tokenizer(PROMPT, return_tensors="pt").input_ids
    model = AutoModelForCausalLM.from_pretrained(args.model, dtype=torch.float32)
    golden = {
        "transformers": transformers.__version__,
        "keys": keys(),
        "sampling": [{"file": file, "sampling": sampling(model, file)} for file in SAMPLING],
        "prompt": PROMPT,
        "prompt_tokens": prompt[0].tolist(),
        "greedy": [],
    }
    for file in GREEDY:
        with tempfile.TemporaryDirectory() as name:
            folder = Path(shutil.copytree(args.model, Path(name) / "model"))
            (folder / "generation_config.json").write_text(json.dumps(file))
            tokens, margin = greedy(folder, prompt)
        golden["greedy"].append({"file": file, "tokens": tokens, "smallest_margin": margin})
        print(f"{file}: smallest margin {margin:.4f}\n{tokenizer.decode(tokens)}")
    Path(args.out).write_text(json.dumps(golden, indent=1) + "\n")


if __name__ == "__main__":
    main()
