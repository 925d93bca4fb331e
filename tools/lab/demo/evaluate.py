#!/usr/bin/env python3
"""Measure the demo model in PyTorch: passkey retrieval by length and depth, perplexity by position.

    evaluate.py --model configs/demo --passkey 256,512 --trials 10
    evaluate.py --model configs/demo --perplexity stories-heldout.txt
"""
import argparse
import json
import random
from pathlib import Path

import torch
import torch.nn.functional as F

from make_corpus import FILLER, INFORMATION, QUESTION, TASK
from model import Config, Llama, rotation
from tokens import BOS, EOS, load_tokenizer, read_documents

DEPTHS = [i / 10 for i in range(11)]


def on_device(model, *tensors):
    device = next(model.parameters()).device
    return [t.to(device) for t in tensors]


def passkey_prompt(tokenizer, length, depth, key):
    """(prompt ids, answer ids) of at most `length` tokens together with BOS; filler in whole sentences."""
    def build(sentences):
        before = round(sentences * depth)
        loop = [FILLER[i % len(FILLER)] for i in range(sentences)]
        parts = [TASK, " ".join(loop[:before]), INFORMATION.format(key=key), " ".join(loop[before:])]
        return "\n".join([p for p in parts if p] + [QUESTION])

    def size(sentences):
        return len(tokenizer.encode(build(sentences))) + 1

    # Starts from an estimate, then finds the largest number of sentences that fits.
    per = max(1.0, (size(50) - size(0)) / 50)
    n = max(0, int((length - size(0)) / per))
    while n > 0 and size(n) > length:
        n -= 1
    while size(n + 1) <= length:
        n += 1
    prompt = build(n)
    ids = tokenizer.encode(prompt)
    full = tokenizer.encode(f"{prompt} {key}.")
    assert full[:len(ids)] == ids, "the prompt must be a token prefix of prompt + answer"
    return [BOS] + ids, full[len(ids):-1]


@torch.no_grad()
def passkey(model, tokenizer, length, trials, depths=DEPTHS, seed=0, batch=8):
    """{depth: share found}. Greedy decoding finds the key if every key token is the argmax after the true previous tokens
    and the next token is no digit, so one forward pass decides."""
    rng = random.Random(f"passkey/{seed}/{length}")
    jobs = [(d, *passkey_prompt(tokenizer, length, d, rng.randint(1, 50000))) for d in depths for _ in range(trials)]
    digits = {tokenizer.piece_to_id(str(i)) for i in range(10)}
    found = {d: 0 for d in depths}
    for start in range(0, len(jobs), batch):
        part = jobs[start:start + batch]
        width = max(len(p) + len(a) for _, p, a in part)
        ids = torch.full((len(part), width), EOS)
        for row, (_, p, a) in enumerate(part):
            ids[row, :len(p) + len(a)] = torch.tensor(p + a)
        best = model(*on_device(model, ids, *rotation(model.c, width))).argmax(-1)
        for row, (depth, p, a) in enumerate(part):
            got = best[row, len(p) - 1:len(p) + len(a)].tolist()
            found[depth] += got[:-1] == a and got[-1] not in digits
    return {d: n / trials for d, n in found.items()}


@torch.no_grad()
def loss_by_position(model, tokenizer, documents, length, edges, batch=8):
    """Mean loss of tokens at positions [edges[i], edges[i+1]), over documents of >= length tokens."""
    rows = []
    for doc in documents:
        ids = [BOS] + tokenizer.encode(doc)
        if len(ids) > length:
            rows.append(ids[:length + 1])
    if not rows:
        return [float("nan")] * (len(edges) - 1), 0
    rows = torch.tensor(rows)
    cos, sin = rotation(model.c, length)
    losses = []
    for part in rows.split(batch):
        logits = model(*on_device(model, part[:, :-1], cos, sin)).cpu()
        losses.append(F.cross_entropy(logits.transpose(1, 2), part[:, 1:], reduction="none"))
    per_position = torch.cat(losses).mean(0)
    return [per_position[a:b].mean().item() for a, b in zip(edges, edges[1:])], len(rows)


@torch.no_grad()
def loss_by_context(model, tokenizer, documents, length, contexts, scored=64, batch=8):
    """Mean loss of the last `scored` of the first `length` tokens, with growing context."""
    rows = []
    for doc in documents:
        ids = tokenizer.encode(doc)
        if len(ids) >= length:
            rows.append(ids[:length])
    rows = torch.tensor(rows)
    means = []
    for context in contexts:
        window = torch.cat([torch.full((len(rows), 1), BOS), rows[:, length - scored - context:]], dim=1)
        cos, sin = rotation(model.c, window.shape[1] - 1)
        losses = []
        for part in window.split(batch):
            logits = model(*on_device(model, part[:, :-1], cos, sin)).cpu()[:, -scored:]
            losses.append(F.cross_entropy(logits.transpose(1, 2), part[:, -scored:], reduction="none"))
        means.append(torch.cat(losses).mean().item())
    return means, len(rows)


def load_model(folder):
    """The exported folder as a float32 model (its weights are the bf16 values)."""
    from safetensors.torch import load_file
    folder = Path(folder)
    hf = json.loads((folder / "config.json").read_text())
    model = Llama(Config(**{k: hf[k] for k in Config.__dataclass_fields__ if k in hf}))
    state = load_file(folder / "model.safetensors")
    model.load_state_dict({k.removeprefix("model."): v.float() for k, v in state.items()})
    return model.eval(), load_tokenizer(folder / "tokenizer.model")


def main():
    ap = argparse.ArgumentParser(description=__doc__.split("\n\n")[0])
    ap.add_argument("--model", required=True)
    ap.add_argument("--passkey", help="lengths, comma separated")
    ap.add_argument("--trials", type=int, default=10)
    ap.add_argument("--perplexity", help="text file with documents")
    ap.add_argument("--length", type=int, default=512)
    ap.add_argument("--documents", type=int, default=1000, help="maximum number of documents")
    ap.add_argument("--seed", type=int, default=0)
    args = ap.parse_args()
    model, tokenizer = load_model(args.model)
    for length in [int(n) for n in (args.passkey or "").split(",") if n]:
        table = passkey(model, tokenizer, length, args.trials, seed=args.seed)
        mean = sum(table.values()) / len(table)
        print(f"passkey length {length}: {mean:.3f}  " + " ".join(f"{d:g}:{v:.1f}" for d, v in table.items()), flush=True)
    if args.perplexity:
        docs = read_documents(args.perplexity)[:args.documents]
        contexts = [c for c in (0, 16, 32, 64, 128, 192, 256, 320, 384, 447) if c <= args.length - 65]
        losses, n = loss_by_context(model, tokenizer, docs, args.length - 1, contexts)
        print(f"perplexity of the same 64 tokens at the end of {n} documents' first {args.length - 1}, by context: "
              + " ".join(f"{c}:{torch.tensor(x).exp():.3f}" for c, x in zip(contexts, losses)), flush=True)
        edges = [e for e in (0, 32, 64, 128, 256, 512, 1024, 1536, 2048) if e <= args.length]
        losses, n = loss_by_position(model, tokenizer, docs, args.length, edges)
        print(f"perplexity, {n} documents of {args.length} tokens: "
              + " ".join(f"[{a},{b}):{torch.tensor(x).exp():.3f}" for a, b, x in zip(edges, edges[1:], losses)))


if __name__ == "__main__":
    main()
