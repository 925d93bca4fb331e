#!/usr/bin/env python3
"""Writes a checkpoint folder with random bf16 weights in the shape of a Llama's config.json.

    tools/lab/random_checkpoint.py configs/tinyllama-1.1b.json OUT
"""
import glob
import json
import math
import os
import random
import shutil
import struct
import sys

BLOCK = 64 << 20


def tensors(config):
    """-> [(name, shape)] of a LLaMA checkpoint."""
    hidden, ffn, vocab = config["hidden_size"], config["intermediate_size"], config["vocab_size"]
    heads = config["num_attention_heads"]
    head_dim = config.get("head_dim") or hidden // heads
    kv = config.get("num_key_value_heads", heads) * head_dim
    yield "model.embed_tokens.weight", [vocab, hidden]
    for i in range(config["num_hidden_layers"]):
        layer = f"model.layers.{i}."
        yield layer + "input_layernorm.weight", [hidden]
        yield layer + "post_attention_layernorm.weight", [hidden]
        for name, shape in (("q", [heads * head_dim, hidden]), ("k", [kv, hidden]), ("v", [kv, hidden]),
                            ("o", [hidden, heads * head_dim])):
            yield f"{layer}self_attn.{name}_proj.weight", shape
        for name, shape in (("gate", [ffn, hidden]), ("up", [ffn, hidden]), ("down", [hidden, ffn])):
            yield f"{layer}mlp.{name}_proj.weight", shape
    yield "model.norm.weight", [hidden]
    if not config.get("tie_word_embeddings", False):
        yield "lm_head.weight", [vocab, hidden]


def make_checkpoint(folder, config_file, tokenizer=None):
    """Copies the tokenizer files of the folder `tokenizer`."""
    with open(config_file, encoding="utf-8") as file:
        config = json.load(file)
    header, at = {}, 0
    for name, shape in tensors(config):
        size = 2 * math.prod(shape)
        header[name] = {"dtype": "BF16", "shape": shape, "data_offsets": [at, at + size]}
        at += size
    head = json.dumps(header).encode()
    head += b" " * (-len(head) % 8)
    # bf16 of +-0.008 to 0.016: any low byte, high byte 0x3c or 0xbc.
    rng = random.Random(1)
    block = bytearray(BLOCK)
    block[0::2] = rng.randbytes(BLOCK // 2)
    block[1::2] = rng.randbytes(BLOCK // 2).translate(bytes(0x3C | (b & 1) << 7 for b in range(256)))
    partial = folder + ".partial"
    shutil.rmtree(partial, ignore_errors=True)
    os.makedirs(partial)
    with open(os.path.join(partial, "model.safetensors"), "wb") as file:
        file.write(struct.pack("<Q", len(head)) + head)
        for begin in range(0, at, BLOCK):
            file.write(memoryview(block)[: min(BLOCK, at - begin)])
    shutil.copy(config_file, os.path.join(partial, "config.json"))
    for path in glob.glob(os.path.join(tokenizer, "tokenizer*")) if tokenizer else ():
        shutil.copy(path, partial)
    os.rename(partial, folder)


if __name__ == "__main__":
    make_checkpoint(sys.argv[2], sys.argv[1])
