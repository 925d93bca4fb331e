"""RoPE frequencies and attention factors of every scaling, and exact angles at long positions.

    python tests/golden/make_rope_golden.py

Writes tests/golden/rope/frequencies.json: {"transformers": version, "cases": [...]}, each case with
    name, type
    source            "transformers" or, for types it lacks, "formula"
    config            the part of a config.json that decides RoPE
    length            sequence length asked
    inv_freq          float64, from rope_formulas.py
    inv_freq_f32      transformers' float32 result, as shortest decimals (absent for "formula")
    attention_factor  transformers' (for "formula": ours)
float64 and float32 are asserted to agree within 1e-6 (relative), the attention factors within 1e-12.

Writes tests/golden/rope/angles.json: {"cases": [{theta, dim, pair, position, inv_freq, angle, cos, sin}]} where angle
is the float64 product position * inv_freq, not reduced. cos and sin are checked against mpmath's at 50 digits.
"""

import copy
import json

import mpmath
import numpy as np
import transformers
from transformers import LlamaConfig
from transformers.modeling_rope_utils import ROPE_INIT_FUNCTIONS
from transformers.models.phi3.modeling_phi3 import Phi3RotaryEmbedding

import tiny_models as tiny
from rope_formulas import rope

# Phi-3.5-mini-instruct: 48 pairs of a head of 96
PHI_LONG = [1.08, 1.11, 1.14, 1.34, 1.59, 1.6, 1.62, 2.62, 3.23, 3.23, 4.79, 7.4, 7.7, 9.09, 12.2, 17.67, 24.46, 28.57,
            30.42, 30.84, 32.59, 32.93, 42.32, 44.96, 50.34, 50.45, 57.55, 57.93, 58.21, 60.14, 62.61, 62.62, 62.71,
            63.14, 63.14, 63.77, 63.93, 63.96, 63.97, 64.03, 64.07, 64.08, 64.12, 64.41, 64.48, 64.51, 64.53, 64.84]  # fmt: skip
PHI_SHORT = [1.0, 1.02, 1.03, 1.03, 1.05, 1.05, 1.05, 1.05, 1.05, 1.07, 1.1, 1.11, 1.16, 1.16, 1.17, 1.29, 1.34, 1.68,
             1.79, 1.82, 1.85, 1.88, 1.91, 1.94, 1.99, 2.02, 2.02, 2.02, 2.02, 2.02, 2.02, 2.03, 2.03, 2.03, 2.03, 2.03,
             2.03, 2.03, 2.03, 2.03, 2.08, 2.09, 2.19, 2.22, 2.59, 2.73, 2.75, 2.84]  # fmt: skip


def base(head_dim=128, longest=4096, **more):
    return {"hidden_size": 32 * head_dim, "num_attention_heads": 32, "max_position_embeddings": longest, **more}


def old(rope_theta=10000.0, scaling=None, **shape):
    """The keys before transformers 5."""
    return base(**shape) | {"rope_theta": rope_theta, "rope_scaling": scaling}


def new(rope_theta=10000.0, scaling=None, **shape):
    """The keys of transformers 5."""
    return base(**shape) | {"rope_parameters": {"rope_theta": rope_theta, "rope_type": "default", **(scaling or {})}}


def yarn(factor, original=None, key="rope_type", **more):
    known = {} if original is None else {"original_max_position_embeddings": original}
    return {key: "yarn", "factor": factor, **known, **more}


def scaled(kind, factor, **more):
    return {"rope_type": kind, "factor": factor, **more}


def llama3(factor=8.0, low=1.0, high=4.0, original=8192):
    return scaled("llama3", factor, low_freq_factor=low, high_freq_factor=high,
                  original_max_position_embeddings=original)  # fmt: skip


def ramped(pairs, end):
    """A growing list of longrope factors."""
    return [round(1 + (end - 1) * (i / (pairs - 1)) ** 2, 6) for i in range(pairs)]


def cases():
    """(name, config, length); a name that occurs with several lengths gets the length appended."""
    for head_dim in (32, 64, 80, 96, 128):
        yield f"default d{head_dim}", old(head_dim=head_dim), 4096
    yield "Llama 2", old(scaling=None), 4096
    yield "CodeLlama", old(1e6, longest=16384), 16384
    yield "Qwen3 explicit head_dim", new(1e6, longest=40960) | {"hidden_size": 1024, "num_attention_heads": 16,
                                                                 "head_dim": 128}, 4096  # fmt: skip
    yield "theta only, no rope keys of either style", base(head_dim=64), 100
    yield "partial 0.5 at top level", old(head_dim=80, partial_rotary_factor=0.5), 2048
    yield "partial 0.4 of 80 (Phi-2)", old(head_dim=80, longest=2048, partial_rotary_factor=0.4), 2048
    yield "partial 0.25 in rope_parameters", new(scaling={"partial_rotary_factor": 0.25}, head_dim=96), 2048
    yield "partial in rope_parameters wins over top level", new(scaling={"partial_rotary_factor": 0.5}, head_dim=64,
                                                                partial_rotary_factor=0.25), 2048  # fmt: skip

    yield "linear type", old(scaling={"type": "linear", "factor": 4.0}), 16384
    yield "linear 1", new(scaling=scaled("linear", 1.0)), 4096
    yield "linear 2.5 d80", new(scaling=scaled("linear", 2.5), head_dim=80), 4096
    yield "linear 8 theta 5e5 d32", new(5e5, scaling=scaled("linear", 8), head_dim=32), 4096
    yield "linear partial", new(scaling=scaled("linear", 4.0, partial_rotary_factor=0.5), head_dim=64), 4096

    for length in (1, 2048, 2049, 3000, 8192, 65536):
        yield "dynamic 2", old(scaling={"type": "dynamic", "factor": 2.0}, longest=2048), length
    for length in (4096, 5000, 32768):
        yield "dynamic 4 theta 5e5 d64", new(5e5, scaling=scaled("dynamic", 4.0), head_dim=64), length
    yield "dynamic 1", new(scaling=scaled("dynamic", 1.0), longest=2048), 6000
    yield "dynamic partial", new(scaling=scaled("dynamic", 2.0, partial_rotary_factor=0.5), head_dim=96), 9000
    yield ("dynamic ignores original_max_position_embeddings",
           new(scaling=scaled("dynamic", 2.0), longest=8192, original_max_position_embeddings=1024), 16384)  # fmt: skip

    yield "Yarn-Llama-2-7b-64k", old(scaling=yarn(16.0, 4096, "type", finetuned=True), longest=65536), 65536
    yield "Yarn-Llama-2-7b-128k", old(scaling=yarn(32.0, 4096, "type", finetuned=True), longest=131072), 100
    yield "Qwen2.5 YaRN", old(1e6, scaling=yarn(4.0, 32768, "type"), longest=32768), 131072
    yield "Qwen3 YaRN", new(1e6, scaling=yarn(4.0, 32768), longest=40960), 131072
    yield ("DeepSeek-V2", old(scaling=yarn(40, 4096, "type", beta_fast=32, beta_slow=1, mscale=0.707,
                                           mscale_all_dim=0.707), head_dim=64, longest=163840), 163840)  # fmt: skip
    yield "gpt-oss", new(150000.0, scaling=yarn(32.0, 4096, beta_fast=32.0, beta_slow=1.0, truncate=False),
                         head_dim=64, longest=131072), 131072  # fmt: skip
    yield "MiniMind", old(1e6, scaling=yarn(16, 2048, "type", beta_fast=32, beta_slow=1, attention_factor=1.0),
                          head_dim=96, longest=32768), 32768  # fmt: skip
    yield "yarn below the original length", new(scaling=yarn(4.0, 4096), longest=16384), 100
    yield "yarn factor null", new(scaling=yarn(None, 4096), longest=24576), 24576
    yield "yarn factor wins over the lengths' ratio", new(scaling=yarn(4.0, 4096), longest=32768), 32768
    yield "yarn factor 1", new(scaling=yarn(1.0, 4096)), 4096
    yield "yarn no original length", new(scaling=yarn(4.0), longest=8192), 8192
    yield "yarn beta 0", new(scaling=yarn(8.0, 4096, beta_fast=0, beta_slow=0), longest=32768), 32768
    yield "yarn betas 16 2", new(scaling=yarn(8.0, 4096, beta_fast=16, beta_slow=2), longest=32768), 32768
    yield "yarn betas null", new(scaling=yarn(8.0, 4096, beta_fast=None, beta_slow=None), longest=32768), 32768
    yield "yarn mscale alone", new(scaling=yarn(8.0, 4096, mscale=0.707), longest=32768), 32768
    yield "yarn mscale_all_dim alone", new(scaling=yarn(8.0, 4096, mscale_all_dim=0.707), longest=32768), 32768
    yield "yarn mscale pair", new(scaling=yarn(8.0, 4096, mscale=1.0, mscale_all_dim=0.5), longest=32768), 32768
    yield "yarn mscale 0", new(scaling=yarn(8.0, 4096, mscale=1.0, mscale_all_dim=0), longest=32768), 32768
    yield ("yarn attention_factor wins over mscale",
           new(scaling=yarn(8.0, 4096, attention_factor=1.25, mscale=1.0, mscale_all_dim=0.5), longest=32768), 32768)  # fmt: skip
    yield "yarn attention_factor null", new(scaling=yarn(8.0, 4096, attention_factor=None), longest=32768), 32768
    yield ("yarn top-level original length wins",
           new(scaling=yarn(4.0, 4096), longest=32768, original_max_position_embeddings=8192), 32768)  # fmt: skip
    yield "yarn partial", new(scaling=yarn(4.0, 4096, partial_rotary_factor=0.5), head_dim=80, longest=16384), 16384
    yield "yarn partial at top level, old style", old(scaling=yarn(4.0, 4096), head_dim=128, longest=16384,
                                                      partial_rotary_factor=0.75), 16384  # fmt: skip
    yield "yarn d32 truncate false 2.5", new(5e5, scaling=yarn(2.5, 2048, truncate=False), head_dim=32), 5120
    yield "yarn low bound clamped to 0", new(scaling=yarn(4.0, 128), head_dim=64, longest=512), 512
    yield "yarn equal bounds 0", new(1e6, scaling=yarn(4.0, 6), head_dim=32, longest=24), 24
    yield ("yarn equal betas, truncate false",
           new(scaling=yarn(4.0, 4096, beta_fast=8, beta_slow=8, truncate=False), longest=16384), 16384)  # fmt: skip
    yield "yarn high bound past d / 2", new(scaling=yarn(4.0, 131072), longest=524288), 524288
    yield "yarn high bound clamped to d - 1", new(7.5, scaling=yarn(4.0, 550), head_dim=32, longest=2200), 2200

    phi = {"rope_type": "longrope", "short_factor": PHI_SHORT, "long_factor": PHI_LONG}
    for length in (4095, 4096, 4097, 131072):
        yield ("Phi-3.5-mini-128k", old(scaling=phi, head_dim=96, longest=131072,
                                        original_max_position_embeddings=4096), length)  # fmt: skip
    short = {"rope_type": "longrope", "short_factor": [1.0] * 32, "long_factor": ramped(32, 40.0)}
    for length in (1024, 1025):
        yield ("longrope factor", new(5e5, scaling=short | {"factor": 4.0, "original_max_position_embeddings": 1024},
                                      head_dim=64, longest=131072), length)  # fmt: skip
    yield ("longrope attention_factor",
           new(scaling=short | {"factor": 32.0, "attention_factor": 1.1, "original_max_position_embeddings": 4096},
               head_dim=64, longest=131072), 131072)  # fmt: skip
    yield "longrope factor 1", new(scaling=short | {"factor": 1.0, "original_max_position_embeddings": 4096},
                                   head_dim=64), 9000  # fmt: skip
    yield ("longrope partial 0.75",
           new(scaling={"rope_type": "longrope", "short_factor": [1.0] * 48, "long_factor": ramped(48, 32.0),
                        "partial_rotary_factor": 0.75, "original_max_position_embeddings": 4096},
               head_dim=128, longest=131072), 8192)  # fmt: skip

    yield "Llama 3.1", old(5e5, scaling=llama3(), longest=131072), 131072
    yield "Llama 3.1 below the original length", old(5e5, scaling=llama3(), longest=131072), 100
    yield "Llama 3.2", new(5e5, scaling=llama3(32.0), head_dim=64, longest=131072), 131072
    yield "llama3 high 32 d96", new(scaling=llama3(16.0, 1.0, 32.0, 4096), head_dim=96, longest=65536), 65536
    yield ("llama3 top-level original length wins",
           new(5e5, scaling=llama3(8.0, 1.0, 4.0, 8192), longest=131072, original_max_position_embeddings=4096), 131072)  # fmt: skip

    yield "proportional 0.25", new(1e6, scaling={"rope_type": "proportional", "partial_rotary_factor": 0.25}), 4096
    yield "proportional 0.3 of 80", new(scaling={"rope_type": "proportional", "partial_rotary_factor": 0.3},
                                        head_dim=80), 4096  # fmt: skip
    yield "proportional whole, factor 8", new(1e6, scaling=scaled("proportional", 8.0), head_dim=64), 4096

    for factor, head_dim, theta in ((2.0, 128, 1e4), (4.0, 64, 5e5), (1.0, 80, 1e4), (40.0, 32, 1e6), (8.0, 96, 150000.0)):
        yield f"ntk {factor:g} d{head_dim}", new(theta, scaling=scaled("ntk", factor), head_dim=head_dim), 100
    yield "ntk partial", new(scaling=scaled("ntk", 4.0, partial_rotary_factor=0.5), head_dim=64), 100
    dynamic_yarn = {"rope_type": "dynamic-yarn", "original_max_position_embeddings": 4096}
    for length in (100, 4096, 4097, 6000, 8192, 65536):
        yield "dynamic-yarn", new(scaling=dynamic_yarn, longest=65536), length
    yield "dynamic-yarn no original length", new(5e5, scaling={"rope_type": "dynamic-yarn"}, head_dim=64), 10000
    yield ("dynamic-yarn betas, truncate false",
           new(scaling=dynamic_yarn | {"beta_fast": 16, "beta_slow": 2, "truncate": False}, head_dim=96), 12000)  # fmt: skip
    yield "dynamic-yarn attention_factor", new(scaling=dynamic_yarn | {"attention_factor": 1.0}), 16384
    yield ("dynamic-yarn partial", new(1e6, scaling=dynamic_yarn | {"partial_rotary_factor": 0.5}), 16384)


def from_transformers(config, length):
    """(inv_freq, attention_factor) of transformers; Phi-3's default, as Llama's ignores partial_rotary_factor."""
    parsed = LlamaConfig(**copy.deepcopy(config))
    kind = parsed.rope_parameters["rope_type"]
    init = Phi3RotaryEmbedding.compute_default_rope_parameters if kind == "default" else ROPE_INIT_FUNCTIONS.get(kind)
    if init is None:
        return None
    inv_freq, attention_factor = init(parsed, "cpu", seq_len=length)
    return inv_freq.numpy(), attention_factor


def frequency_cases():
    listed = list(cases())
    repeated = {name for name, *_ in listed if [n for n, *_ in listed].count(name) > 1}
    for name, config, length in listed:
        exact, attention_factor = rope(config, length)
        scaling = config.get("rope_scaling") or config.get("rope_parameters") or {}
        case = {
            "name": f"{name} @ {length}" if name in repeated else name,
            "type": scaling.get("rope_type", scaling.get("type", "default")),
            "source": "formula",
            "config": config,
            "length": length,
            "attention_factor": attention_factor,
            "inv_freq": exact.tolist(),
        }
        oracle = from_transformers(config, length)
        if oracle is not None:
            single, factor = oracle
            worst = np.max(np.abs(single - exact) / np.where(exact == 0, 1, exact))
            print(f"{case['name']:55} {worst:.1e}")
            assert single.shape == exact.shape and worst <= 1e-6, (name, worst)
            assert abs(factor - attention_factor) <= 1e-12, (name, factor, attention_factor)
            case |= {"source": "transformers", "attention_factor": factor,
                     "inv_freq_f32": [float(str(value)) for value in single]}  # fmt: skip
        yield case


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


def write_cases(path, head, cases):
    """One case per line, so that a change of one is a change of one line."""
    lines = ",\n".join(json.dumps(case) for case in cases)
    path.write_text(f"{json.dumps(head)[:-1]}{', ' if head else ''}\"cases\": [\n{lines}\n]}}\n")


def main():
    folder = tiny.GOLDEN / "rope"
    folder.mkdir(exist_ok=True)
    listed = list(frequency_cases())
    assert len({case["name"] for case in listed}) == len(listed)
    write_cases(folder / "frequencies.json", {"transformers": transformers.__version__}, listed)
    write_cases(folder / "angles.json", {}, angle_cases())
    print(len(listed), "cases")


if __name__ == "__main__":
    main()
