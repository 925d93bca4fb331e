#!/usr/bin/env python3
"""Makes tests/golden/tokenizers/settings.json: ids under the settings that stand beside a vocabulary.

Run:  python3 tests/golden/make_settings_golden.py [--shared DIR]
Needs: transformers 5.24, tokenizers 0.23.3, sentencepiece 0.2.3, protobuf; with --shared the folder that holds
cases/ (without it those cases stay).

Writes [{"base": a tokenizer of this folder or of the shared one, "files": {name: JSON put beside it},
"change": keys of its tokenizer.json, "texts", "ids": transformers' AutoTokenizer, "decoded"}].
"""

import argparse
import json
import os
import pathlib
import shutil
import tempfile

os.environ["HF_HUB_OFFLINE"] = "1"

from transformers import AutoTokenizer  # noqa: E402

from tokenizer_texts import CASES, fuzz  # noqa: E402

HERE = pathlib.Path(__file__).resolve().parent / "tokenizers"
OUT = HERE / "settings.json"
LLAMA = {"tokenizer_class": "LlamaTokenizer", "add_bos_token": True}
# A post-processor that begins a text with one token and ends it with another.
ITEM = lambda token: {"SpecialToken": {"id": token, "type_id": 0}}  # noqa: E731
TEMPLATE = {
    "type": "TemplateProcessing",
    "single": [ITEM("<|im_start|>"), {"Sequence": {"id": "A", "type_id": 0}}],
    "pair": [{"Sequence": {"id": "A", "type_id": 0}}, {"Sequence": {"id": "B", "type_id": 0}}],
    "special_tokens": {"<|im_start|>": {"id": "<|im_start|>", "ids": [1], "tokens": ["<|im_start|>"]}},
}


def config(**keys):
    return {"tokenizer_config.json": keys}


def cases():
    """(base, files beside it, changes of tokenizer.json, texts or None for all)"""
    for keys in [{}, {"legacy": False}, {"legacy": None}, {"legacy": False, "add_prefix_space": False},
                 {"add_prefix_space": False}, {"legacy": False, "add_prefix_space": True},
                 {"legacy": False, "add_bos_token": False}]:  # fmt: skip
        yield "sp-mini", config(**{**LLAMA, **keys}), {}, None
    yield "sp-mini", config(legacy=False, add_bos_token=True), {}, None
    words = ["a The river the b", "a [word] b", "Boats and<|im_end|> boats"]
    yield "byte-mini", config(eos_token="The"), {}, words
    yield "byte-mini", config(eos_token={"__type": "AddedToken", "content": "The", "lstrip": True}), {}, words
    yield "byte-mini", config(additional_special_tokens=["The", "er"]), {}, words
    yield "byte-mini", config(extra_special_tokens={"image_token": "The"}), {}, words
    yield "byte-mini", config(image_token="The", split_special_tokens=True), {}, words
    yield "byte-mini", config(eos_token="[word]"), {}, words
    here = {"special_tokens_map.json": {"unk_token": "The"}, "added_tokens.json": {"er": 272, "[new]": 367}}
    yield "byte-mini", {**here, **config(eos_token="<|im_end|>")}, {}, [*words, "a[new]b"]
    listed = {"2": {"content": "<|im_end|>", "lstrip": True, "special": False}}
    yield "byte-mini", {**here, **config(added_tokens_decoder=listed)}, {}, [*words, "a[new]b", "a  <|im_end|>"]
    for adds in [True, False]:
        yield "byte-mini", config(bos_token="<|im_start|>", add_bos_token=adds), {}, words
        yield "byte-mini", config(add_bos_token=adds), {"post_processor": TEMPLATE}, words
    for keys in [{"add_prefix_space": True}, {"do_lower_case": True}, {"legacy": False, "model_max_length": 2},
                 {"truncation": True, "max_length": 2, "padding": "max_length"}]:  # fmt: skip
        yield "byte-mini", config(**keys), {}, words
    stored = {"truncation": {"direction": "Right", "max_length": 2, "strategy": "LongestFirst", "stride": 0},
              "padding": {"strategy": {"Fixed": 99}, "direction": "Right", "pad_to_multiple_of": None, "pad_id": 0,
                          "pad_type_id": 0, "pad_token": "<|endoftext|>"}}  # fmt: skip
    yield "byte-mini", {}, stored, words


def run(folder, files, change, texts, base):
    with tempfile.TemporaryDirectory() as name:
        path = pathlib.Path(name)
        for file in folder.iterdir():
            if file.name in ("tokenizer.json", "tokenizer.model"):
                shutil.copy(file, path / file.name)
        if change:
            spec = json.loads((path / "tokenizer.json").read_text())
            (path / "tokenizer.json").write_text(json.dumps({**spec, **change}))
        for file, value in files.items():
            (path / file).write_text(json.dumps(value))
        tokenizer = AutoTokenizer.from_pretrained(name)
        ids = [tokenizer(text)["input_ids"] for text in texts]
        decoded = [tokenizer.decode(x, skip_special_tokens=True) for x in ids]
    return {"base": base, "files": files, "change": change, "texts": texts, "ids": ids, "decoded": decoded}


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--shared", type=pathlib.Path)
    args = parser.parse_args()
    every = CASES + fuzz(40, 1)
    found = [run(HERE / base, files, change, texts or every, base) for base, files, change, texts in cases()]
    if args.shared:
        for name in ["repro-legacy", "repro-prefix", "repro-bos"]:
            folder = args.shared / "cases" / name
            files = {"tokenizer_config.json": json.loads((folder / "tokenizer_config.json").read_text())}
            texts = ["</s>user", "hello", "Hello", " hello</s> hello"]
            found.append(run(folder, files, {}, texts, "cases/" + name))
    else:
        found += [case for case in json.loads(OUT.read_text()) if case["base"].startswith("cases/")]
    OUT.write_text(json.dumps(found, ensure_ascii=True, separators=(",", ":")) + "\n")


if __name__ == "__main__":
    main()
