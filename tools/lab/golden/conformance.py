#!/usr/bin/env python3
"""Compares lariat with transformers: every scaling x family, one pass and decoding, and frequencies of real settings.

    tools/lab/golden/conformance.py --lariat build/lariat [--configs FOLDER]

Writes the marked parts of docs/accuracy.md; exits with 1 if a difference exceeds its limit. --configs adds the frequencies of
every config (*.json) of a folder. The models are copies of tests/golden/checkpoints with a scaling in config.json, all in float32:
transformers with eager attention, lariat with f32 weights and caches and one thread.

transformers has no consistent cache: its cached keys keep the frequencies at the time of writing. `unrotated_keys` emulates one:
it stores keys before RoPE and rotates all of them at every step. For types that transformers lacks, its rotary embedding gets the
frequencies and attention factor of rope_formulas.py.
"""

import argparse
import contextlib
import copy
import json
import subprocess
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path
from unittest import mock

import numpy as np
import torch
from safetensors.torch import load_file, save_file
from transformers import AutoConfig

import tiny
import pages  # of tools/lab; tiny adds the path
from rope import from_transformers, known, step_length
from rope_formulas import rope

DOCUMENT = tiny.ROOT / "docs" / "accuracy.md"
ORIGINAL = 64
LENGTHS = (48, 64, 65, 320)  # single pass: below, at, just beyond and far beyond the original context
PREFILL, DECODED = 40, 160  # decode: tokens of the prefill, and in total
STEPS = 4  # scale steps per octave: lariat's default
STEPPED = ("dynamic", "dynamic-yarn", "dynamic-yarn-radix")
BY_LENGTH = (*STEPPED, "longrope")  # frequencies change while a sequence grows
MODES = {"pass": "one pass", "decode": "decode", "steps": f"decode, {STEPS} steps per octave",
         "stale": "decode, stale keys"}  # fmt: skip
# transformers is within 1.0e-4 of float64 and lariat within 5e-5 (the table by family); the limit is twice the sum, as CPUs
# sum in different orders. A factor wrong by 0.1 % must move logits by more.
LOGIT_LIMIT = 3e-4
FREQUENCY_LIMIT = 1e-6  # relative; transformers' frequencies are float32
ROPE_KEYS = ("rope_scaling", "rope_parameters", "rope_theta", "partial_rotary_factor", "max_position_embeddings",
             "original_max_position_embeddings")  # fmt: skip
FAMILIES = {"Llama": "llama_gqa", "Mistral": "mistral_window", "Qwen2": "qwen2", "Qwen3": "qwen3", "MiniMind": "minimind",
            "Phi-3": "phi3", "Gemma": "gemma", "Gemma 2": "gemma2", "Gemma 3": "gemma3", "SmolLM3": "smollm3",
            "Granite": "granite", "OLMo 2": "olmo2", "Olmo 3": "olmo3", "Ministral 3": "ministral3"}  # fmt: skip
# Head size of the models of a preset in configs/rope; 128 for generic presets.
HEAD_DIMS = {"deepseek-v2": 64, "gpt-oss": 64, "phi-3.5-mini-128k": 96}


@dataclass
class Case:
    """One model under one scaling, for both programs."""

    family: str
    config: dict  # for transformers, with the scaling as rope_parameters
    local_theta: float | None  # of windowed layers with a local RoPE, never scaled
    weights: dict
    folder: Path  # opened by lariat
    options: list  # additional options of lariat

    @property
    def kind(self):
        return self.config["rope_parameters"]["rope_type"]

    @property
    def known(self):
        """Whether transformers supports the type in this family."""
        return known(self.kind) and (self.family != "Phi-3" or self.kind in ("default", "longrope"))

    def layered(self, parameters):
        """rope_parameters for a config."""
        if self.local_theta is None:
            return parameters
        local = {"rope_type": "default", "rope_theta": self.local_theta}
        return {"full_attention": parameters, "sliding_attention": local}


def scalings(pairs):
    """(rope_parameters without theta, max_position_embeddings) of each scaling, for heads with `pairs` pairs."""
    original = {"original_max_position_embeddings": ORIGINAL}
    longrope = {"short_factor": [round(1 + 0.1 * i, 3) for i in range(pairs)],
                "long_factor": [round(1 + 3.2 * (i / (pairs - 1)) ** 2, 3) for i in range(pairs)]}  # fmt: skip
    longest = 4 * ORIGINAL
    return [
        ({"rope_type": "default"}, ORIGINAL),
        ({"rope_type": "linear", "factor": 4.0}, longest),
        ({"rope_type": "ntk", "factor": 4.0}, longest),
        ({"rope_type": "dynamic", "factor": 4.0}, ORIGINAL),
        ({"rope_type": "yarn", "factor": 4.0} | original, longest),
        ({"rope_type": "dynamic-yarn"} | original, longest),
        ({"rope_type": "yarn-radix", "factor": 4.0} | original, longest),
        ({"rope_type": "dynamic-yarn-radix"} | original, longest),
        ({"rope_type": "llama3", "factor": 4.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0} | original, longest),
        ({"rope_type": "longrope"} | longrope | original, longest),
        ({"rope_type": "proportional", "partial_rotary_factor": 0.5}, longest),
    ]


def make_case(family, scaling, longest, folder):
    source = tiny.CHECKPOINTS / FAMILIES[family]
    written = tiny.read(source / "config.json")
    original, weights = tiny.as_transformers(written, tiny.read_weights(source))
    rope = AutoConfig.for_model(**copy.deepcopy(original)).rope_parameters
    local, rope = rope.get("sliding_attention", {}).get("rope_theta"), rope.get("full_attention", rope)
    parameters = {key: rope[key] for key in ("rope_theta", "llama_4_scaling_beta") if key in rope} | scaling
    config = {key: value for key, value in original.items() if key not in ROPE_KEYS}
    config |= {"max_position_embeddings": longest, "rope_parameters": parameters}
    if family == "Phi-3":  # a default of 4096 there overrides the one inside the dictionary
        config["original_max_position_embeddings"] = ORIGINAL
    if "llama_4_scaling_beta" in rope:  # scaled by the position divided by this value
        parameters["original_max_position_embeddings"] = ORIGINAL
    case = Case(family, config, local, weights, folder, [])
    config = config | {"rope_parameters": case.layered(parameters)}
    folder.mkdir(exist_ok=True)
    save_file(weights, folder / "model.safetensors")
    if family == "MiniMind":  # its config.json cannot hold a scaling
        config = {key: value for key, value in written.items() if key not in ROPE_KEYS}
        config |= {"max_position_embeddings": longest, "rope_theta": parameters["rope_theta"]}
        if scaling["rope_type"] != "default":
            (folder / "rope.json").write_text(json.dumps(parameters))
            case.options = ["--rope-config", folder / "rope.json"]
    (folder / "config.json").write_text(json.dumps(config))
    return case


def run_lariat(program, case, tokens, *options):
    """lariat's logits [n, vocab]."""
    out = case.folder.parent / "logits.safetensors"  # no file of the model
    command = [program, "logits", "--model", case.folder, "--tokens", ",".join(map(str, tokens)), "--out", out,
               "--device", "cpu", "--threads", "1", "--dtype", "f32", "--kv-dtype", "f32", *case.options,
               *options]  # fmt: skip
    result = subprocess.run(list(map(str, command)), capture_output=True, text=True, check=False)
    if result.returncode != 0:
        sys.exit(f"{case.family}, {case.kind}: {result.stderr.strip()}")
    return load_file(out)["logits"]


def make_model(case, *, as_it_is):
    """transformers' model: with its own scaling, or with plain RoPE for `set_frequencies`."""
    config = copy.deepcopy(case.config)
    parameters = config["rope_parameters"]
    if not as_it_is:
        kept = ("rope_theta", "llama_4_scaling_beta", "original_max_position_embeddings")
        parameters = {key: parameters[key] for key in kept if key in parameters} | {"rope_type": "default"}
    config["rope_parameters"] = case.layered(parameters)
    del config["architectures"]
    model = tiny.build(AutoConfig.for_model(**config), 0)
    model.load_state_dict(case.weights, strict=not model.config.tie_word_embeddings)
    return model


def set_frequencies(model, case, length):
    """Sets the frequencies for `length`: transformers' if it knows the type."""
    inv_freq, factor = (from_transformers if known(case.kind) else rope)(case.config, length)
    which = "" if case.local_theta is None else "full_attention_"
    setattr(model.model.rotary_emb, which + "inv_freq", torch.tensor(np.asarray(inv_freq), dtype=torch.float32))
    setattr(model.model.rotary_emb, which + "attention_scaling", factor)


def in_double(case, tokens):
    """One pass entirely in float64, angles and frequencies included."""
    model = make_model(case, as_it_is=False).double()
    local = case.config | {"rope_parameters": {"rope_type": "default", "rope_theta": case.local_theta}}

    tiny.rotate_in_double(model, lambda layer: rope(local if layer == "sliding_attention" else case.config, len(tokens)))
    return tiny.one_shot(model, tokens)


def one_pass(case, tokens):
    model = make_model(case, as_it_is=case.known)
    if not case.known:
        set_frequencies(model, case, len(tokens))
    return tiny.one_shot(model, tokens)


@contextlib.contextmanager
def unrotated_keys(model):
    """Runs `model` with a cache of unrotated keys; attention rotates all of them with the current frequencies."""
    module = sys.modules[type(model).__module__]
    rotate, attend = module.apply_rotary_pos_emb, module.eager_attention_forward
    newest = [0]  # largest position of the current step
    layered = "full_attention" in model.config.rope_parameters

    def rotate_query(q, k, cos, sin, unsqueeze_dim=1):
        return rotate(q, q, cos, sin, unsqueeze_dim)[0], k

    def attend_rotated(layer, query, key, value, *rest, **more):
        positions = torch.arange(newest[0] + 1 - key.shape[2], newest[0] + 1)  # a window drops the oldest positions
        if getattr(layer, "use_rope", True):  # SmolLM3
            own = [model.config.layer_types[layer.layer_idx]] if layered else []
            cos, sin = model.model.rotary_emb(key, positions[None], *own)
            key = rotate(key, key, cos, sin)[0]
        return attend(layer, query, key, value, *rest, **more)

    def remember(_, positional, named):
        newest[0] = int(named["position_ids"].max())

    hook = model.model.register_forward_pre_hook(remember, with_kwargs=True)
    with mock.patch.multiple(module, apply_rotary_pos_emb=rotate_query, eager_attention_forward=attend_rotated):
        yield
    hook.remove()


def decode(case, tokens, *, consistent, steps=0):
    """Prefills PREFILL tokens and decodes the rest, with transformers' own cache or a cache of unrotated keys."""
    as_it_is = not consistent and case.known
    model = make_model(case, as_it_is=as_it_is)
    cache, rows = None, []
    with unrotated_keys(model) if consistent else contextlib.nullcontext():
        for start, end in [(0, PREFILL)] + [(i, i + 1) for i in range(PREFILL, len(tokens))]:
            if not as_it_is:
                set_frequencies(model, case, step_length(end, ORIGINAL, steps))
            result = model(input_ids=torch.tensor([tokens[start:end]]), position_ids=torch.arange(start, end)[None],
                           past_key_values=cache, use_cache=True)  # fmt: skip
            cache = result.past_key_values
            rows.append(result.logits[0])
    return torch.cat(rows)


def worst(a, b):
    return (a - b).abs().max().item()


def decode_differences(program, case, tokens, exact):
    decoding = ["--decode-from", PREFILL]
    reference = decode(case, tokens, consistent=case.kind in BY_LENGTH)
    found = {"decode": worst(run_lariat(program, case, tokens, *exact, *decoding), reference)}
    if case.kind in STEPPED:
        ours = run_lariat(program, case, tokens, "--rope-steps", STEPS, *decoding)
        found["steps"] = worst(ours, decode(case, tokens, consistent=True, steps=STEPS))
    if case.kind in BY_LENGTH and case.known:
        stale = decode(case, tokens, consistent=False)
        ours = run_lariat(program, case, tokens, *exact, *decoding, "--rope-cache", "stale")
        found |= {"stale": worst(ours, stale), "cost": worst(stale, reference)}
    return found


def differences(program, case, tokens):
    """{column: largest logit difference} of one cell, and the standard deviation of the logits."""
    exact = ["--rope-steps", "exact"] if case.kind in STEPPED else []
    found = {"pass": 0.0}
    for n in LENGTHS:
        oracle, ours = one_pass(case, tokens[:n]), run_lariat(program, case, tokens[:n], *exact)
        found["pass"] = max(found["pass"], worst(ours, oracle))
    double = in_double(case, tokens)
    found |= {"oracle": worst(oracle, double), "lariat": worst(ours, double)}
    return found | decode_differences(program, case, tokens[:DECODED], exact), oracle.std().item()


def cost_of_a_thousandth(program, family, scaling, longest, folder, tokens):
    """Logit difference for a factor, or longrope attention factor, wrong by 0.1 %; None without either."""
    kind, key = scaling["rope_type"], "factor" if "factor" in scaling else "attention_factor"
    if key == "attention_factor" and kind != "longrope":
        return None
    case = make_case(family, scaling, longest, folder)
    value = scaling.get(key) or rope(case.config, len(tokens))[1]
    exact = ["--rope-steps", "exact"] if kind in STEPPED else []
    return worst(*(run_lariat(program, make_case(family, scaling | {key: v}, longest, folder), tokens, *exact)
                   for v in (value, 1.001 * value)))  # fmt: skip


def measure_logits(program):
    """({scaling: {family: differences}}, {family: standard deviation})"""
    table, spread = {}, {}
    with tempfile.TemporaryDirectory() as folder:
        for family, checkpoint in FAMILIES.items():
            shape = tiny.text_config(tiny.read(tiny.CHECKPOINTS / checkpoint / "config.json"))
            head_dim = shape.get("head_dim") or shape["hidden_size"] // shape["num_attention_heads"]
            tokens = tiny.random_tokens(shape["vocab_size"], max(LENGTHS), 64)
            for scaling, longest in scalings(head_dim // 2):
                case = make_case(family, scaling, longest, Path(folder) / "model")
                found, deviation = differences(program, case, tokens)
                wrong = cost_of_a_thousandth(program, family, scaling, longest, case.folder, tokens)
                found |= {} if wrong is None else {"wrong": wrong}
                table.setdefault(case.kind, {})[family] = found
                if case.kind == "default":
                    spread[family] = deviation
                print(f"{family:11} {case.kind:13}", *(f"{k} {v:.1e}" for k, v in found.items()))
    return table, spread


def lariat_rope(program, options, length):
    """Output of `lariat rope --json`; None, with the reason on stdout, if lariat refuses."""
    command = map(str, [program, "rope", "--json", "--length", length, *options])
    result = subprocess.run(list(command), capture_output=True, text=True, check=False)
    if result.returncode != 0:
        print("not compared:", result.stderr.strip())
    return json.loads(result.stdout) if result.returncode == 0 else None


def settings(folders):
    """(name, config for the oracle, options for lariat) of every published setting."""
    for file in sorted((tiny.ROOT / "configs/rope").glob("*.json")):
        preset = tiny.read(file)
        head_dim = HEAD_DIMS.get(file.stem, 128)
        theta = preset.get("rope_theta", 10000.0)
        original = preset.get("original_max_position_embeddings", 4096)
        config = {"hidden_size": head_dim, "num_attention_heads": 1, "max_position_embeddings": original,
                  "rope_parameters": {"rope_theta": theta} | preset}  # fmt: skip
        yield f"configs/rope/{file.name}", config, ["--head-dim", head_dim, "--rope-theta", theta,
                                                    "--rope-original-ctx", original, "--rope-config", file]  # fmt: skip
    for folder in [tiny.ROOT / "configs", *folders]:
        shown = "configs" if folder.parent == tiny.ROOT else "/".join(folder.parts[-2:])
        for file in sorted(folder.glob("*.json")):
            config = tiny.read(file)
            shape = ("hidden_size", "num_attention_heads", "head_dim")
            relevant = {key: config[key] for key in (*shape, *ROPE_KEYS) if config.get(key) is not None}
            if "qk_rope_head_dim" in config:  # size of the rotated part of a DeepSeek head
                relevant["head_dim"] = config["qk_rope_head_dim"]
            scaling = config.get("rope_scaling") or {}
            if "max_position_embeddings" in config and scaling.get("type") != "mrope":  # no nested or 3-D positions
                yield f"{shown}/{file.name}", relevant, ["--model", file]


def frequency_rows(program, folders):
    """[name, type, lengths, (relative difference of frequencies, of attention factors), oracle] per setting."""
    for name, config, options in settings(folders):
        scaling = config.get("rope_scaling") or config.get("rope_parameters") or {}
        longest, key = config["max_position_embeddings"], "original_max_position_embeddings"
        original = config.get(key) or scaling.get(key) or longest
        lengths = sorted({original, original + 1, max(4 * original, longest)})
        largest = [0.0, 0.0]
        for length in lengths:
            ours = lariat_rope(program, options, length)
            if ours is None:
                break
            oracle = from_transformers(config, length)
            inv_freq, factor = oracle or rope(config, length)
            mine = np.array(ours["inv_freq"])
            if len(mine) != len(inv_freq):
                sys.exit(f"{name}: lariat has {len(mine)} frequencies, transformers {len(inv_freq)}")
            relative = np.abs(mine - inv_freq) / np.where(inv_freq == 0, 1, inv_freq)
            largest = [max(largest[0], relative.max().item()), max(largest[1], abs(ours["attention_factor"] - factor))]
        else:
            yield name, ours["type"], ", ".join(map(str, lengths)), largest, "transformers" if oracle else "formula"


def number(value):
    return "0" if value == 0 else f"{value:.1e}"


def largest(values):
    found = [value for value in values if value is not None]
    return number(max(found)) if found else "–"


def scaling_table(table):
    """A row per scaling: the largest difference over all families, by mode."""
    rows = []
    for kind, cells in table.items():
        oracle = ("T" if known(kind) else "F") + ", U" * (kind in BY_LENGTH)
        rows.append([kind, oracle, *(largest(cell.get(mode) for cell in cells.values()) for mode in MODES)])
    return pages.table(["scaling", "oracles", *MODES.values()], rows)


def family_table(table, spread):
    """A row per family: over all scalings."""

    def over_scalings(family, *columns):
        return [cells[family].get(column) for cells in table.values() for column in columns]

    rows = []
    for family in FAMILIES:
        wrong = min(value for value in over_scalings(family, "wrong") if value is not None)
        rows.append([family, largest(over_scalings(family, *MODES)), largest(over_scalings(family, "lariat")),
                     largest(over_scalings(family, "oracle")), number(wrong), f"{spread[family]:.1f}"])  # fmt: skip
    return pages.table(["family", "largest difference", "lariat to float64", "transformers to float64",
                        "factor wrong by 0.1 %", "standard deviation"], rows)  # fmt: skip


def frequency_summary(rows):
    """A line per oracle: the largest differences over all settings."""
    lines = []
    for oracle, name in (("transformers", "transformers"), ("formula", "the formulas, for types that transformers lacks")):
        found = [row[3] for row in rows if row[4] == oracle]
        if found:
            frequency, factor = (number(max(column)) for column in zip(*found))
            lines.append(f"- {name}: {len(found)} settings, frequencies equal to {frequency} (relative), attention factors to {factor}")
    return ";\n".join(lines) + "."


def stale_cost(table):
    costs = {kind: [cell["cost"] for cell in cells.values() if "cost" in cell] for kind, cells in table.items()}
    return ", ".join(f"{min(found):.1f} to {max(found):.1f} under {kind}" for kind, found in costs.items() if found)


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--lariat", type=Path, default=tiny.ROOT / "build/lariat")
    parser.add_argument("--configs", type=Path, nargs="*", default=[], help="folders of more config.json files")
    args = parser.parse_args()
    rows = list(frequency_rows(args.lariat, args.configs))
    for name, kind, lengths, found, oracle in rows:
        print(f"{name} ({kind}, {lengths}): frequencies, attention factor", *map(number, found), f"from {oracle}")
    table, spread = measure_logits(args.lariat)
    options = "".join(f" --configs {folder}" for folder in args.configs)
    pages.replace(DOCUMENT, "made", f"    tools/lab/golden/conformance.py --lariat build/lariat{options}\n\n"
                                    f"made the numbers of logits and frequencies, with {tiny.VERSIONS}.")  # fmt: skip
    pages.replace(DOCUMENT, "logits", scaling_table(table) + "\n\n" + family_table(table, spread))
    pages.replace(DOCUMENT, "stale", f"The largest difference of a logit is {stale_cost(table)}.")
    pages.replace(DOCUMENT, "frequencies", frequency_summary(rows))
    effects = ("cost", "wrong")  # not differences from an oracle
    logits = max(v for cells in table.values() for cell in cells.values() for k, v in cell.items() if k not in effects)
    frequency, factor = (max(row[3][i] for row in rows) for i in (0, 1))
    print(f"largest difference: logits {logits:.1e}, frequencies {frequency:.1e}, attention factor {factor:.1e}")
    sys.exit(not (logits <= LOGIT_LIMIT and max(frequency, factor) <= FREQUENCY_LIMIT))


if __name__ == "__main__":
    main()
