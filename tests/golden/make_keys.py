"""Which keys of config.json a family heeds: those of all families, tried on a tiny checkpoint of each.

    python tests/golden/make_keys.py

Writes tests/golden/keys.json: for every checkpoint below and every key, set to a value that none of them has, what
transformers makes of it: "heeded" (other logits, other tensors or a refusal) or "ignored" (the same logits to the last
bit). Of a model with an image part the key stands in text_config where there is one. Left out is a rope_theta above a
rope_parameters that has one, which wins in every family.
"""

import json
import shutil
import tempfile
from pathlib import Path

import torch
import transformers

import tiny_models as tiny

CHECKPOINTS = ["llama_gqa", "mistral_full", "ministral", "ministral3", "qwen2", "qwen3", "qwen2_vl", "qwen25_vl", "qwen3_vl",
               "phi3_window", "gemma", "gemma2", "gemma3", "smollm3", "granite", "olmo2", "olmo3", "gpt_neox", "bloom",
               "mpt", "mixtral", "qwen3_moe", "deepseek_v2", "deepseek_v3", "minicpm3"]  # fmt: skip
KEYS = {
    "hidden_size": 16, "n_embed": 16, "n_embd": 16, "d_model": 16,
    "num_hidden_layers": 1, "n_layer": 1, "n_layers": 1,
    "num_attention_heads": 1, "n_head": 1, "n_heads": 1,
    "num_key_value_heads": 1, "head_dim": 4, "v_head_dim": 4, "qk_rope_head_dim": 4,
    "intermediate_size": 40, "n_inner": 40, "ffn_hidden_size": 40, "expansion_ratio": 2,
    "hidden_act": ["silu", "gelu"], "hidden_activation": "relu", "activation_function": "relu",
    "rms_norm_eps": 0.1, "layer_norm_eps": 0.1, "layer_norm_epsilon": 0.1, "norm_eps": 0.1,
    "attention_bias": True, "mlp_bias": True, "bias": True, "no_bias": False,
    "rope_theta": 777.0, "rotary_emb_base": 777.0, "rotary_pct": 0.5, "partial_rotary_factor": 0.5,
}  # fmt: skip
TOKENS = torch.tensor([[1, 5, 9, 13, 17, 21, 25, 29, 33, 37, 41, 45]])


def holder(config):
    return config.get("text_config", config)


def logits(folder):
    """Of the checkpoint as its own class makes it; None where it fails or where tensors and class do not fit.

    Tensors of DeepSeek-V3 that predict a further token are in no class of transformers.
    """
    config = json.loads((folder / "config.json").read_text())
    kind = getattr(transformers, config["architectures"][0], None) or transformers.MptForCausalLM
    try:
        model, report = kind.from_pretrained(folder, dtype=torch.float32, attn_implementation="eager",
                                             output_loading_info=True)  # fmt: skip
        extra = [name for name in report["unexpected_keys"] if ".layers.3." not in name]
        if report["missing_keys"] or extra or report["mismatched_keys"]:
            return None
        return model.eval()(TOKENS).logits
    except (ValueError, RuntimeError, TypeError, KeyError, AttributeError, OSError) as error:
        if "model_type" in str(error) or "No such file" in str(error):
            raise
        return None
    except Exception as error:  # what @strict raises has no common class
        if "Strict" not in type(error).__name__:
            raise
        return None


def values(key, config):
    """What to try: a value beside the one that the model has."""
    now, value = holder(config).get(key), KEYS[key]
    if key == "attention_bias" and config["model_type"] == "gpt_neox":
        return False
    if isinstance(value, list):
        return next(other for other in value if other != now)
    return 2 if value == now == 1 else 2 * value if value == now else value


def main():
    lines = []
    with tempfile.TemporaryDirectory() as name:
        for checkpoint in CHECKPOINTS:
            source, folder = tiny.CHECKPOINTS / checkpoint, Path(name) / checkpoint
            shutil.copytree(source, folder)
            base = logits(folder)
            assert base is not None, checkpoint
            heeded, tried, tried_on = [], {}, holder(json.loads((source / "config.json").read_text()))
            keys = [key for key in KEYS if key != "rope_theta" or "rope_parameters" not in tried_on]
            for key in keys:
                config = json.loads((source / "config.json").read_text())
                tried[key] = values(key, config)
                holder(config)[key] = tried[key]
                (folder / "config.json").write_text(json.dumps(config))
                changed = logits(folder)
                if changed is None or not torch.equal(changed, base):
                    heeded.append(key)
            row = {"checkpoint": checkpoint, "heeded": {key: tried[key] for key in heeded},
                   "ignored": {key: tried[key] for key in keys if key not in heeded}}  # fmt: skip
            print(checkpoint, "ignores", *row["ignored"])
            lines.append(json.dumps(row))
    version = json.dumps(transformers.__version__)
    text = '{\n "transformers": ' + version + ',\n "checkpoints": [\n  ' + ",\n  ".join(lines) + "\n ]\n}\n"
    Path(__file__).with_name("keys.json").write_text(text)


if __name__ == "__main__":
    main()
