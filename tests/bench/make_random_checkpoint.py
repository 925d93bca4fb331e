"""A checkpoint folder of random bf16 weights in the shape of a Llama's config.json, for what needs files.

    python tests/bench/make_random_checkpoint.py configs/tinyllama-1.1b.json OUT
"""
import json
import shutil
import sys
from pathlib import Path

import torch
from safetensors.torch import save_file


def main(config_file, out):
    config = json.loads(Path(config_file).read_text())
    hidden, inner = config["hidden_size"], config["intermediate_size"]
    head_dim = config.get("head_dim", hidden // config["num_attention_heads"])
    q, kv = config["num_attention_heads"] * head_dim, config["num_key_value_heads"] * head_dim
    generator = torch.Generator().manual_seed(0)

    def matrix(*shape):
        return (torch.randn(shape, generator=generator) * 0.02).to(torch.bfloat16)

    tensors = {"model.embed_tokens.weight": matrix(config["vocab_size"], hidden),
               "model.norm.weight": torch.ones(hidden, dtype=torch.bfloat16),
               "lm_head.weight": matrix(config["vocab_size"], hidden)}
    for layer in range(config["num_hidden_layers"]):
        name = f"model.layers.{layer}."
        for norm in ("input_layernorm", "post_attention_layernorm"):
            tensors[f"{name}{norm}.weight"] = torch.ones(hidden, dtype=torch.bfloat16)
        for part, rows, cols in (("self_attn.q", q, hidden), ("self_attn.k", kv, hidden), ("self_attn.v", kv, hidden),
                                 ("self_attn.o", hidden, q), ("mlp.gate", inner, hidden), ("mlp.up", inner, hidden),
                                 ("mlp.down", hidden, inner)):
            tensors[f"{name}{part}_proj.weight"] = matrix(rows, cols)
    folder = Path(out)
    folder.mkdir(parents=True, exist_ok=True)
    save_file(tensors, folder / "model.safetensors")
    shutil.copy(config_file, folder / "config.json")


if __name__ == "__main__":
    main(*sys.argv[1:])
