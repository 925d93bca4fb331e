"""What every layer makes of a text, by transformers: tests/golden/checkpoints/NAME/trace.safetensors.

    python tests/golden/make_traces.py

One checkpoint of each family, the first 24 tokens of its golden.safetensors, float32, eager attention. Tensors, each
float32 [24, width], are called as `lariat logits --trace` calls them (models/trace.h): layers.I.q (after biases and
head norms, before RoPE), .k (rotated), .v, .scores_max, .attention, .feed_forward, .output.
"""

import importlib

import torch
from safetensors.torch import load_file, save_file
from transformers import AutoModelForCausalLM, Qwen3Config, Qwen3ForCausalLM

import tiny_models as tiny

NAMES = ["llama_gqa", "llama_bias", "mistral_window", "qwen2_window", "qwen3", "minimind"]
TOKENS = 24


def load(name):
    folder = tiny.CHECKPOINTS / name
    if name != "minimind":
        return AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32, attn_implementation="eager").eval()
    # MiniMind's arithmetic is Qwen3's (tests/golden/README.md).
    saved = tiny.json.loads((folder / "config.json").read_text())
    kept = ("head_dim", "hidden_size", "intermediate_size", "max_position_embeddings", "num_attention_heads",
            "num_hidden_layers", "num_key_value_heads", "rms_norm_eps", "rope_theta", "tie_word_embeddings",
            "vocab_size")  # fmt: skip
    config = Qwen3Config(**{key: saved[key] for key in kept}, attn_implementation="eager")
    model = Qwen3ForCausalLM(config).float().eval()
    missing, unexpected = model.load_state_dict(load_file(folder / "model.safetensors"), strict=False)
    assert not unexpected and missing in ([], ["lm_head.weight"]), (missing, unexpected)
    model.tie_weights()
    return model


def scores_max(q, k, layer):
    """The largest score that each query head of each token sees: [tokens, heads]."""
    attention = layer.self_attn
    k = k.repeat_interleave(q.shape[0] // k.shape[0], dim=0)
    scores = attention.scaling * q @ k.transpose(1, 2)
    position = torch.arange(q.shape[1])
    distance = position[:, None] - position[None, :]
    # Qwen's attention knows its layer's window; Mistral has one for all, in the config.
    window = getattr(attention, "sliding_window", getattr(attention.config, "sliding_window", None)) or q.shape[1]
    return scores.masked_fill((distance < 0) | (distance >= window), -torch.inf).amax(-1).T


def trace(model, tokens):
    module = importlib.import_module(type(model).__module__)
    plain, rotations, found = module.apply_rotary_pos_emb, [], {}

    def rotary(q, k, *args, **kwargs):
        rotated = plain(q, k, *args, **kwargs)
        rotations.append((q[0], *(x[0] for x in rotated)))
        return rotated

    def keep(name):
        def hook(_, __, output):
            found[name] = (output[0] if isinstance(output, tuple) else output)[0]

        return hook

    hooks = []
    for i, layer in enumerate(model.model.layers):
        for what, part in (("attention", layer.self_attn), ("feed_forward", layer.mlp), ("output", layer),
                           ("v", layer.self_attn.v_proj)):  # fmt: skip
            hooks.append(part.register_forward_hook(keep(f"layers.{i}.{what}")))
    module.apply_rotary_pos_emb = rotary
    try:
        model(input_ids=torch.tensor([tokens]), use_cache=False)
    finally:
        module.apply_rotary_pos_emb = plain
        for hook in hooks:
            hook.remove()
    for i, (q, q_rotated, k_rotated) in enumerate(rotations):
        found[f"layers.{i}.q"] = q.transpose(0, 1).flatten(1)
        found[f"layers.{i}.k"] = k_rotated.transpose(0, 1).flatten(1)
        found[f"layers.{i}.scores_max"] = scores_max(q_rotated, k_rotated, model.model.layers[i])
    return {name: rows.contiguous().clone() for name, rows in found.items()}


def main():
    for name in NAMES:
        tokens = load_file(tiny.CHECKPOINTS / name / "golden.safetensors")["tokens"][:TOKENS].tolist()
        tensors = trace(load(name), tokens)
        assert all(len(rows) == TOKENS and rows.isfinite().all() for rows in tensors.values())
        save_file(tensors, tiny.CHECKPOINTS / name / "trace.safetensors", metadata={"made_by": tiny.VERSIONS})
        print(name, sum(rows.numel() for rows in tensors.values()) * 4, "bytes")


if __name__ == "__main__":
    main()
