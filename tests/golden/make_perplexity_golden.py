"""Perplexity of shared/models/stories260K on the head of shared/text/tinystories/train.txt, by two methods.

    python tests/golden/make_perplexity_golden.py [--shared ../shared]      (default: beside the repository)

Writes tests/golden/perplexity.json; its "definitions" say in words what each number is. Float32 model, eager
attention; losses and sums in float64 from the float32 logits. Tokens come from sentencepiece and tokenizer.model.
"""

import argparse
import copy
import json
import math
from pathlib import Path

import sentencepiece
import torch
from transformers import AutoConfig, AutoModelForCausalLM

import tiny_models as tiny

TOKENS = 20735  # 81 * 256 - 1: the sliding windows below end exactly at the last token (but for stride 255)
MODEL = "models/stories260K"
TEXT = "text/tinystories/train.txt"
YARN = {"rope_type": "yarn", "factor": 2.0, "original_max_position_embeddings": 512}
DYNAMIC = {"rope_type": "dynamic", "factor": 2.0}

DEFINITIONS = {
    "text": "the file as one string, encoded in one call without BOS or EOS; <|endoftext|> and line feeds are text. "
            "t[0..tokens-1] are the first `text_tokens` ids of the result.",
    "nll": "the sum over all scored tokens of -ln p(token | what precedes it in its window), in nats",
    "tokens": "the number n of scored tokens",
    "ppl": "exp(nll / n)",
    "stderr": "ppl * sqrt((mean(loss^2) - mean(loss)^2) / (n - 1))",
    "sliding": "a window is BOS and up to ctx - 1 tokens: ctx counts the BOS. Window k holds t[k*s .. min(k*s + ctx - 1, "
               "text_tokens) - 1] with s = min(stride, ctx - 1). The first window scores all its tokens (the BOS is not "
               "one); each later window those that no earlier window held, the last s of a full one. The last window is "
               "the one that reaches the end of the text, and may be shorter. Every token is scored once. "
               "A window is run in one forward pass of its whole length, which a dynamic scaling sees.",
    "chunks": "u = BOS, t[0], t[1], ... is cut into disjoint chunks of ctx tokens; a shorter rest is dropped. The first "
              "token of every chunk is replaced by BOS. Scored are the chunk's positions ctx/2 + 1 .. ctx - 1, hence "
              "ctx - ctx/2 - 1 tokens per chunk (integer division), as llama.cpp does.",
    "config": "keys to override in the model's config.json",
}  # fmt: skip

SCALINGS = {
    "none": {},
    "yarn 2": {"max_position_embeddings": 1024, "rope_scaling": YARN},
    "dynamic 2": {"rope_scaling": DYNAMIC},
}

# method, scaling, ctx, stride (None for chunks)
RUNS = [("sliding", scaling, ctx, stride) for scaling in ("none", "yarn 2") for ctx in (256, 512) for stride in (256, 128)]
RUNS += [("sliding", scaling, 1024, 256) for scaling in ("none", "yarn 2", "dynamic 2")]
RUNS += [("chunks", scaling, ctx, None) for scaling in ("none", "yarn 2") for ctx in (256, 512)]
RUNS += [("chunks", "yarn 2", 1024, None)]


def load(folder, overrides):
    settings = json.loads((folder / "config.json").read_text()) | copy.deepcopy(overrides)
    config = AutoConfig.for_model(**settings)
    return AutoModelForCausalLM.from_pretrained(folder, config=config, dtype=torch.float32, attn_implementation="eager")


def losses(model, window, first):
    """-ln p of window[first:] given all before, float64."""
    logits = tiny.one_shot(model, window).double()[first - 1 : -1]
    return torch.nn.functional.cross_entropy(logits, torch.tensor(window[first:]), reduction="none")


def sliding(model, tokens, bos, ctx, stride):
    scored = 0  # tokens[:scored] are done
    parts = []
    for begin in range(0, len(tokens), min(stride, ctx - 1)):
        end = min(begin + ctx - 1, len(tokens))
        parts.append(losses(model, [bos, *tokens[begin:end]], 1 + scored - begin))
        scored = end
        if end == len(tokens):
            break
    return torch.cat(parts)


def chunks(model, tokens, bos, ctx):
    tokens = [bos, *tokens]
    starts = range(0, len(tokens) - ctx + 1, ctx)
    return torch.cat([losses(model, [bos, *tokens[begin + 1 : begin + ctx]], ctx // 2 + 1) for begin in starts])


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--shared", type=Path, default=tiny.GOLDEN.parents[1] / "../shared")
    shared = parser.parse_args().shared
    processor = sentencepiece.SentencePieceProcessor(model_file=str(shared / MODEL / "tokenizer.model"))
    tokens = processor.encode((shared / TEXT).read_bytes().decode())[:TOKENS]
    results = []
    for method, scaling, ctx, stride in RUNS:
        model = load(shared / MODEL, SCALINGS[scaling])
        if method == "sliding":
            loss = sliding(model, tokens, processor.bos_id(), ctx, stride)
            assert len(loss) == len(tokens)
        else:
            loss = chunks(model, tokens, processor.bos_id(), ctx)
        n, ppl = len(loss), math.exp(loss.mean())
        variance = (loss**2).mean() - loss.mean() ** 2
        results.append({"method": method, "scaling": scaling, "config": SCALINGS[scaling], "ctx": ctx, "stride": stride,
                        "tokens": n, "nll": loss.sum().item(), "ppl": ppl,
                        "stderr": ppl * math.sqrt(variance / (n - 1))})  # fmt: skip
        print(results[-1])
    tiny.write_json(tiny.GOLDEN / "perplexity.json", {
        "made_with": tiny.VERSIONS, "model": MODEL, "text": TEXT, "text_tokens": TOKENS, "bos": processor.bos_id(),
        "first_tokens": tokens[:16], "last_tokens": tokens[-16:], "definitions": DEFINITIONS, "results": results,
    })  # fmt: skip


if __name__ == "__main__":
    main()
