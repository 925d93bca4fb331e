#!/usr/bin/env python3
"""Prints the part of docs/checkpoints.md about the keys of a tokenizer's files; checkpoints_table.py calls it.

    tools/lab/tables/tokenizer_keys_table.py build/lariat [FOLDER_OF_TOKENIZERS]

Each row is two runs of `lariat tokenize`, with and without the key, beside a small tokenizer of tests/golden: a key
that makes an error is refused, one that makes a line on stderr is warned of, one that changes ids is heeded, and any
other is harmless. Keys of the folder's files that no row has get rows of their own. Needs no package.
"""

import json
import pathlib
import re
import subprocess
import sys
import tempfile

ROOT = pathlib.Path(__file__).resolve().parents[3]
GOLDEN = ROOT / "tests" / "golden" / "tokenizers"
TEXT = "The  river</s> er<s>the [word] of<|im_end|> boats"
CONFIG, MAP, ADDED, VOCABULARY = "tokenizer_config.json", "special_tokens_map.json", "added_tokens.json", "tokenizer.json"
LLAMA = {"tokenizer_class": "LlamaTokenizer"}
DECODER = {"added_tokens_decoder": {"2": {"content": "<|im_end|>", "special": True}}}
BEGINS = json.loads((GOLDEN / "llama-mini" / VOCABULARY).read_text())["post_processor"]
ENDS = BEGINS | {
    "single": [*BEGINS["single"], {"SpecialToken": {"id": "</s>", "type_id": 0}}],
    "special_tokens": BEGINS["special_tokens"] | {"</s>": {"id": "</s>", "ids": [2], "tokens": ["</s>"]}},
}
INTRODUCTION = """
## Keys of a tokenizer's files

Each row is the program's own (`tools/lab/tables/tokenizer_keys_table.py build/lariat ../shared/tokenizers`): a key that
changes ids is *heeded*; *harmless* ones change none. *Beside* is what the row was tried with: a tokenizer.json or a
tokenizer.model, and other keys of tokenizer_config.json. `image_token` stands for any key that ends so. Where that
file has `added_tokens_decoder`, special_tokens_map.json and added_tokens.json do not count, as in transformers. What
tokenizer.json stores of truncation and padding is ignored: whoever encodes decides that. An EOS that a post-processor
or `add_eos_token` puts behind a text is left out, as a prompt is to be continued, and said once per run.

Ids of a tokenizer.json are those of HF tokenizers reading it. A tokenizer.model is read as transformers 5's
LlamaTokenizer reads it (a space in front of the first text alone) where `legacy` is false, or is not there and
`tokenizer_class` is LlamaTokenizer; else SentencePiece reads each section between special tokens, with a space in
front (transformers 4's slow LlamaTokenizer). BOS goes in front where `add_bos_token` is not there, as in transformers
4.
"""
# fmt: off
# (file, key, value, tokenizer, other keys of tokenizer_config.json)
ROWS = [
    (CONFIG, "bos_token", "</s>", "sp-mini", {}),
    *((CONFIG, key, "er", "byte-mini", {}) for key in
      "eos_token unk_token sep_token pad_token cls_token mask_token image_token".split()),
    (CONFIG, "pad_token", "<pad>", "byte-mini", {}),
    (CONFIG, "eos_token", 2, "byte-mini", {}),
    (CONFIG, "additional_special_tokens", ["er"], "byte-mini", {}),
    (CONFIG, "extra_special_tokens", {"name": "er"}, "byte-mini", {}),
    (CONFIG, "added_tokens_decoder", {"272": {"content": "er"}}, "byte-mini", {}),
    (CONFIG, "split_special_tokens", True, "byte-mini", {}),
    (CONFIG, "tokenizer_class", "LlamaTokenizer", "sp-mini", {}),
    (CONFIG, "tokenizer_class", "SomeTokenizer", "sp-mini", {}),
    (CONFIG, "legacy", True, "sp-mini", LLAMA),
    (CONFIG, "legacy", False, "llama-mini", LLAMA),
    (CONFIG, "add_prefix_space", False, "sp-mini", LLAMA),
    (CONFIG, "add_prefix_space", False, "sp-mini", {}),
    (CONFIG, "add_prefix_space", False, "llama-mini", {}),
    (CONFIG, "add_bos_token", False, "sp-mini", {}),
    (CONFIG, "add_bos_token", False, "llama-mini", {}),
    (CONFIG, "add_eos_token", True, "sp-mini", {}),
    (CONFIG, "auto_map", {"AutoTokenizer": ["x.X", None]}, "byte-mini", {}),
    (CONFIG, "do_lower_case", True, "byte-mini", {}),
    (CONFIG, "fix_mistral_regex", True, "byte-mini", {}),
    (CONFIG, "sp_model_kwargs", {"enable_sampling": True}, "sp-mini", {}),
    (CONFIG, "any_other_key", "x", "byte-mini", {}),
    (MAP, "eos_token", "er", "byte-mini", {}),
    (MAP, "additional_special_tokens", ["er"], "byte-mini", {}),
    (MAP, "eos_token", "er", "byte-mini", DECODER),
    (MAP, "any_other_key", "x", "byte-mini", {}),
    (ADDED, "er", 272, "byte-mini", {}),
    (ADDED, "er", 272, "byte-mini", DECODER),
    (VOCABULARY, "truncation", {"direction": "Right", "max_length": 2, "strategy": "LongestFirst", "stride": 0}, "byte-mini", {}),
    (VOCABULARY, "padding", {"strategy": {"Fixed": 99}, "direction": "Right", "pad_id": 0, "pad_type_id": 0}, "byte-mini", {}),
    (VOCABULARY, "post_processor", ENDS, "llama-mini", {}),
    (VOCABULARY, "normalizer", {"type": "Lowercase"}, "byte-mini", {}),
    (VOCABULARY, "any_other_key", "x", "byte-mini", {}),
]
# fmt: on


def harmless_names():
    """Of tokenizer_config.json, as the source lists them."""
    source = (ROOT / "models" / "text" / "tokenizer_settings.cpp").read_text()
    return " ".join(re.findall('"([^"]*)"', re.search("kHarmless =(.*?);", source, re.S)[1])).split()


def tokenize(program, tokenizer, files):
    """(exit code, ids, stderr) of TEXT with these files beside a vocabulary; those of the vocabulary replace keys."""
    with tempfile.TemporaryDirectory() as name:
        folder = pathlib.Path(name)
        for file in (VOCABULARY, "tokenizer.model"):
            if (GOLDEN / tokenizer / file).exists():
                (folder / file).write_bytes((GOLDEN / tokenizer / file).read_bytes())
        for file, keys in files.items():
            if file == VOCABULARY:
                keys = json.loads((folder / file).read_text()) | keys
            if keys:
                (folder / file).write_text(json.dumps(keys))
        command = [program, "tokenize", "--model", name, "--text", TEXT]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        return done.returncode, done.stdout, done.stderr.replace(name, "DIR").strip()


def judged(program, file, key, value, tokenizer, config):
    """(kind, line on stderr)"""
    _, ids, _ = tokenize(program, tokenizer, {CONFIG: config})
    files = {CONFIG: config} | {file: (config if file == CONFIG else {}) | {key: value}}
    code, changed, line = tokenize(program, tokenizer, files)
    kind = "refused" if code else "warned" if line else "heeded" if changed != ids else "harmless"
    return kind, line


def shown(value):
    text = json.dumps(value, ensure_ascii=False)
    return text.replace("|", "\\|") if len(text) < 50 else "…"


def rows_of(folder):
    """Keys of the files in the folder that no row has, each with the value it has there."""
    known = {(file, key) for file, key, *_ in ROWS} | {(CONFIG, key) for key in harmless_names()}
    found = {}
    for path in sorted([*folder.glob(f"*/{CONFIG}"), *folder.glob(f"*/{MAP}")]):
        for key, value in json.loads(path.read_text()).items():
            says = value not in (None, False, "", [], {}) and not key.endswith("_token")  # all of these are alike
            if says and (path.name, key) not in known:
                found.setdefault((path.name, key), value)
    return [(file, key, value, "byte-mini", {}) for (file, key), value in found.items()]


def print_tables(program, folder):
    print(INTRODUCTION)
    print("| file | key | beside | kind | line on stderr |\n|---|---|---|---|---|")
    for file, key, value, tokenizer, config in ROWS + (rows_of(folder) if folder else []):
        kind, line = judged(program, file, key, value, tokenizer, config)
        beside = "tokenizer.model" if tokenizer == "sp-mini" else VOCABULARY
        beside = "" if file == VOCABULARY else beside + "".join(f", `{k}`" for k in config)
        line = line.replace("lariat: warning: ", "").replace("lariat: error: ", "").replace("|", "\\|")
        print(f"| {file} | `{key}`: `{shown(value)}` | {beside} | {kind} | {f'`{line}`' if line else ''} |".replace("|  |", "| |"))
    values = {"model_max_length": 2, "max_length": 2, "padding": "max_length", "truncation": True}
    kinds = {judged(program, CONFIG, key, values.get(key, "x"), "byte-mini", {})[0] for key in harmless_names()}
    print(f"| {CONFIG} | {', '.join(f'`{key}`' for key in harmless_names())} | {VOCABULARY} | {', '.join(sorted(kinds))} | |")


if __name__ == "__main__":
    print_tables(pathlib.Path(sys.argv[1]).resolve(), pathlib.Path(sys.argv[2]) if len(sys.argv) > 2 else None)
