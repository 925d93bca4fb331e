#!/usr/bin/env python3
"""tests/golden/gguf/*.gguf: checkpoints and tokenizers of tests/golden converted by llama.cpp.

    tools/lab/golden/gguf_files.py LLAMA_CPP [NAME...]

LLAMA_CPP is its source folder, with convert_hf_to_gguf.py, conversion/ and gguf-py/. Weights keep their dtype; files of
checkpoints have no vocabulary, files of tokenizers have no weights.
"""

import argparse
import json
import shutil
import sys
import tempfile
from pathlib import Path

from safetensors.torch import load_file, save_file
from sentencepiece import SentencePieceProcessor

GOLDEN = Path(__file__).resolve().parents[3] / "tests" / "golden"
# Config changes for settings that GGUF or the converter cannot represent; the test makes the same changes.
CHECKPOINTS = {name: {} for name in ("llama_gqa", "llama_llama3", "llama_bias", "qwen2", "qwen3_yarn_tied",
                                     "gemma", "phi3", "phi4_mini", "granite", "olmo2", "olmo3", "mixtral",
                                     "deepseek_v2", "deepseek_v3", "gpt_oss", "gpt_oss_mxfp4", "olmoe", "exaone4_full",
                                     "exaone", "ernie4_5", "seed_oss", "granite4", "deepseek", "kimi_k2", "glm4_moe",
                                     "glm4_moe_lite", "granite_moe", "granite_moe_shared", "ernie4_5_moe",
                                     "qwen3_vl_moe", "mistral4", "baichuan2", "youtu", "minicpm", "smollm3",
                                     "qwen", "glm4", "phi", "hunyuan_moe", "stablelm", "stablelm_parallel", "cohere",
                                     "cohere2", "gpt2", "gpt_bigcode", "arcee", "nemotron", "jais2",
                                     "apertus")}  # fmt: skip
CHECKPOINTS |= {"mistral_window": {"sliding_window": None}, "starcoder2": {"sliding_window": None},
                "orion": {"rope_theta": 1e4},
                "gemma2": {"query_pre_attn_scalar": 16},
                # GGUF cannot mix layers with and without experts.
                "qwen3_moe": {"num_hidden_layers": 1, "mlp_only_layers": []},
                "hunyuan": {"max_position_embeddings": 32768},
                "qwen2_moe": {"num_hidden_layers": 1, "mlp_only_layers": []},
                "gemma3": {"query_pre_attn_scalar": 16, "sliding_window_pattern": 6}}  # fmt: skip
# The converter detects pre-tokenizers by the tokens of a published tokenizer.
TOKENIZERS = {"llama3-mini": "llama-bpe", "qwen-mini": "qwen2", "sp-mini": None}


def tokenizer_folder(name, folder):
    """A tokenizer with the config of a model without weights; -> the config"""
    shutil.copytree(GOLDEN / "tokenizers" / name, folder)
    if (folder / "tokenizer.json").exists():
        spec = json.loads((folder / "tokenizer.json").read_text())
        size = 1 + max(*spec["model"]["vocab"].values(), *(token["id"] for token in spec["added_tokens"]))
    else:
        size = SentencePieceProcessor(model_file=str(folder / "tokenizer.model")).vocab_size()
    return {"architectures": ["LlamaForCausalLM"], "model_type": "llama", "hidden_size": 32, "num_attention_heads": 4,
            "num_hidden_layers": 1, "intermediate_size": 64, "vocab_size": size}  # fmt: skip


def checkpoint_folder(name, folder):
    """A checkpoint with the layers of the changed config; -> the config"""
    config = json.loads((GOLDEN / "checkpoints" / name / "config.json").read_text()) | CHECKPOINTS[name]
    weights = load_file(GOLDEN / "checkpoints" / name / "model.safetensors")
    text = config.get("text_config", config)
    layers = next(text[key] for key in ("num_hidden_layers", "num_layers", "n_layer") if key in text)
    kept = {key: rows for key, rows in weights.items()
            if "layers." not in key or int(key.partition("layers.")[2].split(".")[0]) < layers}  # fmt: skip
    folder.mkdir()
    save_file(kept, folder / "model.safetensors", {"format": "pt"})
    # Gemma 3's converter keeps one embedding row per token of the tokenizer; Mistral's loads the tokenizer.
    words = {"type": "WordLevel", "vocab": {str(i): i for i in range(text["vocab_size"])}, "unk_token": "0"}
    unset = dict.fromkeys(("truncation", "padding", "normalizer", "pre_tokenizer", "post_processor", "decoder"))
    (folder / "tokenizer.json").write_text(json.dumps(unset | {"version": "1.0", "model": words, "added_tokens": []}))
    return config


def convert(conversion, name, folder, out):
    config = tokenizer_folder(name, folder) if name in TOKENIZERS else checkpoint_folder(name, folder)
    (folder / "config.json").write_text(json.dumps(config))
    kind = conversion.get_model_architecture(conversion.ModelBase.load_hparams(folder, False), conversion.ModelType.TEXT)
    types = sys.modules["gguf"].LlamaFileType
    kind_of = config.get("text_config", {}) | config
    half = kind_of.get("torch_dtype", kind_of.get("dtype")) == "bfloat16"
    # Their RMSNorm's eps is called layer_norm_epsilon; earlier converters knew.
    own = config | {"rms_norm_eps": config["layer_norm_epsilon"]} if name in ("exaone", "qwen") else None
    if name not in TOKENIZERS:
        conversion.TextModel.get_vocab_base_pre = lambda *_: "default"
    model = conversion.get_model_class(kind)(folder, types.MOSTLY_BF16 if half else types.ALL_F32, out, eager=True,
                                             model_name=name, hparams=own)  # fmt: skip
    if kind == "BaichuanForCausalLM":  # calls itself forever for other tensors
        unpack = model.modify_tensors
        model.modify_tensors = lambda rows, tensor, layer: (
            unpack(rows, tensor, layer) if "W_pack" in tensor else [(model.map_tensor_name(tensor), rows)])  # fmt: skip
    if name in TOKENIZERS:
        model.get_vocab_base_pre = lambda tokenizer: TOKENIZERS[name]
        model.write_vocab()
    else:
        model.set_vocab = lambda: None
        model.write()


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("llama_cpp", type=Path)
    parser.add_argument("names", nargs="*", metavar="NAME", default=[*CHECKPOINTS, *TOKENIZERS])
    args = parser.parse_args()
    sys.path[:0] = [str(args.llama_cpp / "gguf-py"), str(args.llama_cpp)]  # its gguf, not the published package
    import conversion

    for name in args.names:
        with tempfile.TemporaryDirectory() as temporary:
            convert(conversion, name, Path(temporary) / name, GOLDEN / "gguf" / f"{name}.gguf")
        print(name, flush=True)


if __name__ == "__main__":
    main()
