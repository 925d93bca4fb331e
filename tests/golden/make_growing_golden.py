"""Losses of a text that a growing context reads token by token, with keys rotated again and with keys left.

    python tests/golden/make_growing_golden.py      (after make_checkpoints.py)

Writes tests/golden/growing.json: {"checkpoint", "original_ctx", "steps_per_octave", "tokens", "cases"}, each case with
"scaling", "factor", "stale" and "losses", -ln p(tokens[i + 1] | tokens[: i + 1]) in nats. Llama's forward pass in
float64 numpy, written from its formulas, with the frequencies of rope_formulas.py: when token i arrives, the sequence
has i + 1 tokens and the frequencies of the scale step that length is on. The cache holds keys before rotation; to be
consistent all are rotated with the frequencies of now, stale ones with those that held when they were written. The
attention factor is that of now for both (keys carry none).
"""

import json

import numpy as np
from safetensors.numpy import load_file

from rope_formulas import rope
from tiny_models import CHECKPOINTS, GOLDEN

CHECKPOINT = "llama_gqa"
TOKENS = 4 * 64
STEPS = 4  # per octave
CASES = {"dynamic": 2.0, "dynamic-yarn": None}


def rms_norm(x, weight, eps):
    return x / np.sqrt(np.mean(x * x, -1, keepdims=True) + eps) * weight


def rotated(x, position, inv_freq):
    """x: [..., head_dim] at positions `position` (scalar or broadcastable), frequencies per row or common."""
    angle = np.asarray(position, np.float64)[..., None] * inv_freq
    half = x.shape[-1] // 2
    a, b = x[..., :half], x[..., half:]
    return np.concatenate([a * np.cos(angle) - b * np.sin(angle), b * np.cos(angle) + a * np.sin(angle)], -1)


def step_length(length, original):
    i = 0
    while length > original and original * 2 ** (i / STEPS) < length:
        i += 1
    return original * 2 ** (i / STEPS) if length > original else length


class Growing:
    def __init__(self, folder, scaling, stale):
        self.config = json.loads((folder / "config.json").read_text())
        self.config["rope_scaling"] = scaling
        self.weights = {name: w.astype(np.float64) for name, w in load_file(folder / "model.safetensors").items()}
        self.stale = stale
        self.keys = [[] for _ in range(self.config["num_hidden_layers"])]
        self.values = [[] for _ in range(self.config["num_hidden_layers"])]
        self.written = []  # the frequencies that each key was first rotated with

    def attend(self, layer, x, inv_freq, factor):
        c, prefix = self.config, f"model.layers.{layer}.self_attn."
        heads, kv_heads, dim = c["num_attention_heads"], c["num_key_value_heads"], c["head_dim"]
        q, k, v = (self.weights[prefix + f"{p}_proj.weight"] @ x for p in "qkv")
        self.keys[layer].append(k.reshape(kv_heads, dim))
        self.values[layer].append(v.reshape(kv_heads, dim))
        positions = np.arange(len(self.keys[layer]))
        of_keys = np.array(self.written) if self.stale else np.broadcast_to(inv_freq, (len(positions), len(inv_freq)))
        keys = rotated(np.array(self.keys[layer]), positions[:, None], of_keys[:, None, :])
        query = rotated(q.reshape(heads, dim), positions[-1], inv_freq) * factor**2
        values = np.array(self.values[layer])
        out = []
        for head in range(heads):
            group = head * kv_heads // heads
            scores = keys[:, group] @ query[head] / np.sqrt(dim)
            p = np.exp(scores - scores.max())
            out.append(p / p.sum() @ values[:, group])
        return self.weights[prefix + "o_proj.weight"] @ np.concatenate(out)

    def read(self, token):
        """The logits after one more token."""
        c, w = self.config, self.weights
        length = len(self.written) + 1
        inv_freq, factor = rope(c, step_length(length, c["max_position_embeddings"]))
        self.written.append(inv_freq)
        x = w["model.embed_tokens.weight"][token]
        for layer in range(c["num_hidden_layers"]):
            prefix = f"model.layers.{layer}."
            normed = rms_norm(x, w[prefix + "input_layernorm.weight"], c["rms_norm_eps"])
            x = x + self.attend(layer, normed, inv_freq, factor)
            normed = rms_norm(x, w[prefix + "post_attention_layernorm.weight"], c["rms_norm_eps"])
            gate, up = (w[prefix + f"mlp.{p}_proj.weight"] @ normed for p in ("gate", "up"))
            x = x + w[prefix + "mlp.down_proj.weight"] @ (gate / (1 + np.exp(-gate)) * up)
        return w["lm_head.weight"] @ rms_norm(x, w["model.norm.weight"], c["rms_norm_eps"])


def losses(folder, scaling, stale, tokens):
    model = Growing(folder, scaling, stale)
    result = []
    for token, following in zip(tokens, tokens[1:]):
        logits = model.read(token)
        result.append(round(float(np.log(np.exp(logits - logits.max()).sum()) + logits.max() - logits[following]), 9))
    return result


def main():
    folder = CHECKPOINTS / CHECKPOINT
    config = json.loads((folder / "config.json").read_text())
    tokens = np.random.default_rng(11).integers(3, config["vocab_size"], TOKENS).tolist()
    cases = []
    for kind, factor in CASES.items():
        for stale in (False, True):
            scaling = {"rope_type": kind, "factor": factor, "rope_theta": config["rope_parameters"]["rope_theta"]}
            cases.append({"scaling": kind, "factor": factor, "stale": stale,
                          "losses": losses(folder, scaling, stale, tokens)})  # fmt: skip
    golden = {"checkpoint": CHECKPOINT, "original_ctx": config["max_position_embeddings"], "steps_per_octave": STEPS,
              "tokens": tokens, "cases": cases}  # fmt: skip
    (GOLDEN / "growing.json").write_text(json.dumps(golden) + "\n")
    for case in cases:
        print(case["scaling"], "stale" if case["stale"] else "consistent", np.mean(case["losses"][64:]))


if __name__ == "__main__":
    main()
