#!/usr/bin/env python3
"""Compares position methods with their authors' code: logits of a random model, token by token, as a Markdown table.

    mkdir theirs && cd theirs       # in brackets: the commits of the table in docs/context-extension.md
    git clone https://github.com/datamllab/LongLM               # cdbbb06
    git clone https://github.com/HKUNLP/ChunkLlama              # 2add4d7
    git clone https://github.com/HKUNLP/STRING                  # 216cc2f
    git clone https://github.com/bojone/rerope                  # acfe788
    git clone https://github.com/mit-han-lab/streaming-llm      # 2e50426
    git clone https://github.com/Glaciohound/LM-Infinite        # a0ce64c
    git clone https://github.com/jet-ai-projects/Jet-Long       # 3262969
    tools/lab/peers/methods_published.py --lariat build/lariat --checkouts theirs

The unmodified attention forwards (and cache classes) of these checkouts run in float32 on a CPU, between the norms and MLPs of
transformers' Llama (Jet-Long: Qwen3). Stubs replace missing imports: flash-attn by its definition in PyTorch, the rotary embedding
of transformers 4 (angles in double here), names that transformers 5 moved or removed. Fails unless they agree with lariat to 1e-5
of the largest logit, or differ where a reason is given; "one off" is the same comparison with lariat's window one larger. Needs
torch and transformers 5.
"""
import argparse
import contextlib
import importlib
import io
import math
import re
import subprocess
import sys
import tempfile
import types
from pathlib import Path
from typing import NamedTuple, Optional, Tuple

import torch
import torch.nn.functional as F
from safetensors.torch import load_file
from transformers import DynamicCache, LlamaConfig, LlamaForCausalLM, Qwen3Config, Qwen3ForCausalLM
from transformers.models.llama import modeling_llama
from transformers.models.mistral import modeling_mistral

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
import pages  # noqa: E402

CHECKOUTS = ["LongLM", "ChunkLlama", "STRING", "rerope", "streaming-llm", "LM-Infinite", "Jet-Long"]
TRAINED, TOKENS, PROMPT, THETA, HEAD_DIM = 128, 400, 30, 10000.0, 16
TOLERANCE = 1e-5


def flash(q, k, v, dropout=0.0, softmax_scale=None, causal=False, window_size=(-1, -1), return_attn_probs=False):
    """flash_attn_func on [batch, tokens, heads, head_dim]; the last query has the last key's position."""
    k, v = (x.repeat_interleave(q.shape[2] // x.shape[2], 2) for x in (k, v))
    scores = torch.einsum("bihd,bjhd->bhij", q, k) * (softmax_scale or q.shape[-1] ** -0.5)
    distance = torch.arange(k.shape[1] - q.shape[1], k.shape[1])[:, None] - torch.arange(k.shape[1])
    unseen = (distance < 0) & causal
    if window_size[0] >= 0:
        unseen |= distance > window_size[0]
    scores = scores.masked_fill(unseen, -math.inf)
    out = torch.einsum("bhij,bjhd->bihd", scores.softmax(-1), v)
    return (out, scores.logsumexp(-1), None) if return_attn_probs else out


class Rotary(torch.nn.Module):
    """LlamaRotaryEmbedding of transformers 4: for positions, or the first seq_len in a shape with two more ones."""

    def __init__(self, slower=1):
        super().__init__()
        self.slower = slower
        self.inv_freq = THETA ** (-torch.arange(0, HEAD_DIM, 2).double() / HEAD_DIM)

    def forward(self, x, position_ids=None, seq_len=None):
        if position_ids is None:
            position_ids = torch.arange(seq_len)[None, None]
        angles = position_ids[..., None].double() / self.slower * self.inv_freq.double()
        angles = torch.cat((angles, angles), -1)
        return angles.cos().to(x.dtype), angles.sin().to(x.dtype)


def flash_forward(q, k, v, *, softmax_scale, causal, window_size_left, window_size_right, **_):
    out, lse, _ = flash(q, k, v, 0, softmax_scale, causal, (window_size_left, window_size_right), True)
    return out, lse, None, None


def stand_in(name, **names):
    module = types.ModuleType(name)
    vars(module).update(names)
    sys.modules[name] = module


def prepare(checkouts):
    """Stubs for the imports of the checkouts."""
    for name in CHECKOUTS:
        if not (checkouts / name).is_dir():
            sys.exit(f"methods_published: error: {checkouts / name}: no such checkout; clone it as --help says")
        sys.path.append(str(checkouts / name))
    # Its __init__ needs other models' files.
    stand_in("self_extend_patch", __path__=[str(checkouts / "LongLM/self_extend_patch")])
    stand_in("flash_attn", flash_attn_func=flash, flash_attn_varlen_func=None, flash_attn_with_kvcache=None)
    stand_in("flash_attn.flash_attn_interface", flash_attn_func=flash, flash_attn_qkvpacked_func=None,
             _flash_attn_forward=flash_forward, _flash_attn_varlen_forward=None)
    stand_in("flash_attn.bert_padding", unpad_input=None, pad_input=None)
    sys.path += [str(checkouts / "Jet-Long/jetlm/modeling" / name) for name in ("jetlong", "jetlong_freq")]
    stand_in("flash_attn.losses.cross_entropy", CrossEntropyLoss=None)
    stand_in("flash_attn_2_cuda", fwd_kvcache=lambda q, k, v, *_: flash(q, k, v, return_attn_probs=True)[:2])
    # "import *" provided these before __all__ existed.
    del modeling_llama.__all__
    vars(modeling_llama).update(math=math, F=F, Optional=Optional, Tuple=Tuple)
    modeling_llama.LlamaFlashAttention2 = modeling_mistral.MistralFlashAttention2 = type("Absent", (), {})
    DynamicCache.get_usable_length = lambda self, new, layer: self.get_seq_length(layer)


def make_model(folder, kv_heads, configuration=LlamaConfig, architecture=LlamaForCausalLM):
    config = configuration(hidden_size=4 * HEAD_DIM, intermediate_size=128, num_hidden_layers=2, num_attention_heads=4,
                           num_key_value_heads=kv_heads, vocab_size=256, max_position_embeddings=TRAINED, head_dim=HEAD_DIM,
                           rope_parameters={"rope_type": "default", "rope_theta": THETA})  # fmt: skip
    model = architecture(config).eval()
    for parameter in model.parameters():
        if parameter.dim() > 1:
            torch.nn.init.normal_(parameter, std=0.2)  # scores of about 2.6: positions matter
    model.save_pretrained(folder)
    config.pretraining_tp = 1
    for layer in model.model.layers:
        vars(layer.self_attn).update(num_heads=4, num_key_value_heads=kv_heads, hidden_size=config.hidden_size,
                                     pretraining_tp=1)
    return model


def set_rotary(model, make, name="rotary_emb"):
    for layer in model.model.layers:
        setattr(layer.self_attn, name, make())


# Each returns attend(attention, x, positions, mask) -> x for one text.


def self_extend(model, group, window, file="Llama"):
    theirs = importlib.import_module(f"self_extend_patch.{file}")
    cache = DynamicCache()
    set_rotary(model, Rotary)
    return lambda attention, x, positions, mask: theirs.self_extend_forward(
        attention, x, mask, positions, cache, group_size_1=group, group_size_2=window)[0]


def dca(model, pretraining, local_window, limit=TOKENS, merge=torch.bfloat16):
    theirs = importlib.import_module("chunkllama_attn_replace")
    theirs.replace_with_chunkllama(pretraining, local_window)
    theirs.torch = types.SimpleNamespace(**{**vars(torch), "bfloat16": merge})
    cache = DynamicCache()
    set_rotary(model, lambda: theirs.ChunkLlamaRotaryEmbedding(HEAD_DIM, limit, THETA))
    return lambda attention, x, positions, mask: theirs.forward(attention, x, None, positions, cache)[0]


def string(model, shift, window, narrower=0, double=True):
    theirs = importlib.import_module("string_for_llama")
    theirs.replace_with_string(TOKENS, shift, window)
    theirs.flash_attn_func = lambda *args, window_size, **rest: flash(
        *args, window_size=[n - narrower if n > 0 else n for n in window_size], **rest)
    caches = theirs.allocate_inference_cache(1, TOKENS, model.config.num_key_value_heads, HEAD_DIM, model.model.layers,
                                             torch.float32)

    def rotary():
        own = theirs.RotaryEmbedding(HEAD_DIM, TOKENS, THETA)
        if double:
            own.inv_freq = Rotary().inv_freq
            own._set_cos_sin_cache(TOKENS, "cpu", torch.float32)
        return own

    set_rotary(model, rotary)
    return lambda attention, x, positions, mask: theirs.forward(
        attention, x, None, positions, caches[attention.layer_idx])[0]


def rerope(model, window, k=None):
    theirs = importlib.import_module("leaky_rerope_patch" if k else "rerope_patch")
    theirs.training_length, theirs.window, theirs.scaling_factor, pasts = TRAINED, window, k, {}
    forward = theirs.forward_with_leaky_rerope if k else theirs.forward_with_rerope
    set_rotary(model, Rotary)
    set_rotary(model, lambda: Rotary(k), "rotary_emb2")

    def attend(attention, x, positions, mask):
        out, _, pasts[attention] = forward(attention, x, mask, positions, pasts.get(attention), use_cache=True)
        return out

    return attend


def sinks(model, start, recent):
    theirs = importlib.import_module("streaming_llm.pos_shift.modify_llama")
    evict, pasts = importlib.import_module("streaming_llm.kv_cache").StartRecentKVCache(start, recent), {}
    set_rotary(model, Rotary)

    def attend(attention, x, positions, mask):
        past = pasts.get(attention)
        place = torch.tensor([[past[0].shape[2] if past else 0]])  # number of cached tokens
        out, _, past = theirs.llama_pos_shift_attention_forward(attention, x, None, place, past, use_cache=True)
        pasts[attention] = evict([past])[0]
        return out

    return attend


def lm_infinite(model, sinks, window):
    importlib.import_module("models.llama").convert_llama_model(model, window, sinks)
    cache = DynamicCache()
    set_rotary(model, Rotary)
    return lambda attention, x, positions, mask: attention.forward(x, position_ids=positions, past_key_value=cache)[0]


def jet_long(model, window, file="jetlong", name="JetLong"):
    theirs = importlib.import_module(f"modeling_qwen3_{file}")
    setattr(model.config, file, {"w": TRAINED, "w_0": window})
    rotary, cache, own = getattr(theirs, f"Qwen3{name}RotaryEmbedding")(model.config), DynamicCache(), {}
    for i, layer in enumerate(model.model.layers):
        own[layer.self_attn] = getattr(theirs, f"Qwen3{name}Attention")(model.config, i)
        own[layer.self_attn].load_state_dict(layer.self_attn.state_dict())
    return lambda attention, x, positions, mask: own[attention](
        x, rotary(x, positions), mask, cache, positions[0])[0]


@torch.inference_mode()
def run_theirs(model, tokens, first, attend):
    """Logits of a prefill of the first tokens and decoding of the others."""
    logits = []
    for begin, end in [(0, first), *((i, i + 1) for i in range(first, len(tokens)))]:
        x = model.model.embed_tokens(torch.tensor([tokens[begin:end]]))
        mask = torch.full((1, 1, end - begin, end), torch.finfo(x.dtype).min).triu(begin + 1)
        for layer in model.model.layers:
            x = x + attend(layer.self_attn, layer.input_layernorm(x), torch.arange(begin, end)[None], mask)
            x = x + layer.mlp(layer.post_attention_layernorm(x))
        logits.append(model.lm_head(model.model.norm(x))[0])
    return torch.cat(logits)


def run_ours(args, folder, tokens, first, method):
    out = Path(folder).parent / "logits.safetensors"
    command = [args.lariat, "logits", "--model", folder, "--tokens", ",".join(map(str, tokens)), "--out", out, "--quiet",
               "--device", "cpu", "--dtype", "f32", "--kv-dtype", "f32", "--position-method", method]
    command += ["--decode-from", first] if first < len(tokens) else []
    command += ["--rope-steps", "exact"] if method.startswith("jet-long") else []
    subprocess.run(list(map(str, command)), check=True)
    return load_file(out)["logits"]


class Row(NamedTuple):
    code: str
    first: int
    attend: object
    method: str
    reason: str = ""  # of an expected difference
    tokens: int = TOKENS


def rows():
    factor = f"/temperature={(1 + 0.1 * math.log(2)) ** 2:.9g}"
    grown = f"/temperature={(1 + 0.05 * math.log(TOKENS / TRAINED)) ** 2:.9g}"
    whole, wide = TOKENS, {"merge": torch.float32}
    extended, chunked, shifted = "self-extend/group=4/window=", "dca/chunk=80/window=17", "string/shift=70/window=16"
    for first in (whole, PROMPT):
        yield Row("LongLM, Llama.py, G = 4, w = 48", first, lambda m: self_extend(m, 4, 48), extended + "48")
    yield Row("LongLM, Llama.py, G = 4, w = 50", whole, lambda m: self_extend(m, 4, 50), extended + "50",
              "moved by 50 − 50/4, without the floor")
    yield Row("LongLM, Llama_4_40.py, G = 4, w = 50", whole, lambda m: self_extend(m, 4, 50, "Llama_4_40"),
              extended + "50")
    yield Row("ChunkLlama, chunk_size 96, local_window 16", PROMPT, lambda m: dca(m, 128, 16), chunked)
    yield Row("ChunkLlama, 96, 16", whole, lambda m: dca(m, 128, 16), chunked, "merges ranges with weights in bf16")
    yield Row("ChunkLlama, 96, 16, merged in f32", whole, lambda m: dca(m, 128, 16, **wide), chunked)
    yield Row(f"the same beyond its config's {TRAINED}", whole, lambda m: dca(m, 128, 16, TRAINED, **wide),
              chunked + grown)
    yield Row("STRING, S = 70, W = 16", 69, lambda m: string(m, 70, 16, double=False), shifted + factor,
              "angles in f32")
    yield Row("STRING, 70, 16, angles in double", 69, lambda m: string(m, 70, 16), shifted + factor)
    yield Row("the same", 69, lambda m: string(m, 70, 16), shifted, "(1 + 0.1 ln 2)² on all its logits")
    yield Row("the same", whole, lambda m: string(m, 70, 16), shifted + factor, "the key at d = 70 counted twice")
    yield Row("the same, that key once", whole, lambda m: string(m, 70, 16, 1), shifted + factor)
    for first in (whole, PROMPT):
        yield Row("rerope_patch.py, w = 50", first, lambda m: rerope(m, 50), "rerope/window=50/temperature=log")
        yield Row("leaky_rerope_patch.py, w = 50, k = 8", first, lambda m: rerope(m, 50, 8),
                  "rerope/window=50/k=8/temperature=log")
    yield Row("streaming-llm, 4 + 60", 1, lambda m: sinks(m, 4, 60), "sinks/sinks=4/window=61")
    for first in (1, whole):
        yield Row("LM-Infinite, L = 64, 10 sinks", first, lambda m: lm_infinite(m, 10, 64),
                  "lm-infinite/sinks=10/window=64")
    for n, first in ((TRAINED, TRAINED), (TRAINED + 1, TRAINED + 1), (whole, whole), (whole, PROMPT)):
        yield Row(f"Jet-Long, w_0 = 50, {n} tokens", first, lambda m: jet_long(m, 50), "jet-long/window=50", tokens=n)
        yield Row(f"Jet-Long-Freq, w_0 = 50, {n} tokens", first, lambda m: jet_long(m, 50, "jetlong_freq", "JetLongFreq"),
                  "jet-long-freq/window=50", tokens=n)


def difference(a, b):
    return ((a - b).abs().max() / b.abs().max()).item()


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--lariat", required=True, help="our program")
    parser.add_argument("--checkouts", required=True, type=Path, help="folder of the seven clones")
    args = parser.parse_args()
    torch.manual_seed(1)
    tokens = torch.randint(0, 256, (TOKENS,)).tolist()
    table, failed = [], []
    with tempfile.TemporaryDirectory() as folder:
        models = {kv_heads: (make_model(f"{folder}/{kv_heads}", kv_heads), f"{folder}/{kv_heads}") for kv_heads in (2, 4)}
        qwen = make_model(f"{folder}/qwen", 2, Qwen3Config, Qwen3ForCausalLM), f"{folder}/qwen"
        prepare(args.checkouts)
        for row in rows():
            model, files = models[4 if row.method.startswith("lm-infinite") else 2]  # LM-Infinite has no grouped heads
            model, files = qwen if row.method.startswith("jet-long") else (model, files)
            text = tokens[:row.tokens]
            with contextlib.redirect_stdout(io.StringIO()):
                reference = run_theirs(model, text, row.first, row.attend(model))
            logits = run_ours(args, files, text, row.first, row.method)
            larger = re.sub(r"window=(\d+)", lambda m: f"window={int(m[1]) + 1}", row.method)
            ratio = difference(logits, reference)
            off = difference(run_ours(args, files, text, row.first, larger), reference)
            equal = (logits.argmax(-1) == reference.argmax(-1)).sum().item()
            how = "whole" if row.first == row.tokens else "one by one" if row.first == 1 else f"{row.first}, then one by one"
            table.append([row.code, how, f"`{row.method}`", f"{ratio:.1e}", f"{equal} of {row.tokens}", f"{off:.1e}",
                          row.reason])
            if (ratio > TOLERANCE) != bool(row.reason) or (row.tokens > TRAINED and off < 10 * TOLERANCE):
                failed.append(row.code)
    print(pages.table(["authors' code", "read", "here", "difference", "likeliest equal", "one off", "differs by"], table))
    sys.exit(f"methods_published: not as expected: {', '.join(failed)}" if failed else 0)


if __name__ == "__main__":
    main()
