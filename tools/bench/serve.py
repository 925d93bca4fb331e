#!/usr/bin/env python3
"""Throughput and time to the first token of an OpenAI-shaped server, such as lariat serve or llama-server.

    tools/bench/serve.py URL [--streams 1,8] [--tokens 64] [--words 8] [--rounds 3]

Streams send prompts of different first words, so none shares a prefix. Prints the median of the rounds.
"""
import argparse
import json
import statistics
import threading
import time
import urllib.request


def stream(url, prompt, tokens, seconds):
    body = {"model": "any", "prompt": prompt, "max_tokens": tokens, "temperature": 0, "ignore_eos": True, "stream": True}
    request = urllib.request.Request(url + "/v1/completions", json.dumps(body).encode(), {"Content-Type": "application/json"})
    start, first = time.monotonic(), None
    with urllib.request.urlopen(request, timeout=3600) as reply:
        for line in reply:
            if first is None and line.startswith(b"data: {"):
                first = time.monotonic() - start
    seconds.append(first)


def measure(url, streams, tokens, words, seed):
    """-> tokens per second of all streams, median seconds to a first token"""
    first = []
    threads = [threading.Thread(target=stream, args=(url, f"{seed}{i} " + "once upon a time " * (words // 4), tokens, first))
               for i in range(streams)]
    start = time.monotonic()
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return streams * tokens / (time.monotonic() - start), statistics.median(first)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("url")
    parser.add_argument("--streams", default="1,8")
    parser.add_argument("--tokens", type=int, default=64)
    parser.add_argument("--words", type=int, default=8)
    parser.add_argument("--rounds", type=int, default=3)
    options = parser.parse_args()
    for streams in map(int, options.streams.split(",")):
        rounds = [measure(options.url, streams, options.tokens, options.words, time.time_ns() + r) for r in range(options.rounds)]
        speeds, firsts = zip(*rounds, strict=True)
        print(f"{streams} streams: {statistics.median(speeds):.1f} tokens/s, first token after {statistics.median(firsts):.3f} s")


if __name__ == "__main__":
    main()
