#!/usr/bin/env python3
"""A GGUF file of architecture llama or qwen2 as a Hugging Face folder, which lariat and transformers read.

    tools/lab/gguf_to_hf.py FILE.gguf OUT_DIR [--dtype f32|bf16|f16]

Needs the Python package gguf, which knows every type of tensor that llama.cpp writes: F32, F16, BF16, Q8_0, Q4_0, Q4_1,
the K-quants. f32 is the default because it holds their values exactly: a Q4_1 value is a product plus an offset and fits
neither f16 nor bf16, which move the logits of SmolLM2-135M by 0.13 % and 0.64 % of the largest. One tensor is in memory
at a time. OUT_DIR appears when it is whole.

llama's rows of q and k, in a GGUF in the order of RoPE's interleaved pairs, are put back (qwen2's never left). "llama3"
scaling is found again from its tensor of divisors. What else changes a model's results is mapped or refused.
"""
import argparse
import json
import math
import os
import shutil
import sys

try:
    import gguf
    import numpy as np
except ImportError as error:
    sys.exit(f"gguf_to_hf: error: {error}; run 'pip install gguf'")

ARCHITECTURES = {"llama": "LlamaForCausalLM", "qwen2": "Qwen2ForCausalLM"}
DTYPES = {"f32": ("F32", "float32", 4), "f16": ("F16", "float16", 2), "bf16": ("BF16", "bfloat16", 2)}
# Keys of a model that computes something else than a plain Llama or Qwen2, and the values with which it does not.
UNMAPPED = {"expert_count": 0, "attention.sliding_window": 0, "attention.scale": 0, "attention.clamp_kqv": 0,
            "logit_scale": 1, "embedding_scale": 1, "residual_scale": 1, "rope.scale_linear": 1,
            "rope.scaling.alpha": 0, "rope.scaling.yarn_ext_factor": 1, "rope.scaling.attn_factor": 1}  # fmt: skip

# tokenizer.ggml.pre -> how text is cut into words, as in the published tokenizer.json files; "default": as llama.cpp
# does where a file does not say.
LLAMA3 = (r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+"
          r"|\s+(?!\S)|\s+")  # fmt: skip
GPT2 = r"'s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+"
WORDS = {"llama-bpe": [LLAMA3], "qwen2": [LLAMA3.replace("{1,3}", "")], "smollm": ["digits", GPT2], "gpt-2": [GPT2],
         "default": [r"[\p{P}\$\+<=>\^~\|]+", GPT2, r"\p{N}+", "[0-9][0-9][0-9]"]}  # fmt: skip
SAME_WORDS = {"llama3": "llama-bpe", "llama-v3": "llama-bpe", "falcon3": "llama-bpe", "smaug-bpe": "llama-bpe",
              "deepseek-r1-qwen": "qwen2", "megrez": "qwen2", "starcoder": "smollm", "minerva-7b": "smollm"}  # fmt: skip
WHOLE_WORDS = ("llama-bpe", "llama3", "llama-v3", "falcon3")  # a word that is a token is that token; BOS comes first
NORMAL, UNKNOWN, CONTROL, USER_DEFINED = 1, 2, 3, 4


class BadFile(Exception):
    pass


class Meta:
    """The key-value pairs of a GGUF."""

    def __init__(self, reader):
        self.fields = reader.fields
        self.arch = self.get("general.architecture", "")
        if self.arch not in ARCHITECTURES:
            raise BadFile(f"architecture '{self.arch}' is not known; {' and '.join(ARCHITECTURES)} are")

    def get(self, key, default=None):
        value = self.fields[key].contents() if key in self.fields else default
        return float(str(np.float32(value))) if isinstance(value, float) else value  # 1e-05, not 9.999999747378752e-06

    def model(self, key, default=None):
        return self.get(f"{self.arch}.{key}", default)

    def need(self, key, kind, default=None):
        value = self.model(key, default)
        if not isinstance(value, kind) or not value > 0:
            raise BadFile(f"{self.arch}.{key} is {'missing' if value is None else f'{value!r:.40}, no number above 0'}")
        return value


def given(values):
    return {name: value for name, value in values.items() if value is not None}


def rope_scaling(meta, tensors, config):
    """-> "rope_scaling" of config.json, or None"""
    kind = meta.model("rope.scaling.type", "linear")  # as llama.cpp reads a file that does not say
    none = kind == "none" or meta.model("rope.scaling.factor", 1.0) == 1.0
    if "rope_freqs.weight" in tensors:
        if not none:
            raise BadFile(f"rope_freqs.weight stands beside a scaling of type '{kind}'; one of them is converted")
        return llama3_scaling(tensors["rope_freqs.weight"], config)
    if none:
        return None
    if kind not in ("linear", "yarn"):
        raise BadFile(f"rope.scaling.type '{kind}' is not known; none, linear and yarn are")
    scaling = {"rope_type": kind, "factor": meta.need("rope.scaling.factor", float)}
    if kind == "yarn":
        scaling["original_max_position_embeddings"] = meta.need("rope.scaling.original_context_length", int)
        names = {"yarn_beta_fast": "beta_fast", "yarn_beta_slow": "beta_slow", "yarn_attn_factor": "attention_factor"}
        scaling |= given({name: meta.model(f"rope.scaling.{key}") for key, name in names.items()})
    return scaling


def llama3_scaling(tensor, config):
    """The parameters of Llama 3.1 and later with which the formula gives this tensor's divisors."""
    divisors = gguf.quants.dequantize(tensor.data, tensor.tensor_type).reshape(-1).astype(np.float64)
    d, factor, low, high, original = config["head_dim"], float(divisors.max()), 1.0, 4.0, 8192
    turns = original * config["rope_theta"] ** (-np.arange(0, d, 2) / d) / (2 * math.pi)
    smooth = np.clip((turns - low) / (high - low), 0, 1)
    if divisors.shape != turns.shape or not np.allclose(divisors, 1 / ((1 - smooth) / factor + smooth), rtol=1e-4):
        raise BadFile("rope_freqs.weight holds other divisors than llama3's of low 1, high 4, original length 8192")
    return {"rope_type": "llama3", "factor": round(factor, 4), "low_freq_factor": low, "high_freq_factor": high,
            "original_max_position_embeddings": original}  # fmt: skip


def make_config(meta, tensors, dtype):
    for key, neutral in UNMAPPED.items():
        if meta.model(key, neutral) != neutral:
            raise BadFile(f"{meta.arch}.{key} is {meta.model(key)!r:.40}, which is not converted")
    if "token_embd.weight" not in tensors:
        raise BadFile("tensor token_embd.weight is missing")
    hidden, heads, layers = (meta.need(k, int) for k in ("embedding_length", "attention.head_count", "block_count"))
    head_dim = meta.need("attention.key_length", int, hidden // heads)
    for key in ("rope.dimension_count", "attention.value_length"):
        if meta.model(key, head_dim) != head_dim:
            raise BadFile(f"{meta.arch}.{key} is {meta.model(key)!r:.40} where a head has {head_dim}")
    config = {
        "architectures": [ARCHITECTURES[meta.arch]], "model_type": meta.arch, "hidden_act": "silu",
        "vocab_size": int(tensors["token_embd.weight"].shape[-1]), "hidden_size": hidden,
        "intermediate_size": meta.need("feed_forward_length", int), "num_hidden_layers": layers,
        "num_attention_heads": heads, "num_key_value_heads": meta.need("attention.head_count_kv", int, heads),
        "head_dim": head_dim, "max_position_embeddings": meta.need("context_length", int),
        "rms_norm_eps": meta.need("attention.layer_norm_rms_epsilon", float),
        "rope_theta": meta.need("rope.freq_base", float, 10000.0), "torch_dtype": DTYPES[dtype][1],
        "tie_word_embeddings": "output.weight" not in tensors,
    }  # fmt: skip
    if meta.arch == "llama":
        config |= {"attention_bias": "blk.0.attn_output.bias" in tensors, "mlp_bias": "blk.0.ffn_down.bias" in tensors}
    config |= given({"rope_scaling": rope_scaling(meta, tensors, config)})
    if layers > len(tensors):
        raise BadFile(f"{layers} layers and {len(tensors)} tensors")
    return config


def plan(config):
    """-> {GGUF's name: (Hugging Face's name, shape, heads with interleaved rows or 0)}"""
    hidden, ffn, vocab = config["hidden_size"], config["intermediate_size"], config["vocab_size"]
    q, kv = (config[key] * config["head_dim"] for key in ("num_attention_heads", "num_key_value_heads"))
    llama, biased, mlp = config["model_type"] == "llama", config.get("attention_bias"), config.get("mlp_bias")
    parts = {"attn_q": ("self_attn.q_proj", q, hidden, biased or not llama),
             "attn_k": ("self_attn.k_proj", kv, hidden, biased or not llama),
             "attn_v": ("self_attn.v_proj", kv, hidden, biased or not llama),
             "attn_output": ("self_attn.o_proj", hidden, q, biased), "ffn_gate": ("mlp.gate_proj", ffn, hidden, mlp),
             "ffn_up": ("mlp.up_proj", ffn, hidden, mlp), "ffn_down": ("mlp.down_proj", hidden, ffn, mlp)}  # fmt: skip
    turned = {"attn_q": config["num_attention_heads"], "attn_k": config["num_key_value_heads"]} if llama else {}
    named = {"token_embd.weight": ("model.embed_tokens.weight", (vocab, hidden), 0),
             "output_norm.weight": ("model.norm.weight", (hidden,), 0)}  # fmt: skip
    if not config["tie_word_embeddings"]:
        named["output.weight"] = ("lm_head.weight", (vocab, hidden), 0)
    for layer in range(config["num_hidden_layers"]):
        theirs, ours = f"blk.{layer}.", f"model.layers.{layer}."
        named[theirs + "attn_norm.weight"] = (ours + "input_layernorm.weight", (hidden,), 0)
        named[theirs + "ffn_norm.weight"] = (ours + "post_attention_layernorm.weight", (hidden,), 0)
        for part, (module, rows, columns, has_bias) in parts.items():
            for kind, shape in (("weight", (rows, columns)), ("bias", (rows,)))[: 2 if has_bias else 1]:
                named[f"{theirs}{part}.{kind}"] = (f"{ours}{module}.{kind}", shape, turned.get(part, 0))
    return named


def check_tensors(tensors, named):
    for name, (_, shape, _) in named.items():
        found = [int(n) for n in reversed(tensors[name].shape)] if name in tensors else "missing"
        if found != list(shape):
            raise BadFile(f"tensor {name} is {found}, expected {list(shape)}")
    for name in tensors.keys() - named.keys() - {"rope_freqs.weight"}:
        raise BadFile(f"tensor {name} has no place in a plain llama or qwen2")


def values(tensor, heads, dtype):
    """The bytes of a tensor as safetensors has them."""
    floats = gguf.quants.dequantize(tensor.data, tensor.tensor_type).astype("<f4", copy=False)
    floats = floats.reshape(tuple(int(n) for n in reversed(tensor.shape)))
    if heads:  # of each head the rows (0, d/2), (1, 1 + d/2), ... back to 0, 1, ... d/2, 1 + d/2, ...
        floats = floats.reshape(heads, -1, 2, *floats.shape[1:]).swapaxes(1, 2).reshape(floats.shape)
    with np.errstate(over="ignore"):
        stored = floats.astype("<f2") if dtype == "f16" else floats
    if not np.isfinite(stored).all():
        raise BadFile(f"tensor {tensor.name} holds infinities or NaN{' as f16; use f32' if dtype == 'f16' else ''}")
    return (gguf.quants.quantize(floats, gguf.GGMLQuantizationType.BF16) if dtype == "bf16" else stored).tobytes()


def write_weights(path, tensors, named, dtype):
    """model.safetensors, one tensor after the other: github.com/huggingface/safetensors, "Format"."""
    header, end = {"__metadata__": {"format": "pt"}}, 0
    for name, shape, _ in named.values():
        begin, end = end, end + math.prod(shape) * DTYPES[dtype][2]
        header[name] = {"dtype": DTYPES[dtype][0], "shape": shape, "data_offsets": [begin, end]}
    text = json.dumps(header).encode()
    text += b" " * (-len(text) % 8)
    if shutil.disk_usage(os.path.dirname(path)).free < end:
        raise OSError(f"{end / 1e9:.2f} GB are needed and not free")
    with open(path, "wb") as file:
        file.write(len(text).to_bytes(8, "little") + text)
        for name, (_, _, heads) in named.items():
            file.write(values(tensors[name], heads, dtype))


def byte_level(meta, bpe):
    """-> what a tokenizer.json of byte-level BPE has; whether texts begin with a BOS where the file does not say"""
    pre = meta.get("tokenizer.ggml.pre", "default")
    patterns = WORDS.get(SAME_WORDS.get(pre, pre))
    if patterns is None:
        raise BadFile(f"tokenizer.ggml.pre '{pre}' is not known; known: {', '.join(sorted({*WORDS, *SAME_WORDS}))}")
    steps = [{"type": "Digits", "individual_digits": True} if pattern == "digits" else
             {"type": "Split", "pattern": {"Regex": pattern}, "behavior": "Isolated", "invert": False}
             for pattern in patterns]  # fmt: skip
    steps.append({"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": True, "use_regex": False})
    bpe.update(ignore_merges=pre in WHOLE_WORDS, merges=meta.get("tokenizer.ggml.merges", []))
    parts = {"normalizer": {"type": "NFC"} if patterns is WORDS["qwen2"] else None,
             "pre_tokenizer": {"type": "Sequence", "pretokenizers": steps},
             "decoder": {"type": "ByteLevel", "add_prefix_space": True, "trim_offsets": True, "use_regex": True}}  # fmt: skip
    return parts, pre in WHOLE_WORDS


def pieces(meta, bpe, tokens, types):
    """The same for SentencePiece's BPE. After a special token too a space comes first, as in llama.cpp.

    Its merges are by score: of two neighbours, the best piece that they make.
    """
    known = {token: i for i, token in enumerate(tokens) if types[i] in (NORMAL, USER_DEFINED)}
    merges = []
    for token, score, kind in zip(tokens, meta.get("tokenizer.ggml.scores"), types, strict=True):
        halves = ((token[:i], token[i:]) for i in range(1, len(token))) if kind == NORMAL else ()
        merges += [(-score, known[a], known[b]) for a, b in halves if a in known and b in known]
    unknown = tokens[meta.get("tokenizer.ggml.unknown_token_id", 0)]
    bpe.update(unk_token=unknown, fuse_unk=True, byte_fallback=True,
               merges=[[tokens[a], tokens[b]] for _, a, b in sorted(merges)])  # fmt: skip
    swap = lambda a, b: {"type": "Replace", "pattern": {"String": a}, "content": b}  # noqa: E731
    prefix = meta.get("tokenizer.ggml.add_space_prefix", True)
    into = [{"type": "Prepend", "prepend": "▁"}] * prefix + [swap(" ", "▁")]
    back = [swap("▁", " "), {"type": "ByteFallback"}, {"type": "Fuse"}]
    back += [{"type": "Strip", "content": " ", "start": 1, "stop": 0}] * prefix
    return {"normalizer": {"type": "Sequence", "normalizers": into}, "pre_tokenizer": None,
            "decoder": {"type": "Sequence", "decoders": back}}, True  # fmt: skip


def make_tokenizer(meta, rows):
    """-> tokenizer.json and tokenizer_config.json"""
    model = meta.get("tokenizer.ggml.model", "none")
    tokens, types = meta.get("tokenizer.ggml.tokens", []), meta.get("tokenizer.ggml.token_type", [])
    if model not in ("gpt2", "llama"):
        raise BadFile(f"tokenizer.ggml.model '{model}' is not known; gpt2 and llama are")
    if not tokens or len(types) != len(tokens) or len(set(tokens)) != len(tokens) or len(tokens) > rows:
        raise BadFile(f"{len(tokens)} tokens ({len(set(tokens))} different), {len(types)} types, {rows} embeddings")
    ids = {key[:3]: meta.get(f"tokenizer.ggml.{key}_token_id") for key in ("bos", "eos", "unknown", "padding")}
    special = {f"{name}_token": tokens[i] for name, i in ids.items() if i is not None}
    bpe = {"type": "BPE", "vocab": {token: i for i, token in enumerate(tokens)}}
    parts, bos_first = byte_level(meta, bpe) if model == "gpt2" else pieces(meta, bpe, tokens, types)
    post = None
    if meta.get("tokenizer.ggml.add_bos_token", bos_first) and ids["bos"] is not None:
        bos, text = special["bos_token"], {"Sequence": {"id": "A", "type_id": 0}}
        post = {"type": "TemplateProcessing", "pair": [text],
                "single": [{"SpecialToken": {"id": bos, "type_id": 0}}, text],
                "special_tokens": {bos: {"id": bos, "ids": [ids["bos"]], "tokens": [bos]}}}  # fmt: skip
    added = [{"id": i, "content": token, "single_word": False, "lstrip": False, "rstrip": False, "normalized": False,
              "special": kind != USER_DEFINED}
             for i, (token, kind) in enumerate(zip(tokens, types)) if kind in (UNKNOWN, CONTROL, USER_DEFINED)]
    tokenizer = {"version": "1.0", "truncation": None, "padding": None, "added_tokens": added, **parts,
                 "post_processor": post, "model": bpe}  # fmt: skip
    settings = {"tokenizer_class": "PreTrainedTokenizerFast", "clean_up_tokenization_spaces": False,
                "model_max_length": meta.need("context_length", int), **special,
                "chat_template": meta.get("tokenizer.chat_template")}  # fmt: skip
    return tokenizer, given(settings)


def convert(path, folder, dtype):
    reader = gguf.GGUFReader(path)
    meta, tensors = Meta(reader), {tensor.name: tensor for tensor in reader.tensors}
    config = make_config(meta, tensors, dtype)
    named = plan(config)
    check_tensors(tensors, named)
    tokenizer, settings = make_tokenizer(meta, config["vocab_size"])
    token = {key: meta.get(f"tokenizer.ggml.{key}_token_id") for key in ("bos", "padding", "eos", "eot", "eom")}
    stops = sorted({token[key] for key in ("eos", "eot", "eom")} - {None})
    ends = given({"bos_token_id": token["bos"], "pad_token_id": token["padding"],
                  "eos_token_id": stops[0] if len(stops) == 1 else stops or None})  # fmt: skip
    files = {"config": config | ends, "generation_config": ends, "tokenizer": tokenizer, "tokenizer_config": settings}
    for name, content in files.items():
        with open(os.path.join(folder, f"{name}.json"), "w", encoding="utf-8") as file:
            json.dump(content, file, ensure_ascii=False, indent=2)
    write_weights(os.path.join(folder, "model.safetensors"), tensors, named, dtype)
    return len(named)


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("file")
    parser.add_argument("out_dir")
    parser.add_argument("--dtype", choices=DTYPES, default="f32", help="of the weights written (default: %(default)s)")
    args = parser.parse_args()
    out = os.path.abspath(args.out_dir)
    if os.path.exists(out):
        sys.exit(f"gguf_to_hf: error: {args.out_dir}: exists already; remove it or name another folder")
    part = f"{out}.part-{os.getpid()}"
    try:
        os.mkdir(part)
        count = convert(args.file, part, args.dtype)
        os.rename(part, out)
    except BadFile as error:
        sys.exit(f"gguf_to_hf: error: {args.file}: {error}")
    except OSError as error:
        sys.exit(f"gguf_to_hf: error: {error.filename or args.out_dir}: {error.strerror or error}")
    except Exception as error:  # the package has no error of its own for a file that is cut off or hostile
        sys.exit(f"gguf_to_hf: error: {args.file}: not a whole GGUF as llama.cpp writes it: {type(error).__name__}: {error}")
    finally:
        shutil.rmtree(part, ignore_errors=True)
    print(f"{args.out_dir}: {count} tensors as {args.dtype}")


if __name__ == "__main__":
    main()
