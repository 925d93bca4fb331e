#!/usr/bin/env python3
"""Copies a checkpoint with weights quantized by llama.cpp's Q4_0 or Q8_0, or lariat's q4 or q8, and dequantized.

    tools/lab/peers/round_weights.py FROM TO q4_0|q8_0|q4|q8

Any program that runs the copy measures the quality cost of the format. Formulas: quantize_row_q4_0_ref and quantize_row_q8_0_ref
of ggml/src/ggml-quants.c, dequantized to float32; kernels/quant.h, dequantized to bf16, as in a prefill on AMX. Projections are
quantized; the head (or a tied embedding) always to 8 bits; norms stay. Supports one unsharded model.safetensors; needs torch and
safetensors.
"""
import shutil
import sys

import torch
from safetensors.torch import load_file, save_file

# Functions of groups of 32 numbers, [groups, 32].


def inverse(d):
    return torch.where(d != 0, 1 / d, 0)


def signed_extreme(groups):
    return groups.gather(1, groups.abs().argmax(1, keepdim=True))


def q4_0(groups):
    d = signed_extreme(groups) / -8
    return ((groups * inverse(d) + 8.5).trunc().clamp(max=15) - 8) * d.half().float()


def q8_0(groups):
    d = groups.abs().amax(1, keepdim=True) / 127
    return (groups * inverse(d)).round() * d.half().float()


def q4(groups):
    scale = (signed_extreme(groups) / -8).bfloat16().float()
    return ((groups * inverse(scale)).round().clamp(-8, 7) * scale).bfloat16().float()


def q8(groups):
    d = groups.abs().amax(1, keepdim=True) / 127
    scale = (d.view(torch.int32) + 0xFFFF & ~0xFFFF).view(torch.float32)  # smallest bf16 >= d
    return ((groups * inverse(scale)).round() * scale).bfloat16().float()


KINDS = {"q4_0": q4_0, "q8_0": q8_0, "q4": q4, "q8": q8}


def main(source, target, kind):
    shutil.copytree(source, target, ignore=shutil.ignore_patterns("model.safetensors"), dirs_exist_ok=True)
    tensors = {name: w.float() for name, w in load_file(f"{source}/model.safetensors").items()}
    head = "lm_head" if "lm_head.weight" in tensors else "embed_tokens"
    for name, w in tensors.items():
        rounded = KINDS[kind] if "_proj.weight" in name else q8_0 if kind.endswith("_0") else q8
        if "_proj.weight" in name or head in name:
            tensors[name] = rounded(w.reshape(-1, 32)).reshape(w.shape)
    save_file(tensors, f"{target}/model.safetensors")


if __name__ == "__main__":
    if len(sys.argv) != 4 or sys.argv[3] not in KINDS:
        sys.exit(__doc__)
    main(*sys.argv[1:])
