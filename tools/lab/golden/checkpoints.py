"""tests/golden/checkpoints/NAME and long.safetensors: tiny random models, and what transformers computes with them.

A checkpoint's config.json is its own input: spelt as the published ones are, and never written here. Its weights come
from the seed of its row below, its logits and greedy text from transformers; every folder is loaded back and compared.
Where transformers does not do what a model's own code does, the golden follows the latter: MPT's alibi_bias_max
(tiny.as_published), and MiniCPM3 in float64 (minicpm3). tests/golden/README.md says what each file holds.
"""

import copy
import itertools
import math
import tempfile
from dataclasses import dataclass, field
from pathlib import Path

import torch
from safetensors.torch import load_file, save_file
from transformers import AutoConfig, AutoModelForImageTextToText, Phi3Config
from transformers.models.phi3 import modeling_phi3

import tiny
from trace_layers import TRACED, trace


@dataclass
class Case:
    name: str  # of the folder with its config.json
    seed: int  # the first one tried: that of the committed weights
    long: int | None = None  # the first seed tried for the tokens in long.safetensors
    traced: bool = False  # whether trace.safetensors stands beside it
    keys: bool = False  # whether keys.json tries the keys of other families on it
    scaled: str = ""  # its name in docs/conformance.md, which runs it under every scaling
    scales: dict = field(default_factory=dict)  # factors for the random tensors whose names contain the key
    pack: object = lambda weights, config: weights  # the weights as save_pretrained names them -> as the folder does
    greedy: int = 64  # ids of greedy text
    shards: int = 1
    exact: object = None  # (weights, config, tokens) -> logits in float64, in place of transformers'


# ---- weights as the published files have them -------------------------------------------------------------------


def interleaved(weights, config):
    """Rows of q and k in interleaved order, head by head: with `rope_interleaved` the same function."""
    result, half = dict(weights), config["head_dim"] // 2
    for name in [name for name in weights if "q_proj" in name or "k_proj" in name]:
        heads = weights[name].unflatten(0, (-1, 2, half))
        result[name] = heads.transpose(1, 2).flatten(0, 2).contiguous()
    return result


def internlm2(weights, config):
    """InternLM2's names; wqkv has one block of rows for each KV head: its query heads, its key, its value."""
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


def with_vision(weights, config):
    """The names of save_pretrained for the whole image model, with random vision tensors that text never enters."""
    config = AutoConfig.for_model(**copy.deepcopy(config))
    torch.manual_seed(0)
    model = AutoModelForImageTextToText.from_config(config).float()
    model.model.language_model.load_state_dict({name.removeprefix("model."): rows for name, rows in weights.items()
                                                if name.startswith("model.")})  # fmt: skip
    model.lm_head.weight.copy_(weights.get("lm_head.weight", weights["model.embed_tokens.weight"]))
    return saved(model, next(iter(weights.values())).dtype)


def with_neox_buffers(weights, config):
    """Pythia's files hold the causal mask, its fill value and the RoPE frequencies of every layer, all to be ignored."""
    size, n = config["max_position_embeddings"], int(16 * config["rotary_pct"])
    result = dict(weights)
    for layer in range(config["num_hidden_layers"]):
        prefix = f"gpt_neox.layers.{layer}.attention."
        result[prefix + "bias"] = torch.ones([1, 1, size, size], dtype=torch.bool).tril()
        result[prefix + "masked_bias"] = torch.tensor(-1e9)
        result[prefix + "rotary_emb.inv_freq"] = 1 / config["rotary_emb_base"] ** (torch.arange(0, n, 2) / n)
    return result


def without_prefix(weights, config):
    """The first Bloom files were saved from the model without its head."""
    return {name.removeprefix("transformer."): rows for name, rows in weights.items()}


def with_mtp_layer(weights, config):
    """DeepSeek-V3's layer for predicting two tokens at once: it lies behind the last one and is not to be run."""
    size, prefix = config["hidden_size"], f"model.layers.{config['num_hidden_layers']}."
    extra = {"eh_proj.weight": torch.ones(size, 2 * size), "enorm.weight": torch.ones(size),
             "hnorm.weight": torch.ones(size), "shared_head.norm.weight": torch.ones(size)}  # fmt: skip
    return weights | {prefix + name: rows.to(torch.bfloat16) for name, rows in extra.items()}


def minicpm3(weights, config, tokens):
    """MiniCPM3's logits [tokens, vocab] in float64, from the formulas of its published modeling_minicpm.py
    (huggingface.co/openbmb/MiniCPM3-4B), with which transformers agrees to 5e-5.

    Beside DeepSeek's latent attention: halves of a head are rotated, not neighbours; the scale of scores is that of
    the whole query and has no factor of a longer context; latents are normed with an eps of 1e-6 whatever
    rms_norm_eps says; a value head has hidden_size / heads entries.
    """
    w = {name.removeprefix("model."): rows.double() for name, rows in weights.items()}
    n, heads, size = len(tokens), config["num_attention_heads"], config["hidden_size"]
    nope, rotated, rank = config["qk_nope_head_dim"], config["qk_rope_head_dim"], config["kv_lora_rank"]
    rope, depth = config["rope_scaling"], config["scale_depth"] / math.sqrt(config["num_hidden_layers"])
    original = rope["original_max_position_embeddings"]

    def norm(x, weight, eps=1e-6):
        return x / (x.pow(2).mean(-1, keepdim=True) + eps).sqrt() * weight

    factors = torch.tensor(rope["long_factor" if n > original else "short_factor"], dtype=torch.float64)
    frequencies = config["rope_theta"] ** -(torch.arange(0, rotated, 2, dtype=torch.float64) / rotated) / factors
    angles = torch.arange(n, dtype=torch.float64)[:, None] * frequencies
    scaling = math.sqrt(1 + math.log(config["max_position_embeddings"] / original) / math.log(original))
    cos, sin = (torch.cat([part, part], -1) * scaling for part in (angles.cos(), angles.sin()))

    def rotate(x):  # [heads, tokens, rotated]
        first, second = x.chunk(2, -1)
        return x * cos + torch.cat([-second, first], -1) * sin

    x = w["embed_tokens.weight"][tokens] * config["scale_emb"]
    mask = torch.full([n, n], -math.inf, dtype=torch.float64).triu(1)
    for layer in range(config["num_hidden_layers"]):
        p = f"layers.{layer}."
        a = {key.removeprefix(p + "self_attn."): rows for key, rows in w.items() if key.startswith(p + "self_attn.")}
        h = norm(x, w[p + "input_layernorm.weight"], config["rms_norm_eps"])
        q = norm(h @ a["q_a_proj.weight"].T, a["q_a_layernorm.weight"]) @ a["q_b_proj.weight"].T
        q = q.view(n, heads, nope + rotated).transpose(0, 1)
        latent, k_rotated = (h @ a["kv_a_proj_with_mqa.weight"].T).split([rank, rotated], -1)
        kv = norm(latent, a["kv_a_layernorm.weight"]) @ a["kv_b_proj.weight"].T
        k, v = kv.view(n, heads, -1).transpose(0, 1).split([nope, size // heads], -1)
        k = torch.cat([k, rotate(k_rotated).expand(heads, -1, -1)], -1)
        q = torch.cat([q[..., :nope], rotate(q[..., nope:])], -1)
        scores = (q @ k.transpose(1, 2)) / math.sqrt(nope + rotated) + mask
        seen = (scores.softmax(-1) @ v).transpose(0, 1).flatten(1)
        x = x + seen @ a["o_proj.weight"].T * depth
        h = norm(x, w[p + "post_attention_layernorm.weight"], config["rms_norm_eps"])
        gate, up = (h @ w[f"{p}mlp.{part}_proj.weight"].T for part in ("gate", "up"))
        x = x + (torch.nn.functional.silu(gate) * up) @ w[p + "mlp.down_proj.weight"].T * depth
    x = norm(x, w["norm.weight"], config["rms_norm_eps"]) / (size / config["dim_model_base"])
    return x @ w["embed_tokens.weight"].T


# ---- the checkpoints --------------------------------------------------------------------------------------------

GEMMA = {"model.norm": 7.0, "embed": 0.15}  # embeddings are multiplied by the root of hidden_size
# Granite's multipliers make embeddings and logits of tiny random weights small.
GRANITE = {"model.norm": 80.0, "embed": 0.1, "o_proj": 4.0, "down_proj": 4.0, "q_proj": 1.8, "k_proj": 1.8}
SMOLLM3 = {"q_proj": 0.8, "k_proj": 0.8}  # else four layers blow rounding up
# Tied embeddings: a token would only call for itself, were it not small beside what the layers add.
BLOOM = {"word_embeddings_layernorm": 0.1, ".bias": 0.3, "dense_4h_to_h.weight": 1.5, "query_key_value.weight": 1.5}
MPT = {"wte": 0.3, "norm_f": 3.5, "Wqkv": 1.5}
# A small q_a_proj shows the eps of q_a_layernorm.
MINICPM3 = {"q_a_proj": 0.01, "model.norm": 80.0, "embed": 0.05, "o_proj": 3.0, "down_proj": 3.0}
ROUTERS = {"gate.weight": 2.0}

CASES = [
    Case("llama_mha", 1002, greedy=32),
    Case("llama_gqa", 2000, greedy=32, long=0, traced=True, keys=True, scaled="Llama"),
    Case("llama_gqa_interleaved", 2000, greedy=32, pack=interleaved),
    Case("llama_mqa_tied", 3008, greedy=32),
    Case("llama_bias", 4002, greedy=32, traced=True),
    Case("llama_odd", 5039, greedy=32),
    Case("llama_partial", 6006, greedy=32),
    Case("llama_bf16", 7000, greedy=32),
    Case("llama_f16", 8002, greedy=32),
    Case("llama_sharded", 9002, greedy=32, shards=3),
    Case("llama_llama3", 10006, greedy=32),
    Case("mistral_window", 11002, greedy=32, long=1, traced=True, scaled="Mistral"),
    Case("mistral_full", 12001, greedy=32, long=2, keys=True),
    Case("qwen2", 13007, greedy=32, long=3, keys=True, scaled="Qwen2"),
    Case("qwen2_window", 14000, greedy=32, traced=True),
    Case("qwen3", 15002, greedy=32, long=4, traced=True, keys=True, scaled="Qwen3"),
    Case("qwen3_yarn_tied", 16000, greedy=32),
    Case("minimind", 17018, greedy=32, long=5, traced=True, scaled="MiniMind"),
    Case("minimind_yarn", 18000, greedy=32),
    Case("phi3", 100006, long=6, traced=True, scaled="Phi-3"),
    Case("phi3_window", 101013, long=7, keys=True),
    Case("phi4_mini", 102010, long=8),
    Case("gemma", 103001, long=9, keys=True, scaled="Gemma", scales=GEMMA),
    Case("gemma2", 104079, long=10, traced=True, keys=True, scaled="Gemma 2", scales=GEMMA),
    Case("gemma3", 105003, long=11, traced=True, keys=True, scaled="Gemma 3", scales=GEMMA),
    Case("gemma3_new", 106012, scales=GEMMA),
    Case("smollm3", 107038, long=12, traced=True, keys=True, scaled="SmolLM3", scales=SMOLLM3),
    Case("granite", 108028, long=13, traced=True, keys=True, scaled="Granite", scales=GRANITE),
    Case("olmo2", 109006, long=14, traced=True, keys=True, scaled="OLMo 2"),
    Case("olmo3", 110004, long=15, traced=True, keys=True, scaled="Olmo 3"),
    Case("internlm2", 111014, long=16, traced=True, pack=internlm2),
    Case("internlm", 112003),
    Case("baichuan", 113023, pack=baichuan),
    Case("ministral3", 114042, long=17, traced=True, keys=True, scaled="Ministral 3", pack=with_vision),
    Case("llava", 115015, pack=with_vision),
    Case("qwen2_vl", 116100, keys=True, pack=with_vision),
    Case("qwen25_vl", 117027, keys=True, pack=with_vision),
    Case("minimind_plain", 118017, long=18),
    Case("ministral", 119004, keys=True),
    Case("gpt_neox", 200130, long=19, traced=True, keys=True, pack=with_neox_buffers),
    Case("gpt_neox_serial", 201097, long=20),
    Case("bloom", 202032, long=21, traced=True, keys=True, scales=BLOOM, pack=without_prefix),
    Case("bloom_prefixed", 203063, scales=BLOOM),
    Case("mpt", 204015, long=22, keys=True, scales=MPT),
    Case("mpt_max16", 205037, scales=MPT),
    Case("mixtral", 206000, long=23, keys=True, scales=ROUTERS),
    Case("qwen3_moe", 207004, long=24, traced=True, keys=True, scales=ROUTERS),
    Case("qwen3_moe_step", 208010, scales=ROUTERS | {"experts.down": 2.0}),
    Case("deepseek_v2", 209005, long=25, traced=True, keys=True, scales=ROUTERS),
    Case("deepseek_v2_full", 210003, long=26, scales=ROUTERS | {"experts.down": 0.1}),
    Case("deepseek_v3", 211027, long=27, keys=True, scales=ROUTERS | {"experts.down": 0.5}, pack=with_mtp_layer),
    Case("minicpm3", 212110, keys=True, scales=MINICPM3, exact=minicpm3),
    Case("gpt_neox_odd", 213065),
    Case("qwen3_vl", 213006, keys=True, pack=with_vision),
]  # fmt: skip
NAMES = {case.name: case for case in CASES}


def dtype_of(config):
    text = config.get("text_config", {})
    return getattr(torch, next(c[key] for c in (config, text) for key in ("torch_dtype", "dtype") if key in c))


def build(case, config, seed):
    """tiny.build with the case's scales; Gemma's norms multiply by one plus their weight."""
    model = tiny.build(tiny.text_config(config, case.name != "minimind_plain"), seed)
    for name, parameter in model.named_parameters():
        for part, factor in case.scales.items():
            if part in name:
                parameter.mul_(factor)
        if "norm" in name and model.config.model_type.startswith("gemma"):
            parameter.sub_(1.0)
        parameter.copy_(parameter.to(dtype_of(config)))  # as saved, upcast; model.to(dtype) would round inv_freq too
    return model


def as_phi3(model):
    """The Llama `model` as a Phi-3: the same architecture with fused projections, whose rotation may be partial."""
    c = model.config
    keys = ("hidden_size", "intermediate_size", "num_hidden_layers", "num_attention_heads", "num_key_value_heads",
            "vocab_size", "max_position_embeddings", "bos_token_id", "eos_token_id", "rms_norm_eps")  # fmt: skip
    phi3 = Phi3Config(**{key: getattr(c, key) for key in keys}, pad_token_id=None,
                      partial_rotary_factor=c.rope_parameters["partial_rotary_factor"])  # fmt: skip
    weights = dict(model.state_dict())
    for layer in range(c.num_hidden_layers):
        for block, fused, parts in (("self_attn", "qkv", "q k v"), ("mlp", "gate_up", "gate up")):
            prefix = f"model.layers.{layer}.{block}"
            pieces = [weights.pop(f"{prefix}.{part}_proj.weight") for part in parts.split()]
            weights[f"{prefix}.{fused}_proj.weight"] = torch.cat(pieces)
    result = tiny.build(phi3, 0)
    result.load_state_dict(weights)
    return result


def draw(case, config):
    """The first seed from the case's on that will do, its model and the golden.

    Greedy text has to be varied and to have a wide margin, and what experts a token goes to must not hang on rounding.
    """
    for seed in itertools.count(case.seed):
        model = build(case, config, seed)
        tokens = tiny.random_tokens(model.config.vocab_size, 64, seed)
        oracle = as_phi3(model) if case.name == "llama_partial" else model
        continuation, margin = tiny.greedy(oracle, tokens[:8], case.greedy, 0.05)
        if margin > 0.05 and len(set(continuation)) >= 12:
            texts = (tokens, tokens[:8] + continuation)
            if min(tiny.router_gaps(model, text).amin() for text in texts) > 1e-4:
                break
    return seed, model, {"tokens": torch.tensor(tokens), "logits": tiny.one_shot(oracle, tokens),
                         "greedy": torch.tensor(continuation), "greedy_margin": torch.tensor([margin])}  # fmt: skip


def saved(model, dtype):
    """The tensors of `model` under the names of the published files, which save_pretrained knows, in `dtype`.

    The correction of DeepSeek-V3's routers stays float32, as it is published.
    """
    with tempfile.TemporaryDirectory() as name:
        model.save_pretrained(name)
        weights = load_file(Path(name) / "model.safetensors")
    return {name: rows if "e_score" in name else rows.to(dtype) for name, rows in sorted(weights.items())}


def image_model(folder):
    return AutoModelForImageTextToText.from_pretrained(folder, dtype=torch.float32, attn_implementation="eager").eval()


def loaded_back(folder, config, tokens):
    """The logits by the folder's files; a Llama rotates part of a head, or neighbours, only with a rotation put in."""
    if "vision_config" in config:
        return tiny.one_shot(image_model(folder), tokens)
    model = tiny.load(folder, torch.float32)
    if config.get("rope_interleaved"):
        rotation = tiny.interleaved_rotation
    elif config["model_type"] == "llama" and "partial_rotary_factor" in config:
        frequencies = modeling_phi3.Phi3RotaryEmbedding.compute_default_rope_parameters(model.config)[0]
        model.model.rotary_emb.inv_freq, rotation = frequencies, modeling_phi3.apply_rotary_pos_emb
    else:
        return tiny.one_shot(model, tokens)
    with tiny.llama_rotation(rotation):
        return tiny.one_shot(model, tokens)


def make(name):
    """model.safetensors, golden.safetensors and what else the row asks for."""
    case, folder = NAMES[name], tiny.CHECKPOINTS / name
    config = tiny.read(folder / "config.json")
    seed, model, golden = draw(case, config)
    weights = case.pack(saved(model, dtype_of(config)), config)
    tiny.save_weights(folder, weights, case.shards)
    tokens = golden["tokens"].tolist()
    difference = (loaded_back(folder, config, tokens) - golden["logits"]).abs().max().item()
    assert difference < 1e-4, (name, difference)
    if case.exact:
        exact = case.exact(weights, config, tokens)
        assert (exact - golden["logits"]).abs().max() < 5e-5, (exact - golden["logits"]).abs().max()
        golden["logits"] = exact.float()
    if name == "llama_bf16":
        golden["logits_bf16"] = tiny.one_shot(tiny.load(folder, torch.bfloat16, torch.bfloat16), tokens).float()
    save_file(golden, folder / "golden.safetensors", {"made_with": f"{tiny.VERSIONS}, seed {seed}"})
    print(f"{name:21} seed {seed}  greedy margin {golden['greedy_margin'].item():.3f}"
          f"  ids {len(set(golden['greedy'].tolist())):2}  logits std {golden['logits'].std().item():.2f}"
          f"  loaded back: {difference:.1e}", flush=True)  # fmt: skip
    if case.traced:
        tensors = trace(tiny.load(folder, torch.float32), tokens[:TRACED])
        save_file(tensors, folder / "trace.safetensors", {"made_by": tiny.VERSIONS})
    if "mrope_section" in str(config):
        make_mrope(name)
    if case.long is not None:
        make_long(case)


# ---- positions of three parts -----------------------------------------------------------------------------------


def image_positions(before, frames, rows, cols, after, steps=(1, 20, 400)):
    """Positions [3, tokens] (temporal, height, width) of text, then an image of `frames` times rows x cols, then text.

    Text counts all three alike; the image starts behind the text, and the text after it behind the largest of its
    positions (2409.12191, section 2.1). `steps` between frames, rows and columns are wider than an image's: 2-VL gives
    height and width the slow pairs, which would show nothing of so few rows.
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


# ---- long prompts -----------------------------------------------------------------------------------------------

DTYPES = {"f32": torch.float32, "bf16": torch.bfloat16, "f16": torch.float16}
KEPT = [0, 7, 40, 100, 255, 256, 290, 299, 306, 312, 318, 319]  # whose logits are in long.safetensors


def long_tokens(models, seed):
    """320 random ids, from the seed on the first ones whose experts `models` (one for each rounding) choose clearly.

    Everywhere by more than rounding in float32 can move a choice; where logits are kept, by 0.05 of the router's
    logits (DeepSeek-V3's scores are sigmoids, no steeper than a quarter), as 16 bits would choose others else.
    """
    edge = 0.05 / 4 if models[0].config.model_type == "deepseek_v3" else 0.05
    for candidate in itertools.count(seed):
        tokens = tiny.random_tokens(models[0].config.vocab_size, 320, candidate)
        gaps = (tiny.router_gaps(model, tokens) for model in models)
        if all(gap.amin() > 1e-4 and gap[KEPT].amin() > edge for gap in gaps):
            return tokens


def make_long(case):
    """The part of long.safetensors that is of one checkpoint."""
    path, folder = tiny.GOLDEN / "long.safetensors", tiny.CHECKPOINTS / case.name
    golden = (load_file(path) if path.exists() else {}) | {"positions": torch.tensor(KEPT)}
    models = {short: tiny.load(folder, torch.float32, dtype) for short, dtype in DTYPES.items()}
    tokens = long_tokens(list(models.values()), case.long)
    golden[f"{case.name}.tokens"] = torch.tensor(tokens)
    for short, model in models.items():
        golden[f"{case.name}.{short}"] = tiny.one_shot(model, tokens)[KEPT]
    for short in ("bf16", "f16"):
        own = tiny.load(folder, DTYPES[short], DTYPES[short])
        golden[f"{case.name}.{short}.own"] = tiny.one_shot(own, tokens)[KEPT].float()
    save_file(golden, path, {"made_with": tiny.VERSIONS})
