"""Per-layer results of transformers: the tensors of checkpoints/NAME/trace.safetensors.

Float32 [tokens, width] tensors with the names of `lariat logits --trace` (models/run/trace.h). q, k and v are skipped for
latent attention (DeepSeek), which not every implementation forms, and for norms after RoPE (Hunyuan): lariat's keys have no weight.
"""

import importlib
from unittest import mock

import torch
from transformers.models.bloom import modeling_bloom

TRACED = 24  # tokens


def scores_max(q, k, mask, scaling, softcap):
    """Maximum score per query head and token, from q [heads, tokens, head_dim]: [tokens, heads]."""
    k = k.repeat_interleave(q.shape[0] // k.shape[0], dim=0)
    scores = scaling * q @ k.transpose(1, 2)
    if softcap is not None:
        scores = softcap * torch.tanh(scores / softcap)
    return scores.masked_fill(mask < 0, -torch.inf).amax(-1).T


def rows(heads):
    """Concatenates the heads [1, heads, tokens, head_dim] of each token."""
    return heads[0].transpose(0, 1).flatten(1)


def parts(model):
    """Modules that compute attention, feed_forward and output of each layer: [(modules by name), ...]."""
    if model.config.model_type == "bloom":  # blocks add the residual inside
        return [dict(attention=x.self_attention.dense, feed_forward=x.mlp.dense_4h_to_h, output=x)
                for x in model.transformer.h]  # fmt: skip
    blocks = model.transformer.h if hasattr(model, "transformer") else model.base_model.layers
    names = ("self_attn", "attention", "attn")
    return [dict(attention=next(getattr(x, name) for name in names if hasattr(x, name)), feed_forward=x.mlp, output=x)
            for x in blocks]  # fmt: skip


def bloom_attention(model, layer, fused):
    """q, k, v and scores_max of a Bloom layer from its fused [1, tokens, heads * 3 * head_dim]: slopes * (j - i)."""
    attention = model.transformer.h[layer].self_attention
    q, k, v = attention._reshape(fused)
    distance = torch.arange(q.shape[2])
    distance = distance[None, :] - distance[:, None]
    slopes = modeling_bloom._get_alibi_slopes(attention.num_heads, "cpu")
    scores = attention.inv_norm_factor * q[0] @ k[0].transpose(1, 2) + slopes[:, None, None] * distance
    return {"q": rows(q), "k": rows(k), "v": rows(v),
            "scores_max": scores.masked_fill(distance > 0, -torch.inf).amax(-1).T}  # fmt: skip


def trace(model, tokens):
    module = importlib.import_module(type(model).__module__)
    rotary = getattr(module, "apply_rotary_pos_emb", None)
    attend = getattr(module, "eager_attention_forward", None)
    skipped = hasattr(model.config, "kv_lora_rank") or model.config.model_type.startswith("hunyuan")
    unrotated, found = [], {}

    def seen_rotary(q, k, *args, **kwargs):
        unrotated.append(q)
        return rotary(q, k, *args, **kwargs)

    def seen_attend(layer, q, k, v, mask, scaling, softcap=None, **kwargs):
        name = f"layers.{layer.layer_idx}"
        if not skipped:
            found[f"{name}.q"] = rows(unrotated.pop() if unrotated else q)  # layers without RoPE have no rotated q
            found[f"{name}.k"], found[f"{name}.v"] = rows(k), rows(v)
        found[f"{name}.scores_max"] = scores_max(q[0], k[0], mask[0, 0], scaling, softcap)
        return attend(layer, q, k, v, mask, scaling=scaling, softcap=softcap, **kwargs)

    def keep(name):
        def hook(_, __, output):
            found[name] = (output[0] if isinstance(output, tuple) else output)[0]

        return hook

    hooks = []
    for i, layer in enumerate(parts(model)):
        for what, part in layer.items():
            hooks.append(part.register_forward_hook(keep(f"layers.{i}.{what}")))
        if model.config.model_type == "bloom":
            fused = model.transformer.h[i].self_attention.query_key_value
            hooks.append(fused.register_forward_hook(lambda _, __, output, i=i: found.update(
                {f"layers.{i}.{name}": value for name, value in bloom_attention(model, i, output).items()})))
    seen = {"apply_rotary_pos_emb": seen_rotary, "eager_attention_forward": seen_attend}
    with mock.patch.multiple(module, create=True, **seen):
        model(input_ids=torch.tensor([tokens]), use_cache=False)
    for hook in hooks:
        hook.remove()
    return {name: rows.contiguous().clone() for name, rows in found.items()}
