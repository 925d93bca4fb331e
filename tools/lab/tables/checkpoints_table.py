#!/usr/bin/env python3
"""Writes the tables of docs/checkpoints.md: the messages for checkpoints that differ from their config.

    tools/lab/tables/checkpoints_table.py build/lariat [SHARED]

Each row is a run of the program on a tiny checkpoint of tests/golden with one change. The last table runs the configs in
SHARED/configs with small shapes and random weights. SHARED/tokenizers adds rows to the table of tokenizer keys. Needs
torch and safetensors.
"""

import json
import math
import pathlib
import re
import shutil
import subprocess
import sys
import tempfile
import textwrap

import torch
from safetensors.torch import load_file, save_file

ROOT = pathlib.Path(__file__).resolve().parents[3]
sys.path.insert(0, str(ROOT / "tools" / "lab"))
import pages  # noqa: E402

GOLDEN = ROOT / "tests" / "golden" / "checkpoints"
DEMO = ROOT / "configs" / "demo"
DOCUMENT = ROOT / "docs" / "checkpoints.md"


class Program:
    def __init__(self, path, folder):
        self.path, self.folder = pathlib.Path(path).resolve(), folder
        self.model = folder / "model"

    def run(self, *args):
        """Exit code, stdout, stderr."""
        done = subprocess.run([self.path, *map(str, args)], capture_output=True, text=True, check=False)
        return done.returncode, done.stdout, done.stderr.replace(str(self.folder), "DIR").strip()

    def logits(self, model):
        return self.run("logits", "--device", "cpu", "--model", model, "--tokens", "1,2,3", "--out", self.folder / "out")


def kind(code, before, after, stderr):
    """The effect of a key, from two runs without it and with it."""
    return "refused" if code else "warned" if stderr else "used" if after != before else "harmless"


def without_fix(line):
    """The line up to its last ';' if a sentence with the fix comes there."""
    start, mark, fix = line.rpartition("; ")
    return start if mark and "error: " in line and len(fix.split()) > 4 else line


def spoken(text):
    """Lines on stderr. The program also says how to mend an error, which the tables leave out."""
    lines = [without_fix(line.removeprefix("lariat: ")) for line in text.replace("|", "\\|").splitlines()]
    return "<br>".join(f"`{line}`" for line in lines)


def row(what, run):
    """Cells: checkpoint, message on stderr, exit code."""
    code, _, text = run
    return [what, spoken(text) or "none", code]


def write(mark, rows, head=("checkpoint", "message on stderr", "exit code")):
    pages.replace(DOCUMENT, mark, pages.table(head, rows))


def write_accepted(rows):
    if any(cells[1:] != ["none", 0] for cells in rows):
        sys.exit(f"not accepted in silence: {rows}")
    pages.replace(DOCUMENT, "accepted", textwrap.fill("; ".join(what for what, *_ in rows) + ".", 132))


def changed(folder, base, config=None, add=None):
    """A copy of a golden checkpoint with other config keys and tensors. A shape adds a tensor of ones (biases of zeros are
    ignored), a name a copy of another tensor, and None removes the tensor."""
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    keys = json.loads((GOLDEN / base / "config.json").read_text()) | (config or {})
    (folder / "config.json").write_text(json.dumps(keys))
    tensors = load_file(GOLDEN / base / "model.safetensors")
    for name, value in (add or {}).items():
        if value is None:
            del tensors[name]
        else:
            tensors[name] = tensors[value].clone() if isinstance(value, str) else torch.ones(value)
    save_file(tensors, folder / "model.safetensors")
    return folder


LAYER = "model.layers.0."
EMBED, HEAD = "model.embed_tokens.weight", "lm_head.weight"
YARN = {"rope_type": "yarn", "factor": 4.0, "original_max_position_embeddings": 16}
# (row, golden checkpoint, keys, tensors)
GATE = [
    ("a bias without a config key", "llama_gqa", {}, {LAYER + "self_attn.q_proj.bias": [64]}),
    ("a bias that the family does not have", "qwen2", {}, {LAYER + "self_attn.o_proj.bias": [32]}),
    ("q and k norms", "llama_gqa", {}, {LAYER + "self_attn.q_norm.weight": [16]}),
    ("post-norms", "llama_gqa", {}, {LAYER + "post_feedforward_layernorm.weight": [32]}),
    ("attention sinks", "llama_gqa", {}, {LAYER + "self_attn.sinks": [4]}),
    ("an lm_head bias", "llama_gqa", {}, {"lm_head.bias": [61]}),
    ("LoRA tensors", "llama_gqa", {}, {LAYER + "self_attn.q_proj.lora_A.weight": [4, 32]}),
    ("weight_scale", "llama_gqa", {}, {LAYER + "self_attn.q_proj.weight_scale": [64]}),
    ("surplus layers", "llama_gqa", {"num_hidden_layers": 1}, {}),
    ("rotary_emb.inv_freq", "llama_gqa", {}, {LAYER + "self_attn.rotary_emb.inv_freq": [8]}),
    ("a vision tower", "llama_gqa", {}, {"vision_tower.a": [4], "vision_tower.b": [4]}),
    ("tied embeddings with an equal lm_head", "llama_mqa_tied", {}, {HEAD: EMBED}),
    ("tied embeddings with a different lm_head", "llama_mqa_tied", {}, {HEAD: [64, 32]}),
    ("architectures contradicts model_type", "llama_gqa", {"model_type": "qwen2"}, {}),
    ("unknown model_type", "llama_gqa", {"model_type": "kimi_linear"}, {}),
    ("misspelt architecture", "llama_gqa", {"architectures": ["LlamaForCasualLM"]}, {}),
    ("misspelt model_type of a text part", "llava", {"text_config": {"model_type": "lama"}}, {}),
    ("is_causal", "llama_gqa", {"is_causal": False}, {}),
    ("Granite multiplier on a Llama", "llama_gqa", {"embedding_multiplier": 12.0}, {}),
    ("the same, with a neutral value", "llama_gqa", {"embedding_multiplier": 1.0}, {}),
    ("the same on a Granite", "granite", {"embedding_multiplier": 12.0}, {}),
    ("MiniCPM multiplier on a Llama", "llama_gqa", {"scale_depth": 1.4}, {}),
    ("Gemma 2 soft-cap on a Llama", "llama_gqa", {"attn_logit_softcapping": 50.0}, {}),
    ("the same on a Gemma 3", "gemma3", {"attn_logit_softcapping": 50.0}, {}),
    ("the same on a Gemma 2", "gemma2", {"attn_logit_softcapping": 50.0}, {}),
    ("layers without RoPE on a Llama", "llama_gqa", {"no_rope_layers": [1, 0]}, {}),
    ("the same on a SmolLM3", "smollm3", {"no_rope_layers": [1, 0, 1, 1]}, {}),
    ("experts on a Llama", "llama_gqa", {"num_local_experts": 8}, {}),
    ("clip_qkv on a Llama", "llama_gqa", {"clip_qkv": 8.0}, {}),
    ("ALiBi on a Llama", "llama_gqa", {"alibi": True}, {}),
    ("hidden_activation on a Llama", "llama_gqa", {"hidden_activation": "gelu_pytorch_tanh"}, {}),
    ("dual chunk attention on a Llama", "llama_gqa", {"dual_chunk_attention_config": {"chunk_size": 262144}}, {}),
    ("the same on a Qwen2", "qwen2", {"dual_chunk_attention_config": {"chunk_size": 262144}}, {}),
    ("attn_factor", "llama_gqa", {"rope_parameters": YARN | {"attn_factor": 1.5}}, {}),
    ("llama_4_scaling_beta on a Llama", "llama_gqa", {"rope_parameters": YARN | {"llama_4_scaling_beta": 0.1}}, {}),
    ("attention biases in OLMo 2", "olmo2", {"attention_bias": True}, {}),
    ("biases of InternLM 2's fused projections", "internlm2", {"bias": True}, {}),
    ("Gemma 3 with bidirectional attention", "gemma3", {"use_bidirectional_attention": True}, {}),
    ("missing q and k norms", "gemma3", {}, {LAYER + "self_attn.q_norm.weight": None}),
    ("the same on a MiniMind", "minimind", {}, {f"model.layers.{i}.self_attn.{x}_norm.weight": None
                                                 for i in range(2) for x in "qk"}),
    ("layer_types contradicts use_sliding_window", "qwen3", {"use_sliding_window": False}, {}),
    ("auto_map", "llama_gqa", {"auto_map": {"AutoModelForCausalLM": "modeling_x.X"}}, {}),
    ("rope_theta of null", "llama_bias", {"rope_theta": None}, {}),
]
WARNINGS = [
    ("rope_interleaved on a Llama", "llama_gqa", {"rope_interleaved": True}, {}),
    ("partial_rotary_factor on a Llama", "llama_gqa", {"partial_rotary_factor": 0.5}, {}),
    ("partial_rotary_factor on a Qwen2", "qwen2", {"partial_rotary_factor": 0.5}, {}),
    ("dynamic scaling with an original length", "llama_gqa",
     {"rope_parameters": {"rope_type": "dynamic", "factor": 2.0, "original_max_position_embeddings": 32}}, {}),
    ("sliding_window, which Llama ignores", "llama_gqa", {"sliding_window": 16}, {}),
    ("attention_bias, which Phi-3 ignores", "phi3", {"attention_bias": True}, {}),
    ("use_sliding_window, which Phi-3 ignores", "phi3_window", {"use_sliding_window": False}, {}),
    ("num_key_value_heads of a GPT-NeoX", "gpt_neox", {"num_key_value_heads": 1}, {}),
    ("intermediate_size of a BLOOM", "bloom", {"intermediate_size": 64}, {}),
    ("intermediate_size of an MPT", "mpt", {"intermediate_size": 64}, {}),
    ("unknown key", "llama_gqa", {"unheard_of": 3}, {}),
    ("image model (the text part runs)", "qwen2_vl", {}, {}),
    ("a yarn factor below 1", "llama_gqa", {"rope_parameters": YARN | {"factor": 0.5}}, {}),
    ("eos of -1", "llama_gqa", {"eos_token_id": -1}, {}),
    ("bos beyond the vocabulary", "llama_gqa", {"bos_token_id": 61}, {}),
]  # fmt: skip
ACCEPTED = [
    ("hidden_act swish", "llama_gqa", {"hidden_act": "swish"}, {}),
    ("an original length above max_position_embeddings", "qwen3_yarn_tied", {"max_position_embeddings": 16}, {}),
    ("torch_dtype auto", "llama_gqa", {"torch_dtype": "auto"}, {}),
    ("infinite number in an unused key", "llama_gqa", {"_time_step_limit": [0.0, math.inf]}, {}),
    ("an empty quantization_config", "llama_gqa", {"quantization_config": {}}, {}),
    ("tied, and only lm_head.weight", "llama_mqa_tied", {}, {HEAD: EMBED, EMBED: None}),
    ("LLaMAForCausalLM", "llama_gqa", {"architectures": ["LLaMAForCausalLM"]}, {}),
]
QUANTISED = [
    ("an HQQ checkpoint", "llama_gqa", {"quantization_config": {"quant_method": "hqq", "bits": 4}}, {}),
    ("GPTQ of 3 bits", "llama_gqa", {"quantization_config": {"quant_method": "gptq", "bits": 3}}, {}),
    ("AWQ as gemv", "llama_gqa", {"quantization_config": {"quant_method": "awq", "version": "gemv"}}, {}),
    ("NVFP4 of MLX", "llama_gqa", {"quantization": {"group_size": 16, "bits": 4, "mode": "nvfp4"}}, {}),
    ("unquantized weights declared as FP8", "llama_gqa", {"quantization_config": {"quant_method": "fp8"}}, {}),
]


def mutations(program, rows):
    return [row(what, program.logits(changed(program.model, base, config, add))) for what, base, config, add in rows]


def prompts(program):
    shutil.copytree(DEMO, program.folder / "demo", dirs_exist_ok=True)
    generate = ["generate", "--device", "cpu", "--model", program.folder / "demo", "--prompt"]
    return [row(what, program.run(*generate, *more)) for what, more in (
        ("generation beyond the trained context", ["The sea", "--max-new-tokens", 600]),
        ("the same with a scaling", ["The sea", "--max-new-tokens", 600, "--rope-scaling", "dynamic"]),
        ("prompt that starts with BOS", ["<s>The sea", "--max-new-tokens", 4]))]  # fmt: skip


def formats(program):
    model = changed(program.model, "llama_gqa")
    (model / "model.safetensors").rename(model / "pytorch_model.bin")
    rows = [row("a folder with only pytorch_model.bin", program.logits(model))]
    (model / "pytorch_model.bin").unlink()
    (model / "model-q4.gguf").write_bytes(b"GGUF\3\0\0\0")
    rows.append(row("a folder with a GGUF file", program.logits(model)))
    rows.append(row("a truncated GGUF file", program.logits(model / "model-q4.gguf")))
    changed(model, "llama_gqa")
    (model / "adapter_config.json").write_text('{"base_model_name_or_path": "some/base"}')
    rows.append(row("a LoRA adapter", program.logits(model)))
    changed(model / "snapshots" / "0a1b2c3d", "llama_gqa")
    (model / "config.json").unlink()
    (model / "adapter_config.json").unlink()
    rows.append(row("parent folder of a snapshot", program.logits(model)))
    return rows + mutations(program, QUANTISED)


def cut_down(config):
    """The config with small shapes and all other keys unchanged."""
    inner = "text_config" in config  # of a model with an image part
    keys = dict(config["text_config"] if inner else config)
    family, heads = keys.get("model_type"), keys.get("num_attention_heads", 32)
    small = {"intermediate_size": 16, "moe_intermediate_size": 16, "num_hidden_layers": 2, "first_k_dense_replace": 1}
    keys |= {key: value for key, value in small.items() if key in keys}
    dim = keys.get("head_dim") or (128 if family == "qwen3" else keys.get("hidden_size", 4096) // heads)
    if family in ("internlm2", "qwen2_vl", "qwen2_5_vl"):  # no head_dim: one head of the model's size
        keys |= {"hidden_size": dim, "num_attention_heads": 1, "num_key_value_heads": 1}
    elif "kv_lora_rank" in keys:
        keys |= {"hidden_size": 16, "v_head_dim": keys.get("v_head_dim") or 16 // heads or 1}
    else:
        keys |= {"hidden_size": 16, "head_dim": dim}
    if isinstance(keys.get("layer_types"), list):
        keys["layer_types"] = keys["layer_types"][:2]
    return config | {"text_config": keys} if inner else keys


def first_rope_line(program, config):
    """First line of `lariat rope`, and its message about layers with another RoPE."""
    _, out, err = program.run("rope", "--model", config)
    other = re.search("RoPE.*not shown: (.*)", err)
    return (out.splitlines() or [err])[0] + (f"; in layers with a window {other[1]}" if other else "")


def configs(program, folder):
    rows, counts = [], {}
    for file in sorted(folder.glob("*.json")):
        config = program.folder / "config.json"
        config.write_text(file.read_text())
        rope = first_rope_line(program, config)
        config.write_text(json.dumps(cut_down(json.loads(file.read_text()))))
        code, _, text = program.run("bench", "--config", config, "--random-weights", "--device", "cpu", "--threads", 1,
                                    "--prompt", 1, "--gen", 0, "--reps", 1, "--json")  # fmt: skip
        result = "refused" if code else "warned" if text else "run"
        counts[result] = counts.get(result, 0) + 1
        rows.append([file.stem, result, rope])
    rows.append(["", ", ".join(f"{n} {result}" for result, n in sorted(counts.items())), ""])
    write("configs", rows, ("config", "result", "RoPE"))


def main():
    shared = pathlib.Path(sys.argv[2]) if len(sys.argv) > 2 else None
    with tempfile.TemporaryDirectory() as name:
        program = Program(sys.argv[1], pathlib.Path(name).resolve())
        write("gate", mutations(program, GATE))
        write("warnings", mutations(program, WARNINGS) + prompts(program))
        write_accepted(mutations(program, ACCEPTED))
        write("formats", formats(program))
        tokenizer_keys(program, shared and shared / "tokenizers")
        generation_keys(program)
        if shared:
            configs(program, shared / "configs")


if __name__ == "__main__":
    from key_tables import generation_keys, tokenizer_keys  # circular import

    main()
