"""Tiny random checkpoints of every supported family with their golden logits.

    python tests/golden/make_checkpoints.py

Writes tests/golden/checkpoints/NAME/: config.json, model.safetensors (or shards and an index) and golden.safetensors:
    tokens         int64 [64]           random ids
    logits         float32 [64, vocab]  one forward pass over `tokens`; weights upcast to float32, eager attention
    logits_bf16    float32 [64, vocab]  (llama_bf16 only) the same computed in bfloat16 throughout
    greedy         int64 [32]           argmax continuation of tokens[:8], no stop at eos
    greedy_margin  float32 [1]          the smallest distance on the way between the best and the second-best logit
The first seed counting up from the checkpoint's own whose greedy text is varied and has a wide margin is taken; it is
recorded in the metadata of golden.safetensors. Checks along the way are assertions.
"""

import copy
import itertools
import json
import shutil
from dataclasses import dataclass, field

import torch
from safetensors.torch import load_file, save_file
from transformers import AutoModelForCausalLM, LlamaConfig, MistralConfig, Phi3Config, Qwen2Config, Qwen3Config
from transformers.models.phi3.modeling_phi3 import Phi3RotaryEmbedding

import tiny_models as tiny

SMALL = dict(hidden_size=32, intermediate_size=64, num_hidden_layers=2, num_attention_heads=4, num_key_value_heads=4,
             vocab_size=64, max_position_embeddings=128, bos_token_id=1, eos_token_id=2)  # fmt: skip
YARN_MINIMIND = {"beta_fast": 32, "beta_slow": 1, "factor": 16, "original_max_position_embeddings": 2048,
                 "attention_factor": 1.0, "type": "yarn"}  # fmt: skip


def as_saved(saved, config, case):
    """config.json exactly as this transformers version saves it."""
    return saved


def old_style(saved, config, case):
    """The keys of transformers before version 5: rope_theta beside rope_scaling, torch_dtype, no layer_types."""
    result = {k: v for k, v in saved.items() if k not in ("rope_parameters", "dtype", "layer_types")}
    scaling = {k: v for k, v in config.rope_parameters.items() if k not in ("rope_theta", "partial_rotary_factor")}
    if scaling["rope_type"] == "default":
        scaling = None
    elif "type" in scaling:  # the oldest spelling has `type` alone
        del scaling["rope_type"]
    result |= {"rope_theta": config.rope_parameters["rope_theta"], "rope_scaling": scaling,
               "torch_dtype": saved["dtype"], "transformers_version": "4.40.0"}  # fmt: skip
    if "partial_rotary_factor" in config.rope_parameters:
        result["partial_rotary_factor"] = config.rope_parameters["partial_rotary_factor"]
    if "head_dim" not in case.changes:
        result.pop("head_dim", None)
    if "sliding_window" in case.changes:  # written by older versions even where it is not used
        result["sliding_window"] = case.changes["sliding_window"]
    return dict(sorted(result.items()))


def minimind(saved, config, case):
    """MiniMind's keys (its rope_scaling is derived from inference_rope_scaling and saved beside it)."""
    kept = ("bos_token_id", "eos_token_id", "head_dim", "hidden_act", "hidden_size", "intermediate_size",
            "max_position_embeddings", "num_attention_heads", "num_hidden_layers", "num_key_value_heads",
            "rms_norm_eps", "tie_word_embeddings", "vocab_size")  # fmt: skip
    scaled = config.rope_parameters["rope_type"] == "yarn"
    result = {key: saved[key] for key in kept}
    result |= {"architectures": ["MiniMindForCausalLM"], "model_type": "minimind", "dropout": 0.0, "flash_attn": True,
               "inference_rope_scaling": scaled, "rope_scaling": YARN_MINIMIND if scaled else None,
               "rope_theta": config.rope_parameters["rope_theta"], "torch_dtype": saved["dtype"],
               "transformers_version": "4.57.1", "use_moe": False, "num_experts": 4, "num_experts_per_tok": 1,
               "moe_intermediate_size": saved["intermediate_size"], "norm_topk_prob": True,
               "router_aux_loss_coef": 5e-4}  # fmt: skip
    return dict(sorted(result.items()))


@dataclass
class Checkpoint:
    name: str
    family: type
    changes: dict = field(default_factory=dict)  # to SMALL
    dtype: torch.dtype = torch.float32
    layout: object = as_saved
    shards: int = 1


CASES = [
    Checkpoint("llama_mha", LlamaConfig, layout=old_style),
    # the model of the RoPE goldens: short context, few tokens, head_dim not hidden_size / heads
    Checkpoint("llama_gqa", LlamaConfig, dict(num_key_value_heads=2, head_dim=16, vocab_size=61,
                                              max_position_embeddings=64)),
    Checkpoint("llama_mqa_tied", LlamaConfig, dict(num_key_value_heads=1, tie_word_embeddings=True,
                                                   rms_norm_eps=1e-5)),
    Checkpoint("llama_bias", LlamaConfig, dict(attention_bias=True, mlp_bias=True,
                                               rope_scaling={"type": "linear", "factor": 2.0}), layout=old_style),
    Checkpoint("llama_odd", LlamaConfig, dict(hidden_size=72, intermediate_size=100, vocab_size=131,
                                              num_hidden_layers=1, num_key_value_heads=1, tie_word_embeddings=True,
                                              rms_norm_eps=1e-2)),
    Checkpoint("llama_partial", LlamaConfig, dict(num_attention_heads=2, num_key_value_heads=2,
                                                  partial_rotary_factor=0.5), layout=old_style),
    Checkpoint("llama_bf16", LlamaConfig, dict(num_key_value_heads=2), torch.bfloat16),
    Checkpoint("llama_f16", LlamaConfig, dict(num_key_value_heads=2), torch.float16, old_style),
    Checkpoint("llama_sharded", LlamaConfig, dict(num_key_value_heads=2), torch.bfloat16, shards=3),
    Checkpoint("llama_llama3", LlamaConfig, dict(num_key_value_heads=2, head_dim=16, rope_scaling={
        "rope_type": "llama3", "rope_theta": 500000.0, "factor": 8.0, "low_freq_factor": 1.0,
        "high_freq_factor": 4.0, "original_max_position_embeddings": 16}), torch.bfloat16),
    Checkpoint("mistral_window", MistralConfig, dict(num_key_value_heads=2, sliding_window=16)),
    Checkpoint("mistral_full", MistralConfig, dict(num_key_value_heads=2, sliding_window=None, head_dim=8),
               torch.bfloat16, old_style),
    # a window that is written down but not used
    Checkpoint("qwen2", Qwen2Config, dict(num_key_value_heads=2, use_sliding_window=False, sliding_window=16,
                                          max_window_layers=1), layout=old_style),
    # layer 0 full, layers 1 and 2 windowed: to be derived from max_window_layers, as there are no layer_types
    Checkpoint("qwen2_window", Qwen2Config, dict(num_key_value_heads=2, num_hidden_layers=3, intermediate_size=48,
                                                 use_sliding_window=True, sliding_window=16, max_window_layers=1), layout=old_style),
    # the same with layer_types written down
    Checkpoint("qwen3", Qwen3Config, dict(num_key_value_heads=2, head_dim=16, use_sliding_window=True,
                                          sliding_window=16, max_window_layers=1)),
    Checkpoint("qwen3_yarn_tied", Qwen3Config, dict(num_key_value_heads=2, head_dim=16, tie_word_embeddings=True,
        rope_theta=1e6, rope_scaling={"rope_type": "yarn", "factor": 4.0, "original_max_position_embeddings": 32}),
        torch.bfloat16, old_style),
    Checkpoint("minimind", Qwen3Config, dict(num_key_value_heads=2, head_dim=8, tie_word_embeddings=True,
        rope_theta=1e6, max_position_embeddings=32768), layout=minimind),
    Checkpoint("minimind_yarn", Qwen3Config, dict(num_key_value_heads=2, head_dim=16, tie_word_embeddings=True,
        rope_theta=1e6, max_position_embeddings=32768, rope_scaling=YARN_MINIMIND), torch.bfloat16, minimind),
]  # fmt: skip


def make_config(case):
    config = case.family(**SMALL | copy.deepcopy(case.changes))  # transformers edits the RoPE dictionary in place
    config.dtype = case.dtype
    config.architectures = [case.family.__name__.replace("Config", "ForCausalLM")]
    return config


def config_json(case, config):
    return case.layout(json.loads(config.to_json_string()), config, case)


def as_phi3(model):
    """The Llama `model` as a Phi-3: the same architecture with fused projections, whose rotation may be partial."""
    c = model.config
    phi3 = Phi3Config(**{key: getattr(c, key) for key in SMALL}, pad_token_id=None, rms_norm_eps=c.rms_norm_eps,
                      partial_rotary_factor=c.rope_parameters["partial_rotary_factor"])  # fmt: skip
    weights = dict(model.state_dict())
    for layer in range(c.num_hidden_layers):
        for block, fused, parts in (("self_attn", "qkv", "q k v"), ("mlp", "gate_up", "gate up")):
            prefix = f"model.layers.{layer}.{block}"
            pieces = [weights.pop(f"{prefix}.{part}_proj.weight") for part in parts.split()]
            weights[f"{prefix}.{fused}_proj.weight"] = torch.cat(pieces)
    result = tiny.build(phi3, 0)
    result.load_state_dict(weights)
    return result


def check_patched_llama(model, phi3, tokens):
    """Llama with Phi-3's rotation is Phi-3: what make_rope_logits.py relies on for partial rotary factors."""
    rotary = model.model.rotary_emb
    rotary.inv_freq = Phi3RotaryEmbedding.compute_default_rope_parameters(model.config)[0]
    with tiny.llama_rotation(tiny.partial_rotation):
        difference = (tiny.one_shot(model, tokens) - tiny.one_shot(phi3, tokens)).abs().max()
    assert difference < 1e-4, difference


def reloaded_logits(folder, tokens, dtype):
    """What transformers computes from the folder, whichever style its config.json has."""
    model = AutoModelForCausalLM.from_pretrained(folder, dtype=dtype, attn_implementation="eager")
    assert model.model.rotary_emb.inv_freq.dtype == torch.float32
    return tiny.one_shot(model, tokens)


def draw(case, config, first_seed, count, build=tiny.build, as_oracle=lambda model: model):
    """The first seed from `first_seed` on that will do, its model, the model that computes for it, and the golden."""
    for seed in itertools.count(first_seed):
        model = build(config, seed)
        for parameter in model.parameters():  # as saved, upcast; model.to(dtype) would round inv_freq too
            parameter.copy_(parameter.to(case.dtype))
        tokens = torch.randint(config.vocab_size, [64], generator=torch.Generator().manual_seed(seed)).tolist()
        oracle = as_oracle(model)
        continuation, margin = tiny.greedy(oracle, tokens[:8], count, 0.05)
        if margin > 0.05 and len(set(continuation)) >= 12:
            break
    golden = {"tokens": torch.tensor(tokens), "logits": tiny.one_shot(oracle, tokens),
              "greedy": torch.tensor(continuation), "greedy_margin": torch.tensor([margin])}  # fmt: skip
    return seed, model, oracle, golden


def empty_folder(name):
    folder = tiny.CHECKPOINTS / name
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    return folder


def report(case, folder, golden):
    size = sum(file.stat().st_size for file in folder.iterdir())
    print(f"{case.name:18} {size // 1024:4} KiB  greedy margin {golden['greedy_margin'].item():.3f}"
          f"  logits std {golden['logits'].std().item():.2f}", end="  ")  # fmt: skip


def make(case, first_seed):
    config = make_config(case)
    partial = "partial_rotary_factor" in case.changes
    seed, model, oracle, golden = draw(case, config, first_seed, 32, as_oracle=as_phi3 if partial else lambda x: x)
    tokens = golden["tokens"].tolist()
    weights = {name: tensor.to(case.dtype) for name, tensor in model.state_dict().items()}
    if config.tie_word_embeddings:
        del weights["lm_head.weight"]
    if oracle is not model:
        check_patched_llama(model, oracle, tokens)

    folder = empty_folder(case.name)
    tiny.write_json(folder / "config.json", config_json(case, config))
    tiny.save_weights(folder, weights, case.shards)
    if oracle is model and case.layout is not minimind:
        difference = (reloaded_logits(folder, tokens, torch.float32) - golden["logits"]).abs().max()
        assert difference < 1e-4, (case.name, difference)
    if case.name == "llama_bf16":
        golden["logits_bf16"] = reloaded_logits(folder, tokens, torch.bfloat16).float()
    save_file(golden, folder / "golden.safetensors", {"made_with": f"{tiny.VERSIONS}, seed {seed}"})
    report(case, folder, golden)
    print(f"seed {seed}")


def make_interleaved(source, target):
    """`source` with q_proj and k_proj rows in interleaved order: the same function, hence the same golden."""
    case = next(case for case in CASES if case.name == source)
    config = make_config(case)
    folder = empty_folder(target)
    weights = load_file(tiny.CHECKPOINTS / source / "model.safetensors")
    golden = load_file(tiny.CHECKPOINTS / source / "golden.safetensors")
    for name in weights:
        if "q_proj" in name or "k_proj" in name:
            weights[name] = tiny.interleave_rows(weights[name], config.head_dim)
    model = tiny.build(config, 0)
    model.load_state_dict(weights)
    with tiny.llama_rotation(tiny.interleaved_rotation):
        difference = (tiny.one_shot(model, golden["tokens"].tolist()) - golden["logits"]).abs().max()
    assert difference < 1e-4, difference
    tiny.write_json(folder / "config.json", config_json(case, config) | {"rope_interleaved": True})
    tiny.save_weights(folder, weights)
    shutil.copy(tiny.CHECKPOINTS / source / "golden.safetensors", folder)


def main():
    for index, case in enumerate(CASES):
        make(case, 1000 * (index + 1))
    make_interleaved("llama_gqa", "llama_gqa_interleaved")


if __name__ == "__main__":
    main()
