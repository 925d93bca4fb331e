"""Which models with an image part have a head of their own, by the two places of `tie_word_embeddings`.

    python tests/golden/make_ties.py

Writes tests/golden/ties.json: the config.json of a tiny model of each kind, and for every combination of true, false
and absent at its top ("outer") and in its text_config ("inner") whether transformers ties the head to the embedding:
in a model made from the config, and in one loaded from a checkpoint that has no lm_head.weight.
"""

import json
import tempfile
from pathlib import Path

import transformers
from safetensors.torch import load_file, save_file
from transformers import AutoConfig, AutoModelForImageTextToText

TEXT = {"hidden_size": 32, "intermediate_size": 64, "num_hidden_layers": 1, "num_attention_heads": 4,
        "num_key_value_heads": 2, "head_dim": 8, "max_position_embeddings": 128, "vocab_size": 64, "pad_token_id": 0,
        "bos_token_id": 1, "eos_token_id": 2}  # fmt: skip
SECTIONS = {"rope_scaling": {"rope_type": "default", "mrope_section": [2, 1, 1]}}
QWEN = {"image_token_id": 60, "video_token_id": 61, "vision_start_token_id": 62, "vision_end_token_id": 63}
QWEN_VISION = {"depth": 1, "num_heads": 2, "patch_size": 2, "spatial_merge_size": 1, "temporal_patch_size": 1}
VISION = {"hidden_size": 8, "intermediate_size": 8, "num_attention_heads": 2, "num_hidden_layers": 1, "patch_size": 2,
          "image_size": 4}  # fmt: skip
CLIP = VISION | {"model_type": "clip_vision_model", "projection_dim": 8, "vocab_size": 64}
PIXTRAL = VISION | {"model_type": "pixtral", "head_dim": 4}
SIGLIP = VISION | {"model_type": "siglip_vision_model"}

# architecture, its model_type, the text part, the vision part, and other keys of the top
KINDS = [
    ("Qwen2VLForConditionalGeneration", "qwen2_vl", {"model_type": "qwen2_vl_text"} | SECTIONS,
     QWEN_VISION | {"embed_dim": 8, "hidden_size": 32, "mlp_ratio": 1}, QWEN),
    ("Qwen2_5_VLForConditionalGeneration", "qwen2_5_vl", {"model_type": "qwen2_5_vl_text"} | SECTIONS,
     QWEN_VISION | {"hidden_size": 8, "intermediate_size": 8, "out_hidden_size": 32, "fullatt_block_indexes": [0]}, QWEN),
    ("Qwen3VLForConditionalGeneration", "qwen3_vl", {"model_type": "qwen3_vl_text"} | SECTIONS,
     QWEN_VISION | {"hidden_size": 8, "intermediate_size": 8, "out_hidden_size": 32, "num_position_embeddings": 4,
                    "deepstack_visual_indexes": [0]}, QWEN),
    ("LlavaForConditionalGeneration", "llava", {"model_type": "llama"}, CLIP, {"image_token_index": 60}),
    ("LlavaForConditionalGeneration", "llava", {"model_type": "gemma"}, CLIP, {"image_token_index": 60}),
    ("Gemma3ForConditionalGeneration", "gemma3", {"model_type": "gemma3_text"}, SIGLIP,
     {"image_token_index": 60, "boi_token_index": 61, "eoi_token_index": 62, "mm_tokens_per_image": 4}),
    ("Mistral3ForConditionalGeneration", "mistral3", {"model_type": "mistral"}, PIXTRAL, {"image_token_index": 60}),
    ("Mistral3ForConditionalGeneration", "mistral3",
     {"model_type": "ministral3", "rope_parameters": {"rope_type": "default", "rope_theta": 1e4}}, PIXTRAL,
     {"image_token_index": 60}),
]  # fmt: skip


def with_keys(config, outer, inner):
    result = config | {"text_config": dict(config["text_config"])}
    if outer is not None:
        result["tie_word_embeddings"] = outer
    if inner is not None:
        result["text_config"]["tie_word_embeddings"] = inner
    return result


def is_tied(model):
    return model.get_output_embeddings().weight is model.get_input_embeddings().weight


def transformers_ties(config):
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        (folder / "config.json").write_text(json.dumps(config))
        model = AutoModelForImageTextToText.from_config(AutoConfig.from_pretrained(folder))
        tied = is_tied(model)
        model.save_pretrained(folder)
        (folder / "config.json").write_text(json.dumps(config))
        weights = load_file(folder / "model.safetensors")
        heads = [key for key in weights if key.endswith("lm_head.weight")]
        assert bool(heads) != tied, "save_pretrained leaves out a tied head"
        for key in heads:
            del weights[key]
        save_file(weights, folder / "model.safetensors", {"format": "pt"})
        loaded = is_tied(AutoModelForImageTextToText.from_pretrained(folder))
        assert loaded == tied, (config, loaded, tied)
        return tied


def main():
    kinds = []
    for architecture, kind, text, vision, more in KINDS:
        config = {"architectures": [architecture], "model_type": kind, "text_config": TEXT | text,
                  "vision_config": vision} | more  # fmt: skip
        ties = [
            {"outer": outer, "inner": inner, "tied": transformers_ties(with_keys(config, outer, inner))}
            for outer in (True, False, None)
            for inner in (True, False, None)
        ]
        print(f"{kind:11} {text['model_type']:16} " + " ".join("tied" if t["tied"] else "-" for t in ties))
        kinds.append({"config": config, "ties": ties})
    lines = ["{"] + [f' "transformers": "{transformers.__version__}",', ' "kinds": [']
    for kind in kinds:
        ties = ",\n    ".join(json.dumps(tie) for tie in kind["ties"])
        comma = "" if kind is kinds[-1] else ","
        lines.append(f'  {{"config": {json.dumps(kind["config"])},\n   "ties": [\n    {ties}]}}{comma}')
    Path(__file__).with_name("ties.json").write_text("\n".join([*lines, " ]", "}"]) + "\n")


if __name__ == "__main__":
    main()
