#!/usr/bin/python3
"""Mutation tests: applies small changes to a source file, one at a time, and lists the changes that no test detects.

    scripts/mutate.py FILE...            the files of SUITES below, as models/spec/rope.cpp
    scripts/mutate.py --sample N FILE    only N mutants per file, drawn with a printed seed (--seed S)
    scripts/mutate.py --again FILE...    only the survivors of the last run, for new tests

All mutants of a file are compiled at once, each with a switch; a run of a test program enables one of them:
`LARIAT_MUTANT=17 build-mutate/build/models_test` runs mutant 17 by hand. A mutant is killed if a test suite of the file fails,
crashes or hangs. Only suites that reach a mutant run it, the fastest first. Survivors are printed:

    models/spec/rope_yarn.cpp:26: low == high -> low != high (mutant 34): survives

A row of tests/mutants.tsv explains a survivor that no test can detect: file, line, mutation and reason, separated by tabs. Where
equal lines or one line have a mutation several times, " #2" follows that of the second. Fails if a survivor has no row, or a
row fits no survivor.

scripts/mutants.py lists the mutations; constant expressions and mutants that do not compile are skipped.
Works in build-mutate/ (a copy of the sources and a build); needs python3-clang.
"""
import argparse
import collections
import concurrent.futures
import json
import os
import random
import re
import resource
import shlex
import shutil
import subprocess
import sys
import time
from pathlib import Path

from mutants import PRELUDE, Finder, render

ROOT = Path(__file__).resolve().parent.parent
COPY = ROOT / "build-mutate"
BUILD = COPY / "build"
EXPLAINED = ROOT / "tests/mutants.tsv"
METHODS = [("engine_test", "*Method*:*Position*:FarFrequencies*:Holes*")]
RUNNING = METHODS + [("engine_test", "Session*:Batch*:Fork*:*DynamicCache*:Placed*:Latent*:Contin*:Context*:*Away*:"
                      "Joining*:*JoinedLayer0*:Own*:*GoldenCheckpoint*:*LayerTrace*:Saturat*:*PrefillBits*:*LongDynamic*:*Ahead*:"
                      "*Lookup*")]  # fmt: skip
LOGS = [("engine_test", "MeasurementLogs*:SweepColumns*:SweepTables*:*Report*:ResultsCsv*"), ("engine_test", "*Sweep*:Verdict*"),
        ("tools_test", "MeasuringErrors*"), ("tools_test", "MeasuringTest.ASweepIs*:MeasuringTest.Csv*:MeasuringTest.*Resume*")]
# Test programs of each file, and the covering suites.
SUITES = {
    "models/spec/rope.cpp": [("models_test", "Rope*:Specs*"), ("engine_test", "RopeLogits*:*GoldenCheckpoint*:*DynamicCache*")],
    "models/spec/rope_yarn.cpp": [("models_test", "Rope*:Specs*"), ("engine_test", "RopeLogits*")],
    "models/files/safetensors.cpp": [("models_test", "Safetensors*:Formats*:Keys*:Specs*")],
    "models/quantization/gguf_blocks.cpp": [("models_test", "Gguf*"), ("engine_test", "*Gguf*")],
    "models/run/decoder.cpp": RUNNING + [("engine_test", "*LongOther*:*Qwen*:*FormatLogits*:*Gguf*:Alibi*")],
    "kernels/cpu/rerotate_keys.cpp": [("kernels_test", "*Rerotat*:*RotationsCompose*"), ("engine_test", "Placed*:Latent*:Saturat*:OwnScaling*")],
    "engine/runtime/kv_cache.cpp": [("engine_test", "KvCaches*:KvPools*:SchedulerTest*")] + RUNNING,
    "engine/runtime/session.cpp": RUNNING + [("engine_test", "Alibi*")],
    "engine/runtime/sequence.cpp": RUNNING,
    "engine/runtime/step_builder.cpp": RUNNING,
    "models/spec/position_method.cpp": METHODS,
    **{f"models/positions/{name}.cpp": METHODS
       for name in ("dca", "jet_long", "jet_long_freq", "lm_infinite", "parse_position_method", "rerope", "self_extend", "sinks",
                    "string")},
    "engine/eval/verdict.cpp": [("engine_test", "Verdict*:*Sweep*:*Report*")],
    "engine/eval/difference.cpp": [("engine_test", "Verdict*:*Sweep*:*Report*:ResultsCsv*")],
    "engine/eval/sequential.cpp": [("engine_test", "Sequential*")],
    "engine/eval/measure/run_log.cpp": LOGS,
    **{f"engine/eval/{name}.cpp": LOGS
       for name in ("measurement", "measurement_json", "measurement_log", "render/results_csv", "sweep_table")},
}  # fmt: skip


def run(command, **options):
    return subprocess.run(command, capture_output=True, text=True, errors="replace", **({"check": False} | options))


def compile_flags(path):
    """-> compiler and arguments for a file, without input and output."""
    commands = json.loads((BUILD / "compile_commands.json").read_text())
    words = shlex.split(next(c["command"] for c in commands if c["file"] == str(path)))
    words = words[next(i for i, word in enumerate(words) if re.search(r"(\+\+|cc|clang)[-.0-9]*$", word) and "ccache" not in word) :]
    return [word for i, word in enumerate(words) if word not in ("-c", "-o", str(path)) and words[i - 1] != "-o"]


def write_mutants(path, text, mutants, flags):
    """Writes the file with its mutants and returns the mutants that compile."""
    while True:
        mutants.sort(key=lambda m: (m.begin, -m.end, m.after != ""))
        for number, mutant in enumerate(mutants, 1):
            mutant.number = number
        mutated = render(text, mutants, 0, len(text))
        path.write_bytes((PRELUDE % (len(mutants) + 1) + mutated).encode("latin-1"))
        done = run([*flags, "-w", "-fsyntax-only", "-fmax-errors=0", str(path)], cwd=BUILD)
        if done.returncode == 0:
            return mutants
        starts = [0] + [m.end() for m in re.finditer("\n", mutated)]
        markers = [(m.start(), int(m[1])) for m in re.finditer(r"lariat_mutant\((\d+)\)", mutated)]
        wrong = set()
        for kind in ("error:", "required from"):
            for line, column in re.findall(rf"{re.escape(str(path))}:(\d+):(\d+):\s+{kind}", done.stderr):
                at = starts[int(line) - 1] + int(column)
                wrong |= {number for _, number in [m for m in markers if m[0] <= at + 1][-1:]}
            if wrong:
                break
        else:
            sys.exit(f"mutate: {path} does not compile:\n{done.stderr[:3000]}")
        mutants = [m for m in mutants if m.number not in wrong]


def passes(tests, limit, **variables):
    program, names = tests
    command = [BUILD / program, "--gtest_filter=" + ":".join(names), "--gtest_brief=1", "--gtest_fail_fast"]
    try:
        return run(command, timeout=limit, env=os.environ | variables, cwd=BUILD).returncode in (0, 77)
    except subprocess.TimeoutExpired:
        return False


def measure(suites, mutants):
    """Runs each suite without a mutant and records the mutants that it reaches. -> seconds of each (program, suite)"""
    seconds, log = {}, COPY / "reached"
    for program, pattern in suites:
        listed = run([BUILD / program, "--gtest_list_tests", f"--gtest_filter={pattern}"], check=True).stdout
        for suite, names in re.findall(r"^(\S+\.).*\n((?:  .*\n)+)", listed, re.M):
            tests = program, tuple(suite + line.split()[0] for line in names.splitlines())
            log.unlink(missing_ok=True)
            start = time.monotonic()
            if not passes(tests, 600, LARIAT_REACHED=str(log)):
                sys.exit(f"mutate: {program} --gtest_filter={suite}* fails without a mutant")
            seconds[tests] = time.monotonic() - start
            for number in set(log.read_text().split()) if log.exists() else ():
                mutants[int(number) - 1].reaching.append(tests)
    for mutant in mutants:
        mutant.reaching = sorted(set(mutant.reaching), key=seconds.get)
    return seconds


def explained():
    rows = [line.split("\t") for line in EXPLAINED.read_text("utf-8").splitlines()] if EXPLAINED.exists() else []
    return {tuple(row[:3]): row[3] for row in rows if len(row) == 4}


def test_file(name, options):
    """-> number of problems."""
    start, path = time.monotonic(), COPY / name
    data = (ROOT / name).read_bytes()
    text, lines = data.decode("latin-1"), data.decode("utf-8").splitlines()

    def row(mutant):
        change = f"{mutant.before} -> {mutant.after or 'deleted'}".encode("latin-1").decode("utf-8")
        return name, lines[mutant.line].strip(), change + mutant.occurrence

    reasons = {r: reason for r, reason in explained().items() if r[0] == name}
    survivors, unexplained = [], 0
    flags = compile_flags(path)
    found = Finder(path, text, flags[1:])
    last = COPY / f"survivors/{name}.json"
    if options.again and not last.exists():
        sys.exit(f"mutate: {name} was not tested before")
    try:
        mutants = write_mutants(path, text, list(found.mutants), flags)
        seen = collections.Counter()
        for mutant in mutants:
            seen[row(mutant)] += 1
            if (number := seen[row(mutant)]) > 1:
                mutant.occurrence = f" #{number}"
        left_out, made = found.left_out + len(found.mutants) - len(mutants), len(mutants)
        print(f"{name}: {made} mutants; {left_out} skipped, constant or not compiling", flush=True)
        programs = {program for program, _ in SUITES[name]}
        programs |= {"lariat"} if "tools_test" in programs else set()
        done = run(["cmake", "--build", BUILD, "-j2", "--target", *programs])
        if done.returncode != 0:
            sys.exit(f"mutate: does not build:\n{done.stdout[-3000:]}")
        seconds = measure(SUITES[name], mutants)
        print(f"{name}: {len(seconds)} suites pass in {sum(seconds.values()):.0f} s", flush=True)
        if options.again:
            survived = {tuple(r) for r in json.loads(last.read_text())}
            mutants = [m for m in mutants if row(m) in survived]
        elif options.sample is not None:
            mutants = random.Random(options.seed).sample(mutants, min(options.sample, made))

        def survives(mutant):
            return all(passes(t, 10 * seconds[t] + 10, LARIAT_MUTANT=str(mutant.number)) for t in mutant.reaching)

        with concurrent.futures.ThreadPoolExecutor(2) as pool:
            for mutant, survived in zip(mutants, pool.map(survives, mutants)):
                if survived:
                    survivors.append(row(mutant))
                if survived and row(mutant) not in reasons:
                    unexplained += 1
                    print(f"{name}:{mutant.line + 1}: {row(mutant)[2]} (mutant {mutant.number}): "
                          f"{'survives' if mutant.reaching else 'is not reached'}\n    {row(mutant)[1]}", flush=True)  # fmt: skip
    finally:
        path.write_bytes(data)  # removes the mutants before the next file
    last.parent.mkdir(parents=True, exist_ok=True)
    last.write_text(json.dumps(survivors))
    all_of_them = not options.again and options.sample is None
    stale = set(reasons) - set(survivors) if all_of_them else set()
    for _, line, change in stale:
        print(f"{EXPLAINED.relative_to(ROOT)}: no survivor fits: {change}\n    {line}")
    print(f"{name}: {len(mutants)} mutants, {len(mutants) - len(survivors)} killed, {len(survivors) - unexplained} survivors "
          f"explained, {unexplained} not; {time.monotonic() - start:.0f} s"
          + (f"; seed {options.seed}" if options.sample is not None else ""), flush=True)  # fmt: skip
    return unexplained + len(stale)


def prepare():
    """Updates the copy, touching only changed files, and configures it."""
    listed = run(["git", "-C", ROOT, "ls-files", "-z", "--cached", "--others", "--exclude-standard"], check=True).stdout
    names = {name for name in listed.split("\0") if (ROOT / name).is_file()}
    for old in [p for folder in {name.split("/")[0] for name in names} for p in (COPY / folder).rglob("*.*")]:
        if old.is_file() and str(old.relative_to(COPY)) not in names:
            old.unlink()
    for name in names:
        source, target = ROOT / name, COPY / name
        if not (target.exists() and target.read_bytes() == source.read_bytes()):
            target.parent.mkdir(parents=True, exist_ok=True)
            shutil.copy(source, target)
    alone = f"set_source_files_properties({' '.join(SUITES)} PROPERTIES SKIP_UNITY_BUILD_INCLUSION ON COMPILE_OPTIONS -w)\n"
    if not (COPY / "mutate.cmake").exists() or (COPY / "mutate.cmake").read_text() != alone:
        (COPY / "mutate.cmake").write_text(alone)
    subprocess.run(["cmake", "-S", COPY, "-B", BUILD, "-G", "Ninja", "-DCMAKE_BUILD_TYPE=Release", "-DLARIAT_CUDA=OFF",
                    f"-DCMAKE_PROJECT_INCLUDE={COPY / 'mutate.cmake'}"], check=True, stdout=subprocess.DEVNULL)  # fmt: skip


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("files", nargs="+", metavar="FILE")
    parser.add_argument("--sample", type=int, metavar="N")
    parser.add_argument("--again", action="store_true")
    parser.add_argument("--seed", type=int, default=random.randrange(1000000), metavar="S")
    options = parser.parse_args()
    if unknown := [name for name in options.files if name not in SUITES]:
        sys.exit(f"mutate: {unknown[0]} has no row in SUITES; there are {', '.join(SUITES)}")
    os.nice(10)
    resource.setrlimit(resource.RLIMIT_AS, (6 << 30, resource.RLIM_INFINITY))  # a mutant may allocate without limit
    prepare()
    sys.exit(1 if sum(test_file(name, options) for name in options.files) else 0)


if __name__ == "__main__":
    main()
