"""Shared by the golden makers: tiny random models in transformers, one-shot and greedy runs, folders and files."""

import contextlib
import copy
import json
import math
import sys
import tempfile
from pathlib import Path
from unittest import mock

import torch
import transformers
from safetensors.torch import load_file, save_file
from transformers import AutoConfig, AutoModelForCausalLM
from transformers.integrations.mxfp4 import convert_moe_packed_tensors
from transformers.models.llama import modeling_llama
from transformers.models.mistral4 import Mistral4ForCausalLM
from transformers.models.mpt import modeling_mpt

ROOT = Path(__file__).resolve().parents[3]
GOLDEN = ROOT / "tests" / "golden"
CHECKPOINTS = GOLDEN / "checkpoints"
VERSIONS = f"transformers {transformers.__version__}, torch {torch.__version__.split('+')[0]}"

sys.path.insert(0, str(ROOT / "tools" / "lab"))
torch.set_num_threads(1)
torch.set_grad_enabled(False)
transformers.logging.set_verbosity_error()
transformers.logging.disable_progress_bar()


# ---- files ------------------------------------------------------------------------------------------------------


def read(path):
    return json.loads(path.read_text())


def write_lines(path, value, *first_keys):
    """JSON without spaces, with a separate line for every object that begins with one of `first_keys`."""
    text = json.dumps(value, separators=(",", ":"))
    for key in first_keys:
        text = text.replace(f'{{"{key}":', f'\n{{"{key}":')
    path.write_text(text + "\n")


def write_cases(path, head, cases):
    """One case per line, so a changed case is a changed line."""
    lines = ",\n".join(json.dumps(case) for case in cases)
    path.write_text(f"{json.dumps(head)[:-1]}{', ' if head else ''}\"cases\": [\n{lines}\n]}}\n")


def read_weights(folder):
    """All tensors of a checkpoint folder: one file or shards."""
    return {name: rows for file in sorted(folder.glob("model*.safetensors")) for name, rows in load_file(file).items()}


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
    index = {"metadata": {"total_size": total}, "weight_map": weight_map}
    (folder / "model.safetensors.index.json").write_text(json.dumps(index, indent=2) + "\n")


# ---- from a published config.json to transformers ---------------------------------------------------------------


def split_rows(packed, config):
    """Splits InternLM2's wqkv, Baichuan's W_pack, ChatGLM's query_key_value or Qwen 1's c_attn into q, k and v.

    wqkv has one block of rows per KV head (query heads, key, value); query_key_value without groups one per head. The others
    stack q, k and v.
    """
    if config["model_type"] in ("baichuan", "qwen"):
        return packed.chunk(3)
    heads = config["num_attention_heads"]
    if config["model_type"] == "chatglm":
        if not config["multi_query_attention"]:
            return [rows.flatten(0, 1) for rows in packed.unflatten(0, (heads, 3, -1)).unbind(1)]
        groups = config["multi_query_group_num"]
        return packed.split([n * config["kv_channels"] for n in (heads, groups, groups)])
    groups = heads // config["num_key_value_heads"]
    blocks = packed.unflatten(0, (-1, groups + 2, config["hidden_size"] // heads))
    return [blocks[:, part].flatten(0, -2).contiguous() for part in (slice(groups), groups, groups + 1)]


INTERNLM2_NAMES = {"tok_embeddings": "embed_tokens", "attention.wo": "self_attn.o_proj",
                   "attention_norm": "input_layernorm", "ffn_norm": "post_attention_layernorm",
                   "feed_forward.w1": "mlp.gate_proj", "feed_forward.w3": "mlp.up_proj",
                   "feed_forward.w2": "mlp.down_proj"}  # fmt: skip
# Tensor names of models with custom code -> names of the equivalent class in transformers; q, k and v are fused.
OWN_NAMES = {
    "chatglm": {"transformer.embedding.word_embeddings": "model.embed_tokens", "transformer.output_layer": "lm_head",
                "transformer.encoder.final_layernorm": "model.norm", "transformer.encoder.layers": "model.layers",
                "self_attention.dense": "self_attn.o_proj", "self_attention.query_key_value": "self_attn.q_proj",
                "mlp.dense_h_to_4h": "mlp.gate_up_proj", "mlp.dense_4h_to_h": "mlp.down_proj"},
    "qwen": {"transformer.wte": "model.embed_tokens", "transformer.ln_f": "model.norm", "transformer.h.": "model.layers.",
             "ln_1": "input_layernorm", "ln_2": "post_attention_layernorm", "attn.c_proj": "self_attn.o_proj",
             "attn.c_attn": "self_attn.q_proj", "mlp.w1": "mlp.up_proj", "mlp.w2": "mlp.gate_proj",
             "mlp.c_proj": "mlp.down_proj"},
}  # fmt: skip
# Image models by the model_type of their file -> model_type of the text model.
TEXT_MODELS = {"mistral3": "ministral3", "llava": "llama", "qwen2_vl": "qwen2", "qwen2_5_vl": "qwen2", "qwen3_vl": "qwen3",
               "qwen3_vl_moe": "qwen3_moe"}  # fmt: skip


def twin_of_chatglm(config):
    """ChatGLM2 (by the version that wrote its files) divides positions by rope_ratio, later versions multiply the base."""
    ratio, divides = config.get("rope_ratio", 1), config["transformers_version"] == "4.27.1"
    rope = {"rope_type": "linear", "factor": ratio} if divides else {"rope_type": "default"}
    groups = config["multi_query_group_num"] if config["multi_query_attention"] else config["num_attention_heads"]
    names = {"vocab_size": "padded_vocab_size", "intermediate_size": "ffn_hidden_size", "num_hidden_layers": "num_layers",
             "head_dim": "kv_channels", "max_position_embeddings": "seq_length", "rms_norm_eps": "layernorm_epsilon",
             "attention_bias": "add_qkv_bias"}  # fmt: skip
    same = ("hidden_size", "num_attention_heads", "eos_token_id", "pad_token_id")
    return {"architectures": ["GlmForCausalLM"], "model_type": "glm", "num_key_value_heads": groups,
            "rope_parameters": rope | {"rope_theta": 1e4 * (1 if divides else ratio), "partial_rotary_factor": 0.5},
            } | {ours: config[theirs] for ours, theirs in names.items()} | {key: config[key] for key in same}  # fmt: skip


def twin_of_qwen(config):
    """Equivalent of Qwen 1 up to seq_length, in either spelling; intermediate_size counts gate and up together."""
    pick = lambda *keys: next(config[key] for key in keys if key in config)  # noqa: E731
    heads = pick("num_attention_heads", "n_head")
    return {"architectures": ["Qwen2ForCausalLM"], "model_type": "qwen2", "rms_norm_eps": config["layer_norm_epsilon"],
            "vocab_size": pick("vocab_size", "padded_vocab_size"), "hidden_size": pick("hidden_size", "n_embd"),
            "intermediate_size": pick("intermediate_size", "ffn_hidden_size") // 2, "num_attention_heads": heads,
            "num_key_value_heads": heads, "num_hidden_layers": pick("num_hidden_layers", "n_layer"),
            "max_position_embeddings": config["seq_length"], "rope_theta": float(config["rotary_emb_base"]),
            "tie_word_embeddings": False, "eos_token_id": config.get("eos_token_id")}  # fmt: skip


def twin_of_minicpm(config):
    """Granite has MiniCPM's three multipliers and a fourth, of the scores."""
    size, heads, layers = (config[key] for key in ("hidden_size", "num_attention_heads", "num_hidden_layers"))
    own = {key: value for key, value in config.items() if key != "auto_map"}
    return own | {"architectures": ["GraniteForCausalLM"], "model_type": "granite", "embedding_multiplier": config["scale_emb"],
                  "residual_multiplier": config["scale_depth"] / math.sqrt(layers),
                  "logits_scaling": size / config["dim_model_base"],
                  "attention_multiplier": (size // heads) ** -0.5}  # fmt: skip


def twin_of_orion(config):
    """A StableLM without biases whose whole heads rotate."""
    own = {key: value for key, value in config.items() if key != "auto_map"}
    return own | {"architectures": ["StableLmForCausalLM"], "model_type": "stablelm", "partial_rotary_factor": 1.0,
                  "use_qkv_bias": False, "layer_norm_eps": config["rms_norm_eps"]}  # fmt: skip


def twin_of_deepseek(config):
    """Qwen2-MoE without biases; its gate of the shared expert is 1/2 everywhere, and the expert's outputs are doubled."""
    own = {key: value for key, value in config.items() if key != "auto_map"}
    return own | {"architectures": ["Qwen2MoeForCausalLM"], "model_type": "qwen2_moe", "qkv_bias": False,
                  "num_experts": config["n_routed_experts"], "use_sliding_window": False, "decoder_sparse_step": 1,
                  "mlp_only_layers": list(range(config["first_k_dense_replace"])),
                  "shared_expert_intermediate_size": config["n_shared_experts"] * config["moe_intermediate_size"]}  # fmt: skip


def text_config(config, head_norms=True):
    """The text model of a config.json under its name in transformers.

    Models missing in transformers become a Llama (MiniMind with q and k norms: a Qwen3); an image model becomes its text part,
    whose text positions give plain RoPE.
    """
    kind, own = config["model_type"], dict(config)
    if kind in OWN_NAMES:
        return twin_of_chatglm(config) if kind == "chatglm" else twin_of_qwen(config)
    if kind in TEXT_MODELS:
        own = {"tie_word_embeddings": config.get("tie_word_embeddings", False)} | config.get("text_config", config)
        if "mrope_section" in (own.get("rope_scaling") or {}):
            del own["rope_scaling"]
        kind = "mistral4" if own.get("model_type") == "mistral4" else TEXT_MODELS[kind]
    elif kind == "minimind":
        kind = "qwen3" if head_norms else "llama"
    elif kind in ("internlm", "internlm2", "baichuan"):
        own["attention_bias"] = kind == "internlm" and config["bias"]
        kind = "llama"
    elif kind == "phi3" and (config.get("rope_scaling") or {}).get("type") == "su":
        own["rope_scaling"] = config["rope_scaling"] | {"type": "longrope"}  # Phi3Config's name for it
    elif kind == "gpt_oss":
        own.pop("quantization_config", None)  # text_weights makes floats
    elif kind == "kimi_k2":
        kind = "deepseek_v3"
    elif kind == "orion":
        return twin_of_orion(config)
    elif kind == "minicpm":
        return twin_of_minicpm(config)
    elif kind == "deepseek":
        return twin_of_deepseek(config)
    if kind != config["model_type"]:
        for key in ("auto_map", "text_config", "vision_config"):
            own.pop(key, None)
        name = "DeepseekV3" if kind == "deepseek_v3" else kind.capitalize()
        own |= {"architectures": [f"{name}ForCausalLM"], "model_type": kind}
    return own


def fused_experts(weights):
    """Experts' gate, up and down of transformers' own names as two stacks of a layer."""
    result, parts = dict(weights), ("gate_proj", "up_proj", "down_proj")
    for first in [name for name in weights if ".experts.0.gate_proj" in name]:
        count = sum(first.replace("experts.0.", f"experts.{i}.") in weights for i in range(512))
        stacks = [torch.stack([result.pop(first.replace(".experts.0.gate_proj", f".experts.{i}.{part}"))
                               for i in range(count)]) for part in parts]  # fmt: skip
        layer = first.partition("0.gate_proj")[0]
        result |= {f"{layer}gate_up_proj": torch.cat(stacks[:2], 1), f"{layer}down_proj": stacks[2]}
    return result


def text_weights(config, weights):
    """The tensors of a folder under the text model's names in transformers."""
    kind, weights = config["model_type"], dict(weights)
    if kind in OWN_NAMES:
        for theirs, ours in OWN_NAMES[kind].items():
            weights = {name.replace(theirs, ours): rows for name, rows in weights.items()}
        for name in [name for name in weights if "q_proj" in name]:
            for part, rows in zip("qkv", split_rows(weights.pop(name), config)):
                weights[name.replace("q_proj", f"{part}_proj")] = rows.contiguous()
    for name in [name for name in weights if "wqkv" in name or "W_pack" in name]:
        layer = ".".join(name.split(".")[:3])
        for part, rows in zip("qkv", split_rows(weights.pop(name), config)):
            weights[f"{layer}.self_attn.{part}_proj.weight"] = rows
    for name in [name for name in weights if name.endswith("_blocks")]:
        scales = weights.pop(name.replace("_blocks", "_scales"))
        weights[name.removesuffix("_blocks")] = convert_moe_packed_tensors(weights.pop(name), scales, dtype=torch.float32)
    if kind == "internlm2":
        for theirs, ours in (INTERNLM2_NAMES | {"output.weight": "lm_head.weight"}).items():
            weights = {name.replace(theirs, ours): rows for name, rows in weights.items()}
    elif kind == "deepseek":
        weights = {name.replace("shared_experts", "shared_expert"): rows * (2 if "shared_experts.down" in name else 1)
                   for name, rows in weights.items()}  # fmt: skip
        for name in [name for name in weights if "shared_expert.down" in name]:
            weights[name.replace("shared_expert.down_proj", "shared_expert_gate")] = torch.zeros(1, config["hidden_size"])
    elif kind == "qwen3_vl_moe":
        weights = {name.replace("language_model.", ""): rows.mT.contiguous() if ".experts." in name else rows
                   for name, rows in weights.items() if "visual" not in name}  # fmt: skip
    elif config["architectures"] == ["BaichuanForCausalLM"]:
        weights["lm_head.weight"] = torch.nn.functional.normalize(weights["lm_head.weight"])
    elif kind == "mistral3":
        text = "language_model."
        weights = {name.removeprefix(text): rows for name, rows in weights.items() if name.startswith(text)}
    return weights


def as_transformers(config, weights):
    """A folder's text model for transformers: (config, weights)."""
    return text_config(config, any("q_norm" in name for name in weights)), text_weights(config, weights)


def load(folder, dtype, rounded=torch.float32):
    """transformers' text model of a checkpoint folder, weights rounded to `rounded`, computing in `dtype`."""
    config, weights = as_transformers(read(folder / "config.json"), read_weights(folder))
    with tempfile.TemporaryDirectory() as name:
        (Path(name) / "config.json").write_text(json.dumps(config))
        save_weights(Path(name), {name: tensor.to(rounded) for name, tensor in weights.items()})
        own = Mistral4ForCausalLM if config["model_type"] == "mistral4" else AutoModelForCausalLM
        model = own.from_pretrained(name, dtype=dtype, attn_implementation="eager").eval()
        as_published(model)
    assert all(x.dtype == torch.float32 for name, x in model.named_buffers() if "inv_freq" in name)
    return model


# ---- random models ----------------------------------------------------------------------------------------------

EMBEDDINGS = ("embed_tokens", "embed_in", "word_embeddings.", "wte")


def build(config, seed):
    """A float32 model of `config` with random weights that make every tensor matter and spread the logits well.

    Norm weights scatter around 1 (q_norm and k_norm around 1.5) and biases around 0, so omitting any of them shows; likewise the
    router correction of DeepSeek-V3, a buffer. Weights are drawn in sorted name order from one generator: equal seeds give equal
    checkpoints.
    """
    config = AutoConfig.for_model(**copy.deepcopy(config)) if isinstance(config, dict) else copy.deepcopy(config)
    options = dict(dtype=torch.float32, attn_implementation="eager")  # otherwise buffers are rounded to config.dtype
    own = config.model_type == "mistral4"  # not among AutoModelForCausalLM's
    model = (Mistral4ForCausalLM._from_config if own else AutoModelForCausalLM.from_config)(config, **options).eval()
    generator = torch.Generator().manual_seed(seed)
    for name, parameter in sorted(model.named_parameters()):
        noise = torch.randn(parameter.shape, generator=generator)
        if name.endswith("bias"):
            parameter.copy_(0.4 * noise)
        elif "norm" in name or "ln_" in name:
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
        elif name.endswith(("act_fn.beta", "act_fn.eps")):  # xIELU's; representable in bfloat16
            noise = torch.randn(correction.shape, generator=generator).bfloat16()
            correction.copy_(noise.abs() + 0.25 if name.endswith("beta") else -noise.abs() / 2)
    return as_published(model)


def as_published(model):
    """`model` with experts run one by one and options that transformers reads and ignores.

    Currently MPT's alibi_bias_max: transformers always uses 8.
    """
    model.config._experts_implementation = "eager"
    if model.config.model_type == "mpt":
        most = model.config.attn_config.alibi_bias_max
        model.transformer.build_mpt_alibi_tensor = (
            lambda heads, length, device=None: modeling_mpt.build_mpt_alibi_tensor(heads, length, most, device)
        )
    return model


# ---- running ----------------------------------------------------------------------------------------------------


def random_tokens(vocab, count, seed):
    return torch.randint(vocab, [count], generator=torch.Generator().manual_seed(seed)).tolist()


def one_shot(model, tokens):
    """Logits [n, vocab] of one forward pass over the list `tokens`, without a cache."""
    return model(input_ids=torch.tensor([tokens]), use_cache=False).logits[0]


@contextlib.contextmanager
def in_double(model):
    """Runs a model with Llama-like norms in float64; transformers otherwise normalizes in float32."""
    for norm in (part for part in model.modules() if type(part).__name__.endswith("RMSNorm")):
        norm.forward = lambda x, m=norm: m.weight * x / (x.pow(2).mean(-1, keepdim=True) + m.variance_epsilon).sqrt()
    with mock.patch.object(torch.nn.functional, "softmax", lambda x, dim, dtype: x.softmax(dim)):
        yield model.double()


def rotate_in_double(model, frequencies):
    """Makes a model's rotary embedding use float64 angles; frequencies: layer type -> (inv_freq, attention factor)."""

    def rotary(x, position_ids, layer_type=None):
        inv_freq, factor = frequencies(layer_type)
        angles = position_ids[..., None].double() * torch.tensor(inv_freq)
        angles = torch.cat((angles, angles), dim=-1)
        return angles.cos() * factor, angles.sin() * factor

    model.model.rotary_emb.forward = rotary


def greedy(model, prompt, count, least=0.0):
    """`count` argmax continuations of `prompt` (one forward pass per token) and the smallest top-1 margin.

    Fewer if a margin is below `least`.
    """
    tokens, margin = list(prompt), math.inf
    for _ in range(count):
        best = one_shot(model, tokens)[-1].topk(2)
        margin = min(margin, (best.values[0] - best.values[1]).item())
        tokens.append(best.indices[0].item())
        if margin < least:
            break
    return tokens[len(prompt) :], margin


def router_gap(router, logits):
    """Margin of each token's expert choice: the last chosen score minus the first rejected one.

    logits: [tokens, experts] of the router. Scores: DeepSeek's groups first; the logits (softmax keeps their order), or
    DeepSeek-V3's corrected sigmoids, or ERNIE's corrected softmax.
    """
    groups, kept = getattr(router, "num_group", None), getattr(router, "topk_group", None)
    if hasattr(router, "moe_statics"):
        scores = router.moe_statics(logits.softmax(-1))
        of_group = lambda members: members.amax(-1)  # noqa: E731
    elif hasattr(router, "e_score_correction_bias"):
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
    """Smallest router_gap over all layers for each of `tokens`: [tokens]; infinite without experts."""
    gaps = [torch.full([len(tokens)], math.inf)]
    routers = [part for part in model.modules() if type(part).__name__.lower().endswith(("topkrouter", "moev1gate"))]
    hooks = [part.register_forward_hook(lambda part, _, output: gaps.append(router_gap(part, output[0].float())))
             for part in routers]  # fmt: skip
    if routers:
        one_shot(model, tokens)
    for hook in hooks:
        hook.remove()
    assert len(gaps) == 1 + len(routers)
    return torch.stack(gaps).amin(0)


def llama_rotation(apply):
    """Runs transformers' Llama with another apply_rotary_pos_emb."""
    return mock.patch.object(modeling_llama, "apply_rotary_pos_emb", apply)


def interleaved_rotation(q, k, cos, sin, unsqueeze_dim=1):
    """Rotates the pairs (2i, 2i+1) instead of (i, i + d/2)."""
    cos, sin = (x.unsqueeze(unsqueeze_dim)[..., : x.shape[-1] // 2] for x in (cos, sin))

    def rotate(x):
        even, odd = x[..., 0::2], x[..., 1::2]
        return torch.stack((even * cos - odd * sin, even * sin + odd * cos), dim=-1).flatten(-2)

    return rotate(q), rotate(k)
