#!/usr/bin/env python3
"""Predicts decoding on N machines (docs/machines.md) from measured or assumed speeds of a machine and of its network.

Seconds per token: (weights + cache) / (N * read bandwidth) + messages. A sum of `b` bytes over N ranks takes ceil(log2 N) latencies
and (N - 1) b / bandwidth: each rank receives the parts of all others.
"""
import argparse
import math

MODELS = {  # layers, hidden, query heads, KV heads, head size, vocabulary, parameters
    "Llama-3.1-8B": (32, 4096, 32, 8, 128, 128256, 8.03e9),
    "Llama-3.1-70B": (80, 8192, 64, 8, 128, 128256, 70.6e9),
    "TinyLlama-1.1B": (22, 2048, 32, 4, 64, 32000, 1.1e9),
}
NETWORKS = {"10 GbE": (25, 1.15), "25 GbE": (20, 2.9), "100 GbE": (5, 11.5), "InfiniBand HDR": (2, 24)}  # us, GB/s


def messages(model, ranks, split):
    """-> bytes of each message of a token; a rank sends this or, in gathers, its part."""
    layers, hidden, heads, kv_heads, size, vocab, _ = MODELS[model]
    layer = [4 * hidden] * 2
    if split == "sequence":  # keys, values and queries of all heads; largest scores and sums; partial results
        gathers = [kv_heads * size, kv_heads * size, heads * size, 2 * heads * ranks]
        layer += [4 * values / ranks for values in gathers] + [4 * heads * size]
    return layers * layer + [4 * vocab / ranks]


def seconds(model, ranks, split, context, read, latency, bandwidth):
    layers, _, _, kv_heads, size, _, parameters = MODELS[model]
    cache = context * layers * kv_heads * size * 4  # f16 keys and values
    compute = (2 * parameters + cache) / (ranks * read * 1e9)
    if ranks == 1:
        return compute
    return compute + sum(math.ceil(math.log2(ranks)) * latency * 1e-6 + (ranks - 1) * b / (bandwidth * 1e9)
                         for b in messages(model, ranks, split))


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", choices=MODELS, default="Llama-3.1-8B")
    parser.add_argument("--split", choices=["heads", "sequence"], default="heads")
    parser.add_argument("--context", type=int, default=0, help="tokens in the cache")
    parser.add_argument("--read", type=float, default=200, help="GB/s that a machine reads")
    parser.add_argument("--network", metavar="US,GB/s", help="own latency and bandwidth")
    args = parser.parse_args()
    networks = {"network": tuple(map(float, args.network.split(",")))} if args.network else NETWORKS
    print("| tokens/s | " + " | ".join(f"{n}" for n in (1, 2, 4, 8)) + " |\n|---|---|---|---|---|")
    for name, (latency, bandwidth) in networks.items():
        speeds = (1 / seconds(args.model, n, args.split, args.context, args.read, latency, bandwidth) for n in (1, 2, 4, 8))
        print(f"| {name} | " + " | ".join(f"{speed:.1f}" for speed in speeds) + " |")


if __name__ == "__main__":
    main()
