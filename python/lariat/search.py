"""Searches RoPE factors, one per pair of dimensions: python -m lariat.search --model DIR --text book.txt --ctx 16384
--minutes 60 --log search.jsonl --confirm other_book.txt --out rope.json

LongRoPE (arXiv 2402.13753) searches such factors by perplexity, with a prefill for each candidate. Here windows of the text
are prefilled once, under --base. A candidate forks their caches, re-rotates the keys and scores the windows' last --tail
tokens: an approximation (docs/reused-prefill.md). So true prefills of another text compare the best candidate with yarn and
dynamic-yarn at the end. --out is a rope_scaling of type longrope, for --rope-config, config.json and transformers.
"""

import argparse
import json
import sys
import time
from pathlib import Path

import numpy as np

import lariat

BLOCK = 64  # tokens; neighbouring tokens are not independent


def windows(model, file, ctx, count):
    """-> `count` arrays of ctx token ids, spread over the text."""
    try:
        text = Path(file).read_text("utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise lariat.Error(f"{file}: {error}; give a text in UTF-8") from error
    ids = model.tokenize(text)
    if len(ids) < ctx * count:
        raise lariat.Error(f"{file}: {len(ids)} tokens are fewer than {count} windows of {ctx}; give a longer text or less --ctx")
    return [ids[at : at + ctx] for at in np.linspace(0, len(ids) - ctx, count).astype(int)]


def prefilled(model, ids, tail, scaling):
    session = model.session(rope_scaling=scaling)
    session.append(ids[:-tail])
    return session


def reused_losses(prefixes, scaling):
    """-> losses in nats of the tails of all (session, ids), each after its re-rotated cache."""
    losses = []
    for session, ids in prefixes:
        fork = session.fork()
        fork.set_rope(scaling)
        losses.append(-fork.logprobs(ids))
    return np.concatenate(losses)


def true_losses(model, texts, tail, scaling):
    """-> losses in nats of the tails of all texts, each after its own prefill."""
    return np.concatenate([-prefilled(model, ids, tail, scaling).logprobs(ids[-tail:]) for ids in texts])


def longrope(factors, attention_factor, ctx, original):
    return {"rope_type": "longrope", "factor": ctx / original, "original_max_position_embeddings": original,
            "attention_factor": float(attention_factor), "short_factor": [1.0] * len(factors),
            "long_factor": [float(factor) for factor in factors]}  # fmt: skip


def changed(best, rng, width, ctx, original):
    """-> (factors, attention_factor): those of a random range of pairs times 2^x, or the attention factor. Factors do not fall
    with the wavelength (section 3.2 of the paper)."""
    factors, attention_factor = best
    if rng.random() < 0.15:
        return factors, attention_factor * 2 ** rng.normal(0, width / 8)
    logs = np.log2(factors)
    begin, end = sorted(rng.choice(len(logs) + 1, 2, replace=False))
    logs[begin:end] += rng.normal(0, width)
    return 2 ** np.maximum.accumulate(np.clip(logs, 0, np.log2(4 * ctx / original))), attention_factor


def read_log(file, plan):
    """-> the candidates of an earlier run of the same plan."""
    lines = []
    if file and file.exists():
        try:
            text = file.read_text("utf-8")
            lines = [json.loads(line) for line in text.splitlines() if line.endswith("}")]  # a killed run leaves half a line
        except ValueError as error:
            raise lariat.Error(f"{file}: {error}; this is no log of a search") from error
        if not lines or lines[0] != plan or not all(isinstance(line.get("loss"), float) for line in lines[1:]):
            raise lariat.Error(f"{file}: another file or a search with other options; give another --log")
        if not text.endswith("\n"):
            append(file, "")
    return lines[1:]


def append(file, line):
    with file.open("a", encoding="utf-8") as out:
        out.write(line + "\n")


def search(prefixes, start, options, known, log):
    """One step after the other until the time is over or Ctrl-C. -> the best (factors, attention_factor), interrupted"""
    best, least, width = start, np.inf, 0.5
    end, i = time.monotonic() + 60 * options.minutes, 0
    try:
        while i < len(known) or time.monotonic() < end:
            if i < len(known):
                loss, tried = known[i]["loss"], (np.array(known[i]["long_factor"]), known[i]["attention_factor"])
            else:
                rng = np.random.default_rng([options.seed, i])
                tried = changed(best, rng, width, options.ctx, options.original) if i else start
                loss = float(reused_losses(prefixes, longrope(*tried, options.ctx, options.original)).mean())
                log({"loss": loss, "attention_factor": tried[1], "long_factor": list(tried[0])})
            better = loss < least
            if better:
                best, least = tried, loss
            if i and better or i % 50 == 0:
                print(f"candidate {i}: perplexity {np.exp(loss):.4f}, best {np.exp(least):.4f}", file=sys.stderr, flush=True)
            width = float(np.clip(width * (1.5 if better else 0.9), 0.02, 1))  # the 1/5 success rule
            i += 1
    except KeyboardInterrupt:
        return best, True
    return best, False


def confirm(model, texts, tail, columns):
    """Prints each column's perplexity by true prefills, and its paired difference from the last one with a 99 % interval."""
    tail = max(tail, len(texts[0]) // 8 // BLOCK * BLOCK)  # costs little next to the prefill
    losses = {name: true_losses(model, texts, tail, scaling) for name, scaling in columns.items()}
    *_, found = losses
    for name, values in losses.items():
        gaps = (losses[found] - values).reshape(-1, BLOCK).mean(axis=1)
        n = len(gaps) - 1
        error = (2.576 + 4.92 / n) * gaps.std(ddof=1) / np.sqrt(n + 1)  # Student's t, to 1/n
        gap = "" if name == found else f"; {found} minus {name}: {gaps.mean():+.4f} ± {error:.4f} nats (99 %)"
        print(f"{name}: perplexity {np.exp(values.mean()):.4f}{gap}")


def parse(words):
    parser = argparse.ArgumentParser(prog="lariat.search", description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--model", required=True, help="checkpoint folder or GGUF file")
    parser.add_argument("--text", required=True, help="text of the search")
    parser.add_argument("--confirm", required=True, help="another text, to compare the result with yarn and dynamic-yarn")
    parser.add_argument("--out", required=True, type=Path, help="new JSON file for the result")
    parser.add_argument("--ctx", required=True, type=int, help="tokens of a window")
    parser.add_argument("--tail", type=int, default=512, help=f"scored tokens of a window, a multiple of {BLOCK} (512)")
    parser.add_argument("--windows", type=int, default=4, help="windows of the text (4)")
    parser.add_argument("--confirm-windows", type=int, help="windows of the other text (as many)")
    parser.add_argument("--minutes", type=float, default=60, help="time of the search, without prefills (60)")
    parser.add_argument("--base", default="dynamic-yarn", help="scaling of the prefill, and first candidate (dynamic-yarn)")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--log", type=Path, help="keep candidates here; the same command continues from it")
    options = parser.parse_args(words)
    if options.out.exists():
        parser.error(f"--out {options.out} exists; give another name")
    options.confirm_windows = options.confirm_windows or options.windows
    fits = options.tail >= 2 * BLOCK and options.tail % BLOCK == 0 and options.ctx > options.tail
    if not fits or min(options.windows, options.confirm_windows) < 1:
        parser.error(f"--tail must be a multiple of {BLOCK} from {2 * BLOCK}, less than --ctx; --windows at least 1")
    return options


def main(words=None):
    options = parse(words)
    model = lariat.open(options.model)
    scaling = model.session(rope_scaling=options.base).rope()
    options.original = scaling.get("original_max_position_embeddings", model.facts["context"])
    if options.ctx <= options.original:
        raise lariat.Error(f"--ctx {options.ctx}: the model is trained for {options.original} tokens; nothing is to be searched")
    others = windows(model, options.confirm, options.ctx, options.confirm_windows)
    keys = ("model", "text", "ctx", "tail", "windows", "base", "seed")
    plan = {"lariat_search": 1} | {key: getattr(options, key) for key in keys}
    known = read_log(options.log, plan)
    texts = windows(model, options.text, options.ctx, options.windows)
    prefixes = [(prefilled(model, ids, options.tail, options.base), ids[-options.tail :]) for ids in texts]
    plain, scaled = model.session(rope_scaling="none").rope(), prefixes[0][0].rope()
    start = (np.maximum(plain["inv_freq"] / scaled["inv_freq"], 1), scaled["attention_factor"])

    def log(line):
        if options.log:
            append(options.log, json.dumps(line))

    if options.log and not options.log.exists():
        log(plan)
    (factors, attention_factor), interrupted = search(prefixes, start, options, known, log)
    found = longrope(factors, attention_factor, options.ctx, options.original)
    with options.out.open("x", encoding="utf-8") as file:
        json.dump({"rope_scaling": found}, file, indent=1)
    if interrupted:
        print(f"interrupted; {options.out} is not confirmed", file=sys.stderr)
        return 130
    print("pair: factor of " + options.base + ", found\n" + "\n".join(f"{i}: {a:.3f}, {b:.3f}" for i, (a, b) in
                                                                     enumerate(zip(start[0], factors, strict=True))))  # fmt: skip
    yarn = f"yarn/factor={options.ctx / options.original:g}"
    confirm(model, others, options.tail, {"none": "none", yarn: yarn, "dynamic-yarn": "dynamic-yarn", "found": found})
    return 0


if __name__ == "__main__":
    try:
        sys.exit(main())
    except KeyboardInterrupt:
        print("lariat.search: interrupted", file=sys.stderr)
        sys.exit(130)
    except (lariat.Error, OSError) as error:
        sys.exit(f"lariat.search: error: {error}")
