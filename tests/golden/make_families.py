"""Tiny random checkpoints, like those of make_checkpoints.py, of families that differ more from Llama.

    python tests/golden/make_families.py [NAME...]

Writes tests/golden/checkpoints/NAME/ with the same files and the same tensors, but for `greedy`, which has 64 ids.
Families that transformers lacks (InternLM, Baichuan, MiniMind without head norms) are a Llama under other names and
with other packing; image models are their text model and a tiny vision tower that text never enters. Every folder is
loaded back, under the names that transformers knows (tiny_models.as_transformers) or as the whole image model, and
compared.
"""

import copy
import json
import sys
import tempfile
from dataclasses import dataclass, field
from pathlib import Path

import torch
from safetensors.torch import load_file, save_file
from transformers import (AutoConfig, AutoModelForImageTextToText, Gemma2Config, Gemma3TextConfig, GemmaConfig,
                          GraniteConfig, LlamaConfig, Ministral3Config, MinistralConfig, Olmo2Config, Olmo3Config, Phi3Config,
                          Qwen2Config, SmolLM3Config)  # fmt: skip

import tiny_models as tiny
from make_checkpoints import (SMALL, Checkpoint, as_saved, config_json, draw, empty_folder, make_config, minimind,
                              old_style, report)  # fmt: skip

ABSENT = object()
FIRST_SEED = 100_000  # far from the seeds of make_checkpoints.py
GREEDY = 64


@dataclass
class Family(Checkpoint):
    edits: dict = field(default_factory=dict)  # keys of config.json to set, or to remove (ABSENT)
    scales: dict = field(default_factory=dict)  # factors for the random tensors whose names contain the key
    pack: object = None  # (weights, config) -> the weights as the folder has them


# ---- layouts of config.json -------------------------------------------------------------------------------------


def phi3_style(longrope="longrope"):
    """A layout: that of the published files, the original length at the top alone, no partial_rotary_factor of 1.

    `longrope` is how they call it: the first ones wrote `su`.
    """

    def layout(saved, config, case):
        result = old_style(saved, config, case)
        if result["rope_scaling"]:
            del result["rope_scaling"]["original_max_position_embeddings"]
            result["rope_scaling"]["type"] = longrope
        if "partial_rotary_factor" not in case.changes:
            del result["partial_rotary_factor"]
        return result

    return layout


def full_and_sliding(saved, config, case):
    """The keys before version 5 of models with a second RoPE: `rope_scaling` is that of the full layers."""
    full = dict(config.rope_parameters["full_attention"])
    result = {k: v for k, v in saved.items() if k not in ("rope_parameters", "dtype")}
    result |= {"rope_theta": full.pop("rope_theta"), "rope_scaling": full, "torch_dtype": saved["dtype"],
               "transformers_version": "4.57.0"}  # fmt: skip
    return result


def remote_code(saved, config, case):
    """What the files of models with code of their own share; the rest is in the case's edits."""
    kept = ("architectures", "bos_token_id", "eos_token_id", "hidden_act", "hidden_size", "initializer_range",
            "intermediate_size", "max_position_embeddings", "num_attention_heads", "num_hidden_layers",
            "rms_norm_eps", "tie_word_embeddings", "use_cache", "vocab_size")  # fmt: skip
    return {key: saved[key] for key in kept} | {"torch_dtype": saved["dtype"], "transformers_version": "4.41.0"}


def inside(top, *kept):
    """A layout: the file `top` of an image model with the keys `kept` of the text model as its text_config."""

    def layout(saved, config, case):
        return top | {"text_config": {key: saved[key] for key in kept}}

    return layout


def flat(top):
    """A layout: the text model's keys before version 5, and those of `top`, side by side."""

    def layout(saved, config, case):
        return old_style(saved, config, case) | top

    return layout


# ---- weights under other names ----------------------------------------------------------------------------------


def internlm2_weights(weights, config):
    """InternLM2's names; wqkv has one block of rows for each KV head: its query heads, its key, its value."""
    result, size = {}, config["hidden_size"] // config["num_attention_heads"]
    for name, rows in weights.items():
        if "q_proj" in name:
            parts = [weights[name.replace("q_proj", f"{part}_proj")] for part in "qkv"]
            blocks = [part.unflatten(0, (config["num_key_value_heads"], -1, size)) for part in parts]
            result[name.replace("self_attn.q_proj", "attention.wqkv")] = torch.cat(blocks, 1).flatten(0, 2)
        elif not ("k_proj" in name or "v_proj" in name):
            for theirs, ours in (tiny.INTERNLM2_NAMES | {"output": "lm_head"}).items():
                name = name.replace(ours, theirs)
            result[name] = rows
    return result


def baichuan_weights(weights, config):
    result = dict(weights)
    for name in [name for name in weights if "q_proj" in name]:
        parts = [result.pop(name.replace("q_proj", f"{part}_proj")) for part in "qkv"]
        result[name.replace("q_proj", "W_pack")] = torch.cat(parts)
    return result


def with_vision(weights, config):
    """The names of save_pretrained for the whole image model, with random vision tensors."""
    config = AutoConfig.for_model(**copy.deepcopy(config))
    torch.manual_seed(0)
    model = AutoModelForImageTextToText.from_config(config).float()
    model.model.language_model.load_state_dict({name.removeprefix("model."): rows for name, rows in weights.items()
                                                if name.startswith("model.")})  # fmt: skip
    model.lm_head.weight.copy_(weights.get("lm_head.weight", weights["model.embed_tokens.weight"]))
    dtype = next(iter(weights.values())).dtype
    with tempfile.TemporaryDirectory() as name:
        model.save_pretrained(name)
        saved = load_file(Path(name) / "model.safetensors")
    return {name: rows.to(dtype) for name, rows in sorted(saved.items())}


# ---- the checkpoints --------------------------------------------------------------------------------------------

GQA = dict(num_key_value_heads=2)
NO_PAD = dict(pad_token_id=None)
HALF = torch.bfloat16
LONGROPE = dict(short_factor=[1.1, 1.4, 2.0, 2.7, 3.1, 3.9], long_factor=[1.3, 2.9, 5.7, 9.5, 14.0, 31.0])
# keys that files before version 5 lack: the embeddings are tied all the same
OLD_GEMMA = {"tie_word_embeddings": ABSENT, "use_bidirectional_attention": ABSENT}
GEMMA3 = dict(num_attention_heads=2, num_key_value_heads=1, head_dim=16, intermediate_size=48, sliding_window=16,
              query_pre_attn_scalar=24)  # fmt: skip
GEMMA_SCALES = {"model.norm": 7.0, "embed": 0.15}  # embeddings are multiplied by the root of hidden_size
QWEN_VL = {"image_token_id": 151655, "video_token_id": 151656, "vision_start_token_id": 151652,
           "vision_end_token_id": 151653, "vision_token_id": 151654, "layer_types": ABSENT,
           "rope_scaling": {"type": "mrope", "mrope_section": [2, 1, 1]}, "sliding_window": 32768,
           "use_sliding_window": False}  # fmt: skip
QWEN_VISION = {"depth": 1, "num_heads": 2, "in_chans": 3, "patch_size": 2, "spatial_merge_size": 1,
               "spatial_patch_size": 2, "temporal_patch_size": 1}  # fmt: skip


def remote(file, name, model_type, **rest):
    """Edits: what says that a model's code is in the files configuration_FILE.py and modeling_FILE.py beside it."""
    model = f"modeling_{file}.{name}ForCausalLM"
    return {"architectures": [f"{name}ForCausalLM"], "model_type": model_type, "auto_map": {
        "AutoConfig": f"configuration_{file}.{name}Config", "AutoModelForCausalLM": model, "AutoModel": model}} | rest


CASES = [
    Family("phi3", Phi3Config, GQA | NO_PAD | dict(
        max_position_embeddings=256, original_max_position_embeddings=96, sliding_window=None,
        rope_scaling={"type": "longrope", **{key: list_[1:5] for key, list_ in LONGROPE.items()}}),
        layout=phi3_style("su"), edits={"attention_bias": False}),
    Family("phi3_window", Phi3Config, GQA | NO_PAD | dict(sliding_window=16, original_max_position_embeddings=128),
           HALF, phi3_style(), edits={"attention_bias": False}),
    Family("phi4_mini", Phi3Config, NO_PAD | dict(
        num_attention_heads=2, num_key_value_heads=1, max_position_embeddings=256,
        original_max_position_embeddings=96, sliding_window=262144, partial_rotary_factor=0.75,
        tie_word_embeddings=True, rope_scaling={"type": "longrope", **LONGROPE}),
        HALF, phi3_style(), edits={"attention_bias": False}),
    # `gelu` means the tanh approximation here
    Family("gemma", GemmaConfig, dict(head_dim=16, num_key_value_heads=1), layout=old_style, scales=GEMMA_SCALES,
           edits=OLD_GEMMA | {"hidden_act": "gelu"}),
    Family("gemma2", Gemma2Config, GQA | dict(
        num_hidden_layers=4, head_dim=16, intermediate_size=48, sliding_window=16, query_pre_attn_scalar=24,
        attn_logit_softcapping=5.0, final_logit_softcapping=6.0), HALF, old_style, scales=GEMMA_SCALES,
        edits=OLD_GEMMA | {"cache_implementation": "hybrid", "hidden_act": "gelu_pytorch_tanh"}),
    Family("gemma3", Gemma3TextConfig, GEMMA3 | dict(
        num_hidden_layers=6, sliding_window_pattern=3, rope_theta=1e6, rope_local_base_freq=1e4,
        rope_scaling={"rope_type": "linear", "factor": 8.0}), HALF, full_and_sliding, scales=GEMMA_SCALES,
        edits=OLD_GEMMA | {"architectures": ["Gemma3ForCausalLM"], "cache_implementation": "hybrid",
                           "layer_types": ABSENT, "rope_local_base_freq": 10000, "sliding_window_pattern": 3,
                           "_sliding_window_pattern": ABSENT}),
    # layer_types decides: transformers writes a _sliding_window_pattern of 6 beside it
    Family("gemma3_new", Gemma3TextConfig, GEMMA3 | dict(
        num_hidden_layers=3, layer_types=["sliding_attention", "sliding_attention", "full_attention"],
        rope_parameters={
            "full_attention": {"rope_type": "linear", "factor": 8.0, "rope_theta": 1000000.0},
            "sliding_attention": {"rope_type": "default", "rope_theta": 10000.0}}), HALF, scales=GEMMA_SCALES,
        edits={"architectures": ["Gemma3ForCausalLM"]}),
    Family("smollm3", SmolLM3Config, GQA | NO_PAD | dict(
        num_hidden_layers=4, no_rope_layer_interval=4, no_rope_layers=[1, 1, 1, 0], rope_theta=2e6), HALF, old_style,
        scales={"q_proj": 0.8, "k_proj": 0.8}),  # else four layers blow rounding up
    # the multipliers make embeddings and logits of tiny random weights small: the scales undo that
    Family("granite", GraniteConfig, GQA | dict(
        embedding_multiplier=12.0, residual_multiplier=0.22, attention_multiplier=0.1, logits_scaling=8.0,
        tie_word_embeddings=True), layout=old_style,
        scales={"model.norm": 80.0, "embed": 0.1, "o_proj": 4.0, "down_proj": 4.0, "q_proj": 1.8, "k_proj": 1.8}),
    Family("olmo2", Olmo2Config, GQA | dict(rope_theta=5e5), layout=old_style),
    Family("olmo3", Olmo3Config, GQA | dict(
        num_hidden_layers=4, sliding_window=16, rope_theta=5e5, attention_bias=False, rope_scaling={
            "rope_type": "yarn", "factor": 8.0, "original_max_position_embeddings": 32, "attention_factor": 1.2,
            "beta_fast": 32.0, "beta_slow": 1.0}), HALF, full_and_sliding),
    # a context of 80, as 320 tokens (long.safetensors) are then a scale step, four times it, also of lariat's defaults
    Family("internlm2", LlamaConfig, GQA | dict(
        max_position_embeddings=80, rope_scaling={"type": "dynamic", "factor": 2.0}, rope_theta=1e6,
        rms_norm_eps=1e-5), layout=remote_code, pack=internlm2_weights,
        edits=remote("internlm2", "InternLM2", "internlm2", bias=False, num_key_value_heads=2, rope_theta=1000000,
                     pretraining_tp=1, rope_scaling={"type": "dynamic", "factor": 2.0})),
    Family("internlm", LlamaConfig, dict(attention_bias=True), layout=remote_code,
           edits=remote("internlm", "InternLM", "internlm", bias=True)),
    Family("baichuan", LlamaConfig, layout=remote_code, pack=baichuan_weights,
           edits=remote("baichuan", "Baichuan", "baichuan", model_max_length=SMALL["max_position_embeddings"])),
    Family("ministral3", Ministral3Config, GQA | dict(head_dim=16, tie_word_embeddings=True, rope_parameters={
        "beta_fast": 32.0, "beta_slow": 1.0, "factor": 8.0, "llama_4_scaling_beta": 0.1, "mscale": 1.0,
        "mscale_all_dim": 1.0, "original_max_position_embeddings": 16, "rope_theta": 1000000.0, "rope_type": "yarn",
        "type": "yarn"}), pack=with_vision, layout=inside(
            {"architectures": ["Mistral3ForConditionalGeneration"], "dtype": "float32", "image_token_index": 10,
             "model_type": "mistral3", "multimodal_projector_bias": False, "projector_hidden_act": "gelu",
             "spatial_merge_size": 2, "vision_feature_layer": -1, "transformers_version": "5.0.0.dev0",
             "vision_config": {"model_type": "pixtral", "head_dim": 4, "hidden_size": 8, "image_size": 8,
                               "intermediate_size": 8, "num_attention_heads": 2, "num_hidden_layers": 1,
                               "patch_size": 2}},
            "head_dim", "hidden_act", "hidden_size", "intermediate_size", "max_position_embeddings", "model_type",
            "num_attention_heads", "num_hidden_layers", "num_key_value_heads", "rms_norm_eps", "rope_parameters",
            "sliding_window", "tie_word_embeddings", "vocab_size")),
    # text_config leaves out what is Llama's default, as the published files do
    Family("llava", LlamaConfig, dict(rms_norm_eps=1e-5), torch.float16, pack=with_vision, layout=inside(
        {"architectures": ["LlavaForConditionalGeneration"], "ignore_index": -100, "image_token_index": 32000,
         "model_type": "llava", "pad_token_id": 32001, "projector_hidden_act": "gelu", "tie_word_embeddings": False,
         "torch_dtype": "float16", "transformers_version": "4.36.0.dev0", "vision_feature_layer": -2,
         "vision_feature_select_strategy": "default", "vocab_size": SMALL["vocab_size"],
         "vision_config": {"model_type": "clip_vision_model", "hidden_size": 8, "image_size": 4,
                           "intermediate_size": 8, "num_attention_heads": 2, "num_hidden_layers": 1, "patch_size": 2,
                           "projection_dim": 8, "vocab_size": 64}},
        "architectures", "hidden_size", "intermediate_size", "max_position_embeddings", "model_type",
        "num_attention_heads", "num_hidden_layers", "rms_norm_eps", "vocab_size")),
    Family("qwen2_vl", Qwen2Config, GQA | dict(rope_theta=1e6, tie_word_embeddings=True), HALF, edits=QWEN_VL,
           pack=with_vision, layout=flat(
               {"architectures": ["Qwen2VLForConditionalGeneration"], "model_type": "qwen2_vl",
                "vision_config": QWEN_VISION | {"embed_dim": 8, "hidden_size": 32, "mlp_ratio": 1}})),
    Family("qwen25_vl", Qwen2Config, GQA | dict(rope_theta=1e6), HALF, edits=QWEN_VL, pack=with_vision, layout=flat(
        {"architectures": ["Qwen2_5_VLForConditionalGeneration"], "model_type": "qwen2_5_vl",
         "vision_config": QWEN_VISION | {"hidden_act": "silu", "hidden_size": 8, "intermediate_size": 8,
                                         "out_hidden_size": 32, "window_size": 112, "fullatt_block_indexes": [0]}})),
    Family("minimind_plain", LlamaConfig, GQA | dict(head_dim=8, tie_word_embeddings=True, rope_theta=1e6,
                                                     rms_norm_eps=1e-5, max_position_embeddings=32768),
           layout=minimind),
    # windows in some layers, under the name that transformers gives to a Mistral of that kind
    Family("ministral", MinistralConfig, GQA | dict(num_hidden_layers=3, head_dim=16, sliding_window=16, layer_types=[
        "sliding_attention", "full_attention", "sliding_attention"])),
]  # fmt: skip


def build(case, config, seed):
    """tiny.build with the case's scales; Gemma's norms multiply by one plus their weight."""
    model = tiny.build(config, seed)
    for name, parameter in model.named_parameters():
        for part, factor in case.scales.items():
            if part in name:
                parameter.mul_(factor)
        if "norm" in name and config.model_type.startswith("gemma"):
            parameter.sub_(1.0)
    return model


def reloaded(folder, config):
    if "vision_config" not in config:
        return tiny.load(folder, torch.float32)
    return AutoModelForImageTextToText.from_pretrained(folder, dtype=torch.float32, attn_implementation="eager").eval()


def make(case, first_seed):
    config = make_config(case)
    seed, model, _, golden = draw(case, config, first_seed, GREEDY, lambda *args: build(case, *args))
    written = sorted((config_json(case, config) | case.edits).items())
    written = {key: value for key, value in written if value is not ABSENT}
    weights = {name: tensor.to(case.dtype) for name, tensor in model.state_dict().items()}
    if config.tie_word_embeddings:
        del weights["lm_head.weight"]
    if case.pack:
        weights = case.pack(weights, written)

    folder = empty_folder(case.name)
    tiny.write_json(folder / "config.json", written)
    tiny.save_weights(folder, weights)
    again = tiny.one_shot(reloaded(folder, written), golden["tokens"].tolist())
    difference = (again - golden["logits"]).abs().max().item()
    assert difference < 1e-4, (case.name, difference)
    save_file(golden, folder / "golden.safetensors", {"made_with": f"{tiny.VERSIONS}, seed {seed}"})
    report(case, folder, golden)
    print(f"ids {len(set(golden['greedy'].tolist())):2}  loaded back: {difference:.1e}  seed {seed}")


def main():
    for index, case in enumerate(CASES):
        if not sys.argv[1:] or case.name in sys.argv[1:]:
            make(case, FIRST_SEED + 1000 * index)


if __name__ == "__main__":
    main()
