"""Shared by the golden scripts: tiny random models, one-shot and greedy float32 runs, saving in the HF layout."""

import contextlib
import copy
import json
import math
import tempfile
from pathlib import Path

import torch
import transformers
from safetensors.torch import load_file, save_file
from transformers import AutoModelForCausalLM
from transformers.models.llama import modeling_llama
from transformers.models.phi3 import modeling_phi3

GOLDEN = Path(__file__).resolve().parent
CHECKPOINTS = GOLDEN / "checkpoints"
VERSIONS = f"transformers {transformers.__version__}, torch {torch.__version__.split('+')[0]}"

torch.set_num_threads(1)
torch.set_grad_enabled(False)
transformers.logging.set_verbosity_error()
transformers.logging.disable_progress_bar()


def build(config, seed):
    """A float32 model of `config` with random weights that make every tensor matter and spread the logits well.

    Norm weights scatter around 1 (q_norm and k_norm around 1.5) and biases around 0, so that forgetting one of them
    shows. Weights are drawn in sorted name order from one generator: the same seed gives the same checkpoint.
    """
    options = dict(dtype=torch.float32, attn_implementation="eager")  # else buffers are rounded to config.dtype
    model = AutoModelForCausalLM.from_config(copy.deepcopy(config), **options).eval()
    generator = torch.Generator().manual_seed(seed)
    for name, parameter in sorted(model.named_parameters()):
        noise = torch.randn(parameter.shape, generator=generator)
        if "norm" in name:
            center = 1.5 if "q_norm" in name or "k_norm" in name else 1.0
            parameter.copy_(center + 0.25 * noise)
        elif name.endswith("bias"):
            parameter.copy_(0.4 * noise)
        elif "embed_tokens" in name:
            tied = config.tie_word_embeddings
            parameter.copy_(noise * (2.5 / math.sqrt(config.hidden_size) if tied else 1.0))
        else:
            gain = 3.0 if "lm_head" in name else 1.6 if "q_proj" in name or "k_proj" in name else 1.2
            parameter.copy_(noise * (gain / math.sqrt(parameter.shape[1])))
    return model


def one_shot(model, tokens):
    """Logits [n, vocab] of one forward pass over the list `tokens`, without a cache."""
    return model(input_ids=torch.tensor([tokens]), use_cache=False).logits[0]


def greedy(model, prompt, count, least=0.0):
    """`count` argmax continuations of `prompt` (a fresh forward pass per token) and the smallest top-1 margin.

    Fewer where a margin is below `least`.
    """
    tokens, margin = list(prompt), math.inf
    for _ in range(count):
        best = one_shot(model, tokens)[-1].topk(2)
        margin = min(margin, (best.values[0] - best.values[1]).item())
        tokens.append(best.indices[0].item())
        if margin < least:
            break
    return tokens[len(prompt) :], margin


@contextlib.contextmanager
def llama_rotation(apply):
    """Runs transformers' Llama with another apply_rotary_pos_emb."""
    original = modeling_llama.apply_rotary_pos_emb
    modeling_llama.apply_rotary_pos_emb = apply
    try:
        yield
    finally:
        modeling_llama.apply_rotary_pos_emb = original


# Phi-3's rotation turns the first cos.shape[-1] entries of a head and passes the rest on: Llama's for a whole head,
# and what a Llama with partial_rotary_factor needs (transformers' own Llama rotates whole heads only).
partial_rotation = modeling_phi3.apply_rotary_pos_emb


def interleaved_rotation(q, k, cos, sin, unsqueeze_dim=1):
    """Rotates the pairs (2i, 2i+1) instead of (i, i + d/2)."""
    cos, sin = (x.unsqueeze(unsqueeze_dim)[..., : x.shape[-1] // 2] for x in (cos, sin))

    def rotate(x):
        even, odd = x[..., 0::2], x[..., 1::2]
        return torch.stack((even * cos - odd * sin, even * sin + odd * cos), dim=-1).flatten(-2)

    return rotate(q), rotate(k)


def interleave_rows(weight, head_dim):
    """Rows of a q_proj or k_proj weight (or bias) from half-split to interleaved order, head by head."""
    heads = weight.reshape(-1, 2, head_dim // 2, *weight.shape[1:])
    return heads.transpose(1, 2).reshape(weight.shape).contiguous()


def split_rows(packed, config):
    """InternLM2's wqkv or Baichuan's W_pack as q, k and v.

    wqkv has one block of rows for each KV head: its query heads, its key, its value. W_pack has q, k, v one below the
    other.
    """
    heads = config["num_attention_heads"]
    if config["model_type"] == "baichuan":
        return packed.chunk(3)
    groups = heads // config["num_key_value_heads"]
    blocks = packed.unflatten(0, (-1, groups + 2, config["hidden_size"] // heads))
    return [blocks[:, part].flatten(0, -2).contiguous() for part in (slice(groups), groups, groups + 1)]


INTERNLM2_NAMES = {"tok_embeddings": "embed_tokens", "attention.wo": "self_attn.o_proj",
                   "attention_norm": "input_layernorm", "ffn_norm": "post_attention_layernorm",
                   "feed_forward.w1": "mlp.gate_proj", "feed_forward.w3": "mlp.up_proj",
                   "feed_forward.w2": "mlp.down_proj"}  # fmt: skip


def as_transformers(config, weights):
    """The text model of a folder under the names by which transformers knows it: (config, weights).

    What transformers lacks is a Llama (or Qwen3) under names of its own; of an image model this takes the text part.
    """
    config, weights = dict(config), dict(weights)
    kind, architecture = config["model_type"], None
    if kind == "minimind":
        architecture = "Qwen3" if any("q_norm" in name for name in weights) else "Llama"
    elif kind == "phi3" and (config.get("rope_scaling") or {}).get("type") == "su":
        config["rope_scaling"] = config["rope_scaling"] | {"type": "longrope"}  # which Phi3Config takes it for
    elif kind == "internlm":
        architecture, config["attention_bias"] = "Llama", config["bias"]
    elif kind in ("internlm2", "baichuan"):
        architecture = "Llama"
        for name in [name for name in weights if "wqkv" in name or "W_pack" in name]:
            layer = ".".join(name.split(".")[:3])
            for part, rows in zip("qkv", split_rows(weights.pop(name), config)):
                weights[f"{layer}.self_attn.{part}_proj.weight"] = rows
        for theirs, ours in INTERNLM2_NAMES.items():
            weights = {name.replace(theirs, ours): rows for name, rows in weights.items()}
        if kind == "internlm2":
            weights["lm_head.weight"] = weights.pop("output.weight")
    elif kind == "mistral3":
        architecture, config = "Ministral3", config["text_config"]
        text = "language_model."
        weights = {name.removeprefix(text): rows for name, rows in weights.items() if name.startswith(text)}
    if architecture:
        config.pop("auto_map", None)
        config |= {"architectures": [f"{architecture}ForCausalLM"], "model_type": architecture.lower()}
    return config, weights


def load(folder, dtype, rounded=torch.float32):
    """transformers' text model of a checkpoint's folder, its weights rounded to `rounded`, computing in `dtype`."""
    config = json.loads((folder / "config.json").read_text())
    config, weights = as_transformers(config, load_file(folder / "model.safetensors"))
    with tempfile.TemporaryDirectory() as name:
        write_json(Path(name) / "config.json", config)
        save_weights(Path(name), {name: tensor.to(rounded) for name, tensor in weights.items()})
        model = AutoModelForCausalLM.from_pretrained(name, dtype=dtype, attn_implementation="eager").eval()
    assert all(x.dtype == torch.float32 for name, x in model.named_buffers() if "inv_freq" in name)
    return model


def write_json(path, value):
    path.write_text(json.dumps(value, indent=2) + "\n")


def save_weights(folder, weights, shards=1):
    """model.safetensors, or `shards` files of about equal size with their index."""
    metadata = {"format": "pt"}
    if shards == 1:
        save_file(weights, folder / "model.safetensors", metadata)
        return
    sizes = {name: tensor.numel() * tensor.element_size() for name, tensor in weights.items()}
    total, seen, weight_map = sum(sizes.values()), 0, {}
    for name in sorted(weights):
        shard = min(shards, 1 + seen * shards // total)
        weight_map[name] = f"model-{shard:05d}-of-{shards:05d}.safetensors"
        seen += sizes[name]
    for file in sorted(set(weight_map.values())):
        save_file({n: weights[n] for n, f in weight_map.items() if f == file}, folder / file, metadata)
    write_json(folder / "model.safetensors.index.json", {"metadata": {"total_size": total}, "weight_map": weight_map})
