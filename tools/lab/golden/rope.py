"""RoPE goldens: frequencies, logits under every scaling, and a growing context, in tests/golden/{rope,growing.json}.

Golden files contain their inputs (name, config and length; tokens): add new cases there, and these functions write the oracles'
results. rope_formulas.py computes frequencies and attention factors in float64; if transformers supports the type, both must
agree.
"""

import contextlib
import copy
import itertools
import json
from unittest import mock

import numpy as np
import torch
import transformers
from safetensors.torch import save_file
from transformers import LlamaConfig
from transformers.modeling_rope_utils import ROPE_INIT_FUNCTIONS
from transformers.models.llama import modeling_llama
from transformers.models.phi3 import modeling_phi3

import tiny
from rope_formulas import rope

FOLDER = tiny.GOLDEN / "rope"


def type_of(config):
    scaling = config.get("rope_scaling") or config.get("rope_parameters") or {}
    return scaling.get("rope_type", scaling.get("type", "default"))


def known(kind):
    """Whether transformers supports the type."""
    return kind == "default" or kind in ROPE_INIT_FUNCTIONS


def from_transformers(config, length):
    """(inv_freq, attention_factor) of transformers; by Phi-3's code, as Llama's ignores partial_rotary_factor."""
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


# ---- logits of one model under every scaling --------------------------------------------------------------------


def scaled_model(base, weights, overrides, length):
    """(model, source, rotation to use); a new model per length, as transformers' dynamic types keep state."""
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
    # Phi-3's rotation supports partial rotary factors; transformers' Llama rotates whole heads only.
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
        if name.startswith("dynamic") and n <= base["max_position_embeddings"]:  # no scaling yet
            assert torch.allclose(kept, tensors[f"default @ {n}"], atol=1e-3), case
    save_file(tensors, FOLDER / "logits.safetensors", {"made_with": tiny.VERSIONS})
    tiny.write_cases(FOLDER / "logits.json", {"checkpoint": golden["checkpoint"], "tokens": tokens}, cases)


# ---- a growing context in float64 -------------------------------------------------------------------------------


def step_length(length, original, steps):
    """The length of a scale step: the smallest original * 2^(i / steps) >= `length`."""
    if not steps or length <= original:
        return length
    return next(s for i in itertools.count(1) if (s := original * 2 ** (i / steps)) >= length)


def growing_losses(folder, case, steps, tokens):
    """Losses of transformers' Llama on a text, token by token in float64.

    The cache holds unrotated keys; a consistent cache rotates all of them with the current frequencies, a stale one with those at
    the time of writing. Both use the current attention factor (keys carry none).
    """
    config = tiny.read(folder / "config.json")
    theta, original = config["rope_parameters"]["rope_theta"], config["max_position_embeddings"]
    config["rope_scaling"] = {"rope_theta": theta, "rope_type": case["scaling"], "factor": case["factor"]}
    rotate, attend = modeling_llama.apply_rotary_pos_emb, modeling_llama.eager_attention_forward
    written, factor, cache, losses = [], 1.0, None, []

    def rotated(x, angles):
        angles = torch.cat((angles, angles), -1)[None]
        return rotate(x, x, angles.cos(), angles.sin())[0]

    def attend_rotated(layer, query, key, *rest, **more):
        n, now = len(written), written[-1:]
        key = rotated(key, torch.arange(n)[:, None] * torch.stack(written if case["stale"] else now * n))
        query = rotated(query, (n - 1) * torch.stack(now)) * factor**2
        return attend(layer, query, key, *rest, **more)

    unrotated = tiny.llama_rotation(lambda q, k, cos, sin: (q, k))
    with (tiny.in_double(tiny.load(folder, torch.float32)) as model, unrotated,
          mock.patch.object(modeling_llama, "eager_attention_forward", attend_rotated)):  # fmt: skip
        for token, following in zip(tokens, tokens[1:]):
            inv_freq, factor = rope(config, step_length(len(written) + 1, original, steps))
            written.append(torch.tensor(inv_freq))
            out = model(input_ids=torch.tensor([[token]]), past_key_values=cache, use_cache=True)
            cache = out.past_key_values
            losses.append(round(-out.logits[0, 0].log_softmax(-1)[following].item(), 9))
    return losses


def growing():
    path = tiny.GOLDEN / "growing.json"
    golden = tiny.read(path)
    folder = tiny.CHECKPOINTS / golden["checkpoint"]
    for case in golden["cases"]:
        case["losses"] = growing_losses(folder, case, golden["steps_per_octave"], golden["tokens"])
    path.write_text(json.dumps(golden) + "\n")
