#!/usr/bin/env python3
"""Writes tests/golden/vectors/*.json: reference numbers of every RoPE scaling and position method, in float64, from the formulas.

    tools/lab/golden/vectors.py          (needs numpy; tests/golden/vectors/README.md describes the files)
"""

import json
import pathlib
import struct

import numpy as np

from rope_formulas import rope, yarn_range

ROOT = pathlib.Path(__file__).resolve().parents[3]
DEMO, OUT = ROOT / "configs/demo", ROOT / "tests/golden/vectors"
L0, THETA, DIM, POSITIONS = 512, 10000.0, 64, (0, 1, 511, 8191, 131071, 1000000)
PAIRS = [(0, 0), (511, 0), (600, 560), (600, 0), (1023, 500), (2047, 0), (2047, 5), (2047, 1500), (2047, 2014), (2047, 2015)]
SHORT, LONG = [1 + i / 32 for i in range(32)], [1 + i / 8 for i in range(32)]
SCALINGS = [
    ("default", "_compute_default_rope_parameters", {}),
    ("linear", "_compute_linear_scaling_rope_parameters", {"factor": 4.0}),
    ("ntk", "NTK-aware: theta * s^(d / (d - 2))", {"factor": 4.0}),
    ("dynamic", "_compute_dynamic_ntk_parameters", {"factor": 2.0}),
    ("yarn", "_compute_yarn_parameters", {"factor": 4.0}),
    ("dynamic-yarn", "yarn with s = max(1, n / L0)", {}),
    ("llama3", "_compute_llama3_parameters", {"factor": 4.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0}),
    ("longrope", "_compute_longrope_parameters", {"factor": 4.0, "short_factor": SHORT, "long_factor": LONG}),
    ("proportional", "_compute_proportional_rope_parameters", {"factor": 4.0, "partial_rotary_factor": 0.5}),
    ("yarn-radix", "yarn_radix3: f s^-e, e = u (u + 1) / (m (m + 1)) on yarn's ramp", {"factor": 4.0}),
    ("dynamic-yarn-radix", "yarn-radix with s = max(1, n / L0)", {}),
]


def methods(n):
    """(name, formula, [(sees, query position, key position)], ratios of far frequencies, window, temperature), for n tokens."""
    i, j = np.arange(n)[:, None], np.arange(n)[None, :]
    d, row, column = i - j, np.arange(n), np.arange(n)
    pair = np.arange(DIM // 2)

    def two(name, formula, near, query, key, sees=None):
        return name, formula, [(near, row, column), (~near if sees is None else sees, query, key)], None, 0, 1.0

    s, w, chunks = 384, 128, i // 384 - j // 384
    yield "dca/chunk=384/window=128", "same chunk: d; chunk before: min(i mod s + s, s + w - 1) - j mod s; else s + w - 1 - j mod s", [
        (chunks == 0, row % s, column % s), (chunks == 1, np.minimum(row % s + s, s + w - 1), column % s),
        (chunks > 1, row * 0 + s + w - 1, column % s)], None, 0, 1.0  # fmt: skip
    yield two("string/shift=170/window=128", "d < S: d; else d - S + W", d < 170, row - 170 + 128, column)
    yield two("sinks/sinks=4/window=508", "d < w: d; j < n0: min(i, n0 + w - 1) - j", d < 508, np.minimum(row, 511), column,
              (d >= 508) & (j < 4))  # fmt: skip
    yield two("self-extend/group=4/window=128", "d < w: d; else i // G + w - w // G - j // G", d < 128, row // 4 + 128 - 32, column // 4)
    yield two("rerope/window=128", "min(d, w)", d < 128, row * 0 + 128, column * 0)
    yield two("rerope/window=128/k=4", "d < w: d; else w + (d - w) / k", d < 128, row / 4 + 128 - 32, column / 4)
    yield two("lm-infinite/sinks=10/window=512", "min(d, w), seen if j < n0 or d < w", d < 512, row * 0 + 512, column * 0,
              (d >= 512) & (j < 10))  # fmt: skip
    group = -(-n // L0)
    yield two("jet-long/window=32/group=auto", "d <= W: d; else i // G - j // G, G = ceil(n / L0)", d <= 32, row // group, column // group)
    scale = max((n - 32) / (L0 - 32), 1.0)
    low, high = yarn_range({}, THETA, DIM, L0)
    ramp = np.clip((pair - low) / (min(high, DIM // 2 - 1) - low), 0, 1)
    ratios = {"yarn": 1 - ramp * (1 - 1 / scale), "ntk": scale ** (-2 * pair / (DIM - 2)), "linear": np.full(DIM // 2, 1 / scale)}
    for far, ratio in ratios.items():
        formula = f"d <= W: d f; else W f + (d - W) f', f' of {far} at s = max(1, (n - W) / (L0 - W))"
        yield (f"jet-long-freq/window=32/far={far}/factor=auto", formula, [(d <= 32, row, column), (d > 32, row, column)], ratio, 32,
               0.1 * np.log(scale) + 1 if far == "yarn" else 1.0)  # fmt: skip


def weights():
    data = (DEMO / "model.safetensors").read_bytes()
    size = struct.unpack("<Q", data[:8])[0]
    for name, tensor in json.loads(data[8 : 8 + size]).items():
        if name != "__metadata__":
            begin, end = (8 + size + at for at in tensor["data_offsets"])
            bits = np.frombuffer(data[begin:end], np.uint16).astype(np.uint32) << 16
            yield name, bits.view(np.float32).astype(np.float64).reshape(tensor["shape"])


def turned(x, angles):
    """x [tokens, heads, DIM] rotated by [tokens, DIM / 2] radians, half-split."""
    a, b = np.split(x, 2, -1)
    cos, sin = np.cos(angles)[:, None], np.sin(angles)[:, None]
    return np.concatenate([a * cos - b * sin, a * sin + b * cos], -1)


def logits(tensors, tokens, ranges, temperature):
    """Logits of the last token. ranges: [(sees, query angles, key angles)]."""

    def normed(x, name):
        return x / np.sqrt((x * x).mean(-1, keepdims=True) + 1e-5) * tensors[name]

    n = len(tokens)
    x = tensors["model.embed_tokens.weight"][tokens]
    for layer in range(4):
        w = {key.split(".", 3)[3]: value for key, value in tensors.items() if key.startswith(f"model.layers.{layer}.")}
        h = normed(x, f"model.layers.{layer}.input_layernorm.weight")
        q, k, v = ((h @ w[f"self_attn.{kind}_proj.weight"].T).reshape(n, -1, DIM) for kind in "qkv")
        scores = np.full((4, n, n), -np.inf)
        for sees, query, key in ranges:
            product = np.einsum("ihd,jhd->hij", turned(q, query), np.repeat(turned(k, key), 2, 1))
            scores = np.where(sees & np.tri(n, dtype=bool), product * temperature / 8, scores)
        scores = np.exp(scores - scores.max(-1, keepdims=True))
        mixed = np.einsum("hij,jhd->ihd", scores / scores.sum(-1, keepdims=True), np.repeat(v, 2, 1)).reshape(n, -1)
        x = x + mixed @ w["self_attn.o_proj.weight"].T
        h = normed(x, f"model.layers.{layer}.post_attention_layernorm.weight")
        gate = h @ w["mlp.gate_proj.weight"].T
        x = x + (gate / (1 + np.exp(-gate)) * (h @ w["mlp.up_proj.weight"].T)) @ w["mlp.down_proj.weight"].T
    return normed(x[-1], "model.norm.weight") @ tensors["model.embed_tokens.weight"].T


def main():
    tensors = dict(weights())
    scalings, distances, demo = [], [], []

    def add_logits(name, n, ranges, temperature):
        row = logits(tensors, (7 * np.arange(n) ** 2 + 3 * np.arange(n) + 11) % 2048, ranges, temperature)
        demo.append({"name": name, "length": n, "logits": [round(x, 9) for x in row[::64]]})
        print(name, n, flush=True)

    for kind, formula, parameters in SCALINGS:
        config = {"head_dim": DIM, "hidden_size": 256, "num_attention_heads": 4, "max_position_embeddings": L0,
                  "rope_parameters": {"rope_type": kind, "rope_theta": THETA} | parameters}  # fmt: skip
        if kind == "longrope":
            config["rope_parameters"]["original_max_position_embeddings"] = L0
        for n in (L0, 4 * L0):
            inv_freq, factor = rope(config, n)
            angles = np.outer(POSITIONS, inv_freq)
            scalings.append({"name": kind, "formula": formula, "config": config, "length": n, "attention_factor": factor,
                             "inv_freq": inv_freq.tolist(), "positions": POSITIONS,
                             "cos": np.cos(angles).round(15).tolist(), "sin": np.sin(angles).round(15).tolist()})  # fmt: skip
            angles = np.outer(np.arange(n), inv_freq)
            add_logits(kind, n, [(True, angles, angles)], factor**2)
    inv_freq = rope(config | {"rope_parameters": {"rope_theta": THETA}}, L0)[0]
    for n in (L0, 4 * L0):
        for name, formula, ranges, ratio, window, temperature in methods(n):
            case = {"name": name, "formula": formula, "length": n, "distances": []}
            for i, j in (at for at in PAIRS if at[0] < n):
                seen = [float(query[i] - key[j]) for sees, query, key in ranges if sees[i, j]]
                case["distances"].append([i, j, *(seen or [None])])
            angles = [(sees, np.outer(query, inv_freq), np.outer(key, inv_freq)) for sees, query, key in ranges]
            if ratio is not None:
                case |= {"far_ratios": ratio.tolist(), "window": window, "temperature": temperature}
                sees, query, key = ranges[1]
                far = inv_freq * ratio
                angles[1] = (sees, np.outer(query, far) + window * (inv_freq - far), np.outer(key, far))
            distances.append(case)
            add_logits(name, n, angles, temperature)
    for name, cases in ("scalings", scalings), ("methods", distances), ("logits", demo):
        lines = ",\n".join(json.dumps(case) for case in cases)
        (OUT / f"{name}.json").write_text(f'{{"cases": [\n{lines}\n]}}\n')


if __name__ == "__main__":
    main()
