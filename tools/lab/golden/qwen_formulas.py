"""Qwen 1's forward pass in float64 numpy, from the formulas of modeling_qwen.py (Qwen/Qwen-7B) alone.

One prefill of n tokens: NTK by n, log-n by position. transformers has no such class; its closest class, Qwen2, has neither.
"""

import math

import numpy as np


def alpha(n, seq_length):
    """get_ntk_alpha of modeling_qwen.py."""
    return max(2 ** math.ceil(math.log2(n / seq_length) + 1) - 1, 1)


def norm(x, weight, eps):
    return x / np.sqrt((x * x).mean(-1, keepdims=True) + eps) * weight


def rotated(x, angles):
    """x [heads, n, d], rotated in half-split pairs."""
    first, second = np.split(x, 2, -1)
    return np.concatenate([first * np.cos(angles) - second * np.sin(angles),
                           second * np.cos(angles) + first * np.sin(angles)], -1)  # fmt: skip


def attention(q, k, v):
    """Causal attention, q, k, v [heads, n, d]; 256 queries at a time."""
    out = np.empty_like(q)
    for at in range(0, q.shape[1], 256):
        end = min(at + 256, q.shape[1])
        scores = q[:, at:end] @ k[:, :end].transpose(0, 2, 1) / math.sqrt(q.shape[-1])
        scores += np.where(np.arange(end) > np.arange(at, end)[:, None], -np.inf, 0.0)
        weights = np.exp(scores - scores.max(-1, keepdims=True))
        out[:, at:end] = weights / weights.sum(-1, keepdims=True) @ v[:, :end]
    return out


def logits(config, weights, tokens):
    """Logits [n, vocab] of one prefill; `weights` by their published names, float64."""
    n, heads, d = len(tokens), config["num_attention_heads"], config["kv_channels"]
    length, eps = config["seq_length"], config["layer_norm_epsilon"]
    base = float(config["rotary_emb_base"])
    if config["use_dynamic_ntk"]:
        base *= alpha(n, length) ** (d / (d - 2))
    angles = np.arange(n)[:, None] / base ** (np.arange(0, d, 2) / d)
    logn = np.ones(n)
    if config["use_logn_attn"]:
        logn = np.array([math.log(p + 1) / math.log(length) if p + 1 > length else 1.0 for p in range(n)])
    x = weights["transformer.wte.weight"][tokens]
    for layer in range(config["num_hidden_layers"]):
        w = {name.removeprefix(f"transformer.h.{layer}."): rows for name, rows in weights.items()}
        packed = norm(x, w["ln_1.weight"], eps) @ w["attn.c_attn.weight"].T + w["attn.c_attn.bias"]
        q, k, v = (part.reshape(n, heads, d).transpose(1, 0, 2) for part in np.split(packed, 3, -1))
        q, k = rotated(q, angles) * logn[:, None], rotated(k, angles)
        x = x + attention(q, k, v).transpose(1, 0, 2).reshape(n, -1) @ w["attn.c_proj.weight"].T
        y = norm(x, w["ln_2.weight"], eps)
        gate = y @ w["mlp.w2.weight"].T
        x = x + (y @ w["mlp.w1.weight"].T * gate / (1 + np.exp(-gate))) @ w["mlp.c_proj.weight"].T
    return norm(x, weights["transformer.ln_f.weight"], eps) @ weights["lm_head.weight"].T
