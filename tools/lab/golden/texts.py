"""Goldens of tokenizers and chat templates: results of HF tokenizers, SentencePiece and transformers.

The inputs are in the golden files: small tokenizers and cases.json in tests/golden/tokenizers, patterns, changes and settings in
their goldens, templates and conversations in chat_templates.json. Add new inputs there. Cases of the folder `shared` are only
regenerated if the folder is given.
"""

import contextlib
import datetime
import hashlib
import json
import pathlib
import random
import shutil
import tempfile

import jinja2
import sentencepiece
from tokenizers import Regex, Tokenizer, pre_tokenizers
import torch
from transformers import AutoTokenizer, PreTrainedTokenizerFast
from transformers.generation.stopping_criteria import StopStringCriteria
from transformers.utils import chat_template_utils

import tiny

FOLDER = tiny.GOLDEN / "tokenizers"
JSON = ["llama3-mini", "qwen-mini", "byte-mini", "llama-mini", "metaspace-mini", "gemma-mini"]  # with a tokenizer.json
MODELS = ["sp-mini", "sp-unigram-mini"]  # with a tokenizer.model
SHARED_JSON = ["tokenizers/llama2-hf", "tokenizers/llama3", "tokenizers/minimind", "tokenizers/qwen2", "tokenizers/qwen3",
               "cases/bloomtok"]  # fmt: skip
SHARED_MODELS = {"llama": "tokenizers/llama", "stories260K": "models/stories260K"}
BYTES = ("llama-mini", "gemma-mini", "llama2-hf")  # tokenizers with byte tokens at the lowest ids


# ---- tokenizers -------------------------------------------------------------------------------------------------


def random_ids(vocab, count, low=None):
    """Sequences of ids, some drawn from the lowest `low` (byte tokens)."""
    rnd = random.Random(7)
    return [
        [rnd.randrange(low if low and rnd.random() < 0.5 else vocab) for _ in range(rnd.randrange(1, 9))]
        for _ in range(count)
    ]


def changed_decodings(texts, decoded):
    return {str(i): text for i, text in enumerate(decoded) if text != texts[i]}


def golden_json(tokenizer, texts, pieces=40, low=None):
    spec = json.loads(tokenizer.to_str())
    for token in spec["added_tokens"]:
        token["normalized"] = False  # tokenizers 0.23 decodes "normalized" special tokens even when skipping
    reverse = Tokenizer.from_str(json.dumps(spec))
    ids = [tokenizer.encode(text).ids for text in texts]
    samples = [
        {"ids": x, "text": reverse.decode(x), "text_all": reverse.decode(x, skip_special_tokens=False)}
        for x in random_ids(tokenizer.get_vocab_size(), pieces, low)
    ]
    return {"ids": ids, "decoded": changed_decodings(texts, [reverse.decode(x) for x in ids]), "pieces": samples}


def golden_sentencepiece(file, texts):
    """The slow ("legacy") LlamaTokenizer: special tokens split the text, each part is encoded separately."""
    model = sentencepiece.SentencePieceProcessor(model_file=str(file))
    names = {model.id_to_piece(i): i for i in range(3)}

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
        return model.decode([i for i in ids if i not in range(3)])

    ids = [encode(text) for text in texts]
    # Excludes a byte token for a leading space; SentencePiece keeps that space, HF strips it.
    space = model.piece_to_id("<0x20>")
    drawn = random_ids(model.vocab_size(), 40, min(259, model.vocab_size()))
    samples = [{"ids": x, "text": decode(x)} for x in drawn if x[0] != space]
    return {"ids": ids, "decoded": changed_decodings(texts, [decode(x) for x in ids]), "pieces": samples}


def tokenizers(shared):
    """NAME.golden.json of every tokenizer, and variants.json: byte-mini with other components."""
    texts = tiny.read(FOLDER / "cases.json")
    files = {name: FOLDER / name for name in JSON + MODELS}
    if shared:
        files |= {path.split("/")[1]: shared / path for path in SHARED_JSON}
        files |= {name: shared / path for name, path in SHARED_MODELS.items()}
    for name, folder in files.items():
        if name in MODELS or name in SHARED_MODELS:
            golden = golden_sentencepiece(folder / "tokenizer.model", texts)
        else:
            tokenizer = Tokenizer.from_file(str(folder / "tokenizer.json"))
            golden = golden_json(tokenizer, texts, low=259 if name in BYTES else None)
        tiny.write_lines(FOLDER / f"{name}.golden.json", golden)
        # transformers 5 rebuilds LlamaTokenizer's pipeline: see models/text/tokenizer.h
        if name not in JSON + MODELS and name not in SHARED_MODELS and name != "llama2-hf":
            fast = AutoTokenizer.from_pretrained(str(folder))
            assert all(fast(text)["input_ids"] == ids for text, ids in zip(texts, golden["ids"])), name
    base, variants = tiny.read(FOLDER / "byte-mini" / "tokenizer.json"), tiny.read(FOLDER / "variants.json")
    for case in variants.values():
        tokenizer = Tokenizer.from_str(json.dumps(base | case["change"]))
        case |= golden_json(tokenizer, [texts[i] for i in case["cases"]], 8)
    tiny.write_lines(FOLDER / "variants.json", variants)


def patterns():
    """patterns.json: bytes of each piece that Split cuts from a text, per pattern."""
    golden = tiny.read(FOLDER / "patterns.json")
    for pattern in golden["pieces"]:
        split = pre_tokenizers.Split(Regex(pattern), "isolated")
        golden["pieces"][pattern] = [[len(piece.encode()) for piece, _ in split.pre_tokenize_str(text)]
                                     for text in golden["texts"]]  # fmt: skip
    for pattern in golden["refused"]:
        try:
            Regex(pattern)
        except Exception:  # the binding raises no narrower exception
            continue
        raise AssertionError(f"{pattern} is taken")
    tiny.write_lines(FOLDER / "patterns.json", golden)


def stopped(tokenizer, case):
    """-> {"after"}: number of tokens at which the text ends, None for never; {"text"}: text before the stop string."""
    ids, stops = case["ids"], case["stop"]
    criteria = StopStringCriteria(tokenizer, stops)
    fits = lambda n: criteria(torch.tensor([ids[:n]]), None).item()  # noqa: E731
    after = next((n for n in range(1, len(ids) + 1) if fits(n)), None)
    if after is None:
        return {"after": None, "text": tokenizer.decode(ids, skip_special_tokens=True)}
    mode = criteria._get_stop_string_matching_mode(tokenizer)
    tokens, indices = criteria.clean_tokenizer_vocab(tokenizer, stop_string_matching_mode=mode)
    spelled = {i: token if isinstance(token, bytes) else token.encode() for i, token in zip(indices, tokens)}
    whole = b"".join(spelled[i] for i in ids[:after])
    left = min(whole.index(stop.encode()) for stop in stops if stop.encode() in whole)
    n = 0
    while n < after and len(spelled[ids[n]]) <= left:
        left -= len(spelled[ids[n]])
        n += 1
    if left == 0 or ids[n] in tokenizer.all_special_ids:
        return {"after": after, "text": tokenizer.decode(ids[:n], skip_special_tokens=True)}
    text, rest = tokenizer.decode(ids[:n + 1], skip_special_tokens=True), spelled[ids[n]][left:].decode()
    assert text.endswith(rest)
    return {"after": after, "text": text.removesuffix(rest)}


def stops():
    """stops.json: ends of texts by transformers' StopStringCriteria."""
    cases = tiny.read(tiny.GOLDEN / "stops.json")
    tokenizers = {}
    for case in cases:
        if case["base"] not in tokenizers:
            file = str(FOLDER / case["base"] / "tokenizer.json")
            tokenizers[case["base"]] = tokenizer = PreTrainedTokenizerFast(tokenizer_file=file)
            added = [t["content"] for t in tiny.read(FOLDER / case["base"] / "tokenizer.json")["added_tokens"] if t["special"]]
            tokenizer.add_special_tokens({"extra_special_tokens": added})
        case |= stopped(tokenizers[case["base"]], case)
    tiny.write_lines(tiny.GOLDEN / "stops.json", cases, "base")


@contextlib.contextmanager
def opened(folder, case):
    """AutoTokenizer of the folder's vocabulary with the case's files."""
    with tempfile.TemporaryDirectory() as name:
        path = pathlib.Path(name)
        for file in ("tokenizer.json", "tokenizer.model"):
            if (folder / file).exists():
                shutil.copy(folder / file, path / file)
        if case["change"]:
            (path / "tokenizer.json").write_text(json.dumps(tiny.read(path / "tokenizer.json") | case["change"]))
        for file, value in case["files"].items():
            (path / file).write_text(json.dumps(value))
        yield AutoTokenizer.from_pretrained(name)


def with_settings(folder, case):
    """Encodes the case's texts with AutoTokenizer."""
    with opened(folder, case) as tokenizer:
        ids = [tokenizer(text)["input_ids"] for text in case["texts"]]
        return case | {"ids": ids, "decoded": [tokenizer.decode(x, skip_special_tokens=True) for x in ids]}


def roles():
    """roles.json: special tokens available to a template, from the files or the tokenizer's class."""
    cases = tiny.read(FOLDER / "roles.json")
    for case in cases:
        with opened(FOLDER / case["base"], case) as tokenizer:
            case["roles"] = tokenizer.special_tokens_map
    tiny.write_lines(FOLDER / "roles.json", cases, "base")


def settings(shared):
    """settings.json: ids under tokenizer settings stored next to a vocabulary."""
    cases = tiny.read(FOLDER / "settings.json")
    for i, case in enumerate(cases):
        root = shared if case["base"].startswith("cases/") else FOLDER
        if root:
            cases[i] = with_settings(root / case["base"], case)
    tiny.write_lines(FOLDER / "settings.json", cases)


# ---- chat templates ---------------------------------------------------------------------------------------------

THINKING = ("qwen3", "smollm3", "granite")  # also rendered with enable_thinking and thinking


def refusal(error):
    """Message of raise_exception; "" for any other exception."""
    return {"error": str(error) if type(error) is jinja2.exceptions.TemplateError else ""}


def render(source, messages, prompt, variables):
    """-> {"text"} or {"error"}"""
    messages = [{key: value for key, value in message.items() if value is not None} for message in messages]
    try:
        texts, _ = chat_template_utils.render_jinja_template(
            [messages], chat_template=source, add_generation_prompt=prompt, **variables)  # fmt: skip
        return {"text": texts[0]}
    except Exception as error:  # any Python exception is a refusal
        return refusal(error)


def variants_of(thinking):
    """(add_generation_prompt, variables)"""
    switches = [(True, {"enable_thinking": value, "thinking": value}) for value in (False, True)] if thinking else []
    return [(False, {}), (True, {}), *switches]


def shared_cases(shared, conversations):
    """Checksums of texts and ids, as these templates are not ours to store."""
    cases = []
    for file in sorted(shared.glob("*/*/tokenizer_config.json")):
        tokenizer = AutoTokenizer.from_pretrained(file.parent)
        if not tokenizer.chat_template:
            continue
        for conversation, messages in conversations.items():
            for prompt, variables in variants_of(True):
                case = {"folder": f"{file.parent.parent.name}/{file.parent.name}", "conversation": conversation,
                        "prompt": prompt, "variables": variables}  # fmt: skip
                render_it = lambda **how: tokenizer.apply_chat_template(  # noqa: E731
                    messages, add_generation_prompt=prompt, **how, **variables)  # noqa: B023
                try:
                    case["sha256"] = hashlib.sha256(render_it(tokenize=False).encode()).hexdigest()
                    case["ids"] = sum((i + 1) * id for i, id in enumerate(render_it(return_dict=False)))
                except Exception as error:
                    case |= refusal(error)
                cases.append(case)
    return cases


def chat_templates(shared):
    path = tiny.GOLDEN / "chat_templates.json"
    golden = tiny.read(path)

    class Clock(datetime.datetime):
        @classmethod
        def now(cls, tz=None):
            return datetime.datetime.fromisoformat(golden["now"])

    chat_template_utils.datetime = Clock
    tokens, conversations = golden["tokens"], golden["conversations"]
    golden["cases"] = []
    for name, source in golden["templates"].items():
        for conversation, messages in conversations.items():
            for prompt, variables in variants_of(name in THINKING):
                case = {"template": name, "conversation": conversation, "prompt": prompt}
                case |= {"variables": variables} if variables else {}
                golden["cases"].append(case | render(source, messages, prompt, tokens | variables))
    first = next(iter(conversations.values()))
    golden["features"] = [{"source": case["source"]} | render(case["source"], first, False, tokens | golden["variables"])
                          for case in golden["features"]]  # fmt: skip
    if shared:
        golden["shared"] = shared_cases(shared, conversations)
    tiny.write_lines(path, golden, "template", "source", "folder")
