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
from transformers.models.mpt import modeling_mpt
from transformers.models.phi3 import modeling_phi3

GOLDEN = Path(__file__).resolve().parent
CHECKPOINTS = GOLDEN / "checkpoints"
VERSIONS = f"transformers {transformers.__version__}, torch {torch.__version__.split('+')[0]}"

EMBEDDINGS = ("embed_tokens", "embed_in", "word_embeddings.", "wte")

torch.set_num_threads(1)
torch.set_grad_enabled(False)
transformers.logging.set_verbosity_error()
transformers.logging.disable_progress_bar()


def build(config, seed):
    """A float32 model of `config` with random weights that make every tensor matter and spread the logits well.

    Norm weights scatter around 1 (q_norm and k_norm around 1.5) and biases around 0, so that forgetting one of them
    shows; so does the correction of DeepSeek-V3's routers, a buffer. Weights are drawn in sorted name order from one
    generator: the same seed gives the same checkpoint.
    """
    options = dict(dtype=torch.float32, attn_implementation="eager")  # else buffers are rounded to config.dtype
    model = AutoModelForCausalLM.from_config(copy.deepcopy(config), **options).eval()
    generator = torch.Generator().manual_seed(seed)
    for name, parameter in sorted(model.named_parameters()):
        noise = torch.randn(parameter.shape, generator=generator)
        if name.endswith("bias"):
            parameter.copy_(0.4 * noise)
        elif "norm" in name or "ln_f" in name:
            center = 1.5 if "q_norm" in name or "k_norm" in name else 1.0
            parameter.copy_(center + 0.25 * noise)
        elif any(part in name for part in EMBEDDINGS):
            tied = config.tie_word_embeddings
            parameter.copy_(noise * (2.5 / math.sqrt(config.hidden_size) if tied else 1.0))
        else:
            gain = 3.0 if "lm_head" in name else 1.6 if "q_proj" in name or "k_proj" in name else 1.2
            parameter.copy_(noise * (gain / math.sqrt(parameter.shape[-1])))
    for name, correction in sorted(model.named_buffers()):
        if "e_score_correction_bias" in name:
            correction.copy_(0.1 * torch.randn(correction.shape, generator=generator))
    return as_published(model)


def as_published(model):
    """`model`, its experts run one by one, doing what transformers reads and does not do.

    That is MPT's alibi_bias_max: there it is always 8.
    """
    model.config._experts_implementation = "eager"
    if model.config.model_type == "mpt":
        most = model.config.attn_config.alibi_bias_max
        model.transformer.build_mpt_alibi_tensor = (
            lambda heads, length, device=None: modeling_mpt.build_mpt_alibi_tensor(heads, length, most, device)
        )
    return model


def router_gap(router, logits):
    """How far each token's choice of experts is from another one: the last chosen score less the first not chosen.

    logits: [tokens, experts], the router's. Scores are what it chooses by, DeepSeek's groups first: the logits, whose
    order softmax keeps, or DeepSeek-V3's corrected sigmoids.
    """
    groups, kept = getattr(router, "num_group", None), getattr(router, "topk_group", None)
    if hasattr(router, "e_score_correction_bias"):
        scores = logits.sigmoid() + router.e_score_correction_bias
        of_group = lambda members: members.topk(2, dim=-1).values.sum(-1)  # noqa: E731
    else:
        scores = logits
        of_group = lambda members: members.amax(-1)  # noqa: E731
        groups = groups if getattr(router, "topk_method", None) == "group_limited_greedy" else None
    gap = torch.full(scores.shape[:1], math.inf)
    if groups and kept < groups:
        members = scores.unflatten(-1, (groups, -1))
        best = of_group(members).sort(descending=True)
        gap = best.values[:, kept - 1] - best.values[:, kept]
        members = members.scatter(1, best.indices[:, kept:, None].expand(-1, -1, members.shape[-1]), -math.inf)
        scores = members.flatten(1)
    ordered = scores.sort(descending=True).values
    return torch.minimum(gap, ordered[:, router.top_k - 1] - ordered[:, router.top_k])


def router_gaps(model, tokens):
    """The smallest router_gap of all layers for each of `tokens`: [tokens]; infinite without experts."""
    gaps = [torch.full([len(tokens)], math.inf)]
    routers = [part for part in model.modules() if type(part).__name__.lower().endswith("topkrouter")]
    hooks = [part.register_forward_hook(lambda part, _, output: gaps.append(router_gap(part, output[0].float())))
             for part in routers]  # fmt: skip
    one_shot(model, tokens)
    for hook in hooks:
        hook.remove()
    assert len(gaps) == 1 + len(routers)
    return torch.stack(gaps).amin(0)


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
        as_published(model)
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
