#!/usr/bin/env python3
"""Makes the tokenizer goldens: small tokenizers, and what the reference libraries make of texts.

Run:  python3 tests/golden/make_tokenizer_golden.py [--shared DIR]
Needs: tokenizers 0.23.3, sentencepiece 0.2.3; with --shared (the folder that holds tokenizers/ and
models/stories260K/) also transformers 5.23. Without --shared
only the goldens of the small tokenizers are remade.

Writes tests/golden/tokenizers/:
  cases.json             the texts
  variants.json          pre-tokenizers, normalizers and decoders put into byte-mini/tokenizer.json
  <name>/                a small tokenizer (its files as a checkpoint folder has them)
  <name>.golden.json     {"ids": per text, "decoded": {text index: decode(ids) where it is not the text},
                          "pieces": [{"ids", "text", "text_all"}], random ids and what they decode to}
"""

import argparse
import json
import pathlib
import random

import sentencepiece
from tokenizers import Regex, Tokenizer, decoders, models, normalizers, pre_tokenizers, processors, trainers

from make_pattern_golden import BLOOM
from tokenizer_texts import CASES, TEXT, fuzz

OUT = pathlib.Path(__file__).resolve().parent / "tokenizers"

LLAMA3 = (
    r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*"
    r"|\s*[\r\n]+|\s+(?!\S)|\s+"
)
QWEN = LLAMA3.replace("{1,3}", "")


def write(path, value):
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(value, ensure_ascii=True, separators=(",", ":")) + "\n")


def random_ids(vocab, count, seed, low=None):
    """Sequences of ids, some drawn from the lowest `low` (where byte tokens are)."""
    rnd = random.Random(seed)
    return [
        [rnd.randrange(low if low and rnd.random() < 0.5 else vocab) for _ in range(rnd.randrange(1, 9))]
        for _ in range(count)
    ]


def decodable(tokenizer):
    """The same tokenizer for decoding: tokenizers 0.23 does not skip special tokens that are "normalized"."""
    spec = json.loads(tokenizer.to_str())
    for token in spec["added_tokens"]:
        token["normalized"] = False
    return Tokenizer.from_str(json.dumps(spec))


def golden_json(tokenizer, texts, pieces=40, low=None):
    reverse = decodable(tokenizer)
    ids = [tokenizer.encode(text).ids for text in texts]
    decoded = {str(i): text for i, text in enumerate(reverse.decode(x) for x in ids) if text != texts[i]}
    samples = [
        {"ids": x, "text": reverse.decode(x), "text_all": reverse.decode(x, skip_special_tokens=False)}
        for x in random_ids(tokenizer.get_vocab_size(), pieces, 7, low)
    ]
    return {"ids": ids, "decoded": decoded, "pieces": samples}


def golden_sentencepiece(model, texts, specials, pieces=40):
    """The slow ("legacy") LlamaTokenizer: special tokens split the text, every part is encoded on its own."""
    names = {model.id_to_piece(i): i for i in specials}

    def encode(text):
        ids, part, at = [model.bos_id()], "", 0
        while at < len(text):
            name = next((n for n in names if text.startswith(n, at)), None)
            if name is None:
                part += text[at]
                at += 1
                continue
            ids += model.encode(part) + [names[name]]
            part, at = "", at + len(name)
        return ids + model.encode(part)

    def decode(ids):
        return model.decode([i for i in ids if i not in specials])

    ids = [encode(text) for text in texts]
    decoded = {str(i): text for i, text in enumerate(decode(x) for x in ids) if text != texts[i]}
    # A byte token for a space in front does not occur; SentencePiece keeps that space, HF strips it.
    space = model.piece_to_id("<0x20>")
    samples = [
        {"ids": x, "text": decode(x)}
        for x in random_ids(model.vocab_size(), pieces, 7, min(259, model.vocab_size()))
        if x[0] != space
    ]
    return {"ids": ids, "decoded": decoded, "pieces": samples}


def train_bytes(size, pre_tokenizer, special):
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizer
    tokenizer.train_from_iterator(
        TEXT * 3,
        trainers.BpeTrainer(
            vocab_size=size,
            special_tokens=special,
            initial_alphabet=sorted(pre_tokenizers.ByteLevel.alphabet()),
            show_progress=False,
        ),
    )
    return json.loads(tokenizer.to_str())


def split_then_bytes(pattern):
    return pre_tokenizers.Sequence(
        [
            pre_tokenizers.Split(Regex(pattern), "isolated"),
            pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False),
        ]
    )


def added(spec, content, **flags):
    """Adds a token to a tokenizer.json behind the last id."""
    ids = list(spec["model"]["vocab"].values()) + [t["id"] for t in spec["added_tokens"]]
    token = {
        "id": max(ids) + 1,
        "content": content,
        "single_word": False,
        "lstrip": False,
        "rstrip": False,
        "normalized": False,
        "special": True,
        **flags,
    }
    spec["added_tokens"].append(token)
    return token["id"]


def llama3_mini():
    spec = train_bytes(420, split_then_bytes(LLAMA3), [])
    spec["model"]["ignore_merges"] = True
    del spec["model"]["merges"][20:25]  # tokens that only ignore_merges can reach
    bos = added(spec, "<|begin_of_text|>")
    for name in ["<|end_of_text|>", "<|start_header_id|>", "<|end_header_id|>", "<|eot_id|>"]:
        added(spec, name)
    item = {"SpecialToken": {"id": "<|begin_of_text|>", "type_id": 0}}
    text = {"Sequence": {"id": "A", "type_id": 0}}
    spec["post_processor"] = {
        "type": "Sequence",
        "processors": [
            {"type": "ByteLevel", "add_prefix_space": True, "trim_offsets": False, "use_regex": True},
            {
                "type": "TemplateProcessing",
                "single": [item, text],
                "pair": [item, text, item, {"Sequence": {"id": "B", "type_id": 1}}],
                "special_tokens": {
                    "<|begin_of_text|>": {
                        "id": "<|begin_of_text|>",
                        "ids": [bos],
                        "tokens": ["<|begin_of_text|>"],
                    }
                },
            },
        ],
    }
    spec["decoder"] = {"type": "ByteLevel", "add_prefix_space": True, "trim_offsets": True, "use_regex": True}
    return spec, {
        "bos_token": "<|begin_of_text|>",
        "eos_token": "<|eot_id|>",
        "tokenizer_class": "PreTrainedTokenizerFast",
    }


def qwen_mini():
    spec = train_bytes(400, split_then_bytes(QWEN), [])
    spec["normalizer"] = {"type": "NFC"}
    spec["model"].update(continuing_subword_prefix="", end_of_word_suffix="")
    spec["model"]["merges"] = [" ".join(m) for m in spec["model"]["merges"]]
    for name in ["<|endoftext|>", "<|im_start|>", "<|im_end|>"]:
        added(spec, name)
    added(spec, "<think>", special=False)
    added(spec, "</think>", special=False)
    spec["post_processor"] = {
        "type": "ByteLevel",
        "add_prefix_space": False,
        "trim_offsets": False,
        "use_regex": False,
    }
    spec["decoder"] = {
        "type": "ByteLevel",
        "add_prefix_space": False,
        "trim_offsets": False,
        "use_regex": False,
    }
    return spec, {
        "add_bos_token": False,
        "bos_token": None,
        "eos_token": "<|im_end|>",
        "tokenizer_class": "Qwen2Tokenizer",
    }


def byte_mini():
    """MiniMind's kind: specials first in the vocabulary, ByteLevel's own regex. The base of the variants."""
    special = ["<|endoftext|>", "<|im_start|>", "<|im_end|>"]
    spec = train_bytes(360, pre_tokenizers.ByteLevel(add_prefix_space=False), special)
    spec["decoder"] = {"type": "ByteLevel", "add_prefix_space": True, "trim_offsets": True, "use_regex": True}
    added(spec, "[strip]", lstrip=True, rstrip=True)
    added(spec, "[word]", single_word=True, special=False)
    added(spec, "[left]", lstrip=True)
    added(spec, "[norm]", normalized=True, special=False)
    for name in ["[a]", "[ab]", "[abc]"]:
        added(spec, name)
    return spec, {"add_bos_token": False, "bos_token": "<|im_start|>", "eos_token": "<|im_end|>"}


def llama_mini():
    """Llama 2's tokenizer.json: <unk> <s> </s>, 256 byte tokens, characters, merges."""
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.Metaspace()
    tokenizer.train_from_iterator(
        TEXT[:4] * 3 + TEXT[6:7], trainers.BpeTrainer(vocab_size=260, limit_alphabet=90, show_progress=False)
    )
    trained = json.loads(tokenizer.to_str())["model"]
    names = ["<unk>", "<s>", "</s>"] + [f"<0x{b:02X}>" for b in range(256)]
    names += [t for t in sorted(trained["vocab"], key=trained["vocab"].get) if t not in names]
    merges = [" ".join(m) for m in trained["merges"]]
    left = "▁"
    for _ in range(3):  # runs of spaces, as Llama has them
        names.append(left + left)
        merges.append(left + " " + left)
        left += left
    spec = json.loads(Tokenizer(models.BPE()).to_str())
    spec["model"] = {
        "type": "BPE",
        "dropout": None,
        "unk_token": "<unk>",
        "continuing_subword_prefix": None,
        "end_of_word_suffix": None,
        "fuse_unk": True,
        "byte_fallback": True,
        "vocab": {t: i for i, t in enumerate(names)},
        "merges": merges,
    }
    spec["added_tokens"] = [
        {
            "id": i,
            "content": names[i],
            "single_word": False,
            "lstrip": False,
            "rstrip": False,
            "normalized": False,
            "special": True,
        }
        for i in range(3)
    ]
    spec["normalizer"] = {
        "type": "Sequence",
        "normalizers": [
            {"type": "Prepend", "prepend": "▁"},
            {"type": "Replace", "pattern": {"String": " "}, "content": "▁"},
        ],
    }
    spec["post_processor"] = json.loads(Tokenizer(models.BPE()).to_str())["post_processor"]
    item, text = {"SpecialToken": {"id": "<s>", "type_id": 0}}, {"Sequence": {"id": "A", "type_id": 0}}
    spec["post_processor"] = {
        "type": "TemplateProcessing",
        "single": [item, text],
        "pair": [item, text, {"Sequence": {"id": "B", "type_id": 1}}],
        "special_tokens": {"<s>": {"id": "<s>", "ids": [1], "tokens": ["<s>"]}},
    }
    spec["decoder"] = {
        "type": "Sequence",
        "decoders": [
            {"type": "Replace", "pattern": {"String": "▁"}, "content": " "},
            {"type": "ByteFallback"},
            {"type": "Fuse"},
            {"type": "Strip", "content": " ", "start": 1, "stop": 0},
        ],
    }
    return spec, {
        "add_bos_token": True,
        "add_eos_token": False,
        "bos_token": {"content": "<s>"},
        "eos_token": {"content": "</s>"},
    }


def metaspace_mini(llama):
    """The same vocabulary as transformers 5 writes it, without byte tokens: <unk> for what is unknown."""
    spec = json.loads(json.dumps(llama))
    keep = [t for t in spec["model"]["vocab"] if not t.startswith("<0x")]
    spec["model"].update(vocab={t: i for i, t in enumerate(keep)}, byte_fallback=False)
    spec["normalizer"] = None
    spec["pre_tokenizer"] = {
        "type": "Metaspace",
        "replacement": "▁",
        "prepend_scheme": "first",
        "split": False,
    }
    return spec, {"bos_token": "<s>", "eos_token": "</s>"}


def gemma_mini(llama):
    """The same vocabulary as Gemma has its own: no space in front, and a pattern that finds nothing to split at."""
    spec = json.loads(json.dumps(llama))
    spec["normalizer"] = {"type": "Replace", "pattern": {"String": " "}, "content": "▁"}
    spec["pre_tokenizer"] = {
        "type": "Split",
        "pattern": {"String": " "},
        "behavior": "MergedWithPrevious",
        "invert": False,
    }
    spec["decoder"]["decoders"] = spec["decoder"]["decoders"][:3]
    return spec, {"bos_token": "<s>", "eos_token": "</s>"}


def variants():
    """Keys of byte-mini/tokenizer.json to replace; every component and flag appears at least once."""
    byte = {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": True, "use_regex": False}
    split = lambda pattern, behavior, invert=False: {
        "type": "Split",
        "pattern": pattern,
        "behavior": behavior,
        "invert": invert,
    }
    sequence = lambda *steps: {"type": "Sequence", "pretokenizers": list(steps)}
    regex, string = {"Regex": r"\s+|\p{N}"}, {"String": " "}
    found = {}
    for behavior in ["Isolated", "Removed", "MergedWithPrevious", "MergedWithNext", "Contiguous"]:
        for invert in [False, True]:
            found[f"regex {behavior} {invert}"] = {
                "pre_tokenizer": sequence(split(regex, behavior, invert), byte)
            }
        found[f"string {behavior}"] = {"pre_tokenizer": sequence(split(string, behavior), byte)}
    found["digits one by one"] = {
        "pre_tokenizer": sequence({"type": "Digits", "individual_digits": True}, {**byte, "use_regex": True})
    }
    found["digits together"] = {
        "pre_tokenizer": sequence({"type": "Digits", "individual_digits": False}, byte)
    }
    found["prefix space"] = {"pre_tokenizer": {**byte, "add_prefix_space": True, "use_regex": True}}
    found["prefix space, no regex"] = {"pre_tokenizer": {**byte, "add_prefix_space": True}}
    found["prefix space after split"] = {
        "pre_tokenizer": sequence(split({"Regex": "[,.]"}, "Isolated"), {**byte, "add_prefix_space": True})
    }
    found["word and space classes"] = {
        "pre_tokenizer": sequence(split({"Regex": r"\w+|[^\w\s]+|\S|\W"}, "Isolated"), byte)
    }
    found["lookbehind, line start"] = {
        "pre_tokenizer": sequence(split({"Regex": r"(?<=[a-z])[A-Z]|^\p{L}+|\p{Han}{,2}"}, "Isolated"), byte)
    }
    found["class in a class"] = {  # BLOOM's
        "pre_tokenizer": sequence(split({"Regex": BLOOM}, "Isolated"), byte)
    }
    found["three splits"] = {
        "pre_tokenizer": sequence(
            split({"Regex": r"\p{N}{1,3}"}, "Isolated"),
            split({"Regex": "[一-龥぀-ゟ゠-ヿ]+"}, "Isolated"),
            split(
                {
                    "Regex": r"[!\"#$%&'()*+,\-./:;<=>?@\[\\\]^_`{|}~][A-Za-z]+|[^\r\n\p{L}\p{P}\p{S}]?"
                    r"[\p{L}\p{M}]+| ?[\p{P}\p{S}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
                },
                "Isolated",
            ),
            byte,
        )
    }
    for form in ["NFC", "NFD", "NFKC", "NFKD"]:
        found[form] = {"normalizer": {"type": form}}
    replace = lambda a, b: {"type": "Replace", "pattern": {"String": a}, "content": b}
    found["prepend, replace"] = {
        "normalizer": {
            "type": "Sequence",
            "normalizers": [{"type": "Prepend", "prepend": "the "}, replace("river", "sea")],
        }
    }
    found["lower norm"] = {"normalizer": replace("N", "n")}
    for scheme in ["always", "first", "never"]:
        for cut in [True, False]:
            found[f"metaspace {scheme} {cut}"] = {
                "pre_tokenizer": sequence(
                    {"type": "Metaspace", "replacement": "_", "prepend_scheme": scheme, "split": cut}, byte
                )
            }
    found["no pre-tokenizer"] = {"pre_tokenizer": None, "decoder": None}
    found["metaspace decoder"] = {
        "decoder": {"type": "Metaspace", "replacement": "Ġ", "prepend_scheme": "always", "split": True}
    }
    found["strip decoder"] = {
        "decoder": {
            "type": "Sequence",
            "decoders": [
                {"type": "Strip", "content": "Ġ", "start": 1, "stop": 0},
                {"type": "Fuse"},
                {"type": "Strip", "content": "e", "start": 2, "stop": 0},
            ],
        }
    }
    return found


def make_small(texts):
    llama, llama_config = llama_mini()
    small = {
        "llama3-mini": llama3_mini(),
        "qwen-mini": qwen_mini(),
        "byte-mini": byte_mini(),
        "llama-mini": (llama, llama_config),
        "metaspace-mini": metaspace_mini(llama),
        "gemma-mini": gemma_mini(llama),
    }
    for name, (spec, config) in small.items():
        write(OUT / name / "tokenizer.json", spec)
        write(OUT / name / "tokenizer_config.json", config)
        tokenizer = Tokenizer.from_file(str(OUT / name / "tokenizer.json"))
        write(
            OUT / f"{name}.golden.json",
            golden_json(tokenizer, texts, low=259 if name in ("llama-mini", "gemma-mini") else None),
        )
    base = small["byte-mini"][0]
    results = {}
    for name, change in variants().items():
        tokenizer = Tokenizer.from_str(json.dumps({**base, **change}))
        picked = list(range(2, len(texts), 5))
        results[name] = {
            "change": change,
            "cases": picked,
            **golden_json(tokenizer, [texts[i] for i in picked], 8),
        }
    write(OUT / "variants.json", results)


def make_sentencepiece(texts):
    """Llama's kind (BPE, bytes, nothing normalised), and one that drops spaces and is not cut at them."""
    import io

    kinds = {
        "sp-mini": dict(
            model_type="bpe",
            vocab_size=420,
            byte_fallback=True,
            normalization_rule_name="identity",
            remove_extra_whitespaces=False,
            character_coverage=0.99,
            split_digits=True,
            allow_whitespace_only_pieces=True,
        ),
        "sp-unigram-mini": dict(
            model_type="unigram",
            vocab_size=200,
            normalization_rule_name="identity",
            character_coverage=0.98,
            remove_extra_whitespaces=True,
            hard_vocab_limit=False,
        ),
    }
    for name, options in kinds.items():
        model = io.BytesIO()
        sentencepiece.SentencePieceTrainer.train(
            sentence_iterator=iter(TEXT * 3), model_writer=model, minloglevel=2, num_threads=1, **options
        )
        (OUT / name).mkdir(parents=True, exist_ok=True)
        (OUT / name / "tokenizer.model").write_bytes(model.getvalue())
        processor = sentencepiece.SentencePieceProcessor(model_proto=model.getvalue())
        write(OUT / f"{name}.golden.json", golden_sentencepiece(processor, texts, [0, 1, 2]))


def make_shared(shared, texts):
    from transformers import AutoTokenizer

    for path in ["tokenizers/llama2-hf", "tokenizers/llama3", "tokenizers/minimind", "tokenizers/qwen2",
                 "tokenizers/qwen3", "cases/bloomtok"]:  # fmt: skip
        folder, name = shared / path, path.split("/")[1]
        tokenizer = Tokenizer.from_file(str(folder / "tokenizer.json"))
        golden = golden_json(tokenizer, texts, low=259 if name == "llama2-hf" else None)
        write(OUT / f"{name}.golden.json", golden)
        if name != "llama2-hf":  # transformers 5 rebuilds LlamaTokenizer's pipeline: see models/text/tokenizer.h
            fast = AutoTokenizer.from_pretrained(str(folder))
            for text, ids in zip(texts, golden["ids"]):
                assert fast(text)["input_ids"] == ids, (name, text)
    for name, path in {"llama": "tokenizers/llama", "stories260K": "models/stories260K"}.items():
        processor = sentencepiece.SentencePieceProcessor(model_file=str(shared / path / "tokenizer.model"))
        write(OUT / f"{name}.golden.json", golden_sentencepiece(processor, texts, [0, 1, 2]))


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--shared", type=pathlib.Path)
    args = parser.parse_args()
    texts = CASES + fuzz(40, 1)
    write(OUT / "cases.json", texts)
    make_small(texts)
    make_sentencepiece(texts)
    if args.shared:
        make_shared(args.shared, texts)


if __name__ == "__main__":
    main()
