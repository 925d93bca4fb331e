"""tests/golden/checkpoints/NAME and long.safetensors: tiny random models with transformers' results.

A checkpoint's config.json is an input, spelt as published and never written here. The seed in the committed golden defines its
weights; transformers computes logits and greedy text; every folder is loaded back and compared. Where transformers deviates from
a model's original code (MPT's alibi_bias_max, tiny.as_published), the golden follows the original. tests/golden/README.md
describes each file.
"""

import contextlib
import copy
import itertools
import tempfile
from pathlib import Path

import torch
from safetensors import safe_open
from safetensors.torch import load_file, save_file
from transformers import AutoConfig, AutoModelForImageTextToText
from transformers.models.phi3 import modeling_phi3

import qwen_formulas
import tiny
from families import golden_checkpoints  # of tools/lab; tiny adds the path
from rope_formulas import rope
from trace_layers import TRACED, trace


# ---- weights in the published layout -------------------------------------------------------------------


def interleaved(weights, config):
    """Rows of q and k in interleaved order, head by head: the same function with `rope_interleaved`."""
    result, half = dict(weights), config["head_dim"] // 2
    for name in [name for name in weights if "q_proj" in name or "k_proj" in name]:
        heads = weights[name].unflatten(0, (-1, 2, half))
        result[name] = heads.transpose(1, 2).flatten(0, 2).contiguous()
    return result


def internlm2(weights, config):
    """InternLM2's names; wqkv has one block of rows per KV head: its query heads, key and value."""
    result, size = {}, config["hidden_size"] // config["num_attention_heads"]
    for name, rows in weights.items():
        if "q_proj" in name:
            parts = [weights[name.replace("q_proj", f"{part}_proj")] for part in "qkv"]
            blocks = [part.unflatten(0, (config["num_key_value_heads"], -1, size)) for part in parts]
            result[name.replace("self_attn.q_proj", "attention.wqkv")] = torch.cat(blocks, 1).flatten(0, 2)
        elif not ("k_proj" in name or "v_proj" in name):
            for theirs, ours in (tiny.INTERNLM2_NAMES | {"output": "lm_head"}).items():
                name = name.replace(ours, theirs)
            result[name] = rows
    return result


def baichuan(weights, config):
    result = dict(weights)
    for name in [name for name in weights if "q_proj" in name]:
        parts = [result.pop(name.replace("q_proj", f"{part}_proj")) for part in "qkv"]
        result[name.replace("q_proj", "W_pack")] = torch.cat(parts)
    return result


def own_names(weights, config):
    """ChatGLM's and Qwen 1's names, with one projection for q, k and v."""
    result = dict(weights)
    for name in [name for name in weights if "q_proj" in name]:
        parts = [result.pop(name.replace("q_proj", f"{part}_proj")) for part in "qkv"]
        by_head = config["model_type"] == "chatglm" and not config["multi_query_attention"]
        heads = [part.unflatten(0, (config["num_attention_heads"], -1)) for part in parts] if by_head else []
        result[name] = torch.cat(heads, 1).flatten(0, 1) if by_head else torch.cat(parts)
    for theirs, ours in tiny.OWN_NAMES[config["model_type"]].items():
        result = {name.replace(ours, theirs): rows for name, rows in result.items()}
    return result


def baichuan2(weights, config):
    """The same with a head whose rows have any length."""
    head = weights["lm_head.weight"] * torch.linspace(0.5, 4.0, config["vocab_size"])[:, None]
    return baichuan(weights | {"lm_head.weight": head}, config)


def with_vision(weights, config):
    """The names of save_pretrained for the whole image model, with random vision tensors that text does not use."""
    weights = tiny.fused_experts(weights)
    config = AutoConfig.for_model(**copy.deepcopy(config))
    torch.manual_seed(0)
    model = AutoModelForImageTextToText.from_config(config).float()
    model.model.language_model.load_state_dict({name.removeprefix("model."): rows for name, rows in weights.items()
                                                if name.startswith("model.")})  # fmt: skip
    model.lm_head.weight.copy_(weights.get("lm_head.weight", weights["model.embed_tokens.weight"]))
    return saved(model, next(iter(weights.values())).dtype)


def qwen3_vl_moe(weights, config):
    """As published, with inputs first in the experts' tensors; transformers reads both orders."""
    return {name: rows.mT.contiguous() if ".experts." in name else rows
            for name, rows in with_vision(weights, config).items()}  # fmt: skip


def with_neox_buffers(weights, config):
    """Pythia's files hold causal masks, fill values and RoPE frequencies of every layer, all to be ignored."""
    size, n = config["max_position_embeddings"], int(16 * config["rotary_pct"])
    result = dict(weights)
    for layer in range(config["num_hidden_layers"]):
        prefix = f"gpt_neox.layers.{layer}.attention."
        result[prefix + "bias"] = torch.ones([1, 1, size, size], dtype=torch.bool).tril()
        result[prefix + "masked_bias"] = torch.tensor(-1e9)
        result[prefix + "rotary_emb.inv_freq"] = 1 / config["rotary_emb_base"] ** (torch.arange(0, n, 2) / n)
    return result


def without_prefix(weights, config):
    """The first Bloom files were saved without the head."""
    return {name.removeprefix("transformer."): rows for name, rows in weights.items()}


def gpt2_first(weights, config):
    """OpenAI's files: no prefix, and the causal mask of every layer."""
    result = without_prefix(weights, config)
    for layer in range(config["num_hidden_layers"]):
        result[f"h.{layer}.attn.bias"] = torch.ones([1, 1, 16, 16], dtype=torch.bool).tril()
        result[f"h.{layer}.attn.masked_bias"] = torch.tensor(-1e4)
    return result


def with_mtp_layer(weights, config):
    """DeepSeek-V3's multi-token prediction layer: it follows the last layer and must not run."""
    size, prefix = config["hidden_size"], f"model.layers.{config['num_hidden_layers']}."
    extra = {"eh_proj.weight": torch.ones(size, 2 * size), "enorm.weight": torch.ones(size),
             "hnorm.weight": torch.ones(size), "shared_head.norm.weight": torch.ones(size)}  # fmt: skip
    return weights | {prefix + name: rows.to(torch.bfloat16) for name, rows in extra.items()}


def with_mtp_block(weights, config):
    """ERNIE's tensors of multi-token prediction."""
    names = ("model.mtp_block.0.mlp.up_proj.weight", "model.mtp_linear_proj.0.weight")
    return weights | {name: torch.ones(8, 8) for name in names}


def deepseek(weights, config):
    """Undoes tiny.twin_of_deepseek."""
    return {name.replace("shared_expert.", "shared_experts."): rows / (2 if "shared_expert.down" in name else 1)
            for name, rows in weights.items() if "shared_expert_gate" not in name}  # fmt: skip


def exaone(weights, config):
    """EXAONE 3's names."""
    names = {"model.embed_tokens": "transformer.wte", "model.layers": "transformer.h", "model.norm": "transformer.ln_f",
             "self_attn.o_proj": "attn.attention.out_proj", "self_attn": "attn.attention", "input_layernorm": "ln_1",
             "post_attention_layernorm": "ln_2", "gate_proj": "c_fc_0", "up_proj": "c_fc_1", "down_proj": "c_proj"}  # fmt: skip
    for ours, theirs in names.items():
        weights = {name.replace(ours, theirs): rows for name, rows in weights.items()}
    return weights


FP4 = torch.tensor([0, 0.5, 1, 1.5, 2, 3, 4, 6])


def mxfp4(weights, config):
    """gpt-oss's experts as published: 32 transposed 4-bit floats per block, with a common exponent."""
    result = {}
    for name, rows in weights.items():
        if name.endswith(("gate_up_proj", "down_proj")):
            groups = rows.float().transpose(1, 2).unflatten(-1, (-1, 32))
            exponents = groups.abs().amax(-1, keepdim=True).log2().floor() - 2
            nearest = (groups.abs()[..., None] / exponents.exp2()[..., None] - FP4).abs().argmin(-1)
            codes = (nearest + 8 * (groups < 0)).to(torch.uint8)
            result[f"{name}_blocks"] = (codes[..., 0::2] + 16 * codes[..., 1::2]).contiguous()
            result[f"{name}_scales"] = (exponents[..., 0] + 127).to(torch.uint8)
        else:
            result[name] = rows
    return result


def minicpm3(folder, config, tokens):
    """MiniCPM3's logits [tokens, vocab] in float64: transformers in float32 deviates by up to 5e-5."""
    frequencies = rope(config | {"head_dim": config["qk_rope_head_dim"]}, len(tokens))
    with tiny.in_double(tiny.load(folder, torch.float32)) as model:
        tiny.rotate_in_double(model, lambda _: frequencies)
        return tiny.one_shot(model, tokens)


# ---- the checkpoints --------------------------------------------------------------------------------------------

GEMMA = {"model.norm": 7.0, "embed": 0.15}  # embeddings are multiplied by sqrt(hidden_size)
# Granite's multipliers shrink embeddings and logits of tiny random weights.
GRANITE = {"model.norm": 80.0, "embed": 0.1, "o_proj": 4.0, "down_proj": 4.0, "q_proj": 1.8, "k_proj": 1.8}
GRANITE4 = GRANITE | {"output_linear": 4.0}
GRANITE_MOE = GRANITE4 | {"router.weight": 2.0}
SMOLLM3 = {"q_proj": 0.8, "k_proj": 0.8}  # otherwise four layers amplify rounding
# With tied embeddings a token would only predict itself unless its embedding is small next to the layers' outputs.
BLOOM = {"word_embeddings_layernorm": 0.1, ".bias": 0.3, "dense_4h_to_h.weight": 1.5, "query_key_value.weight": 1.5}
MPT = {"wte": 0.3, "norm_f": 3.5, "Wqkv": 1.5}
# A small q_a_proj exposes the eps of q_a_layernorm.
MINICPM3 = {"q_a_proj": 0.01, "model.norm": 80.0, "embed": 0.05, "o_proj": 3.0, "down_proj": 3.0}
MINICPM = {"model.norm": 40.0, "embed": 0.1, "o_proj": 3.0, "down_proj": 3.0}
STARCODER2 = {"embed": 0.3, "model.norm": 3.5, "c_proj.weight": 1.5}
GPT2 = {"wte": 0.3, "wpe": 0.6, "ln_f": 3.5, "c_attn.weight": 2.5, "c_proj.weight": 1.5}
COHERE = {"model.norm": 50.0, "embed": 0.3, "o_proj": 1.5, "down_proj": 1.5}
ROUTERS = {"gate.weight": 2.0}
HUNYUAN = {"query_layernorm": 1.5, "key_layernorm": 1.5}
GPT_OSS = {"router.weight": 2.0, "sinks": 3.0, "gate_up_proj": 4.0, "down_proj": 0.15}  # some gates and ups are clamped

# Additions to a checkpoint's row of families.def: scales of random tensors whose names contain the key, and functions that
# convert save_pretrained's tensors to the folder's layout.
SCALES = {
    "gemma": GEMMA, "gemma2": GEMMA, "gemma3": GEMMA, "gemma3_new": GEMMA, "smollm3": SMOLLM3, "granite": GRANITE,
    "bloom": BLOOM, "bloom_prefixed": BLOOM, "mpt": MPT, "mpt_max16": MPT, "minicpm3": MINICPM3, "mixtral": ROUTERS,
    "qwen3_moe": ROUTERS, "qwen3_moe_step": ROUTERS | {"experts.down": 2.0}, "deepseek_v2": ROUTERS,
    "granite_moe": GRANITE_MOE, "granite_moe_shared": GRANITE_MOE, "ernie4_5_moe": ROUTERS | {"e_score": 0.25},
    "qwen3_vl_moe": ROUTERS, "mistral4": ROUTERS | {"experts.down": 0.5}, "baichuan2": {"model.norm": 3.0},
    "gpt2": GPT2, "gpt2_scaled": GPT2, "gpt_bigcode": GPT2, "gpt_bigcode_heads": GPT2,
    "qwen2_moe": ROUTERS | {"experts.down": 2.0}, "hunyuan": HUNYUAN, "hunyuan_moe": HUNYUAN | {"gate.wg": 2.0},
    "granite4": GRANITE4, "minicpm": MINICPM, "olmoe": ROUTERS, "exaone4": SMOLLM3,
    "starcoder2": STARCODER2, "cohere": COHERE, "cohere2": COHERE | {"model.norm": 14.0},
    "deepseek": ROUTERS | {"shared_expert_gate": 0.0}, "kimi_k2": ROUTERS | {"experts.down": 0.5},
    "glm4_moe": ROUTERS | {"experts.down": 0.5}, "glm4_moe_lite": ROUTERS | {"experts.down": 0.5},
    "gpt_oss": GPT_OSS, "gpt_oss_mxfp4": GPT_OSS, "deepseek_v2_full": ROUTERS | {"experts.down": 0.1}, "deepseek_v3": ROUTERS | {"experts.down": 0.5},
}  # fmt: skip
PACKS = {
    "llama_gqa_interleaved": interleaved, "internlm2": internlm2, "baichuan": baichuan, "baichuan2": baichuan2,
    "gpt_neox": with_neox_buffers,
    "bloom": without_prefix, "gpt2_scaled": gpt2_first, "deepseek_v3": with_mtp_layer, "chatglm": own_names, "chatglm2": own_names,
    "qwen": own_names, "qwen_first": own_names, "gpt_oss_mxfp4": mxfp4, "deepseek": deepseek, "exaone": exaone,
    "ernie4_5_moe": with_mtp_block, "qwen3_vl_moe": qwen3_vl_moe, "glm4_moe": with_mtp_layer, "glm4_moe_lite": with_mtp_layer,
} | dict.fromkeys(("ministral3", "llava", "qwen2_vl", "qwen25_vl", "qwen3_vl", "mistral4"), with_vision)  # fmt: skip
SHARDS = {"llama_sharded": 3}
NAMES = golden_checkpoints()
TRACED_NAMES = golden_checkpoints("kTrace")
# The index of a checkpoint is the first seed tried for its long prompt.
LONG_NAMES = golden_checkpoints("kLong", "kLongOther", "kLongExperts", "kLongDynamic")


def asked(folder):
    """(first seed, number of greedy ids) of the committed golden; (0, 64) for a new checkpoint."""
    path = folder / "golden.safetensors"
    if not path.exists():
        return 0, 64
    with safe_open(path, "pt") as file:
        return int(file.metadata()["made_with"].rpartition(" ")[2]), len(file.get_tensor("greedy"))


def dtype_of(config):
    text = config.get("text_config", {})
    return getattr(torch, next(c[key] for c in (config, text) for key in ("torch_dtype", "dtype") if key in c))


def build(name, config, seed):
    """tiny.build with the checkpoint's scales; Gemma's and Nemotron's norms multiply by 1 + weight."""
    model = tiny.build(tiny.text_config(config, name != "minimind_plain"), seed)
    for tensor, parameter in model.named_parameters():
        for part, factor in SCALES.get(name, {}).items():
            if part in tensor:
                parameter.mul_(factor)
        if name == "baichuan2" and "lm_head" in tensor:
            parameter.copy_(torch.nn.functional.normalize(parameter))
        if tensor.endswith("norm.weight") and model.config.model_type.startswith(("gemma", "nemotron")):
            parameter.sub_(1.0)
        if "quantization_config" in config and tensor.endswith(("gate_up_proj", "down_proj")):
            parameter.copy_(tiny.text_weights(config, mxfp4({tensor: parameter}, config))[tensor])
        parameter.copy_(parameter.to(dtype_of(config)))  # as saved, upcast; model.to(dtype) would round inv_freq too
    return model


def own_rotation(config, model):
    """Runs a Llama with partial rotary factor through Phi-3's rotation: Llama's rotates whole heads only."""
    if config["model_type"] != "llama" or "partial_rotary_factor" not in config:
        return contextlib.nullcontext()
    model.model.rotary_emb.inv_freq = modeling_phi3.Phi3RotaryEmbedding.compute_default_rope_parameters(model.config)[0]
    return tiny.llama_rotation(modeling_phi3.apply_rotary_pos_emb)


def draw(name, config):
    """The first suitable seed, its model and the golden.

    Greedy text must be varied with a wide margin, and the choice of experts must not depend on rounding.
    """
    first, count = asked(tiny.CHECKPOINTS / name)
    for seed in itertools.count(first):
        model = build(name, config, seed)
        tokens = tiny.random_tokens(model.config.vocab_size, 64, seed)
        with own_rotation(config, model):
            continuation, margin = tiny.greedy(model, tokens[:8], count, 0.05)
            logits = tiny.one_shot(model, tokens)
        if margin > 0.05 and len(set(continuation)) >= 12:
            texts = (tokens, tokens[:8] + continuation)
            if min(tiny.router_gaps(model, text).amin() for text in texts) > 1e-4:
                break
    return seed, model, {"tokens": torch.tensor(tokens), "logits": logits,
                         "greedy": torch.tensor(continuation), "greedy_margin": torch.tensor([margin])}  # fmt: skip


def saved(model, dtype):
    """Tensors of `model` under their published names, which save_pretrained knows, in `dtype`.

    The correction of DeepSeek-V3's routers stays float32, as published.
    """
    with tempfile.TemporaryDirectory() as name:
        model.save_pretrained(name)
        weights = load_file(Path(name) / "model.safetensors")
    return {name: rows if "e_score" in name else rows.to(dtype) for name, rows in sorted(weights.items())}


def image_model(folder):
    return AutoModelForImageTextToText.from_pretrained(folder, dtype=torch.float32, attn_implementation="eager").eval()


def loaded_back(folder, config, tokens):
    """Logits computed from the folder's files."""
    if "vision_config" in config:
        return tiny.one_shot(image_model(folder), tokens)
    model = tiny.load(folder, torch.float32)
    pairs = tiny.llama_rotation(tiny.interleaved_rotation)
    with pairs if config.get("rope_interleaved") else own_rotation(config, model):
        return tiny.one_shot(model, tokens)


def make(name):
    """Writes model.safetensors, golden.safetensors and other files required by its row of families.def."""
    folder = tiny.CHECKPOINTS / name
    config = tiny.read(folder / "config.json")
    seed, model, golden = draw(name, config)
    weights = saved(model, dtype_of(config))
    if name in PACKS:
        weights = PACKS[name](weights, config)
    tiny.save_weights(folder, weights, SHARDS.get(name, 1))
    tokens = golden["tokens"].tolist()
    difference = (loaded_back(folder, config, tokens) - golden["logits"]).abs().max().item()
    assert difference < 1e-4, (name, difference)
    if name == "minicpm3":
        exact = minicpm3(folder, config, tokens)
        assert (exact - golden["logits"]).abs().max() < 5e-5, (exact - golden["logits"]).abs().max()
        golden["logits"] = exact.float()
    if name == "llama_bf16":
        golden["logits_bf16"] = tiny.one_shot(tiny.load(folder, torch.bfloat16, torch.bfloat16), tokens).float()
    save_file(golden, folder / "golden.safetensors", {"made_with": f"{tiny.VERSIONS}, seed {seed}"})
    print(f"{name:21} seed {seed}  greedy margin {golden['greedy_margin'].item():.3f}"
          f"  ids {len(set(golden['greedy'].tolist())):2}  logits std {golden['logits'].std().item():.2f}"
          f"  loaded back: {difference:.1e}", flush=True)  # fmt: skip
    if name in TRACED_NAMES:
        tensors = trace(tiny.load(folder, torch.float32), tokens[:TRACED])
        save_file(tensors, folder / "trace.safetensors", {"made_by": tiny.VERSIONS})
    if "mrope_section" in str(config):
        make_mrope(name)
    if name == "qwen":
        make_beyond(name)
    if name in LONG_NAMES:
        make_long(name)


# ---- three-part positions -----------------------------------------------------------------------------------


def image_positions(before, frames, rows, cols, after, steps=(1, 20, 400)):
    """Positions [3, tokens] (temporal, height, width) of text, then an image of `frames` times rows x cols, then text.

    Text counts all three alike; the image follows the text, and later text follows the image's largest position
    (2409.12191, section 2.1). `steps` between frames, rows and columns are wider than in images: 2-VL assigns slow pairs to
    height and width, which a few rows would hardly move.
    """
    grid = torch.cartesian_prod(*(torch.arange(n) * step for n, step in zip((frames, rows, cols), steps))).T + before
    text = torch.arange(after) + grid.max() + 1
    return torch.cat([torch.arange(before).expand(3, -1), grid, text.expand(3, -1)], 1)


def make_mrope(name):
    folder = tiny.CHECKPOINTS / name
    positions = image_positions(100, 4, 5, 6, 100)
    short = load_file(folder / "golden.safetensors")
    tokens = short["tokens"].repeat(5)
    model = image_model(folder)

    def run(axes):
        hidden = model.model.language_model(input_ids=tokens[None], position_ids=axes[:, None], use_cache=False)
        return model.lm_head(hidden.last_hidden_state)[0]

    plain = run(torch.arange(len(tokens)).expand(3, -1))
    assert (plain[:64] - short["logits"]).abs().max() < 1e-4
    logits = run(positions)
    assert all((run(positions[list(order)]) - logits).abs().max() > 0.1 for order in ((1, 0, 2), (0, 2, 1)))
    golden = {"tokens": tokens, "positions": positions.contiguous(), "logits": logits}
    save_file(golden, folder / "mrope.safetensors", {"made_with": tiny.VERSIONS})


# ---- Qwen 1 beyond seq_length -----------------------------------------------------------------------------------


def make_beyond(name):
    """beyond.safetensors: single prefills of these lengths, in float64 by qwen_formulas, with and without its switches."""
    folder, kept = tiny.CHECKPOINTS / name, 4
    config = tiny.read(folder / "config.json")
    weights = {name: rows.double().numpy() for name, rows in tiny.read_weights(folder).items()}
    short = load_file(folder / "golden.safetensors")
    exact = torch.tensor(qwen_formulas.logits(config, weights, short["tokens"].tolist()))
    assert (exact - short["logits"]).abs().max() < 5e-5, "twin and formulas are one model up to seq_length"
    tokens = tiny.random_tokens(config["vocab_size"], 4 * config["seq_length"] + 1, 5)
    golden = {"tokens": torch.tensor(tokens)}
    for n, ntk, logn in [(1025, 1, 1), (2049, 1, 1), (4097, 1, 1), (2049, 0, 1), (2049, 1, 0), (2049, 0, 0)]:
        switches = {"use_dynamic_ntk": bool(ntk), "use_logn_attn": bool(logn)}
        rows = qwen_formulas.logits(config | switches, weights, tokens[:n])[-kept:]
        golden[f"{n}.{ntk}.{logn}"] = torch.tensor(rows).float()
    save_file(golden, folder / "beyond.safetensors", {"made_with": tiny.VERSIONS})


# ---- long prompts -----------------------------------------------------------------------------------------------

DTYPES = {"f32": torch.float32, "bf16": torch.bfloat16, "f16": torch.float16}
KEPT = [0, 7, 40, 100, 255, 256, 290, 299, 306, 312, 318, 319]  # rows kept in long.safetensors


def long_tokens(models, seed):
    """320 random ids, from the first seed with a clear choice of experts by `models` (one per rounding).

    Margins: more than float32 rounding everywhere, and 0.05 of the router's logits at kept rows (DeepSeek-V3's scores are
    sigmoids, and ERNIE's a softmax, with slopes of at most a quarter), as 16 bits would choose other experts below.
    """
    corrected = ("deepseek_v3", "ernie4_5_moe", "glm4_moe", "glm4_moe_lite")
    edge = 0.05 / 4 if models[0].config.model_type in corrected else 0.05
    for candidate in itertools.count(seed):
        tokens = tiny.random_tokens(models[0].config.vocab_size, 320, candidate)
        gaps = (tiny.router_gaps(model, tokens) for model in models)
        if all(gap.amin() > 1e-4 and gap[KEPT].amin() > edge for gap in gaps):
            return tokens


def make_long(name):
    """The part of long.safetensors for one checkpoint."""
    path, folder = tiny.GOLDEN / "long.safetensors", tiny.CHECKPOINTS / name
    golden = (load_file(path) if path.exists() else {}) | {"positions": torch.tensor(KEPT)}
    models = {short: tiny.load(folder, torch.float32, dtype) for short, dtype in DTYPES.items()}
    tokens = long_tokens(list(models.values()), LONG_NAMES.index(name))
    golden[f"{name}.tokens"] = torch.tensor(tokens)
    for short, model in models.items():
        golden[f"{name}.{short}"] = tiny.one_shot(model, tokens)[KEPT]
    for short in ("bf16", "f16"):
        own = tiny.load(folder, DTYPES[short], DTYPES[short])
        golden[f"{name}.{short}.own"] = tiny.one_shot(own, tokens)[KEPT].float()
    save_file(golden, path, {"made_with": tiny.VERSIONS})
