"""Tiny checkpoints of tests/golden as GGUF files of every type, converted back by tools/lab/gguf_to_hf.py.

    python tests/tools/gguf_round_trip.py DIR    # for gguf_test.cpp, which runs lariat on the folders it leaves in DIR

Fails where a tensor is not what the gguf package's own rounding leaves of the checkpoint's. The GGUF is written as
llama.cpp's convert_hf_to_gguf.py does it: names by gguf's own table, rows of q and k interleaved (llama only).
"""
import json
import math
import subprocess
import sys
from pathlib import Path

import gguf
import numpy as np
from safetensors.numpy import load_file

ROOT = Path(__file__).resolve().parents[2]
GOLDEN = ROOT / "tests/golden"
ARCHES = {"llama": gguf.MODEL_ARCH.LLAMA, "qwen2": gguf.MODEL_ARCH.QWEN2}
TYPES = ("F32", "F16", "BF16", "Q8_0", "Q4_0", "Q4_1")
NO_TOKENIZER = {"model": "gpt2", "pre": "gpt-2", "tokens": ["a", "b", "ab"], "token_type": [1, 1, 1], "merges": ["a b"]}


def interleave(rows, heads):
    return rows.reshape(heads, 2, rows.shape[0] // heads // 2, *rows.shape[1:]).swapaxes(1, 2).reshape(rows.shape)


def write_gguf(path, config, weights, kind, tokenizer, scaling=()):
    arch = config["model_type"]
    writer, names = gguf.GGUFWriter(path, arch), gguf.get_tensor_name_map(ARCHES[arch], config["num_hidden_layers"])
    theta = config.get("rope_theta") or config["rope_parameters"]["rope_theta"]
    head_dim = config.get("head_dim", config["hidden_size"] // config["num_attention_heads"])
    writer.add_block_count(config["num_hidden_layers"])
    writer.add_context_length(config["max_position_embeddings"])
    writer.add_embedding_length(config["hidden_size"])
    writer.add_feed_forward_length(config["intermediate_size"])
    writer.add_head_count(config["num_attention_heads"])
    writer.add_head_count_kv(config["num_key_value_heads"])
    writer.add_key_length(head_dim)
    writer.add_layer_norm_rms_eps(config["rms_norm_eps"])
    writer.add_rope_freq_base(theta)
    for key, value in dict(scaling).items():
        (writer.add_string if isinstance(value, str) else writer.add_float32 if isinstance(value, float)
         else writer.add_uint32)(f"{arch}.rope.scaling.{key}", value)  # fmt: skip
    for key, value in tokenizer.items():
        add = {list: writer.add_array, str: writer.add_string, bool: writer.add_bool, int: writer.add_uint32}[type(value)]
        add(f"tokenizer.ggml.{key}", value)
    writer.add_chat_template("{{ messages[0]['content'] }}")
    for name, tensor in weights.items():
        heads = {"q_proj": "num_attention_heads", "k_proj": "num_key_value_heads"}.get(name.split(".")[-2])
        if heads and arch == "llama":
            tensor = interleave(tensor, config[heads])
        kind_here = gguf.GGMLQuantizationType["F32" if tensor.ndim == 1 else kind]
        data = gguf.quants.quantize(tensor, kind_here)
        writer.add_tensor(names.get_name(name, (".weight", ".bias")) or name, data, raw_dtype=kind_here)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()


def convert(path, *options):
    folder = path.with_suffix("")
    command = [sys.executable, str(ROOT / "tools/lab/gguf_to_hf.py"), str(path), str(folder), *options]
    done = subprocess.run(command, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return folder


def refused(path, part):
    done = subprocess.run([sys.executable, str(ROOT / "tools/lab/gguf_to_hf.py"), str(path), str(path) + ".out"],
                          capture_output=True, text=True)  # fmt: skip
    assert done.returncode == 1 and done.stderr.count("\n") == 1 and part in done.stderr, (part, done.stderr)
    assert str(path) in done.stderr and not list(path.parent.glob(path.name + ".out*")), done.stderr


def checkpoint(name):
    folder = GOLDEN / "checkpoints" / name
    weights = {key: value.astype(np.float32) for key, value in load_file(folder / "model.safetensors").items()}
    return json.loads((folder / "config.json").read_text()), weights


def check_weights(out):
    for name in ("llama_gqa", "llama_mqa_tied", "llama_bias", "qwen2"):
        config, weights = checkpoint(name)
        scaling = {"type": "linear", "factor": 2.0} if name == "llama_bias" else {}
        for kind in TYPES if name in ("llama_gqa", "qwen2") else TYPES[:1]:
            path = out / f"{name}-{kind}.gguf"
            write_gguf(path, config, weights, kind, NO_TOKENIZER, scaling)
            found = load_file(convert(path) / "model.safetensors")
            assert found.keys() == weights.keys(), found.keys() ^ weights.keys()
            for key, tensor in weights.items():
                rounding = gguf.GGMLQuantizationType["F32" if tensor.ndim == 1 else kind]
                want = gguf.quants.dequantize(gguf.quants.quantize(tensor, rounding), rounding)
                assert np.array_equal(found[key], want), (path, key)
    half = load_file(convert(out.joinpath("llama_gqa-F16.gguf").rename(out / "half.gguf"), "--dtype", "f16") / "model.safetensors")
    weights = checkpoint("llama_gqa")[1]
    assert all(half[key].dtype == np.float16 and np.array_equal(half[key], weights[key].astype(np.float16)) for key in half)


def check_scaling(out):
    """yarn's keys, and llama3's parameters from its tensor of divisors."""
    config, weights = checkpoint("llama_gqa")
    yarn = {"type": "yarn", "factor": 4.0, "original_context_length": 32, "yarn_beta_fast": 16.0}
    write_gguf(out / "yarn.gguf", config, weights, "F32", NO_TOKENIZER, yarn)
    found = json.loads((convert(out / "yarn.gguf") / "config.json").read_text())["rope_scaling"]
    assert found == {"rope_type": "yarn", "factor": 4.0, "original_max_position_embeddings": 32, "beta_fast": 16.0}, found
    config["rope_theta"] = 500000.0
    divisors = []
    for i in range(0, config["head_dim"], 2):
        wavelength = 2 * math.pi * config["rope_theta"] ** (i / config["head_dim"])
        smooth = (8192 / wavelength - 1) / 3
        divisors.append(1 if wavelength < 2048 else 32 if wavelength > 8192 else 1 / ((1 - smooth) / 32 + smooth))
    assert any(1 < divisor < 32 for divisor in divisors)
    weights["rope_freqs.weight"] = np.array(divisors, np.float32)
    write_gguf(out / "llama3.gguf", config, weights, "F32", NO_TOKENIZER)
    found = json.loads((convert(out / "llama3.gguf") / "config.json").read_text())["rope_scaling"]
    assert found == {"rope_type": "llama3", "factor": 32.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0,
                     "original_max_position_embeddings": 8192}, found  # fmt: skip
    weights["rope_freqs.weight"][3] *= 1.01
    write_gguf(out / "odd.gguf", config, weights, "F32", NO_TOKENIZER)
    refused(out / "odd.gguf", "rope_freqs.weight")


def check_tokenizers(out):
    """The words, merges and special tokens of the tiny tokenizers; gguf_test.cpp compares ids."""
    config, weights = checkpoint("llama_mqa_tied")
    for name, pre in (("llama3-mini", "llama-bpe"), ("qwen-mini", "qwen2"), ("llama-mini", None)):
        source = json.loads((GOLDEN / f"tokenizers/{name}/tokenizer.json").read_text())
        bpe, added = source["model"], {token["content"]: token for token in source["added_tokens"]}
        ids = bpe["vocab"] | {content: token["id"] for content, token in added.items()}
        tokens = sorted(ids, key=ids.get)
        types = [1 if token not in added else 3 if added[token]["special"] else 4 for token in tokens]
        merges = [merge if isinstance(merge, str) else " ".join(merge) for merge in bpe["merges"]]
        tokenizer = {"model": "gpt2" if pre else "llama", "pre": pre or "default", "tokens": tokens, "token_type": types,
                     "eos_token_id": ids["<|im_end|>"] if pre == "qwen2" else ids["<|eot_id|>"] if pre else 2}  # fmt: skip
        if pre:
            tokenizer |= {"merges": merges}
            tokenizer |= {"bos_token_id": ids["<|begin_of_text|>"]} if pre == "llama-bpe" else {}
        else:  # scores as SentencePiece has them: the earlier a piece was made, the better
            made = {merge.replace(" ", ""): -float(rank) for rank, merge in reversed(list(enumerate(merges)))}
            types[0], types[3 : 3 + 256] = 2, [6] * 256
            tokenizer |= {"scores": [made.get(token, -1e6) for token in tokens], "bos_token_id": 1, "unknown_token_id": 0}
        weights["model.embed_tokens.weight"] = np.resize(weights["model.embed_tokens.weight"], (len(tokens), 32))
        write_gguf(out / f"{name}.gguf", config, weights, "F32", tokenizer)
        found = json.loads((convert(out / f"{name}.gguf") / "tokenizer.json").read_text())
        for key in ("normalizer", "pre_tokenizer"):
            assert found[key] == source[key], (name, key, found[key])
        assert pre or found["decoder"] == source["decoder"], found["decoder"]
        settings = json.loads((out / name / "tokenizer_config.json").read_text())
        assert settings["chat_template"] and settings["eos_token"] == tokens[tokenizer["eos_token_id"]], settings


def check_refusals(out):
    config, weights = checkpoint("llama_gqa")
    whole = (out / "llama_gqa-F32.gguf").read_bytes()
    (out / "text.gguf").write_text("no GGUF at all\n" * 100)
    refused(out / "text.gguf", "not a whole GGUF")
    for length in (0, 3, 20, 200, 1000, 3000, len(whole) - 1):
        (out / "cut.gguf").write_bytes(whole[:length])
        refused(out / "cut.gguf", "not a whole GGUF")
    (out / "arch.gguf").write_bytes(whole.replace(b"llama", b"lumma"))
    refused(out / "arch.gguf", "architecture 'lumma' is not known")
    (out / "name.gguf").write_bytes(whole.replace(b"blk.1.ffn_up", b"blk.1.ffn_xx"))
    refused(out / "name.gguf", "blk.1.ffn_up.weight is missing")
    for tokenizer, part in (({"pre": "nobody's"}, "nobody's"), ({"model": "t5"}, "'t5'"), ({"token_type": [1]}, "1 types"),
                            ({"model": "llama"}, "not a whole GGUF as"), ({"eos_token_id": 99}, "not a whole GGUF as")):  # fmt: skip
        write_gguf(out / "tok.gguf", config, weights, "F32", NO_TOKENIZER | tokenizer)
        refused(out / "tok.gguf", part)
    write_gguf(out / "scaling.gguf", config, weights, "F32", NO_TOKENIZER, {"type": "longrope", "factor": 2.0})
    refused(out / "scaling.gguf", "longrope")
    weights["model.layers.0.mlp.up_proj.weight"][0, 0] = np.inf
    write_gguf(out / "inf.gguf", config, weights, "F32", NO_TOKENIZER)
    refused(out / "inf.gguf", "infinities")
    weights["model.layers.0.mlp.up_proj.weight"] = weights["model.layers.0.mlp.up_proj.weight"][:-1]
    write_gguf(out / "shape.gguf", config, weights, "F32", NO_TOKENIZER)
    refused(out / "shape.gguf", "blk.0.ffn_up.weight is [63, 32], expected [64, 32]")
    (out / "text").mkdir()
    done = subprocess.run([sys.executable, str(ROOT / "tools/lab/gguf_to_hf.py"), str(out / "text.gguf"), str(out / "text")],
                          capture_output=True, text=True)  # fmt: skip
    assert done.returncode == 1 and "exists already" in done.stderr


if __name__ == "__main__":
    directory = Path(sys.argv[1])
    for check in (check_weights, check_scaling, check_tokenizers, check_refusals):
        check(directory)
