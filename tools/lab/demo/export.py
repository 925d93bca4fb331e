#!/usr/bin/env python3
"""Write a training checkpoint as a Hugging Face folder: bf16 safetensors, config, tokenizer.

    export.py --run run --out configs/demo
"""
import argparse
import json
import shutil
from pathlib import Path

import torch
from safetensors.torch import save_file

from tokens import BOS, EOS


def hf_config(config):
    hf = {
        "architectures": ["LlamaForCausalLM"],
        "model_type": "llama",
        "attention_bias": False,
        "attention_dropout": 0.0,
        "bos_token_id": BOS,
        "eos_token_id": EOS,
        "hidden_act": "silu",
        "initializer_range": 0.02,
        "mlp_bias": False,
        **config,
        "rope_scaling": None,
        "tie_word_embeddings": True,
        "torch_dtype": "bfloat16",
        "use_cache": True,
    }
    return dict(sorted(hf.items()))


TOKENIZER_CONFIG = {
    "tokenizer_class": "LlamaTokenizer",
    "add_bos_token": True,
    "add_eos_token": False,
    "bos_token": "<s>",
    "eos_token": "</s>",
    "unk_token": "<unk>",
    "pad_token": None,
    "clean_up_tokenization_spaces": False,
    "legacy": True,
    "sp_model_kwargs": {},
}


def write_json(path, value):
    path.write_text(json.dumps(value, indent=2) + "\n")


def export(run, out):
    out.mkdir(parents=True, exist_ok=True)
    saved = torch.load(run / "checkpoint.pt", map_location="cpu", weights_only=True)
    tensors = {f"model.{name}": value.to(torch.bfloat16).contiguous() for name, value in saved["model"].items()}
    save_file(tensors, out / "model.safetensors", metadata={"format": "pt"})
    write_json(out / "config.json", hf_config(saved["config"]))
    write_json(out / "generation_config.json", {"bos_token_id": BOS, "eos_token_id": EOS})
    write_json(out / "tokenizer_config.json", TOKENIZER_CONFIG)
    shutil.copyfile(run / "tokenizer.model", out / "tokenizer.model")
    print(f"{out}: {sum(t.numel() for t in tensors.values())} parameters, "
          f"{sum(f.stat().st_size for f in out.iterdir())} bytes, after {saved['state']}")


def main():
    ap = argparse.ArgumentParser(description=__doc__.split("\n\n")[0])
    ap.add_argument("--run", required=True, help="folder written by train.py")
    ap.add_argument("--out", required=True)
    args = ap.parse_args()
    export(Path(args.run), Path(args.out))


if __name__ == "__main__":
    main()
