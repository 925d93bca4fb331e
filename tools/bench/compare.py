#!/usr/bin/env python3
"""lariat beside its peers: the same shape, dtype and threads, measured in turns, as one markdown table.

    tools/bench/compare.py --lariat build/lariat --config configs/tinyllama-1.1b.json --dtypes bf16,q8,q4 \\
        --peer llama.cpp=/path/llama-bench --gguf bf16=m-bf16.gguf --gguf q8=m-q8_0.gguf --gguf q4=m-q4_0.gguf

Builds and downloads nothing. A peer is a program with llama-bench's options and JSON (llama.cpp, ik_llama.cpp);
peers are optional and may be several. A peer's own options follow its path: --peer "ik=/path/llama-bench -rtr 1". Every round runs each program once, one after the other, so that what else
the machine does falls on all of them; medians are over rounds. lariat measures the machine's limits (read
bandwidth, products in registers) in the same runs. With --docs FILE the table replaces what stands between the
lines `<!-- compare -->` and `<!-- /compare -->` there (--mark: another word), and is added with them where they are
missing.
"""
import argparse
import json
import os
import platform
import shlex
import statistics
import subprocess
import sys

def fail(message):
    sys.exit(f"compare: error: {message}")


def named(values, option):
    """["a=b", ...] -> {"a": "b"}"""
    pairs = {}
    for value in values:
        name, equals, rest = value.partition("=")
        if not equals or not rest:
            fail(f"{option} takes NAME=PATH, not '{value}'")
        pairs[name] = rest
    return pairs


def run_json(command):
    done = subprocess.run(command, capture_output=True, text=True)
    if done.returncode != 0:
        fail(f"{command[0]} ended with {done.returncode}: {done.stderr.strip().splitlines()[-1:]}")
    try:
        return json.loads(done.stdout)
    except json.JSONDecodeError as error:
        fail(f"{command[0]} printed no JSON: {error}")


def lariat_once(args, dtype, depth):
    """-> {test: tokens per second}, limits"""
    command = [args.lariat, "bench", "--device", "cpu", "--json", "--quiet", "--reps", "1",
               "--threads", str(args.threads), "--prompt", str(args.prompt), "--gen", str(args.gen),
               "--depth", str(depth)]
    command += ["--model", args.model] if args.model else ["--config", args.config, "--random-weights"]
    command += ["--quantize", dtype] if dtype in ("q8", "q4") else ["--dtype", dtype]
    out = run_json(command)
    return {result["test"]: result["tok_s_median"] for result in out["results"]}, out["limits"]


def peer_once(program, gguf, args, depth):
    """llama-bench -o json: one object per test, with n_prompt, n_gen and avg_ts."""
    command = [*shlex.split(program), "-m", gguf, "-t", str(args.threads), "-p", str(args.prompt), "-n", str(args.gen),
               "-r", "1", "-o", "json"]
    if depth > 0:
        command += ["-d", str(depth)]
    return {"pp" if test["n_prompt"] > 0 else "tg": test["avg_ts"] for test in run_json(command)}


def measure(args):
    """-> {(program, dtype, depth, test): [tokens per second]}, {(dtype, name): best limit}"""
    speeds, limits = {}, {}
    for round_number in range(args.rounds):
        for dtype in args.dtypes:
            for depth in args.depths:
                results, here = lariat_once(args, dtype, depth)
                for name, value in here.items():
                    limits[dtype, name] = max(value, limits.get((dtype, name), 0))
                programs = {"lariat": results}
                for peer, program in args.peers.items():
                    if dtype in args.ggufs:
                        programs[peer] = peer_once(program, args.ggufs[dtype], args, depth)
                for program, tests in programs.items():
                    for test, speed in tests.items():
                        speeds.setdefault((program, dtype, depth, test), []).append(speed)
        print(f"compare: round {round_number + 1} of {args.rounds}", file=sys.stderr)
    return speeds, limits


def table(args, speeds, limits):
    peers = list(args.peers)
    heads = ["test", "weights", "lariat tok/s"] + [f"{peer} tok/s" for peer in peers]
    heads += [f"lariat / {peer}" for peer in peers]
    lines = ["| " + " | ".join(heads) + " |", "|" + "---|" * len(heads)]
    sizes = {"pp": args.prompt, "tg": args.gen}
    for depth in args.depths:
        for test in ("pp", "tg"):
            for dtype in args.dtypes:
                rates = speeds.get(("lariat", dtype, depth, test))
                if rates is None:
                    continue
                ours = statistics.median(rates)
                row = [f"{test}{sizes[test]}" + (f"@{depth}" if depth else ""), dtype,
                       f"{ours:.1f} ({min(rates):.1f} .. {max(rates):.1f})"]
                theirs = [speeds.get((peer, dtype, depth, test)) for peer in peers]
                row += [f"{statistics.median(t):.1f} ({min(t):.1f} .. {max(t):.1f})" if t else "-" for t in theirs]
                row += [f"{ours / statistics.median(t):.2f}" if t else "-" for t in theirs]
                lines.append("| " + " | ".join(row) + " |")
    names = {"read_gb_s": "read {:.1f} GB/s", "gemm_tflop_s": "products {:.3f} TFLOP/s"}
    measured = [f"{dtype}: " + ", ".join(names[name].format(limits[dtype, name]) for name in names)
                for dtype in args.dtypes]
    lines += ["", "Limits measured in the same runs (best): " + "; ".join(measured) + "."]
    return lines


def cpu_model():
    try:
        with open("/proc/cpuinfo", encoding="utf-8") as info:
            for line in info:
                if line.startswith("model name"):
                    return line.split(":", 1)[1].strip()
    except OSError:
        pass
    return platform.processor() or platform.machine()


def commit():
    here = os.path.dirname(os.path.abspath(__file__))
    done = subprocess.run(["git", "-C", here, "describe", "--always", "--dirty"], capture_output=True, text=True)
    return done.stdout.strip() or "unknown"


def without_folders(word):
    """NAME=/some/where/program -x 1 -> NAME=program -x 1; lariat's own paths are relative and stay."""
    name, equals, path = word.rpartition("=")
    first, space, rest = path.partition(" ")
    return name + equals + (os.path.basename(first) if os.path.isabs(first) else first) + space + rest


def report(args, speeds, limits):
    command = "tools/bench/compare.py " + " ".join(shlex.quote(without_folders(word)) for word in sys.argv[1:])
    load = os.getloadavg()[0]
    return [f"`{command}`", "",
            f"{cpu_model()}, {os.cpu_count()} cores, {args.threads} threads; commit {commit()}; medians of "
            f"{args.rounds} alternating rounds (slowest .. fastest); load average at the end {load:.1f}.",
            ""] + table(args, speeds, limits)


def write_docs(path, mark, lines):
    begin, end = f"<!-- {mark} -->", f"<!-- /{mark} -->"
    lines = [begin, *lines, end]
    text = ""
    if os.path.exists(path):
        with open(path, encoding="utf-8") as file:
            text = file.read()
    if begin in text and end in text:
        before, after = text.split(begin, 1)[0], text.split(end, 1)[1]
    else:
        before, after = text + ("\n" if text else ""), "\n"
    with open(path, "w", encoding="utf-8") as file:
        file.write(before + "\n".join(lines) + after)


def arguments():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--lariat", required=True, help="our program")
    parser.add_argument("--model", help="a checkpoint folder")
    parser.add_argument("--config", help="a config.json to build a random model from")
    parser.add_argument("--peer", action="append", default=[], metavar="NAME=PROGRAM", help="a llama-bench")
    parser.add_argument("--gguf", action="append", default=[], metavar="DTYPE=FILE", help="the peers' model")
    parser.add_argument("--dtypes", default="bf16,q8,q4", help="of f32,bf16,f16,q8,q4")
    parser.add_argument("--threads", type=int, default=os.cpu_count())
    parser.add_argument("--prompt", type=int, default=512)
    parser.add_argument("--gen", type=int, default=64)
    parser.add_argument("--depths", default="0", help="context already in the cache, comma-separated")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--mark", default="compare", help="the word of the lines that the table goes between")
    parser.add_argument("--docs", help="a markdown file to put the table into")
    args = parser.parse_args()
    if bool(args.model) == bool(args.config):
        fail("give --model DIR or --config FILE, one of them")
    if args.rounds < 1:
        fail("--rounds must be at least 1")
    args.peers, args.ggufs = named(args.peer, "--peer"), named(args.gguf, "--gguf")
    args.dtypes = args.dtypes.split(",")
    args.depths = [int(depth) for depth in args.depths.split(",")]
    return args


def main():
    args = arguments()
    for program in [args.lariat, *(shlex.split(peer)[0] for peer in args.peers.values())]:
        if not os.access(program, os.X_OK):
            fail(f"{program}: no such program; build it first")
    speeds, limits = measure(args)
    lines = report(args, speeds, limits)
    if args.docs:
        write_docs(args.docs, args.mark, lines)
    print("\n".join(lines))


if __name__ == "__main__":
    main()
