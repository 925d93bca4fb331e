#!/usr/bin/env python3
"""Compares lariat with other engines: same shape, dtype and threads, in alternating runs, as one Markdown table.

    tools/lab/peers/compare.py --lariat build/lariat --config configs/tinyllama-1.1b.json --dtypes bf16,q8,q4 \\
        --peer llama.cpp=/path/llama-bench --gguf bf16=m-bf16.gguf --gguf q8=m-q8_0.gguf --gguf q4=m-q4_0.gguf

Without --config and --model, lariat opens the GGUF files too: --dtypes Q4_K_M --gguf Q4_K_M=m-q4_k_m.gguf.

Builds and downloads nothing. A peer is a program with llama-bench's options and JSON (llama.cpp, ik_llama.cpp);
peers are optional and may be several. Options of a peer follow its path: --peer "ik=/path/llama-bench -rtr 1".
--transformers PYTHON (with torch and transformers) adds transformers (transformers_bench.py) for float weights.
Each round runs every program once, so other load on the machine affects all of them; medians are over rounds. A failed peer is
not run again; the table shows its exit code. lariat measures the machine's limits (read bandwidth, in-register GEMM) in the same
runs.

The two cores of a virtual machine may share a core complex and its memory path, or not, and the host may change this at any time.
With --probe build/core_hop, the placement is tested before and after each run; a run with a change is repeated, and the table has
one row per placement.

With --docs FILE the table replaces the lines between `<!-- compare -->` and `<!-- /compare -->` (--mark: another word); missing
marks are appended.
"""
import argparse
import json
import os
import platform
import shlex
import signal
import statistics
import subprocess
import sys

sys.path.insert(0, os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
import pages  # noqa: E402

FLOATS = ("f32", "bf16", "f16")
NEAR_NS = 80  # a hop within a core complex takes 15 to 30 ns, else 150
TRIES = 4  # attempts per run, if the cores move during it


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


class Died(Exception):
    """Exit of a program (its exit code, or the signal that killed it), and a line about it."""


def run_json(command):
    done = subprocess.run(command, capture_output=True, text=True)
    if done.returncode != 0:
        how = signal.Signals(-done.returncode).name if done.returncode < 0 else f"exit {done.returncode}"
        raise Died(how, f"{command[0]} ended with {done.returncode}: {done.stderr.strip().splitlines()[-1:]}")
    try:
        return json.loads(done.stdout)
    except json.JSONDecodeError as error:
        fail(f"{command[0]} printed no JSON: {error}")


def lariat_once(args, dtype, depth):
    """-> {test: tokens per second}, limits"""
    command = [args.lariat, "bench", "--device", "cpu", "--json", "--quiet", "--reps", "1",
               "--threads", str(args.threads), "--prompt", str(args.prompt), "--gen", str(args.gen),
               "--depth", str(depth)]
    if args.config:
        command += ["--config", args.config, "--random-weights"]
    else:
        command += ["--model", args.model or args.ggufs[dtype]]
    if args.config or args.model:
        command += ["--quantize", dtype] if dtype in ("q8", "q4") else ["--dtype", dtype]
    out = run_json(command)
    return {result["test"]: result["tok_s_median"] for result in out["results"]}, out["limits"]


def peer_once(program, model, args, depth):
    """llama-bench -o json: one object per test, with n_prompt, n_gen and avg_ts; no limits."""
    def run(prompt, gen, *depth_options):
        return run_json([*shlex.split(program), "-m", model, "-t", str(args.threads), "-p", str(prompt), "-n", str(gen),
                         "-r", "1", "-o", "json", *depth_options])

    try:
        tests = run(args.prompt, args.gen, *(["-d", str(depth)] if depth > 0 else []))
    except Died as death:
        # ik_llama.cpp only has -gp, which counts decoding after a prompt.
        if depth == 0 or args.prompt > 0 or "argument: -d" not in death.args[1]:
            raise
        return {"tg": run(0, 0, "-gp", f"{depth},{args.gen}")[0]["avg_ts"]}, {}
    return {"pp" if test["n_prompt"] > 0 else "tg": test["avg_ts"] for test in tests}, {}


def programs(args, dtype, depth):
    """-> {name: function for one run} of all programs that support these weights"""
    runs = {"lariat": lambda: lariat_once(args, dtype, depth)}
    for name, program in args.peers.items():
        if name == "transformers" and dtype in FLOATS:
            runs[name] = lambda p=program: peer_once(f"{p} --dtype {dtype}", args.model or args.config, args, depth)
        elif name != "transformers" and dtype in args.ggufs:
            runs[name] = lambda p=program: peer_once(p, args.ggufs[dtype], args, depth)
    return runs


def place(args):
    """Placement of the two cores: "near", "far", or "" without a probe."""
    if not args.probe:
        return ""
    done = subprocess.run([args.probe], capture_output=True, text=True)
    if done.returncode != 0:
        fail(f"{args.probe}: {done.stderr.strip()}")
    return "near" if float(done.stdout) < NEAR_NS else "far"


def in_one_place(args, run):
    """-> result of run() and the placement of the cores; "moved" if they never stayed."""
    for _ in range(TRIES):
        before = place(args)
        result = run()
        if place(args) == before:
            return result, before
    return result, "moved"


def measure(args):
    """-> {(program, dtype, depth, test, placement): [tokens per second]}, {(dtype, name, placement): best limit},
    {(program, dtype, depth): how it died}"""
    speeds, limits, deaths = {}, {}, {}

    def keep(program, dtype, depth, run):
        (tests, measured), where = in_one_place(args, run)
        for name, value in measured.items():
            limits[dtype, name, where] = max(value, limits.get((dtype, name, where), 0))
        for test, speed in tests.items():
            speeds.setdefault((program, dtype, depth, test, where), []).append(speed)

    for round_number in range(args.rounds):
        for dtype in args.dtypes:
            for depth in args.depths:
                for name, run in programs(args, dtype, depth).items():
                    try:
                        if (name, dtype, depth) not in deaths:
                            keep(name, dtype, depth, run)
                    except Died as death:
                        how, line = death.args
                        if name == "lariat":
                            fail(line)
                        print(f"compare: {name}: {line}", file=sys.stderr)
                        deaths[name, dtype, depth] = how
        print(f"compare: round {round_number + 1} of {args.rounds}", file=sys.stderr)
    return speeds, limits, deaths


def cell(args, rates, death):
    if not rates:
        return death or "-"
    counted = f"; {len(rates)}" if args.probe else ""
    died = f", then {death}" if death else ""
    return f"{statistics.median(rates):.1f} ({min(rates):.1f} .. {max(rates):.1f}{counted}){died}"


def row(args, speeds, deaths, key, name):
    """Cells of a row; None without any figure. key: (dtype, depth, test, placement)"""
    died = [deaths.get((program, *key[:2])) for program in ("lariat", *args.peers)]
    ours, *theirs = [speeds.get((program, *key)) for program in ("lariat", *args.peers)]
    if not ours and not any(theirs):
        return None
    cells = [name, key[0]] + ([key[3]] if args.probe else []) + [cell(args, t, d) for t, d in zip((ours, *theirs), died)]
    return cells + [f"{statistics.median(ours) / statistics.median(t):.2f}" if ours and t else None for t in theirs]


def table(args, speeds, limits, deaths):
    heads = ["test", "weights"] + (["cores"] if args.probe else []) + ["lariat tok/s"]
    heads += [f"{peer} tok/s" for peer in args.peers] + [f"lariat / {peer}" for peer in args.peers]
    rows, sizes = [], {"pp": args.prompt, "tg": args.gen}
    places = ["near", "far", "moved"] if args.probe else [""]
    for depth in args.depths:
        for test in ("pp", "tg"):
            for dtype in args.dtypes:
                for where in places:
                    name = f"{test}{sizes[test]}" + (f"@{depth}" if depth else "")
                    cells = row(args, speeds, deaths, (dtype, depth, test, where), name)
                    rows += [cells] if cells else []
    names = {"read_gb_s": "read {:.1f} GB/s", "gemm_tflop_s": "products {:.3f} TFLOP/s"}
    measured = []
    for dtype in args.dtypes:
        for where in places:
            if (dtype, "read_gb_s", where) in limits:
                rates = ", ".join(names[name].format(limits[dtype, name, where]) for name in names)
                measured.append(f"{dtype}{' ' + where if where else ''}: {rates}")
    return [pages.table(heads, rows), "", "Limits measured in the same runs (best): " + "; ".join(measured) + "."]


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
    """NAME=/some/where/program -x 1 -> NAME=program -x 1; lariat's own relative paths stay."""
    name, equals, path = word.rpartition("=")
    first, space, rest = path.partition(" ")
    return name + equals + (os.path.basename(first) if os.path.isabs(first) else first) + space + rest


def report(args, speeds, limits, deaths):
    command = "tools/lab/peers/compare.py " + " ".join(shlex.quote(without_folders(word)) for word in sys.argv[1:])
    load = os.getloadavg()[0]
    return [f"`{command}`", "",
            f"{cpu_model()}, {os.cpu_count()} cores, {args.threads} threads; commit {commit()}; medians of "
            f"{args.rounds} alternating rounds (slowest .. fastest{'; how many' if args.probe else ''}); load average at the end {load:.1f}.",
            ""] + table(args, speeds, limits, deaths)


def arguments():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--lariat", required=True, help="our program")
    parser.add_argument("--model", help="a checkpoint folder")
    parser.add_argument("--config", help="config.json of a random model")
    parser.add_argument("--peer", action="append", default=[], metavar="NAME=PROGRAM", help="a llama-bench")
    parser.add_argument("--transformers", metavar="PYTHON", help="Python with transformers, to compare with it")
    parser.add_argument("--gguf", action="append", default=[], metavar="DTYPE=FILE",
                        help="the peers' model; without --model and --config also lariat's")
    parser.add_argument("--dtypes", default="bf16,q8,q4", help="of f32,bf16,f16,q8,q4; of GGUFs any names")
    parser.add_argument("--threads", type=int, default=os.cpu_count())
    parser.add_argument("--prompt", type=int, default=512)
    parser.add_argument("--gen", type=int, default=64)
    parser.add_argument("--depths", default="0", help="context already in the cache, comma-separated")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--probe", help="build/core_hop: separate runs with near and far cores")
    parser.add_argument("--mark", default="compare", help="name of the table's marks")
    parser.add_argument("--docs", help="Markdown file for the table")
    args = parser.parse_args()
    if args.model and args.config:
        fail("give --model DIR or --config FILE, not both")
    if args.rounds < 1:
        fail("--rounds must be at least 1")
    args.peers, args.ggufs = named(args.peer, "--peer"), named(args.gguf, "--gguf")
    if args.transformers:
        script = os.path.join(os.path.dirname(os.path.abspath(__file__)), "transformers_bench.py")
        args.peers["transformers"] = f"{shlex.quote(args.transformers)} {shlex.quote(script)}"
    args.dtypes = args.dtypes.split(",")
    if not args.model and not args.config and not set(args.dtypes) <= set(args.ggufs):
        fail("give --model DIR or --config FILE, or --gguf for each of --dtypes")
    args.depths = [int(depth) for depth in args.depths.split(",")]
    return args


def main():
    args = arguments()
    for program in [args.lariat, *(shlex.split(peer)[0] for peer in args.peers.values()),
                    *([args.probe] if args.probe else [])]:
        if not os.access(program, os.X_OK):
            fail(f"{program}: no such program; build it first")
    lines = report(args, *measure(args))
    if args.docs:
        pages.replace(args.docs, args.mark, "\n".join(lines))
    print("\n".join(lines))


if __name__ == "__main__":
    main()
