#!/usr/bin/env python3
"""Writes docs/checkpoints.md: what lariat says to checkpoints that are something else than they seem.

    tools/lab/tables/checkpoints_table.py build/lariat [FOLDER_OF_CONFIGS] > docs/checkpoints.md

Each row is a run of the program on a tiny checkpoint of tests/golden that was changed in one place, or, in the second
table, on a config of the folder with its shapes cut down and weights of zeros. Needs no package.
"""

import json
import math
import pathlib
import re
import shutil
import struct
import subprocess
import sys
import tempfile

import tokenizer_keys_table
from generation_keys import generation_keys

ROOT = pathlib.Path(__file__).resolve().parents[3]
GOLDEN = ROOT / "tests" / "golden" / "checkpoints"
DEMO = ROOT / "configs" / "demo"
SHARED = ROOT.parent / "shared" / "tokenizers"


def read_tensors(file):
    data = file.read_bytes()
    (length,) = struct.unpack("<Q", data[:8])
    header = json.loads(data[8 : 8 + length])
    header.pop("__metadata__", None)
    body = data[8 + length :]
    return {name: (t["dtype"], t["shape"], body[slice(*t["data_offsets"])]) for name, t in header.items()}


def write_tensors(file, tensors):
    """tensors: name -> (dtype, shape, bytes, or None for zeros that take no room on the disk)."""
    header, at = {}, 0
    for name, (dtype, shape, data) in tensors.items():
        size = len(data) if data is not None else math.prod(shape) * {"F32": 4, "BF16": 2, "F16": 2}[dtype]
        header[name] = {"dtype": dtype, "shape": shape, "data_offsets": [at, at + size]}
        at += size
    text = json.dumps(header).encode()
    with open(file, "wb") as out:
        out.write(struct.pack("<Q", len(text)) + text)
        for name, (_, _, data) in tensors.items():
            if data is not None:
                out.seek(8 + len(text) + header[name]["data_offsets"][0])
                out.write(data)
        out.truncate(8 + len(text) + at)


class Program:
    def __init__(self, path, folder):
        self.path, self.folder = pathlib.Path(path).resolve(), folder

    def run(self, *args, out=None):
        """Exit code and stderr; stdout goes to the file `out`."""
        done = subprocess.run([self.path, *map(str, args)], capture_output=True, text=True, check=False)
        if out:
            out.write_text(done.stdout)
        return done.returncode, done.stderr.replace(str(self.folder), "DIR").strip()

    def logits(self, model):
        return self.run("logits", "--device", "cpu", "--model", model, "--tokens", "1,2,3", "--out", self.folder / "out")


def changed(folder, base, config=None, add=None, drop=()):
    """A copy of a golden checkpoint with keys of its config and tensors replaced; None takes a tensor out."""
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    keys = json.loads((GOLDEN / base / "config.json").read_text()) | (config or {})
    (folder / "config.json").write_text(json.dumps({k: v for k, v in keys.items() if k not in drop}))
    tensors = read_tensors(GOLDEN / base / "model.safetensors")
    for name, value in (add or {}).items():
        if value is None:
            del tensors[name]
        else:
            tensors[name] = tensors[value] if isinstance(value, str) else ("F32", value, None)
    write_tensors(folder / "model.safetensors", tensors)
    return folder


LAYER = "model.layers.0."
EMBED, HEAD = "model.embed_tokens.weight", "lm_head.weight"
YARN = {"rope_type": "yarn", "factor": 4.0, "original_max_position_embeddings": 16}
# (what it is, golden checkpoint, keys, tensors)
GATE = [
    ("a bias that no key speaks of", "llama_gqa", {}, {LAYER + "self_attn.q_proj.bias": [64]}),
    ("a bias that the family never has", "qwen2", {}, {LAYER + "self_attn.o_proj.bias": [32]}),
    ("norms of q and k", "llama_gqa", {}, {LAYER + "self_attn.q_norm.weight": [16]}),
    ("post-norms", "llama_gqa", {}, {LAYER + "post_feedforward_layernorm.weight": [32]}),
    ("attention sinks", "llama_gqa", {}, {LAYER + "self_attn.sinks": [4]}),
    ("a bias of the head", "llama_gqa", {}, {"lm_head.bias": [61]}),
    ("LoRA tensors", "llama_gqa", {}, {LAYER + "self_attn.q_proj.lora_A.weight": [4, 32]}),
    ("weight_scale", "llama_gqa", {}, {LAYER + "self_attn.q_proj.weight_scale": [64]}),
    ("surplus layers", "llama_gqa", {"num_hidden_layers": 1}, {}),
    ("rotary_emb.inv_freq", "llama_gqa", {}, {LAYER + "self_attn.rotary_emb.inv_freq": [8]}),
    ("a vision tower", "llama_gqa", {}, {"vision_tower.a": [4], "vision_tower.b": [4]}),
    ("tied, and an equal head", "llama_mqa_tied", {}, {HEAD: EMBED}),
    ("tied, and another head", "llama_mqa_tied", {}, {HEAD: [64, 32]}),
    ("architectures against model_type", "llama_gqa", {"model_type": "qwen2"}, {}),
    ("a model_type that nothing here has", "llama_gqa", {"model_type": "kimi_k2"}, {}),
    ("an architecture written wrongly", "llama_gqa", {"architectures": ["LlamaForCasualLM"]}, {}),
    ("the text part of an image model, likewise", "llava", {"text_config": {"model_type": "lama"}}, {}),
    ("is_causal", "llama_gqa", {"is_causal": False}, {}),
    ("a multiplier of Granite, on a Llama", "llama_gqa", {"embedding_multiplier": 12.0}, {}),
    ("the same, neutral", "llama_gqa", {"embedding_multiplier": 1.0}, {}),
    ("the same, on a Granite", "granite", {"embedding_multiplier": 12.0}, {}),
    ("a multiplier of MiniCPM", "llama_gqa", {"scale_depth": 1.4}, {}),
    ("a soft-cap of Gemma 2, on a Llama", "llama_gqa", {"attn_logit_softcapping": 50.0}, {}),
    ("the same, on a Gemma 3", "gemma3", {"attn_logit_softcapping": 50.0}, {}),
    ("the same, on a Gemma 2", "gemma2", {"attn_logit_softcapping": 50.0}, {}),
    ("layers without RoPE, on a Llama", "llama_gqa", {"no_rope_layers": [1, 0]}, {}),
    ("the same, on a SmolLM3", "smollm3", {"no_rope_layers": [1, 0, 1, 1]}, {}),
    ("experts", "llama_gqa", {"num_local_experts": 8}, {}),
    ("clip_qkv", "llama_gqa", {"clip_qkv": 8.0}, {}),
    ("ALiBi", "llama_gqa", {"alibi": True}, {}),
    ("hidden_activation, on a Llama", "llama_gqa", {"hidden_activation": "gelu_pytorch_tanh"}, {}),
    ("dual chunk attention", "qwen2", {"dual_chunk_attention_config": {"chunk_size": 262144}}, {}),
    ("attn_factor", "llama_gqa", {"rope_parameters": YARN | {"attn_factor": 1.5}}, {}),
    ("llama_4_scaling_beta, on a Llama", "llama_gqa", {"rope_parameters": YARN | {"llama_4_scaling_beta": 0.1}}, {}),
    ("biases in front of OLMo 2's norms", "olmo2", {"attention_bias": True}, {}),
    ("biases of InternLM 2's fused projections", "internlm2", {"bias": True}, {}),
    ("a Gemma 3 for embeddings", "gemma3", {"use_bidirectional_attention": True}, {}),
    ("norms of q and k that are missing", "gemma3", {}, {LAYER + "self_attn.q_norm.weight": None}),
    ("the same, on a MiniMind", "minimind", {}, {f"model.layers.{i}.self_attn.{x}_norm.weight": None
                                                 for i in range(2) for x in "qk"}),
    ("layer_types against use_sliding_window", "qwen3", {"use_sliding_window": False}, {}),
    ("auto_map", "llama_gqa", {"auto_map": {"AutoModelForCausalLM": "modeling_x.X"}}, {}),
    ("rope_theta of null", "llama_bias", {"rope_theta": None}, {}),
]
WARNINGS = [
    ("rope_interleaved on a Llama", "llama_gqa", {"rope_interleaved": True}, {}),
    ("partial_rotary_factor on a Llama", "llama_gqa", {"partial_rotary_factor": 0.5}, {}),
    ("partial_rotary_factor on a Qwen2", "qwen2", {"partial_rotary_factor": 0.5}, {}),
    ("dynamic beside an original length", "llama_gqa",
     {"rope_parameters": {"rope_type": "dynamic", "factor": 2.0, "original_max_position_embeddings": 32}}, {}),
    ("a window that Llama ignores", "llama_gqa", {"sliding_window": 16}, {}),
    ("biases that Phi-3 ignores", "phi3", {"attention_bias": True}, {}),
    ("a switch for windows that Phi-3 ignores", "phi3_window", {"use_sliding_window": False}, {}),
    ("key heads of a GPT-NeoX, which has none", "gpt_neox", {"num_key_value_heads": 1}, {}),
    ("an intermediate_size of a BLOOM, likewise", "bloom", {"intermediate_size": 64}, {}),
    ("an intermediate_size of an MPT, likewise", "mpt", {"intermediate_size": 64}, {}),
    ("a key that nobody knows", "llama_gqa", {"unheard_of": 3}, {}),
    ("an image model of which the text runs", "qwen2_vl", {}, {}),
]  # fmt: skip
TOO_STRICT = [
    ("hidden_act swish", "llama_gqa", {"hidden_act": "swish"}, {}),
    ("an original length above max_position_embeddings", "qwen3_yarn_tied", {"max_position_embeddings": 16}, {}),
    ("a yarn factor below 1", "llama_gqa", {"rope_parameters": YARN | {"factor": 0.5}}, {}),
    ("eos of -1", "llama_gqa", {"eos_token_id": -1}, {}),
    ("bos beyond the vocabulary", "llama_gqa", {"bos_token_id": 61}, {}),
    ("torch_dtype auto", "llama_gqa", {"torch_dtype": "auto"}, {}),
    ("an infinite number in a key nobody reads", "llama_gqa", {"_time_step_limit": [0.0, math.inf]}, {}),
    ("an empty quantization_config", "llama_gqa", {"quantization_config": {}}, {}),
    ("tied, and only lm_head.weight", "llama_mqa_tied", {}, {HEAD: EMBED, EMBED: None}),
    ("LLaMAForCausalLM", "llama_gqa", {"architectures": ["LLaMAForCausalLM"]}, {}),
]
QUANTISED = [
    ("a GPTQ checkpoint", "llama_gqa", {"quantization_config": {"quant_method": "gptq", "bits": 4}}, {}),
    ("an AWQ checkpoint", "llama_gqa", {"quantization_config": {"quant_method": "awq", "bits": 4}}, {}),
    ("an FP8 checkpoint", "llama_gqa", {"quantization_config": {"quant_method": "fp8"}}, {}),
    ("an MLX checkpoint", "llama_gqa", {"quantization": {"group_size": 64, "bits": 4}}, {}),
]


def row(what, code, text):
    lines = "<br>".join(f"`{line}`" for line in text.replace("|", "\\|").splitlines())
    print(f"| {what} | {lines or 'nothing: it runs'} | {code} |")


def heading(text):
    print(f"\n## {text}\n\n| checkpoint | what lariat prints on stderr | exit code |\n|---|---|---|")


def mutations(program, rows):
    for what, base, config, add in rows:
        row(what, *program.logits(changed(program.folder / "model", base, config, add)))


def prompts(program):
    model = program.folder / "model"
    for what, text, more in [
        ("a generation past the trained context", "The sea", ["--max-new-tokens", 600]),
        ("the same with a scaling", "The sea", ["--max-new-tokens", 600, "--rope-scaling", "dynamic"]),
        ("a prompt that begins with BOS", "<s>The sea", ["--max-new-tokens", 4]),
    ]:
        shutil.rmtree(model, ignore_errors=True)
        shutil.copytree(DEMO, model)
        row(what, *program.run("generate", "--device", "cpu", "--model", model, "--prompt", text, *more))


def formats(program):
    model = program.folder / "model"

    def fresh():
        return changed(model, "llama_gqa")

    (fresh() / "model.safetensors").rename(model / "pytorch_model.bin")
    row("a folder with only pytorch_model.bin", *program.logits(model))
    fresh()
    (model / "model.safetensors").unlink()
    (model / "model-q4.gguf").write_bytes(b"GGUF\3\0\0\0")
    row("a folder with a GGUF file", *program.logits(model))
    row("a GGUF file", *program.logits(model / "model-q4.gguf"))
    fresh()
    (model / "adapter_config.json").write_text('{"base_model_name_or_path": "some/base"}')
    row("a LoRA adapter", *program.logits(model))
    changed(model / "snapshots" / "0a1b2c3d", "llama_gqa")
    (model / "config.json").unlink()
    (model / "adapter_config.json").unlink()
    row("the folder above a snapshot", *program.logits(model))
    mutations(program, QUANTISED)


# Families without a head_dim: one head is the model's size.
ONE_HEAD = ("internlm2", "qwen2_vl", "qwen2_5_vl")

# What the layers of a family have beside or instead of Llama's tensors.
BEHIND = ["post_attention_layernorm", "post_feedforward_layernorm"]
NORMS = {
    "gemma2": ["input_layernorm", "pre_feedforward_layernorm", *BEHIND],
    "gemma3_text": ["input_layernorm", "pre_feedforward_layernorm", *BEHIND],
    "olmo2": BEHIND,
    "internlm2": ["attention_norm", "ffn_norm"],
}


def latent_shapes(keys, heads):
    """Of attention with kv_lora_rank (DeepSeek, MiniCPM3)."""
    rope, nope, rank, of_q = (keys.get(key) for key in ("qk_rope_head_dim", "qk_nope_head_dim", "kv_lora_rank", "q_lora_rank"))
    v = keys.get("v_head_dim") or 16 // heads or 1
    shapes = {"kv_a_proj_with_mqa": [rank + rope, 16], "kv_a_layernorm": [rank], "kv_b_proj": [heads * (nope + v), rank],
              "o_proj": [16, heads * v]}  # fmt: skip
    if of_q:
        shapes |= {"q_a_proj": [of_q, 16], "q_a_layernorm": [of_q], "q_b_proj": [heads * (nope + rope), of_q]}
    else:
        shapes["q_proj"] = [heads * (nope + rope), 16]
    return {f"self_attn.{name}.weight": shape for name, shape in shapes.items()}


def expert_shapes(kind, keys, layer):
    """Of the feed-forward of a layer with experts; nothing where it is dense."""
    n = keys.get("n_routed_experts") or keys.get("num_local_experts") or keys.get("num_experts")
    if not n or layer < keys.get("first_k_dense_replace", 0):
        return {}
    block, gate, up, down = ("block_sparse_moe", "w1", "w3", "w2") if kind == "mixtral" else (
        "mlp", "gate_proj", "up_proj", "down_proj")  # fmt: skip
    shapes = {f"{block}.gate.weight": [n, 16]}
    if keys.get("topk_method") == "noaux_tc":
        shapes["mlp.gate.e_score_correction_bias"] = [n]
    for e in range(n):
        shapes |= {f"{block}.experts.{e}.{name}.weight": [16, 16] for name in (gate, up, down)}
    if shared := 16 * keys.get("n_shared_experts", 0):
        shapes |= {f"mlp.shared_experts.{name}_proj.weight": [shared, 16] for name in ("gate", "up")}
        shapes["mlp.shared_experts.down_proj.weight"] = [16, shared]
    return shapes


def layer_shapes(kind, hidden, heads, kv, dim, experts, latent):
    """{name: shape} of a layer of model_type `kind` with intermediate size 16; experts, latent: its own."""
    q, k = heads * dim, kv * dim
    shapes = {name + ".weight": [hidden] for name in NORMS.get(kind, ["input_layernorm", "post_attention_layernorm"])}
    if kind == "internlm2":
        return shapes | {"attention.wqkv.weight": [q + 2 * k, hidden], "attention.wo.weight": [hidden, q],
                         "feed_forward.w2.weight": [hidden, 16]} | {
            f"feed_forward.w{i}.weight": [16, hidden] for i in (1, 3)}  # fmt: skip
    shapes |= experts or {"mlp.down_proj.weight": [hidden, 16]}
    shapes |= latent or {"self_attn.o_proj.weight": [hidden, q]}
    if kind == "phi3":
        return shapes | {"self_attn.qkv_proj.weight": [q + 2 * k, hidden], "mlp.gate_up_proj.weight": [32, hidden]}
    if not experts:
        shapes |= {"mlp.gate_proj.weight": [16, hidden], "mlp.up_proj.weight": [16, hidden]}
    if latent:
        return shapes
    for name, out in (("q", q), ("k", k), ("v", k)):
        shapes[f"self_attn.{name}_proj.weight"] = [out, hidden]
        if kind in ("qwen2", "qwen2_vl", "qwen2_5_vl"):
            shapes[f"self_attn.{name}_proj.bias"] = [out]
    if kind in ("qwen3", "qwen3_moe", "gemma3_text"):
        shapes |= {f"self_attn.{name}_norm.weight": [dim] for name in "qk"}
    if kind == "olmo2":
        shapes |= {"self_attn.q_norm.weight": [q], "self_attn.k_norm.weight": [k]}
    return shapes


def cut_down(config):
    """The config with shapes of a few numbers, and its tensors: all else stays as it stands."""
    inner = "text_config" in config  # of a model with an image part
    keys = dict(config["text_config"] if inner else config)
    kind, heads = keys.get("model_type"), keys.get("num_attention_heads", 32)
    dim = keys.get("head_dim") or (128 if kind == "qwen3" else keys.get("hidden_size", 4096) // heads)
    kv = keys.get("num_key_value_heads", heads)
    latent = latent_shapes(keys, heads) if "kv_lora_rank" in keys else {}
    hidden = 16
    if kind in ONE_HEAD:
        hidden, heads, kv = dim, 1, 1
        keys |= {"num_attention_heads": heads, "num_key_value_heads": kv}
    elif not latent:
        keys["head_dim"] = dim
    keys |= {"hidden_size": hidden, "intermediate_size": 16, "num_hidden_layers": 2}
    keys |= {key: least for key, least in (("moe_intermediate_size", 16), ("first_k_dense_replace", 1)) if key in keys}
    if latent:
        keys["v_head_dim"] = keys.get("v_head_dim") or 16 // heads or 1
    if isinstance(keys.get("layer_types"), list):
        keys["layer_types"] = keys["layer_types"][:2]
    vocab, (embed, head) = keys.get("vocab_size", 32000), (EMBED, HEAD)
    if kind == "internlm2":
        embed, head = "model.tok_embeddings.weight", "output.weight"
    shapes = {embed: [vocab, hidden], "model.norm.weight": [hidden]}
    if not keys.get("tie_word_embeddings", config.get("tie_word_embeddings", kind.startswith("gemma"))):
        shapes[head] = [vocab, hidden]
    for layer in range(2):
        experts = expert_shapes(kind, keys, layer)
        shapes |= {f"model.layers.{layer}.{name}": shape
                   for name, shape in layer_shapes(kind, hidden, heads, kv, dim, experts, latent).items()}  # fmt: skip
    if inner:
        shapes = {"language_model." + name: shape for name, shape in shapes.items()}
    if "vision_config" in config:
        shapes |= {("vision_tower." if inner else "visual.") + name: [4] for name in "ab"}
    return config | {"text_config": keys} if inner else keys, {n: ("BF16", shape, None) for n, shape in shapes.items()}


def first_rope_line(program, model):
    """Of `lariat rope`, with what it says on stderr of layers that have another."""
    rope = subprocess.run([program.path, "rope", "--model", model], capture_output=True, text=True, check=False)
    line = (rope.stdout.splitlines() or [rope.stderr.strip()])[0]
    other = re.search("have a RoPE of their own, which is not shown: (.*)", rope.stderr)
    return f"{line}; in layers with a window {other[1]}" if other else line


def configs(program, folder):
    print("\n## Configs of public repositories\n")
    print("The shapes are cut down and the weights are zeros; every other key is as it was published. The last column is")
    print("the first line of `lariat rope --model`, which takes any family.\n")
    print("| config | result | line on stderr | RoPE |\n|---|---|---|---|")
    model = program.folder / "model"
    counts = {}
    for file in sorted(folder.glob("*.json")):
        shutil.rmtree(model, ignore_errors=True)
        model.mkdir()
        (model / "config.json").write_text(file.read_text())
        rope = first_rope_line(program, model)
        keys, tensors = cut_down(json.loads(file.read_text()))
        (model / "config.json").write_text(json.dumps(keys))
        write_tensors(model / "model.safetensors", tensors)
        code, text = program.logits(model)
        result = "refused" if code else "warned" if text else "run"
        counts[result] = counts.get(result, 0) + 1
        lines = "<br>".join(f"`{line}`" for line in text.splitlines())
        print(f"| {file.stem} | {result} | {lines} | {rope} |")
    print("\n" + ", ".join(f"{n} {result}" for result, n in sorted(counts.items())) + ".")


def main():
    with tempfile.TemporaryDirectory() as name:
        program = Program(sys.argv[1], pathlib.Path(name).resolve())
        print("# What lariat says to a checkpoint\n")
        print("Nothing that changes a model's result passes in silence: it is computed as transformers 5.23 does, or refused, or")
        print("warned of. The lines below are the program's own (`tools/lab/tables/checkpoints_table.py build/lariat ../shared/configs`")
        print("writes this file; `DIR` stands for the folder); the keys are those of `models/families/gate.cpp`, and")
        print("`tests/models/gate_test.cpp` walks them all.")
        heading("Refused, or accounted for")
        mutations(program, GATE)
        heading("Warnings")
        mutations(program, WARNINGS)
        prompts(program)
        heading("Accepted")
        mutations(program, TOO_STRICT)
        heading("Not a checkpoint that runs")
        formats(program)
        tokenizer_keys_table.print_tables(program.path, SHARED if SHARED.is_dir() else None)
        generation_keys(program, DEMO, row)
        if len(sys.argv) > 2:
            configs(program, pathlib.Path(sys.argv[2]))


if __name__ == "__main__":
    main()
