#!/usr/bin/env python3
"""Run time of each kernel of a program on the GPU, by ncu (Nsight Compute).

    tools/lab/peers/kernel_times.py [--last N] PROGRAM ARGUMENT...

Runs the program under ncu and prints for each kernel in its last N launches (default 200): launches, median time, share of the
total time, and memory read throughput. Kernels run one at a time.
"""
import csv
import re
import statistics
import subprocess
import sys

METRICS = "gpu__time_duration.sum,dram__bytes_read.sum"


def main():
    words = sys.argv[1:]
    last = 200
    if words[:1] == ["--last"]:
        last, words = int(words[1]), words[2:]
    if not words:
        sys.exit(__doc__)
    command = ["ncu", "--csv", "--page", "raw", "--target-processes", "all", "--metrics", METRICS, *words]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    lines = [line for line in done.stdout.splitlines() if line.startswith('"')]
    if done.returncode or len(lines) < 3:
        sys.exit(f"kernel_times: error: ncu measured nothing: {(done.stderr or done.stdout).strip().splitlines()[-1:]}")
    head, units, *rows = csv.reader(lines)
    scale = {"ns": 1e-3, "us": 1.0, "usecond": 1.0, "nsecond": 1e-3, "byte": 1.0, "Kbyte": 1e3, "Mbyte": 1e6, "Gbyte": 1e9}
    name, time, read = (head.index(column) for column in ("Kernel Name", *METRICS.split(",")))
    kernels = {}
    for row in rows[-last:]:
        short = re.sub(r"\(anonymous namespace\)::|<unnamed>::|lariat::|cuda::|^void ", "", row[name]).split("(")[0]
        number = lambda i, row=row: float(row[i].replace(",", "")) * scale.get(units[i], 1.0)  # noqa: E731
        kernels.setdefault(short, []).append((number(time), number(read)))
    total = sum(t for runs in kernels.values() for t, _ in runs)
    print(f"{'launches':>8} {'us each':>9} {'of all':>7} {'GB/s':>6}  kernel")
    for short, runs in sorted(kernels.items(), key=lambda item: -sum(t for t, _ in item[1])):
        micros = sum(t for t, _ in runs)
        rate = sum(r for _, r in runs) / micros / 1e3
        print(f"{len(runs):8} {statistics.median(t for t, _ in runs):9.1f} {100 * micros / total:6.1f}% {rate:6.0f}  {short[:100]}")


if __name__ == "__main__":
    main()
