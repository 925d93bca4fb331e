"""Logits behind long prompts, for one checkpoint of each kind of layer and one without a window.

    python tests/golden/make_long_golden.py        (after make_checkpoints.py and make_families.py)

Writes tests/golden/long.safetensors. A prompt of 320 tokens enters the kernels for many tokens, which those of
make_checkpoints.py are too short for in places, and crosses a page of the cache. For every NAME:
    NAME.tokens            int64 [320]           random ids; the seed is the checkpoint's place in NAMES
    positions              int64 [12]            whose logits are kept, the same for all
    NAME.f32               float32 [12, vocab]   the checkpoint's weights, computed in float32
    NAME.bf16, NAME.f16    float32 [12, vocab]   every tensor rounded to that dtype, computed in float32
    NAME.bf16.own          float32 [12, vocab]   the same weights, transformers computing in bfloat16 throughout
    NAME.f16.own           float32 [12, vocab]   and in float16
One forward pass without a cache, eager attention. Positions run past max_position_embeddings: only phi3 and phi4_mini
(long factors) and internlm2 (dynamic, for a length of exactly 320) scale by that. Gemma's embedding multiplier is
rounded to the dtype of the computation: NAME.bf16 and NAME.f16 have the float32 one, their .own a rounded one.
"""

import json

import torch
from safetensors.torch import save_file

import tiny_models as tiny

NAMES = ["llama_gqa", "mistral_window", "mistral_full", "qwen2", "qwen3", "minimind", "phi3", "phi3_window",
         "phi4_mini", "gemma", "gemma2", "gemma3", "smollm3", "granite", "olmo2", "olmo3", "internlm2", "ministral3",
         "minimind_plain"]  # fmt: skip
DTYPES = {"bf16": torch.bfloat16, "f16": torch.float16}
TOKENS = 320
POSITIONS = [0, 7, 40, 100, 255, 256, 290, 299, 306, 312, 318, 319]


def logits(source, tokens, weights, compute):
    return tiny.one_shot(tiny.load(source, compute, weights), tokens)[POSITIONS].float()


def main():
    golden = {"positions": torch.tensor(POSITIONS)}
    for index, name in enumerate(NAMES):
        source = tiny.CHECKPOINTS / name
        config = json.loads((source / "config.json").read_text())
        vocab = config.get("text_config", config)["vocab_size"]
        tokens = torch.randint(vocab, [TOKENS], generator=torch.Generator().manual_seed(index)).tolist()
        golden[f"{name}.tokens"] = torch.tensor(tokens)
        golden[f"{name}.f32"] = logits(source, tokens, torch.float32, torch.float32)
        line = f"{name:16} logits std {golden[f'{name}.f32'].std().item():.2f}"
        for short, dtype in DTYPES.items():
            exact = logits(source, tokens, dtype, torch.float32)
            own = logits(source, tokens, dtype, dtype)
            golden[f"{name}.{short}"], golden[f"{name}.{short}.own"] = exact, own
            line += f"  {short}: off by {(own - exact).abs().max().item():.4f}"
        print(line)
    save_file(golden, tiny.GOLDEN / "long.safetensors", {"made_with": tiny.VERSIONS})


if __name__ == "__main__":
    main()
