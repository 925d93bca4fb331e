#!/usr/bin/env python3
"""Start-up time and peak memory of lariat vs the time of reading the checkpoint once.

    tools/lab/peers/startup.py --lariat build/lariat --config configs/tinyllama-1.1b.json --tokenizer configs/demo \\
        --checkpoint DIR --prompts 1,4096 --docs docs/performance.md

DIR becomes a checkpoint folder of that config with random bf16 weights unless it exists; an existing folder is used unchanged.
"Cold": the file was dropped from the page cache before (posix_fadvise); "warm": it is cached. Medians are over --rounds. Peak
memory is the largest resident set of the process, mapped file included. With --docs FILE the tables replace the lines between
`<!-- startup -->` and `<!-- /startup -->`.
"""
import argparse
import json
import os
import statistics
import sys
import time

sys.path.insert(0, os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
import pages  # noqa: E402
from random_checkpoint import make_checkpoint  # noqa: E402


def fail(message):
    sys.exit(f"startup: error: {message}")


def drop_pages(path):
    with open(path, "rb") as file:
        os.fsync(file.fileno())
        os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)


def read_once(path):
    """Seconds to read the whole file."""
    start = time.perf_counter()
    with open(path, "rb", buffering=0) as file:
        into = memoryview(bytearray(4 << 20))
        while file.readinto(into) > 0:
            pass
    return time.perf_counter() - start


def run(args, prompt, new_tokens):
    """-> seconds from exec to exit, peak resident bytes, lariat's JSON"""
    with open(os.path.join(args.checkpoint, "prompt.txt"), "w", encoding="utf-8") as file:
        file.write(prompt)
    command = [args.lariat, "generate", "--model", args.checkpoint, "--prompt-file", file.name, "--max-new-tokens",
               str(new_tokens), "--ignore-eos", "--json", "--quiet", "--device", "cpu", "--threads", str(args.threads)]
    out = os.path.join(args.checkpoint, "out.json")
    start = time.perf_counter()
    pid = os.posix_spawn(args.lariat, command, os.environ,
                         file_actions=[(os.POSIX_SPAWN_OPEN, 1, out, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o644)])
    _, status, usage = os.wait4(pid, 0)
    seconds = time.perf_counter() - start
    if status != 0:
        fail(f"{' '.join(command)} failed")
    with open(out, encoding="utf-8") as file:
        return seconds, usage.ru_maxrss * 1024, json.load(file)


def median_of(rounds, measure):
    return statistics.median(measure() for _ in range(rounds))


def startup_table(args, weights):
    size = os.path.getsize(weights)
    lines = [f"A file of {size / 1e9:.2f} GB:", "", "| | cold | warm |", "|---|---|---|"]
    reads, firsts = [], []
    for cold in (True, False):
        def measure(action, cold=cold):
            if cold:
                drop_pages(weights)
            return action()
        if not cold:
            read_once(weights)
        reads.append(median_of(args.rounds, lambda: measure(lambda: read_once(weights))))
        firsts.append(median_of(args.rounds, lambda: measure(lambda: run(args, "a", 1)[0])))
    lines.append("| reading it once | " + " | ".join(f"{s:.2f} s, {size / s / 1e9:.1f} GB/s" for s in reads) + " |")
    lines.append("| start to end of a run that writes one token | " + " | ".join(f"{s:.2f} s" for s in firsts) + " |")
    lines.append("| ratio | " + " | ".join(f"{f / r:.2f}" for f, r in zip(firsts, reads)) + " |")
    return lines


def memory_table(args, weights):
    with open(os.path.join(args.checkpoint, "config.json"), encoding="utf-8") as file:
        config = json.load(file)
    heads = config["num_attention_heads"]
    head_dim = config.get("head_dim") or config["hidden_size"] // heads
    per_position = config["num_hidden_layers"] * config.get("num_key_value_heads", heads) * head_dim * 2 * 2
    size = os.path.getsize(weights)
    lines = ["| prompt | model | KV cache | peak memory | above both |", "|---|---|---|---|---|"]
    for tokens in args.prompts:
        _, peak, out = run(args, "a " * tokens, 8)
        cache = (out["prompt_tokens"] + 8) * per_position
        above = peak - size - cache
        lines.append(f"| {out['prompt_tokens']} tokens | {size / 1e6:.0f} MB | {cache / 1e6:.0f} MB | {peak / 1e6:.0f} MB "
                     f"| {above / 1e6:+.0f} MB ({100 * above / (size + cache):+.1f} %) |")
    return lines


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--lariat", required=True, help="our program")
    parser.add_argument("--config", required=True, help="config.json of a LLaMA model")
    parser.add_argument("--tokenizer", required=True, help="folder with tokenizer files, not larger than the vocabulary")
    parser.add_argument("--checkpoint", required=True, help="folder to create, or to use if it exists")
    parser.add_argument("--prompts", default="1,4096", help="prompt lengths for the peak memory, comma-separated")
    parser.add_argument("--threads", type=int, default=os.cpu_count())
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--docs", help="Markdown file for the tables")
    args = parser.parse_args()
    args.prompts = [int(n) for n in args.prompts.split(",")]
    if not os.access(args.lariat, os.X_OK):
        fail(f"{args.lariat}: no such program; build it first")
    args.checkpoint = args.checkpoint.rstrip("/")
    if not os.path.isdir(args.checkpoint):
        make_checkpoint(args.checkpoint, args.config, args.tokenizer)
    weights = os.path.join(args.checkpoint, "model.safetensors")
    lines = startup_table(args, weights) + [""] + memory_table(args, weights)
    if args.docs:
        pages.replace(args.docs, "startup", "\n".join(lines))
    print("\n".join(lines))


if __name__ == "__main__":
    main()
