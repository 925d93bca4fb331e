#!/usr/bin/env python3
"""A copy of a checkpoint whose weights went through llama.cpp's Q4_0 or Q8_0, or lariat's q4 or q8, and back.

    tools/lab/peers/round_weights.py FROM TO q4_0|q8_0|q4|q8

What those formats cost a model, measured by any program that runs the copy. Formulas: quantize_row_q4_0_ref and
quantize_row_q8_0_ref of ggml/src/ggml-quants.c, back to float32; kernels/quant.h, back to bf16, as a prefill on AMX
reads them. Projections are rounded; the head (or a tied embedding) is in 8 bits in all; norms stay. One unsharded
model.safetensors; needs numpy.
"""
import json
import os
import shutil
import struct
import sys

import numpy as np


def inverse(d):
    return np.divide(1, d, out=np.zeros_like(d), where=d != 0)


def q4_0(w):
    groups = w.reshape(-1, 32)
    extreme = groups[np.arange(len(groups)), np.abs(groups).argmax(1)]
    d = (extreme / -8).astype(np.float32)
    q = np.minimum(15, np.trunc(groups * inverse(d)[:, None] + np.float32(8.5))) - 8
    return (q * d.astype(np.float16).astype(np.float32)[:, None]).reshape(w.shape)


def q8_0(w):
    groups = w.reshape(-1, 32)
    d = (np.abs(groups).max(1) / 127).astype(np.float32)
    return (np.round(groups * inverse(d)[:, None]) * d.astype(np.float16).astype(np.float32)[:, None]).reshape(w.shape)


def upper_half(bits):
    return (bits & np.uint32(0xffff0000)).view(np.float32)


def bf16(w):
    bits = w.astype(np.float32).view(np.uint32)
    return upper_half(bits + np.uint32(0x7fff) + (bits >> 16 & 1))


def bf16_above(w):
    return upper_half(w.astype(np.float32).view(np.uint32) + np.uint32(0xffff))


def q4(w):
    groups = w.reshape(-1, 32)
    scale = bf16(groups[np.arange(len(groups)), np.abs(groups).argmax(1)] / np.float32(-8))[:, None]
    return bf16(np.clip(np.rint(groups * inverse(scale)), -8, 7) * scale).reshape(w.shape)


def q8(w):
    groups = w.reshape(-1, 32)
    scale = bf16_above(np.abs(groups).max(1) / np.float32(127))[:, None]
    return bf16(np.rint(groups * inverse(scale)) * scale).reshape(w.shape)


def floats(raw, dtype):
    if dtype == "BF16":
        return (np.frombuffer(raw, np.uint16).astype(np.uint32) << 16).view(np.float32)
    return np.frombuffer(raw, {"F16": np.float16, "F32": np.float32}[dtype]).astype(np.float32)


KINDS = {"q4_0": q4_0, "q8_0": q8_0, "q4": q4, "q8": q8}


def main(source, target, kind):
    os.makedirs(target, exist_ok=True)
    for name in os.listdir(source):
        if name != "model.safetensors":
            shutil.copy(os.path.join(source, name), target)
    with open(os.path.join(source, "model.safetensors"), "rb") as file:
        data = file.read()
    start = 8 + struct.unpack("<Q", data[:8])[0]
    tensors = {name: t for name, t in json.loads(data[8:start]).items() if name != "__metadata__"}
    head = "lm_head" if "lm_head.weight" in tensors else "embed_tokens"
    header, parts, at = {}, [], 0
    for name, tensor in tensors.items():
        first, last = tensor["data_offsets"]
        w = floats(data[start + first:start + last], tensor["dtype"])
        if "_proj.weight" in name:
            w = KINDS[kind](w)
        elif head in name:
            w = (q8_0 if kind.endswith("_0") else q8)(w)
        parts.append(w.astype(np.float32).tobytes())
        header[name] = {"dtype": "F32", "shape": tensor["shape"], "data_offsets": [at, at + len(parts[-1])]}
        at += len(parts[-1])
    text = json.dumps(header).encode()
    text += b" " * (-len(text) % 8)
    with open(os.path.join(target, "model.safetensors"), "wb") as file:
        file.write(struct.pack("<Q", len(text)) + text + b"".join(parts))


if __name__ == "__main__":
    if len(sys.argv) != 4 or sys.argv[3] not in KINDS:
        sys.exit(__doc__)
    main(*sys.argv[1:])
