"""gguf/blocks.safetensors: blocks of GGUF's quantized types, dequantized by the gguf package."""

from pathlib import Path

import gguf
import numpy as np
from safetensors.numpy import save_file

FILE = Path(__file__).resolve().parents[3] / "tests" / "golden" / "gguf" / "blocks.safetensors"
# Offsets of f16 numbers in a block; all other bytes are arbitrary.
HALVES = {"Q8_0": [0], "Q4_0": [0], "Q4_1": [0, 2], "Q5_0": [0], "Q5_1": [0, 2], "Q2_K": [80, 82], "Q3_K": [108],
          "Q4_K": [0, 2], "Q5_K": [0, 2], "Q6_K": [208], "IQ4_NL": [0], "IQ4_XS": [0], "MXFP4": []}  # fmt: skip
# The largest f16, its smallest subnormal, a negative and an ordinary value.
SCALES = np.array([65504, 2**-24, -0.0123, 0.0371], np.float16)


def gguf_blocks():
    """Four blocks per type (two of 256-element types), as [blocks, bytes], and their values in f32."""
    rng = np.random.default_rng(54)
    tensors = {}
    for name, places in HALVES.items():
        kind = gguf.GGMLQuantizationType[name]
        elements, size = gguf.GGML_QUANT_SIZES[kind]
        blocks = rng.integers(0, 256, (4 if elements == 32 else 2, size), np.uint8)
        for order, place in enumerate(places):
            scales = np.roll(SCALES, order + 1) if elements == 32 else SCALES[2 - order :]
            blocks[:, place : place + 2] = scales[: len(blocks), None].view(np.uint8)
        if name == "MXFP4":
            blocks[:, 0] = [0, 1, 121, 254]  # 2^(e - 127); the last one overflows
        with np.errstate(over="ignore"):
            values = gguf.quants.dequantize(blocks, kind)
        tensors |= {name: blocks, f"{name}.values": np.ascontiguousarray(values, np.float32)}
    FILE.parent.mkdir(exist_ok=True)
    save_file(tensors, FILE, {"gguf": "0.19.0", "numpy": np.__version__})
