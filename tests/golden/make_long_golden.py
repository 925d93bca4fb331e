"""Logits behind long prompts, for one checkpoint of each kind of layer and one without a window.

    python tests/golden/make_long_golden.py [NAME...]        (after the scripts that write checkpoints/)

Writes tests/golden/long.safetensors. A prompt of 320 tokens enters the kernels for many tokens, which those of
make_checkpoints.py are too short for in places, and crosses a page of the cache. For every NAME:
    NAME.tokens            int64 [320]           random ids; the seed is the checkpoint's place in NAMES, or the next
                                                 with which experts are chosen clearly
    positions              int64 [12]            whose logits are kept, the same for all
    NAME.f32               float32 [12, vocab]   the checkpoint's weights, computed in float32
    NAME.bf16, NAME.f16    float32 [12, vocab]   every tensor rounded to that dtype, computed in float32
    NAME.bf16.own          float32 [12, vocab]   the same weights, transformers computing in bfloat16 throughout
    NAME.f16.own           float32 [12, vocab]   and in float16
One forward pass without a cache, eager attention. Positions run past max_position_embeddings: only phi3 and phi4_mini
(long factors) and internlm2 (dynamic, for a length of exactly 320) scale by that. Gemma's embedding multiplier is
rounded to the dtype of the computation: NAME.bf16 and NAME.f16 have the float32 one, their .own a rounded one.
"""

import itertools
import json
import sys

import torch
from safetensors.torch import load_file, save_file

import tiny_models as tiny

NAMES = ["llama_gqa", "mistral_window", "mistral_full", "qwen2", "qwen3", "minimind", "phi3", "phi3_window",
         "phi4_mini", "gemma", "gemma2", "gemma3", "smollm3", "granite", "olmo2", "olmo3", "internlm2", "ministral3",
         "minimind_plain", "gpt_neox", "gpt_neox_serial", "bloom", "mpt", "mixtral", "qwen3_moe", "deepseek_v2",
         "deepseek_v2_full", "deepseek_v3"]  # fmt: skip
DTYPES = {"f32": torch.float32, "bf16": torch.bfloat16, "f16": torch.float16}
TOKENS = 320
EDGE = 0.05
POSITIONS = [0, 7, 40, 100, 255, 256, 290, 299, 306, 312, 318, 319]


def first_tokens(models, vocab, seed):
    """Random ids, from the seed on the first ones whose experts `models` (one for each rounding) choose clearly.

    Everywhere by more than rounding in float32 can move a choice; where logits are kept, by EDGE logits of the router
    (DeepSeek-V3's scores are sigmoids, no steeper than a quarter), as 16 bits would choose others else.
    """
    edge = EDGE / 4 if models[0].config.model_type == "deepseek_v3" else EDGE
    for candidate in itertools.count(seed):
        tokens = torch.randint(vocab, [TOKENS], generator=torch.Generator().manual_seed(candidate)).tolist()
        gaps = (tiny.router_gaps(model, tokens) for model in models)
        if all(gap.amin() > 1e-4 and gap[POSITIONS].amin() > edge for gap in gaps):
            return tokens, candidate


def add(golden, name, seed):
    source = tiny.CHECKPOINTS / name
    config = json.loads((source / "config.json").read_text())
    models = {short: tiny.load(source, torch.float32, dtype) for short, dtype in DTYPES.items()}
    vocab = config.get("text_config", config)["vocab_size"]
    tokens, chosen = first_tokens(list(models.values()), vocab, seed)
    golden[f"{name}.tokens"] = torch.tensor(tokens)
    for short, model in models.items():
        golden[f"{name}.{short}"] = tiny.one_shot(model, tokens)[POSITIONS]
    line = f"{name:16} logits std {golden[f'{name}.f32'].std().item():.2f}  seed {chosen}"
    for short in ("bf16", "f16"):
        own = tiny.one_shot(tiny.load(source, DTYPES[short], DTYPES[short]), tokens)[POSITIONS].float()
        golden[f"{name}.{short}.own"] = own
        line += f"  {short}: off by {(own - golden[f'{name}.{short}']).abs().max().item():.4f}"
    print(line, flush=True)


def main():
    path = tiny.GOLDEN / "long.safetensors"
    golden = load_file(path) if sys.argv[1:] else {"positions": torch.tensor(POSITIONS)}
    for index, name in enumerate(NAMES):
        if not sys.argv[1:] or name in sys.argv[1:]:
            add(golden, name, index)
    save_file(golden, path, {"made_with": tiny.VERSIONS})


if __name__ == "__main__":
    main()
