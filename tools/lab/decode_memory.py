#!/usr/bin/env python3
"""Resident memory of lariat during a long generation: numbers, both ends of the text, and a figure.

    tools/lab/decode_memory.py --lariat build/lariat --model configs/demo --prompt "Once upon a time" --tokens 100000 \\
        --temperature 1 --threads 1 --position-method sinks/sinks=4/window=500 --svg docs/decode-memory.svg

Reads VmRSS of /proc/PID/status every --every bytes of output; the figure converts bytes to tokens in proportion. EOS does not
end the text.
"""
import argparse
import os
import re
import subprocess
import sys
import time
from pathlib import Path

import pages


def resident(pid):
    """-> MB; None after the process has ended"""
    found = re.search(r"VmRSS:\s*(\d+) kB", Path(f"/proc/{pid}/status").read_text())
    return int(found[1]) * 1024 / 1e6 if found else None


def watch(args):
    """-> the text and [(bytes of text so far, MB)]"""
    command = [args.lariat, "generate", "--model", args.model, "--prompt", args.prompt, "--max-new-tokens", args.tokens,
               "--position-method", args.position_method, "--ignore-eos", "--temperature", args.temperature, "--quiet",
               "--device", "cpu", "--threads", args.threads]
    text, samples = b"", []
    with subprocess.Popen(list(map(str, command)), stdout=subprocess.PIPE) as process:
        while piece := os.read(process.stdout.fileno(), 1 << 16):
            text += piece
            if not samples or len(text) >= samples[-1][0] + args.every:
                if (memory := resident(process.pid)) is not None:
                    samples.append((len(text), memory))
    if process.returncode != 0:
        sys.exit(f"decode_memory: error: {' '.join(map(str, command))} failed")
    return text.decode(), samples


def picture(args, length, samples):
    left, right, top, bottom = 60, 620, 64, 250
    high = 1.25 * max(memory for _, memory in samples)
    step = 10 ** len(str(int(high / 2))) // 10
    step = next(n * step for n in (1, 2, 5, 10) if high / (n * step) < 6)
    x = lambda at: left + (right - left) * at / length  # noqa: E731
    y = lambda memory: bottom - (bottom - top) * memory / high  # noqa: E731
    body = [pages.svg_text(left, 26, "start", "head", "Resident memory while a text is written"),
            pages.svg_text(left, 46, "start", "note", f"MB; {args.position_method}")]
    for memory in range(0, int(high) + 1, step):
        body.append(f'<path class="grid" d="M{left} {y(memory):.1f}H{right}"/>\n')
        body.append(pages.svg_text(left - 7, y(memory) + 4.5, "end", "tick", memory))
    for part in range(5):
        body.append(pages.svg_text(x(length * part / 4), bottom + 20, "middle", "tick", f"{args.tokens * part // 4:,}"))
    body.append(pages.svg_text(right, bottom + 40, "end", "note", "tokens"))
    path = "L".join(f"{x(at):.1f} {y(memory):.1f}" for at, memory in samples)
    body.append(f'<path class="curve c2" d="M{path}"/>\n')
    return pages.svg(680, 304, "Resident memory by tokens written", "".join(body))


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--lariat", required=True, help="our program")
    parser.add_argument("--model", required=True)
    parser.add_argument("--prompt", default="Once upon a time")
    parser.add_argument("--tokens", type=int, default=100_000)
    parser.add_argument("--position-method", default="sinks")
    parser.add_argument("--temperature", default=0.7)
    parser.add_argument("--threads", type=int, default=os.cpu_count())
    parser.add_argument("--every", type=int, default=2000, help="bytes of text between two samples")
    parser.add_argument("--svg", type=Path, help="file for the figure")
    args = parser.parse_args()
    start = time.monotonic()
    text, samples = watch(args)
    seconds = time.monotonic() - start
    tokens = lambda at: round(at * args.tokens / len(text.encode()))  # noqa: E731
    print(f"{args.tokens} tokens, {len(text)} characters in {seconds:.0f} s")
    for part in range(11):
        at, memory = samples[part * (len(samples) - 1) // 10]
        print(f"after {tokens(at):7} tokens: {memory:.2f} MB")
    print(f"least {min(m for _, m in samples):.2f}, most {max(m for _, m in samples):.2f} MB, of {len(samples)} looks")
    print(f"--- the first 200 characters\n{text[:200]}\n--- the last 200\n{text[-200:]}")
    if args.svg:
        args.svg.write_text(picture(args, len(text.encode()), samples), encoding="utf-8")


if __name__ == "__main__":
    main()
