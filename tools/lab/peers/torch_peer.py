#!/usr/bin/env python3
"""PyTorch and transformers on a GPU: the machine's ceilings, attention alone, and generation with a whole model.

    tools/lab/peers/torch_peer.py --config configs/llama-3.1-8b.json --prompts 512,8192 --depths 0,8192 --gen 64

Weights are random and bf16. Ceilings: a copy within device memory (bytes read and written), a cuBLAS matrix product. Attention:
scaled_dot_product_attention with each backend that supports the shape, causal over n tokens (4 head_dim FLOP per visible pair), and
one token over a context (bytes of K and V). Generation: greedy generate of transformers; decoding is the cost of GEN more tokens
after the first. Needs torch and transformers; tools/bench/gpu.sh runs it next to lariat. --device cpu with small sizes tests the
script without a GPU.
"""
import argparse
import json
import os
import shutil
import statistics
import sys
import tempfile
import time

import torch
import torch.nn.functional as F
from torch.nn.attention import SDPBackend, sdpa_kernel

BACKENDS = {"flash": SDPBackend.FLASH_ATTENTION, "cudnn": SDPBackend.CUDNN_ATTENTION}


def seconds(args, work):
    """Median time of one call, after a warm-up call."""
    work()
    times = []
    for _ in range(args.reps):
        wait(args)
        start = time.perf_counter()
        for _ in range(args.batch):
            work()
        wait(args)
        times.append((time.perf_counter() - start) / args.batch)
    return statistics.median(times)


def wait(args):
    if args.device == "cuda":
        torch.cuda.synchronize()


def noise(args, *shape):
    return torch.randn(*shape, device=args.device, dtype=torch.bfloat16)


def ceilings(args):
    source = noise(args, args.copy_mib << 19)
    target = torch.empty_like(source)
    copied = 2 * source.numel() * source.element_size() / seconds(args, lambda: target.copy_(source))
    a, b = noise(args, args.side, args.side), noise(args, args.side, args.side)
    flops = 2 * args.side**3 / seconds(args, lambda: a @ b)
    print(f"copy {copied / 1e9:.0f} GB/s (read and written), bf16 product of {args.side}: {flops / 1e12:.1f} TFLOP/s")


def attend(args, q, k, v, causal):
    """-> {backend: seconds}; a backend without grouped heads gets repeated K and V, and its name tells."""
    times = {}
    for name, backend in BACKENDS.items():
        for keys, values, label in ((k, v, name), (*(x.repeat_interleave(q.shape[1] // k.shape[1], 1) for x in (k, v)),
                                                   name + ", heads repeated")):
            try:
                with sdpa_kernel(backend), torch.inference_mode():
                    times[label] = seconds(args, lambda: F.scaled_dot_product_attention(
                        q, keys, values, is_causal=causal, enable_gqa=keys.shape[1] != q.shape[1]))
                break
            except RuntimeError as error:
                if "out of memory" in str(error):
                    raise
    return times


def attention(args, config):
    heads, kv_heads = config["num_attention_heads"], config["num_key_value_heads"]
    dim = config.get("head_dim") or config["hidden_size"] // heads
    for n in args.prompts:
        times = attend(args, noise(args, 1, heads, n, dim), noise(args, 1, kv_heads, n, dim),
                       noise(args, 1, kv_heads, n, dim), True)
        for name, time_taken in times.items():
            print(f"prefill attention {n}: {2 * n * (n + 1) * heads * dim / time_taken / 1e12:.1f} TFLOP/s ({name})")
    for depth in filter(None, args.depths):
        times = attend(args, noise(args, 1, heads, 1, dim), noise(args, 1, kv_heads, depth, dim),
                       noise(args, 1, kv_heads, depth, dim), False)
        for name, time_taken in times.items():
            print(f"decode attention @{depth}: {4 * depth * kv_heads * dim / time_taken / 1e9:.0f} GB/s ({name})")


def generating(args):
    from transformers import AutoConfig, AutoModelForCausalLM
    with tempfile.TemporaryDirectory() as folder:
        shutil.copy(args.config, os.path.join(folder, "config.json"))
        config = AutoConfig.from_pretrained(folder)
    torch.set_default_dtype(torch.bfloat16)
    with torch.device(args.device):
        model = AutoModelForCausalLM.from_config(config, attn_implementation="sdpa").eval()
    for depth in sorted({max(1, d) for d in args.depths} | set(args.prompts)):
        ids = torch.randint(0, config.vocab_size, (1, depth), device=args.device)

        def generate(n):
            wait(args)
            start = time.perf_counter()
            with torch.inference_mode():
                model.generate(ids, attention_mask=torch.ones_like(ids), max_new_tokens=n, min_new_tokens=n,
                               do_sample=False, pad_token_id=0)
            wait(args)
            return time.perf_counter() - start

        generate(2)
        first = statistics.median(generate(1) for _ in range(3))
        rest = statistics.median(generate(1 + args.gen) for _ in range(3)) - first
        print(f"transformers: prefill {depth}: {depth / first:.1f} tok/s; decode @{depth}: {args.gen / rest:.1f} tok/s")


def numbers(text):
    return [int(word) for word in text.split(",") if word]


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--config", required=True, help="a config.json")
    parser.add_argument("--device", default="cuda", choices=["cuda", "cpu"])
    parser.add_argument("--prompts", type=numbers, default=[512, 2048, 8192, 32768])
    parser.add_argument("--depths", type=numbers, default=[0, 8192, 32768, 131072])
    parser.add_argument("--gen", type=int, default=64, help="tokens to decode; 0: no generation")
    parser.add_argument("--side", type=int, default=8192, help="side of the matrix product for the ceiling")
    parser.add_argument("--copy-mib", type=int, default=2048, help="size of the copy for the ceiling")
    parser.add_argument("--reps", type=int, default=5)
    parser.add_argument("--batch", type=int, default=10, help="calls per synchronization")
    args = parser.parse_args()
    if args.device == "cuda" and not torch.cuda.is_available():
        sys.exit("torch_peer: error: PyTorch finds no GPU; use --device cpu and small sizes to test the script")
    with open(args.config, encoding="utf-8") as file:
        config = json.load(file)
    torch.manual_seed(1)
    name = torch.cuda.get_device_name() if args.device == "cuda" else "cpu"
    print(f"torch {torch.__version__} on {name}")
    ceilings(args)
    attention(args, config)
    if args.gen > 0:
        generating(args)


if __name__ == "__main__":
    main()
