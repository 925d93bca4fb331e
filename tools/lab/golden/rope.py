"""RoPE: frequencies, angles, logits under every scaling, and a context that grows, in tests/golden/{rope,growing.json}.

The cases stand in the golden files themselves (name, config and length; tokens): a new one is added there, and these
functions write what the oracles say. Frequencies and attention factors in float64 are those of rope_formulas.py;
where transformers has the type, both are asserted to agree.
"""

import contextlib
import copy
import json

import mpmath
import numpy as np
import torch
import transformers
from safetensors.numpy import load_file as load_arrays
from safetensors.torch import save_file
from transformers import LlamaConfig
from transformers.modeling_rope_utils import ROPE_INIT_FUNCTIONS
from transformers.models.phi3 import modeling_phi3

import tiny
from rope_formulas import rope

FOLDER = tiny.GOLDEN / "rope"


def type_of(config):
    scaling = config.get("rope_scaling") or config.get("rope_parameters") or {}
    return scaling.get("rope_type", scaling.get("type", "default"))


def known(kind):
    """Whether transformers has the type."""
    return kind == "default" or kind in ROPE_INIT_FUNCTIONS


def from_transformers(config, length):
    """(inv_freq, attention_factor) of transformers; Phi-3's default, as Llama's ignores partial_rotary_factor."""
    parsed = LlamaConfig(**copy.deepcopy(config))
    kind, plain = parsed.rope_parameters["rope_type"], modeling_phi3.Phi3RotaryEmbedding.compute_default_rope_parameters
    if not known(kind):
        return None
    inv_freq, attention_factor = (plain if kind == "default" else ROPE_INIT_FUNCTIONS[kind])(parsed, "cpu", seq_len=length)
    return inv_freq.numpy(), attention_factor


def frequency_case(name, config, length):
    exact, attention_factor = rope(config, length)
    case = {"name": name, "type": type_of(config), "source": "formula", "config": config, "length": length,
            "attention_factor": attention_factor, "inv_freq": exact.tolist()}  # fmt: skip
    oracle = from_transformers(config, length)
    if oracle is not None:
        single, factor = oracle
        worst = np.max(np.abs(single - exact) / np.where(exact == 0, 1, exact))
        assert single.shape == exact.shape and worst <= 1e-6, (name, worst)
        assert abs(factor - attention_factor) <= 1e-12, (name, factor, attention_factor)
        case |= {"source": "transformers", "attention_factor": factor,
                 "inv_freq_f32": [float(str(value)) for value in single]}  # fmt: skip
    return case


def frequencies():
    path = FOLDER / "frequencies.json"
    cases = [frequency_case(case["name"], case["config"], case["length"]) for case in tiny.read(path)["cases"]]
    assert len({case["name"] for case in cases}) == len(cases)
    tiny.write_cases(path, {"transformers": transformers.__version__}, cases)


def angle_cases():
    mpmath.mp.dps = 50
    for theta in (1e4, 5e5, 1e6):
        for dim in (64, 128):
            inv_freq = np.power(theta, -np.arange(0, dim, 2, dtype=np.float64) / dim)
            for pair in (0, 1, 7, dim // 4, dim // 2 - 1):
                for position in (0, 511, 8191, 131071, 1000000, 1048575):
                    angle = position * inv_freq[pair]
                    cos, sin = np.cos(angle), np.sin(angle)
                    assert abs(mpmath.cos(angle) - cos) < 1e-15 and abs(mpmath.sin(angle) - sin) < 1e-15
                    yield {"theta": theta, "dim": dim, "pair": pair, "position": position,
                           "inv_freq": inv_freq[pair].item(), "angle": angle.item(), "cos": cos.item(),
                           "sin": sin.item()}  # fmt: skip


def angles():
    tiny.write_cases(FOLDER / "angles.json", {}, angle_cases())


# ---- logits of one model under every scaling --------------------------------------------------------------------


def scaled_model(base, weights, overrides, length):
    """(model, source, the rotation to run it with); a new model per length, as transformers' dynamic types remember."""
    merged = copy.deepcopy(base | overrides)
    scaling = merged.get("rope_scaling") or merged["rope_parameters"]
    kind, formula = type_of(merged), not known(type_of(merged))
    unscaled = {"rope_parameters": {"rope_theta": scaling.get("rope_theta"), "rope_type": "default"}}
    model = tiny.build(LlamaConfig(**(merged | unscaled if formula else merged)), 0)
    model.load_state_dict(weights)
    rotary = model.model.rotary_emb
    partial = kind != "proportional" and "partial_rotary_factor" in scaling
    if formula:
        inv_freq, rotary.attention_scaling = rope(merged, length)
        rotary.inv_freq = torch.tensor(inv_freq, dtype=torch.float32)
    elif partial and kind == "default":
        rotary.inv_freq = modeling_phi3.Phi3RotaryEmbedding.compute_default_rope_parameters(model.config)[0]
    source = "formula" if formula else "partial rotation" if partial else "transformers"
    # Phi-3's rotation turns as much of a head as there are frequencies; transformers' Llama rotates whole heads only.
    rotation = tiny.llama_rotation(modeling_phi3.apply_rotary_pos_emb) if partial else contextlib.nullcontext()
    return model, source, rotation


def rope_logits():
    golden = tiny.read(FOLDER / "logits.json")
    tokens, checkpoint = golden["tokens"], tiny.CHECKPOINTS / golden["checkpoint"]
    base, weights = tiny.read(checkpoint / "config.json"), tiny.read_weights(checkpoint)
    tensors, cases = {}, []
    for case in golden["cases"]:
        name, n = case["name"], case["length"]
        model, source, rotation = scaled_model(base, weights, case["config"], n)
        with rotation:
            logits = tiny.one_shot(model, tokens[:n])
        positions = [n // 8, n // 4, n // 2, 3 * n // 4, n - 4, n - 3, n - 2, n - 1]
        tensors[f"{name} @ {n}"] = kept = logits[positions].clone()
        cases.append({"name": name, "config": case["config"], "length": n, "positions": positions,
                      "tensor": f"{name} @ {n}", "source": source})  # fmt: skip
        if name in ("dynamic 1", "dynamic 4", "dynamic-yarn") and n <= base["max_position_embeddings"]:  # no scaling yet
            assert torch.allclose(kept, tensors[f"default @ {n}"], atol=1e-3), case
    save_file(tensors, FOLDER / "logits.safetensors", {"made_with": tiny.VERSIONS})
    tiny.write_cases(FOLDER / "logits.json", {"checkpoint": golden["checkpoint"], "tokens": tokens}, cases)


# ---- a growing context in float64 -------------------------------------------------------------------------------

def rms_norm(x, weight, eps):
    return x / np.sqrt(np.mean(x * x, -1, keepdims=True) + eps) * weight


def rotated(x, position, inv_freq):
    """x: [..., head_dim] at positions `position` (scalar or broadcastable), frequencies per row or common."""
    angle = np.asarray(position, np.float64)[..., None] * inv_freq
    half = x.shape[-1] // 2
    a, b = x[..., :half], x[..., half:]
    return np.concatenate([a * np.cos(angle) - b * np.sin(angle), b * np.cos(angle) + a * np.sin(angle)], -1)


def step_length(length, original, steps):
    """The length of the scale step, `steps` to the octave, that `length` is on."""
    i = 0
    while length > original and original * 2 ** (i / steps) < length:
        i += 1
    return original * 2 ** (i / steps) if length > original else length


class Growing:
    """Llama's forward pass, token by token, written from its formulas.

    The cache holds keys before rotation; to be consistent all are rotated with the frequencies of now, stale ones with
    those that held when they were written. The attention factor is that of now for both (keys carry none).
    """

    def __init__(self, folder, scaling, stale, steps):
        self.config = tiny.read(folder / "config.json")
        scaling = {"rope_theta": self.config["rope_parameters"]["rope_theta"]} | scaling
        self.config["rope_scaling"] = scaling
        self.weights = {name: w.astype(np.float64) for name, w in load_arrays(folder / "model.safetensors").items()}
        self.stale, self.steps = stale, steps
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
        inv_freq, factor = rope(c, step_length(length, c["max_position_embeddings"], self.steps))
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


def growing():
    path = tiny.GOLDEN / "growing.json"
    golden = tiny.read(path)
    tokens = golden["tokens"]
    for case in golden["cases"]:
        scaling = {"rope_type": case["scaling"], "factor": case["factor"]}
        model = Growing(tiny.CHECKPOINTS / golden["checkpoint"], scaling, case["stale"], golden["steps_per_octave"])
        case["losses"] = []
        for token, following in zip(tokens, tokens[1:]):
            logits = model.read(token)
            loss = np.log(np.exp(logits - logits.max()).sum()) + logits.max() - logits[following]
            case["losses"].append(round(float(loss), 9))
    path.write_text(json.dumps(golden) + "\n")
