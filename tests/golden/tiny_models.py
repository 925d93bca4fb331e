"""Shared by the golden scripts: tiny random models, one-shot and greedy float32 runs, saving in the HF layout."""

import contextlib
import copy
import json
import math
from pathlib import Path

import torch
import transformers
from safetensors.torch import save_file
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
    model = AutoModelForCausalLM.from_config(copy.deepcopy(config), attn_implementation="eager").float().eval()
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


def greedy(model, prompt, count):
    """`count` argmax continuations of `prompt` (a fresh forward pass per token) and the smallest top-1 margin."""
    tokens, margin = list(prompt), math.inf
    for _ in range(count):
        best = one_shot(model, tokens)[-1].topk(2)
        margin = min(margin, (best.values[0] - best.values[1]).item())
        tokens.append(best.indices[0].item())
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
