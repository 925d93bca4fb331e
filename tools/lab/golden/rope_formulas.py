"""Every RoPE scaling in float64, implemented from the formulas alone: no transformers, no float32.

`rope(config, length)` takes a config.json dictionary and returns (inv_freq, attention_factor) for a sequence of
`length` tokens. It covers transformers' types and four that transformers lacks: "ntk" (static), "dynamic-yarn",
"yarn-radix" and "dynamic-yarn-radix".
"""

import math

import numpy as np


def rope(config, length):
    scaling = config.get("rope_scaling") or config.get("rope_parameters") or {}
    kind = scaling.get("rope_type", scaling.get("type", "default"))
    theta = float(scaling.get("rope_theta", config.get("rope_theta", 10000.0)))
    partial = scaling.get("partial_rotary_factor", config.get("partial_rotary_factor", 1.0))
    head_dim = config.get("head_dim") or config["hidden_size"] // config["num_attention_heads"]
    longest = config["max_position_embeddings"]
    original = config.get("original_max_position_embeddings",
                          scaling.get("original_max_position_embeddings", longest))  # fmt: skip
    rotary = int(head_dim * partial)
    exponent = np.arange(0, rotary, 2, dtype=np.float64) / rotary

    def powers(base):
        return np.power(base, -exponent)

    def stretched(factor):
        """NTK base: interpolates the slowest pair by `factor` and leaves the fastest unchanged."""
        return theta * factor ** (rotary / (rotary - 2))

    if kind == "default":
        return powers(theta), 1.0
    if kind == "linear":
        return powers(theta) / scaling["factor"], 1.0
    if kind == "ntk":
        return powers(stretched(scaling["factor"])), 1.0
    if kind == "dynamic":
        factor = scaling["factor"]
        return powers(stretched(factor * max(length, longest) / longest - (factor - 1))), 1.0
    if kind == "proportional":
        turning = int(partial * head_dim // 2)
        still = np.zeros(head_dim // 2 - turning)
        turned = np.power(theta, -2.0 * np.arange(turning) / head_dim)
        return np.concatenate([turned, still]) / scaling.get("factor", 1.0), 1.0
    if kind == "llama3":
        return llama3(powers(theta), scaling, original), 1.0
    if kind == "longrope":
        factors = scaling["long_factor"] if length > original else scaling["short_factor"]
        factor = scaling.get("factor") or longest / original
        grown = math.sqrt(1 + math.log(factor) / math.log(original)) if factor > 1 else 1.0
        return powers(theta) / np.array(factors), given(scaling, "attention_factor", grown)
    if kind.endswith(("yarn", "yarn-radix")):
        factor = scaling.get("factor") or longest / original
        if kind.startswith("dynamic"):
            factor = max(1.0, length / original)
        low, high = yarn_range(scaling, theta, rotary, original)
        pair, count = np.clip(np.arange(rotary // 2) - low, 0, high - low), high - low
        plain = powers(theta)
        temperature = yarn_temperature(scaling, factor)
        temperature = given(scaling, "attention_factor", temperature)
        if kind.endswith("radix"):  # yarn_radix3 of github.com/mattian7/mrRoPE
            return plain * factor ** -(pair * (pair + 1) / (count * (count + 1))), temperature
        return plain / factor * (pair / count) + plain * (1 - pair / count), temperature
    raise ValueError(f"unknown rope type {kind}")


def given(dictionary, key, default):
    value = dictionary.get(key)
    return default if value is None else value


def llama3(plain, scaling, original):
    factor, low, high = scaling["factor"], scaling["low_freq_factor"], scaling["high_freq_factor"]
    turns = original * plain / (2 * math.pi)  # rotations within the original context
    smooth = (turns - low) / (high - low)
    blended = (1 - smooth) * plain / factor + smooth * plain
    return np.where(turns < low, plain / factor, np.where(turns > high, plain, blended))


def yarn_range(scaling, theta, rotary, original):
    """Index of the last pair that is kept, index of the first pair that is fully interpolated."""

    def pair_with(turns):
        return rotary * math.log(original / (turns * 2 * math.pi)) / (2 * math.log(theta))

    low, high = pair_with(scaling.get("beta_fast") or 32), pair_with(scaling.get("beta_slow") or 1)
    if scaling.get("truncate", True):
        low, high = math.floor(low), math.ceil(high)
    low, high = max(low, 0), min(high, rotary - 1)
    if low == high:
        high += 0.001
    return low, high


def yarn_temperature(scaling, factor):
    def m(k):
        return 0.1 * k * math.log(factor) + 1 if factor > 1 else 1.0

    mscale, all_dim = scaling.get("mscale"), scaling.get("mscale_all_dim")
    return m(mscale) / m(all_dim) if mscale and all_dim else m(1)
