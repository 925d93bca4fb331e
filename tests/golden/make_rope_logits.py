"""One-shot logits of checkpoints/llama_gqa under every RoPE scaling, below, at and beyond its context of 64.

    python tests/golden/make_rope_logits.py      (after make_checkpoints.py)

Writes tests/golden/rope/logits.json: {"checkpoint", "tokens": [256 ids], "cases": [...]}, each case with
    name        of the scaling
    config      keys to override in the checkpoint's config.json
    length      n: the model is given tokens[:n] in one forward pass
    positions   whose logits are kept: four spread over the sequence and the last four
    tensor      its name in rope/logits.safetensors: float32 [len(positions), vocab], row i for positions[i]
    source      "transformers": Llama as it is, from its own config
                "partial rotation": Llama with Phi-3's rotation (transformers' Llama only rotates whole heads);
                    inv_freq and attention factor are still transformers' own
                "formula": for types transformers lacks, inv_freq and attention factor of rope_formulas.py (float64,
                    cast to float32) put into Llama's rotary embedding
Float32, eager attention. A dynamic type's scale is that of n itself, not of a scale step above n.
The same logits hold for checkpoints/llama_gqa_interleaved where the whole head rotates.
"""

import contextlib
import copy
import json

import torch
from safetensors.torch import load_file, save_file
from transformers import LlamaConfig
from transformers.modeling_rope_utils import ROPE_INIT_FUNCTIONS
from transformers.models.phi3.modeling_phi3 import Phi3RotaryEmbedding

import tiny_models as tiny
from make_rope_golden import llama3, scaled, write_cases, yarn
from rope_formulas import rope

CHECKPOINT = "llama_gqa"
ORIGINAL = 64
LENGTHS = (48, 64, 65, 160, 256)
THETA = 10000.0
LONGROPE = {"rope_type": "longrope", "short_factor": [1.0, 1.0, 1.05, 1.1, 1.2, 1.3, 1.4, 1.5],
            "long_factor": [1.0, 1.1, 1.3, 2.0, 2.8, 3.5, 4.0, 4.2], "original_max_position_embeddings": 64}  # fmt: skip


def parameters(scaling, longest=256, **more):
    """Overrides in the style of transformers 5; `longest` is the stretched context."""
    return {"max_position_embeddings": longest, "rope_parameters": {"rope_theta": THETA, **scaling}, **more}


def cases():
    """(name, config overrides)"""
    yield "default", parameters({"rope_type": "default"}, ORIGINAL)
    yield "linear 4", parameters(scaled("linear", 4.0))
    yield "ntk 4", parameters(scaled("ntk", 4.0))
    yield "dynamic 1", parameters(scaled("dynamic", 1.0), ORIGINAL)
    yield "dynamic 4", parameters(scaled("dynamic", 4.0), ORIGINAL)
    yield "yarn 4", parameters(yarn(4.0, 64))
    yield "yarn 4, old style", {"max_position_embeddings": 256, "rope_parameters": None, "rope_theta": THETA,
                                "rope_scaling": yarn(4.0, 64, "type")}  # fmt: skip
    yield "yarn 4, betas 8 0.5, truncate false", parameters(yarn(4.0, 64, beta_fast=8, beta_slow=0.5, truncate=False))
    yield "yarn 4, attention_factor 1", parameters(yarn(4.0, 64, attention_factor=1.0))
    yield "yarn 4, mscale pair", parameters(yarn(4.0, 64, mscale=1.0, mscale_all_dim=0.5))
    yield "yarn 4, top-level original length", parameters(yarn(4.0, 32), original_max_position_embeddings=64)
    yield "dynamic-yarn", parameters({"rope_type": "dynamic-yarn", "original_max_position_embeddings": 64})
    yield "llama3 4", parameters(llama3(4.0, 1.0, 4.0, 64))
    yield "longrope", parameters(LONGROPE)
    yield "proportional 0.5", parameters({"rope_type": "proportional", "partial_rotary_factor": 0.5})
    half = {"partial_rotary_factor": 0.5}
    yield "partial default", parameters({"rope_type": "default"} | half, ORIGINAL)
    yield "partial dynamic 4", parameters(scaled("dynamic", 4.0) | half, ORIGINAL)
    yield "partial yarn 4", parameters(yarn(4.0, 64) | half)
    yield "partial dynamic-yarn", parameters({"rope_type": "dynamic-yarn", "original_max_position_embeddings": 64} | half)


def make_model(base, weights, overrides, length):
    """(model, source, the rotation to run it with); a new model per length, as transformers' dynamic types remember."""
    merged = copy.deepcopy(base | overrides)
    scaling = merged.get("rope_scaling") or merged["rope_parameters"]
    kind = scaling.get("rope_type", scaling.get("type"))
    formula = kind != "default" and kind not in ROPE_INIT_FUNCTIONS
    unscaled = {"rope_parameters": {"rope_theta": THETA, "rope_type": "default"}}
    accepted = merged | unscaled if formula else merged
    model = tiny.build(LlamaConfig(**accepted), 0)
    model.load_state_dict(weights)
    rotary = model.model.rotary_emb
    partial = kind != "proportional" and "partial_rotary_factor" in scaling
    if formula:
        inv_freq, rotary.attention_scaling = rope(merged, length)
        rotary.inv_freq = torch.tensor(inv_freq, dtype=torch.float32)
    elif partial and kind == "default":
        rotary.inv_freq = Phi3RotaryEmbedding.compute_default_rope_parameters(model.config)[0]
    source = "formula" if formula else "partial rotation" if partial else "transformers"
    return model, source, tiny.llama_rotation(tiny.partial_rotation) if partial else contextlib.nullcontext()


def main():
    base = json.loads((tiny.CHECKPOINTS / CHECKPOINT / "config.json").read_text())
    weights = load_file(tiny.CHECKPOINTS / CHECKPOINT / "model.safetensors")
    tokens = torch.randint(base["vocab_size"], [max(LENGTHS)], generator=torch.Generator().manual_seed(64)).tolist()
    tensors, listed, plain = {}, [], {}
    for name, overrides in cases():
        for n in LENGTHS:
            model, source, rotation = make_model(base, weights, overrides, n)
            with rotation:
                logits = tiny.one_shot(model, tokens[:n])
            positions = [n // 8, n // 4, n // 2, 3 * n // 4, n - 4, n - 3, n - 2, n - 1]
            kept = logits[positions].clone()
            tensor = f"{name} @ {n}"
            if name == "default":
                plain[n] = kept
            print(f"{tensor:42} {source:17} differs from no scaling by {(kept - plain[n]).abs().max().item():.3f}")
            tensors[tensor] = kept
            listed.append({"name": name, "config": overrides, "length": n, "positions": positions, "tensor": tensor,
                           "source": source})  # fmt: skip
    for name in ("dynamic 1", "dynamic 4", "dynamic-yarn"):  # up to the original length there is no scaling
        assert all(torch.allclose(tensors[f"{name} @ {n}"], plain[n], atol=1e-3) for n in (48, 64)), name
    folder = tiny.GOLDEN / "rope"
    save_file(tensors, folder / "logits.safetensors", {"made_with": tiny.VERSIONS})
    write_cases(folder / "logits.json", {"checkpoint": CHECKPOINT, "tokens": tokens}, listed)


if __name__ == "__main__":
    main()
