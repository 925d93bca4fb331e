#!/usr/bin/env python3
"""Write tests/golden/demo/greedy_200.json: what transformers says after "Once upon a time", token by token.

    python3 tests/golden/make_demo_golden.py --model configs/demo --out tests/golden/demo/greedy_200.json

The bf16 weights are computed with in float32. The smallest gap between the best and the second-best logit is
recorded too: an engine whose logits are off by less than half of it must produce the same tokens.
"""
import argparse
import json
from pathlib import Path

import torch
import transformers
from transformers import AutoModelForCausalLM, AutoTokenizer


@torch.no_grad()
def greedy(model, ids, n):
    """`n` arg-max tokens and the smallest margin; the end-of-text token is an ordinary one here."""
    margins, new = [], []
    step, cache = ids, None
    for _ in range(n):
        out = model(step, past_key_values=cache, use_cache=True)
        cache = out.past_key_values
        top = out.logits[0, -1].topk(2)
        margins.append((top.values[0] - top.values[1]).item())
        new.append(top.indices[0].item())
        step = top.indices[:1][None]
    return new, margins


def main():
    ap = argparse.ArgumentParser(description=__doc__.split("\n\n")[0])
    ap.add_argument("--model", default="configs/demo")
    ap.add_argument("--out", default="tests/golden/demo/greedy_200.json")
    ap.add_argument("--prompt", default="Once upon a time")
    ap.add_argument("--tokens", type=int, default=200)
    args = ap.parse_args()
    tokenizer = AutoTokenizer.from_pretrained(args.model)
    model = AutoModelForCausalLM.from_pretrained(args.model, dtype=torch.float32).eval()
    prompt = tokenizer(args.prompt, return_tensors="pt").input_ids
    assert prompt[0, 0] == tokenizer.bos_token_id
    tokens, margins = greedy(model, prompt, args.tokens)
    golden = {
        "prompt": args.prompt,
        "prompt_tokens": prompt[0].tolist(),
        "tokens": tokens,
        "text": tokenizer.decode(tokens),
        "smallest_margin": min(margins),
        "smallest_margin_index": margins.index(min(margins)),
        "compute": "float32 on the bfloat16 weights, end of text ignored",
        "transformers": transformers.__version__,
        "torch": torch.__version__.split("+")[0],
    }
    out = Path(args.out)
    out.parent.mkdir(parents=True, exist_ok=True)
    out.write_text(json.dumps(golden, indent=1) + "\n")
    print(f"{out}: smallest margin {min(margins):.4f} at token {golden['smallest_margin_index']}\n{golden['text']}")


if __name__ == "__main__":
    main()
