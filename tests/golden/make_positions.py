"""Tiny random checkpoints of families with other positions than plain RoPE, and of those with experts.

    python tests/golden/make_positions.py [NAME...]        (after make_families.py, for the Qwen-VLs)

Writes tests/golden/checkpoints/NAME/ with the same tensors as make_families.py, and `mrope.safetensors` for the image
models (write_mrope). A config.json is spelt here as the published ones are, and the model is built from it; its tensors
have the names of the published files, which save_pretrained gives them. Every folder is loaded back and compared.

What experts a token goes to must not hang on rounding: the first seed is taken for which the scores of the last expert
chosen and of the first one not chosen are further apart than LEAST_GAP at every token of the golden in every layer.

Where transformers does not do what the models' own code does, the golden follows the latter: MPT's alibi_bias_max
(tiny_models.as_published; llm-foundry's gen_slopes), and for MiniCPM3 `logits` are computed in float64 by formulas
written from the published modeling_minicpm.py (huggingface.co/openbmb/MiniCPM3-4B), with which transformers agrees.
"""

import copy
import math
import sys
import tempfile
from dataclasses import dataclass, field
from pathlib import Path

import torch
from safetensors.torch import load_file, save_file
from transformers import AutoConfig, AutoModelForImageTextToText, Qwen3Config

import make_families as families
import tiny_models as tiny
from make_checkpoints import draw, empty_folder, report

FIRST_SEED = 200_000  # far from the seeds of make_families.py
LEAST_GAP = 1e-4
HALF, BF16 = torch.float16, torch.bfloat16


@dataclass
class Case:
    name: str
    config: dict  # as in config.json, without architectures, dtype and transformers_version
    architecture: str
    dtype: torch.dtype = torch.float32
    scales: dict = field(default_factory=dict)  # factors for the random tensors whose names contain the key
    pack: object = lambda weights, config: weights  # the weights as save_pretrained names them -> as the folder does
    version: str = "4.40.0"
    exact: object = None  # (weights, config, tokens) -> logits in float64, in place of transformers'


# ---- weights as the published files have them -------------------------------------------------------------------


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
    return weights | {prefix + name: rows.to(BF16) for name, rows in extra.items()}


# ---- MiniCPM3 in float64 ----------------------------------------------------------------------------------------


def minicpm3(weights, config, tokens):
    """MiniCPM3's logits [tokens, vocab] in float64, from the formulas of its published modeling_minicpm.py.

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

IDS = dict(bos_token_id=1, eos_token_id=2)
NEOX = IDS | dict(
    model_type="gpt_neox", hidden_size=32, intermediate_size=96, num_hidden_layers=2, num_attention_heads=2,
    vocab_size=100, max_position_embeddings=64, initializer_range=0.02, layer_norm_eps=1e-5, rotary_emb_base=10000,
    tie_word_embeddings=False, use_cache=True)  # fmt: skip
BLOOM = IDS | dict(
    model_type="bloom", apply_residual_connection_post_layernorm=False, attention_dropout=0.0,
    attention_softmax_in_fp32=True, bias_dropout_fusion=True, hidden_dropout=0.0, initializer_range=0.02,
    layer_norm_epsilon=1e-5, masked_softmax_fusion=True, n_inner=None, n_layer=2, offset_alibi=100, pad_token_id=3,
    pretraining_tp=2, skip_bias_add=True, skip_bias_add_qkv=False, slow_but_exact=False, unk_token_id=0,
    use_cache=True, vocab_size=96)  # fmt: skip
MPT = dict(
    model_type="mpt", d_model=48, emb_pdrop=0, embedding_fraction=1.0, expansion_ratio=4, init_device="cpu",
    learned_pos_emb=True, logit_scale=None, max_seq_len=384, n_heads=6, n_layers=2, no_bias=True,
    norm_type="low_precision_layernorm", resid_pdrop=0, tokenizer_name="EleutherAI/gpt-neox-20b", use_cache=False,
    verbose=0, vocab_size=96)  # fmt: skip
MPT_ATTENTION = dict(
    alibi=True, alibi_bias_max=8, attn_impl="torch", attn_pdrop=0, attn_type="multihead_attention",
    attn_uses_sequence_id=False, clip_qkv=None, prefix_lm=False, qk_ln=False, softmax_scale=None)  # fmt: skip
DECODER = IDS | dict(
    hidden_act="silu", hidden_size=32, initializer_range=0.02, attention_dropout=0.0, max_position_embeddings=256,
    num_attention_heads=4, rms_norm_eps=1e-6, tie_word_embeddings=False, use_cache=True, vocab_size=96)  # fmt: skip
QWEN_MOE = DECODER | dict(
    model_type="qwen3_moe", attention_bias=False, decoder_sparse_step=1, head_dim=16, intermediate_size=48,
    max_window_layers=3, mlp_only_layers=[], moe_intermediate_size=12, norm_topk_prob=True, num_attention_heads=2,
    num_experts=8, num_experts_per_tok=3, num_hidden_layers=3, num_key_value_heads=1, output_router_logits=False,
    rope_scaling=None, rope_theta=1e6, router_aux_loss_coef=0.001, sliding_window=None,
    use_sliding_window=False)  # fmt: skip
DEEPSEEK_YARN = dict(beta_fast=32, beta_slow=1, factor=8, original_max_position_embeddings=32, type="yarn")
DEEPSEEK = DECODER | dict(
    model_type="deepseek_v2", attention_bias=False, aux_loss_alpha=0.001, first_k_dense_replace=1,
    intermediate_size=48, kv_lora_rank=16, moe_intermediate_size=16, moe_layer_freq=1, n_group=1, n_routed_experts=8,
    n_shared_experts=2, norm_topk_prob=False, num_experts_per_tok=3, num_hidden_layers=3, num_key_value_heads=4,
    pretraining_tp=1, q_lora_rank=None, qk_nope_head_dim=8, qk_rope_head_dim=8, rope_theta=10000,
    rope_scaling=DEEPSEEK_YARN | dict(mscale=0.707, mscale_all_dim=0.707), routed_scaling_factor=1.0,
    scoring_func="softmax", seq_aux=True, topk_group=1, topk_method="greedy", v_head_dim=8)  # fmt: skip
ROUTERS = {"gate.weight": 2.0}
# tied embeddings: a token would only call for itself, were it not small beside what the layers add
BLOOM_SCALES = {"word_embeddings_layernorm": 0.1, ".bias": 0.3, "dense_4h_to_h.weight": 1.5, "query_key_value.weight": 1.5}
MPT_SCALES = {"wte": 0.3, "norm_f": 3.5, "Wqkv": 1.5}
MINICPM = DECODER | dict(
    model_type="minicpm3", dim_model_base=8, initializer_range=0.1, intermediate_size=64, kv_lora_rank=16,
    max_position_embeddings=96, num_hidden_layers=3, num_key_value_heads=4, q_lora_rank=24, qk_nope_head_dim=8,
    qk_rope_head_dim=8, rms_norm_eps=1e-5, scale_depth=1.4, scale_emb=12, tie_word_embeddings=True, rope_theta=10000.0,
    rope_scaling=dict(type="longrope", long_factor=[1.0, 1.6, 3.1, 5.3], short_factor=[1.0, 1.1, 1.3, 1.9],
                      original_max_position_embeddings=96))  # fmt: skip

CASES = [
    Case("gpt_neox", NEOX | dict(hidden_act="gelu", rotary_pct=0.25, use_parallel_residual=True), "GPTNeoXForCausalLM",
         pack=with_neox_buffers, version="4.24.0"),
    # as extended by yarn; half a head is rotated, four pairs
    Case("gpt_neox_serial", NEOX | dict(
        hidden_act="gelu_fast", rotary_pct=0.5, use_parallel_residual=False, num_hidden_layers=3,
        rope_scaling=dict(type="yarn", factor=4.0, original_max_position_embeddings=64), max_position_embeddings=256),
        "GPTNeoXForCausalLM", BF16),
    # the two spellings of its keys and of its tensors
    Case("bloom", BLOOM | dict(n_embed=48, num_attention_heads=6), "BloomForCausalLM", HALF, BLOOM_SCALES,
         without_prefix, "4.20.0"),
    Case("bloom_prefixed", BLOOM | dict(hidden_size=36, n_head=3, seq_length=2048), "BloomForCausalLM",
         scales=BLOOM_SCALES, version="4.20.0"),
    Case("mpt", MPT | dict(attn_config=MPT_ATTENTION), "MptForCausalLM", BF16, MPT_SCALES, version="4.28.1"),
    Case("mpt_max16", MPT | dict(d_model=36, n_heads=3, attn_config=MPT_ATTENTION | dict(
        alibi_bias_max=16, clip_qkv=1.5)), "MptForCausalLM", scales=MPT_SCALES, version="4.28.1"),
    Case("mixtral", DECODER | dict(
        model_type="mixtral", intermediate_size=24, num_experts_per_tok=2, num_hidden_layers=2, num_key_value_heads=2,
        num_local_experts=8, output_router_logits=False, rms_norm_eps=1e-5, rope_theta=1e6,
        router_aux_loss_coef=0.02, sliding_window=None), "MixtralForCausalLM", BF16, ROUTERS),
    Case("qwen3_moe", QWEN_MOE | dict(mlp_only_layers=[1]), "Qwen3MoeForCausalLM", scales=ROUTERS, version="4.51.0"),
    # layers 1 and 3 have experts, whose weights do not add up to one
    Case("qwen3_moe_step", QWEN_MOE | dict(
        decoder_sparse_step=2, norm_topk_prob=False, num_experts_per_tok=2, num_hidden_layers=4,
        moe_intermediate_size=16), "Qwen3MoeForCausalLM", BF16, ROUTERS | {"experts.down": 2.0}, version="4.51.0"),
    Case("deepseek_v2", DEEPSEEK, "DeepseekV2ForCausalLM", BF16, ROUTERS),
    Case("deepseek_v2_full", DEEPSEEK | dict(
        kv_lora_rank=24, moe_intermediate_size=12, n_group=4, n_routed_experts=12, n_shared_experts=1, q_lora_rank=20,
        qk_nope_head_dim=16, rope_scaling=DEEPSEEK_YARN | dict(mscale=1.0, mscale_all_dim=0.707),
        routed_scaling_factor=16.0, topk_group=2, topk_method="group_limited_greedy"), "DeepseekV2ForCausalLM", BF16,
        ROUTERS | {"experts.down": 0.1}),
    Case("deepseek_v3", DEEPSEEK | dict(
        model_type="deepseek_v3", ep_size=1, moe_intermediate_size=12, n_group=4, n_routed_experts=12,
        n_shared_experts=1, norm_topk_prob=True, num_experts_per_tok=4, num_nextn_predict_layers=1, q_lora_rank=20,
        rope_scaling=DEEPSEEK_YARN | dict(mscale=1.0, mscale_all_dim=1.0), routed_scaling_factor=2.5,
        scoring_func="sigmoid", topk_group=2, topk_method="noaux_tc"), "DeepseekV3ForCausalLM", BF16,
        ROUTERS | {"experts.down": 0.5}, with_mtp_layer, "4.33.1"),
    # a small q_a_proj shows the eps of q_a_layernorm
    Case("minicpm3", MINICPM, "MiniCPM3ForCausalLM", BF16,
         {"q_a_proj": 0.01, "model.norm": 80.0, "embed": 0.05, "o_proj": 3.0, "down_proj": 3.0},
         version="4.41.0", exact=minicpm3),
    # int(18 * 0.44) = 7 dimensions: 8 rotate, with exponents of 7
    Case("gpt_neox_odd", NEOX | dict(hidden_act="gelu", hidden_size=36, rotary_pct=0.44, use_parallel_residual=True),
         "GPTNeoXForCausalLM"),
]  # fmt: skip


def build(case, config, seed):
    model = tiny.build(config, seed)
    for name, parameter in model.named_parameters():
        for part, factor in case.scales.items():
            if part in name:
                parameter.mul_(factor)
    return model


def draw_decided(case, config, first_seed):
    """draw(), from the first seed on for which the experts are chosen by more than LEAST_GAP."""
    while True:
        seed, model, _, golden = draw(case, config, first_seed, families.GREEDY, lambda *args: build(case, *args))
        tokens = golden["tokens"].tolist()
        gap = tiny.router_gaps(model, tokens).amin()
        gap = min(gap, tiny.router_gaps(model, tokens[:8] + golden["greedy"].tolist()).amin()).item()
        if gap > LEAST_GAP:
            return seed, model, golden, gap
        first_seed = seed + 1


def as_saved(case, model):
    """The tensors of `model` under the names of the published files, which save_pretrained knows, in case.dtype.

    The correction of DeepSeek-V3's routers stays float32, as it is published.
    """
    with tempfile.TemporaryDirectory() as name:
        model.save_pretrained(name)
        saved = load_file(Path(name) / "model.safetensors")
    return {name: rows if "e_score" in name else rows.to(case.dtype) for name, rows in sorted(saved.items())}


def float64_error(model, tokens, logits):
    """How far `logits` are from those of the model run in float64."""
    model = copy.deepcopy(model).double()
    return (tiny.one_shot(model, tokens) - logits).abs().max().item()


def make(case, first_seed):
    written = case.config | {"architectures": [case.architecture], "torch_dtype": str(case.dtype).split(".")[1],
                             "transformers_version": case.version}  # fmt: skip
    config = AutoConfig.for_model(**copy.deepcopy(written))
    seed, model, golden, gap = draw_decided(case, config, first_seed)
    weights = case.pack(as_saved(case, model), written)

    folder = empty_folder(case.name)
    tiny.write_json(folder / "config.json", dict(sorted(written.items())))
    tiny.save_weights(folder, weights)
    tokens = golden["tokens"].tolist()
    again = tiny.one_shot(tiny.load(folder, torch.float32), tokens)
    difference = (again - golden["logits"]).abs().max().item()
    assert difference < 1e-4, (case.name, difference)
    if case.exact:
        exact = case.exact(weights, written, tokens)
        assert (exact - golden["logits"]).abs().max() < 5e-5, (exact - golden["logits"]).abs().max()
        golden["logits"] = exact.float()
    save_file(golden, folder / "golden.safetensors", {"made_with": f"{tiny.VERSIONS}, seed {seed}"})
    report(case, folder, golden)
    print(f"ids {len(set(golden['greedy'].tolist())):2}  loaded back: {difference:.1e}  seed {seed}  gap {gap:.1e}"
          f"  from float64: {float64_error(model, tokens, golden['logits']):.1e}", flush=True)  # fmt: skip


# ---- positions of three parts -----------------------------------------------------------------------------------


def qwen3_vl_config(saved, config, case):
    """A layout: Qwen3-VL's config.json around the text model."""
    text = {key: saved[key] for key in (
        "attention_bias", "bos_token_id", "eos_token_id", "head_dim", "hidden_act", "hidden_size", "intermediate_size",
        "max_position_embeddings", "num_attention_heads", "num_hidden_layers", "num_key_value_heads", "rms_norm_eps",
        "vocab_size")}  # fmt: skip
    text |= {"model_type": "qwen3_vl_text", "rope_theta": 5000000, "dtype": "bfloat16", "rope_scaling": {
        "mrope_interleaved": True, "mrope_section": [4, 2, 2], "rope_type": "default"}}  # fmt: skip
    return {"architectures": ["Qwen3VLForConditionalGeneration"], "model_type": "qwen3_vl", "image_token_id": 151655,
            "text_config": text, "tie_word_embeddings": False, "transformers_version": "4.57.0.dev0",
            "video_token_id": 151656, "vision_start_token_id": 151652, "vision_end_token_id": 151653,
            "vision_config": {"deepstack_visual_indexes": [0], "depth": 1, "hidden_act": "gelu_pytorch_tanh",
                              "hidden_size": 8, "in_channels": 3, "intermediate_size": 8, "model_type": "qwen3_vl",
                              "num_heads": 2, "num_position_embeddings": 4, "out_hidden_size": 32, "patch_size": 2,
                              "spatial_merge_size": 1, "temporal_patch_size": 1}}  # fmt: skip


QWEN3_VL = families.Family("qwen3_vl", Qwen3Config, families.GQA | dict(head_dim=16, rope_theta=5e6), BF16,
                           qwen3_vl_config, pack=families.with_vision)  # fmt: skip


def image_positions(before, frames, rows, cols, after, steps=(1, 20, 400)):
    """Positions [3, tokens] (temporal, height, width) of text, then an image of `frames` times rows x cols, then text.

    Text counts all three alike; the image starts behind the text, and the text after it behind the largest of its
    positions (2409.12191, section 2.1). `steps` between frames, rows and columns are wider than an image's: 2-VL gives
    height and width the slow pairs, which would show nothing of so few rows.
    """
    grid = torch.cartesian_prod(*(torch.arange(n) * step for n, step in zip((frames, rows, cols), steps))).T + before
    text = torch.arange(after) + grid.max() + 1
    return torch.cat([torch.arange(before).expand(3, -1), grid, text.expand(3, -1)], 1)


def write_mrope(name):
    """checkpoints/NAME/mrope.safetensors: tokens [320], positions [3, 320], logits [320, vocab]."""
    folder = tiny.CHECKPOINTS / name
    positions = image_positions(100, 4, 5, 6, 100)
    short = load_file(folder / "golden.safetensors")
    tokens = short["tokens"].repeat(5)
    model = AutoModelForImageTextToText.from_pretrained(folder, dtype=torch.float32, attn_implementation="eager").eval()

    def run(axes):
        hidden = model.model.language_model(input_ids=tokens[None], position_ids=axes[:, None], use_cache=False)
        return model.lm_head(hidden.last_hidden_state)[0]

    text = torch.arange(len(tokens)).expand(3, -1)
    plain = run(text)
    assert (plain[:64] - short["logits"]).abs().max() < 1e-4
    logits = run(positions)
    assert all((run(positions[list(order)]) - logits).abs().max() > 0.1 for order in ((1, 0, 2), (0, 2, 1)))
    golden = {"tokens": tokens, "positions": positions.contiguous(), "logits": logits}
    save_file(golden, folder / "mrope.safetensors", {"made_with": tiny.VERSIONS})
    print(f"{name:18} mrope: {(logits - plain).abs().max().item():.2f} from the same tokens as plain text")


def main():
    wanted = sys.argv[1:]
    for index, case in enumerate(CASES):
        if not wanted or case.name in wanted:
            make(case, FIRST_SEED + 1000 * index)
    if not wanted or QWEN3_VL.name in wanted:
        families.make(QWEN3_VL, FIRST_SEED + 1000 * len(CASES))
    for name in ("qwen2_vl", "qwen25_vl", "qwen3_vl"):
        if not wanted or name in wanted:
            write_mrope(name)


if __name__ == "__main__":
    main()
