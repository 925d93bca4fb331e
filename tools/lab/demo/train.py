#!/usr/bin/env python3
"""Trains the demo LLaMA on text files, by wall clock or token budget; resumable.

    train.py --data stories.txt:0.5 --data passkey.txt:0.3:0.2 --data other.txt:0.2 --out run --minutes 80
    train.py --smoke --out /tmp/smoke     corpus, tokenizer, a few steps, export and reload, in a minute
    train.py --positions alibi ...        a model that differs from the others only in positions (positions.py)

Documents in a text file end with a line <|endoftext|>. The number after the colon is the file's share of the draws for training
windows; an optional second number, its megabytes for training the tokenizer (default 1.5). The tokenizer is only trained if
--out has none yet.
"""
import argparse
import itertools
import json
import math
import re
import signal
import time
from pathlib import Path

import numpy as np
import torch
import torch.nn.functional as F

import evaluate
import export
import make_corpus
import positions
from model import Config, Llama, rotation
from muon import Muon
from tokens import END, encode_file, load_tokenizer, read_documents, train_tokenizer


class Windows:
    """Training windows: a document from position 0 on, followed by others until the window is full.

    The first document of a window is complete unless longer than the window, so all distances are trained; later documents
    start anywhere, so every position is trained too.
    """

    def __init__(self, sources, weights, length, seed):
        self.sources, self.length = sources, length
        self.weights = np.array(weights) / sum(weights)
        self.rng = np.random.default_rng(seed)
        self.drawn = np.zeros(len(sources), dtype=np.int64)

    def draw(self):
        s = self.rng.choice(len(self.sources), p=self.weights)
        tokens, offsets = self.sources[s]
        d = self.rng.integers(len(offsets) - 1)
        return s, tokens[offsets[d]:offsets[d + 1]]

    def window(self):
        row, have, want = [], 0, self.length + 1
        while have < want:
            s, doc = self.draw()
            for _ in range(4):  # prefers a later document that fits to a cut one
                if not row or have + len(doc) <= want:
                    break
                s, doc = self.draw()
            if not row and len(doc) > want and self.rng.random() < 0.5:
                start = self.rng.integers(len(doc) - want + 1)  # also uses later parts of long documents
                doc = doc[start:]
            doc = doc[:want - have]
            row.append(doc)
            have += len(doc)
            self.drawn[s] += len(doc)
        return np.concatenate(row)

    def batch(self, n):
        ids = torch.from_numpy(np.stack([self.window() for _ in range(n)]).astype(np.int64))
        return ids[:, :-1], ids[:, 1:]


def answer_weights(x, question_end, weight):
    """1 everywhere, `weight` on the tokens right after each "...? The pass key is" of x.

    The answer has six of some hundred tokens; the filler is soon predicted perfectly.
    """
    n, answer = len(question_end), 7
    hit = (x.unfold(1, n, 1) == torch.tensor(question_end)).all(-1)
    weights = torch.ones(x.shape)
    for row, start in hit.nonzero().tolist():
        weights[row, start + n - 1:start + n - 1 + answer] = weight
    return weights


def learning_rate(progress, warmup=0.01, hold=0.35):
    """Warm-up, constant, then linear decay to zero; `progress` is the spent share of the budget."""
    if progress < warmup:
        return progress / warmup
    return 1.0 if progress < hold else max(0.0, (1 - progress) / (1 - hold))


def make_optimizers(model, lr):
    matrices = [p for n, p in model.named_parameters() if p.dim() == 2 and "embed" not in n]
    others = [p for n, p in model.named_parameters() if p.dim() != 2 or "embed" in n]
    muon = Muon(matrices, lr=lr)
    adam = torch.optim.AdamW(others, lr=lr * 0.15, betas=(0.9, 0.95), weight_decay=0.0)
    for opt in (muon, adam):
        for group in opt.param_groups:
            group["peak"] = group["lr"]
    return [muon, adam]


def parse_args():
    ap = argparse.ArgumentParser(description=__doc__.split("\n\n")[0])
    ap.add_argument("--data", action="append", default=[], metavar="FILE:SHARE[:TOKENIZER_MB]")
    ap.add_argument("--heldout", action="append", default=[], help="text file for held-out loss")
    ap.add_argument("--out", required=True, help="folder for tokenizer, checkpoint and log")
    ap.add_argument("--minutes", type=float, help="budget by wall clock")
    ap.add_argument("--tokens", type=float, help="budget in tokens")
    ap.add_argument("--length", type=int, default=512)
    ap.add_argument("--batch", type=int, default=16, help="windows per step")
    ap.add_argument("--micro-batch", type=int, default=8)
    ap.add_argument("--lr", type=float, default=0.02, help="peak rate of Muon; embeddings and norms: 0.15 times")
    ap.add_argument("--answer-weight", type=float, default=8, help="loss weight of passkey answer tokens")
    ap.add_argument("--vocab", type=int, default=2048)
    ap.add_argument("--layers", type=int, default=4)
    ap.add_argument("--positions", choices=positions.KINDS, help="train a GPT-NeoX-like model with these positions, in f32")
    ap.add_argument("--init", help="start from an exported folder's weights and tokenizer")
    ap.add_argument("--device", default="cuda" if torch.cuda.is_available() else "cpu")
    ap.add_argument("--no-compile", action="store_true")
    ap.add_argument("--save-every", type=float, default=180, help="seconds")
    ap.add_argument("--eval-every", type=float, default=300, help="seconds")
    ap.add_argument("--seed", type=int, default=1)
    ap.add_argument("--smoke", action="store_true", help="run all steps on tiny inputs")
    args = ap.parse_args()
    if args.positions and args.init:
        ap.error("--positions excludes --init; remove one")
    if args.smoke:
        return smoke_args(args)
    if not args.data or (args.minutes is None and args.tokens is None):
        ap.error("give --data and a budget (--minutes or --tokens)")
    return args


def smoke_args(args):
    """Smoke test: a budget of seconds on a generated corpus."""
    out = Path(args.out)
    out.mkdir(parents=True, exist_ok=True)
    for kind, docs in (("stories", 200), ("passkey", 100)):
        texts = itertools.islice(make_corpus.documents(kind, args.seed, "train"), docs)
        (out / f"{kind}.txt").write_text("".join(f"{t}\n{END}\n" for t in texts))
    args.data = [f"{out}/stories.txt:0.6", f"{out}/passkey.txt:0.4"]
    args.heldout = [f"{out}/stories.txt"]
    args.vocab, args.layers, args.batch, args.micro_batch = 768, 2, 2, 2
    args.tokens, args.no_compile = 25_600, True
    return args


def prepare(args, out):
    """(tokenizer, windows, held-out documents); trains the tokenizer if missing."""
    files = []
    for entry in args.data:
        path, share, megabytes = re.fullmatch(r"(.+?):([\d.]+)(?::([\d.]+))?", entry).groups()
        files.append((path, float(share), float(megabytes or 1.5)))
    model_file = out / "tokenizer.model"
    if not model_file.exists():
        docs = []
        for path, _, megabytes in files:
            part = read_documents(path)
            docs += part[:int(megabytes * 1e6 * len(part) / sum(map(len, part))) + 1]
        train_tokenizer(docs, args.vocab, out / "tokenizer")
    tokenizer = load_tokenizer(model_file)
    sources = [encode_file(path, tokenizer, out) for path, _, _ in files]
    for (path, share, _), (tokens, offsets) in zip(files, sources):
        print(f"{Path(path).name}: share {share}, {len(offsets) - 1} documents, {len(tokens)} tokens", flush=True)
    windows = Windows(sources, [share for _, share, _ in files], args.length, args.seed)
    return tokenizer, windows, {Path(p).stem: read_documents(p)[:100] for p in args.heldout}


def report(model, tokenizer, heldout, args):
    model.eval()
    parts = []
    if args.positions:
        for name, docs in heldout.items():
            tokens = tokenizer.encode("\n".join(docs))
            ppl, error = positions.perplexity(positions.chunk_losses(model, tokens, args.length))
            parts.append(f"{name} perplexity {ppl:.3f} +- {error:.3f}")
        model.train()
        return " | ".join(parts)
    for name, docs in heldout.items():
        edges = [0, 64, 128, 256, 512, 1024, 2048]
        long_enough = [e for e in edges if e <= args.length and
                       sum(len(d) > 4.5 * e for d in docs) >= 15]  # characters; few documents say little
        edges = long_enough or edges[:2]
        losses, n = evaluate.loss_by_position(model, tokenizer, docs, edges[-1], edges)
        parts.append(f"{name}({n}) " + " ".join(f"{x:.3f}" for x in losses))
    lengths = sorted({min(256, args.length), args.length})
    for length in lengths:
        table = evaluate.passkey(model, tokenizer, length, 2 if length <= 512 else 1, batch=4)
        parts.append(f"passkey@{length} {sum(table.values()) / len(table):.2f}")
    model.train()
    return " | ".join(parts)


def new_model(args, vocab_size):
    if args.positions:
        return positions.Body(positions.BodyConfig(args.positions, vocab_size, num_hidden_layers=args.layers,
                                                   max_position_embeddings=args.length))
    if args.init:
        return evaluate.load_model(args.init)[0]
    return Llama(Config(vocab_size=vocab_size, num_hidden_layers=args.layers))


def main():
    args = parse_args()
    torch.manual_seed(args.seed)
    out = Path(args.out)
    out.mkdir(parents=True, exist_ok=True)
    if args.init and not (out / "tokenizer.model").exists():
        (out / "tokenizer.model").write_bytes((Path(args.init) / "tokenizer.model").read_bytes())
    tokenizer, windows, heldout = prepare(args, out)
    model = new_model(args, tokenizer.vocab_size())
    model.train().to(args.device)
    optimizers = make_optimizers(model, args.lr)
    state = {"step": 0, "tokens": 0, "seconds": 0.0}
    checkpoint = out / "checkpoint.pt"
    if checkpoint.exists():
        saved = torch.load(checkpoint, map_location=args.device, weights_only=True)
        model.load_state_dict(saved["model"])
        for opt, s in zip(optimizers, saved["optimizers"]):
            opt.load_state_dict(s)
        state = saved["state"]
        windows.rng = np.random.default_rng([args.seed, state["step"]])
        print(f"resumed at step {state['step']}", flush=True)
    print(f"{sum(p.numel() for p in model.parameters())} parameters", flush=True)

    inputs = () if args.positions else [x.to(args.device) for x in rotation(model.c, args.length)]

    question_end = tokenizer.encode(make_corpus.QUESTION)[-5:]

    def loss_of(x, y, weights):
        each = F.cross_entropy(model(x, *inputs).float().flatten(0, 1), y.flatten(), reduction="none")
        return (each * weights.flatten()).mean()
    step_loss = loss_of if args.no_compile else torch.compile(loss_of)

    def save():
        torch.save({"model": model.state_dict(), "optimizers": [o.state_dict() for o in optimizers],
                    "state": state, "config": vars(model.c)}, checkpoint.with_suffix(".tmp"))
        checkpoint.with_suffix(".tmp").replace(checkpoint)

    last = last_save = last_eval = time.time()
    accumulate = max(1, args.batch // args.micro_batch)
    running = None
    stop = []  # Ctrl-C or kill saves first
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, lambda *_: stop.append(True))
    while not stop:
        spent = [state["seconds"] / 60 / args.minutes] if args.minutes else []
        spent += [state["tokens"] / args.tokens] if args.tokens else []
        progress = max(spent)
        if progress >= 1:
            break
        scale = learning_rate(progress)
        total = 0.0
        for _ in range(accumulate):
            x, y = windows.batch(args.micro_batch)
            weights = answer_weights(x, question_end, args.answer_weight)
            x, y, weights = (t.to(args.device) for t in (x, y, weights))
            with torch.autocast(args.device, dtype=torch.bfloat16, enabled=not args.positions):
                loss = step_loss(x, y, weights)
            (loss / accumulate).backward()
            total += loss.item() / accumulate
        for opt in optimizers:
            for group in opt.param_groups:
                group["lr"] = group["peak"] * scale
            opt.step()
            opt.zero_grad(set_to_none=True)
        now = time.time()
        state["step"] += 1
        state["tokens"] += accumulate * args.micro_batch * args.length
        state["seconds"] += now - last
        last = now
        assert math.isfinite(total), "the loss is not finite"
        running = total if running is None else 0.95 * running + 0.05 * total
        if state["step"] % 25 == 0:
            print(json.dumps({**state, "seconds": round(state["seconds"]), "loss": round(running, 4),
                              "lr": round(scale, 3)}), flush=True)
        if now - last_save > args.save_every:
            save()
            last_save = now
        if now - last_eval > args.eval_every:
            print(f"step {state['step']}: {report(model, tokenizer, heldout, args)}", flush=True)
            last_eval = time.time()
    save()
    if stop:
        return
    share = windows.drawn / max(1, windows.drawn.sum())
    print(f"done: {state}, loss {running:.4f}, token shares {share.round(3).tolist()}", flush=True)
    print(f"final: {report(model, tokenizer, heldout, args)}", flush=True)
    if args.positions in ("rope", "alibi"):  # lariat has no absolute positions
        positions.export_body(model, out / "tokenizer.model", out / "hf")
    if args.smoke and not args.positions:
        export.export(out, out / "hf")
        evaluate.load_model(out / "hf")
        print("smoke: ok")


if __name__ == "__main__":
    main()
