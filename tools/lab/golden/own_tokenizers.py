"""Tokenizers published with custom code: Qwen 1's and GLM-4's tiktoken vocabularies, ChatGLM2's and 3's SentencePiece. Encodes
texts with the packages tiktoken and sentencepiece, and a conversation as built by that code.

{qwen,glm4}-tiktoken-mini have a generated vocabulary; chatglm-mini.golden.json uses sp-mini's. Patterns and special tokens are
from tokenization_qwen.py and qwen_generation_utils.py (Qwen/Qwen-7B-Chat) and tokenization_chatglm.py (THUDM/chatglm2-6b,
chatglm3-6b, glm-4-9b-chat).
"""

import base64
import json
import random
import re
import unicodedata

import sentencepiece
import tiktoken
from tiktoken._educational import bpe_train

import tiny

FOLDER = tiny.GOLDEN / "tokenizers"
PATTERN = (r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+")
QWEN = ["<|endoftext|>", "<|im_start|>", "<|im_end|>", *(f"<|extra_{i}|>" for i in range(205))]
GLM4 = ["<|endoftext|>", "[MASK]", "[gMASK]", "[sMASK]", "<sop>", "<eop>", "<|system|>", "<|user|>", "<|assistant|>",
        "<|observation|>", "<|begin_of_image|>", "<|end_of_image|>", "<|begin_of_video|>", "<|end_of_video|>"]  # fmt: skip
# file, class, pattern, special tokens, prefix of a text, normal form
KINDS = {
    "qwen-tiktoken-mini": ("qwen.tiktoken", "QWenTokenizer", PATTERN, QWEN, [], "NFC"),
    "glm4-tiktoken-mini": ("tokenizer.model", "ChatGLM4Tokenizer", PATTERN.replace(r"\p{N}|", r"\p{N}{1,3}|"), GLM4,
                           ["[gMASK]", "<sop>"], None),
}  # fmt: skip
# Texts that distinguish this pattern, these tokens, or the order of equal merges.
EXTRA = ["it'S it\u2019s it'\u017f 'LLama 'll", "1234567 12 3 \u0663\u0664\u0665\u0666", "<|im_start|>user\nhi<|im_end|>\n<|extra_204|><|extra_205|>",
         "[gMASK]<sop><|user|>\n\u4f60\u597d<|assistant|>", "cafe\u0301 \u1112\u1161\u11ab \ufb01", "ababa abababab aba", " unmergeable unmergeables",
         "\u3000\u3000\u00a0x\u2028y\u0085z", "a\r\n\r\n b \n\n\n c", "!!!\n\n??\r\n.", "\U0001f469\u200d\U0001f469\u200d\U0001f467 \u05e9\u05b8\u05c1", ""]  # fmt: skip


CHAT = [{"role": "user", "content": "The river, 1234"}, {"role": "assistant", "content": " it's \n\nwide"},
        {"role": "user", "content": "caf\u00e9?"}]  # fmt: skip


def vocabulary():
    """256 bytes, merges learnt from a page, two ways to form "aba", and a token without a merge."""
    ranks = bpe_train((tiny.ROOT / "docs" / "context-extension.md").read_text()[:12000], 500, PATTERN, None)
    for token in (b"ab", b"ba", b"aba", b" unmergeable", "你好".encode()[:4], "你好".encode()):
        ranks.setdefault(token, len(ranks))
    return ranks


def texts():
    """cases.json, EXTRA, and random mixtures of both."""
    all_texts = tiny.read(FOLDER / "cases.json") + EXTRA
    rnd = random.Random(11)
    characters = sorted(set("".join(all_texts)))
    mixed = ["".join(rnd.choice(characters) for _ in range(rnd.randrange(1, 40))) for _ in range(60)]
    return all_texts + mixed


def qwen_chat(encode, specials):
    """make_context with chat_format chatml."""
    start, end, line = specials["<|im_start|>"], specials["<|im_end|>"], encode("\n")
    turns = [{"role": "system", "content": "You are a helpful assistant."}, *CHAT]
    ids = [[start, *encode(m["role"]), *line, *encode(m["content"]), end, *line] for m in turns]
    return [*sum(ids, []), start, *encode("assistant"), *line]


def glm4_chat(encode, specials):
    """build_single_message for each message."""
    ids = [[specials[f"<|{m['role']}|>"], *encode("\n"), *encode(m["content"])] for m in CHAT]
    return [specials["[gMASK]"], specials["<sop>"], *sum(ids, []), specials["<|assistant|>"]]


def golden(ranks, name):
    file, _, pattern, specials, prefix, form = KINDS[name]
    encoding = tiktoken.Encoding(name, pat_str=pattern, mergeable_ranks=ranks,
                                 special_tokens={special: len(ranks) + i for i, special in enumerate(specials)})  # fmt: skip
    front = [encoding._special_tokens[special] for special in prefix]

    def encode(text):
        return encoding.encode(unicodedata.normalize(form, text) if form else text, allowed_special="all")

    def decode(ids, skip=True):
        return encoding.decode([i for i in ids if not skip or i < len(ranks)])

    inputs = texts()
    ids, rnd = [front + encode(text) for text in inputs], random.Random(7)
    drawn = [[rnd.randrange(len(ranks) + len(specials)) for _ in range(rnd.randrange(1, 9))] for _ in range(40)]
    return {"texts": inputs, "ids": ids,
            "decoded": {str(i): decode(x) for i, x in enumerate(ids) if decode(x) != inputs[i]},
            "pieces": [{"ids": x, "text": decode(x), "text_all": decode(x, False)} for x in drawn],
            "chat": (qwen_chat if name.startswith("qwen") else glm4_chat)(encode, encoding._special_tokens)}  # fmt: skip


def chatglm(roles):
    """ChatGLM2's, or with roles ChatGLM3's: "sop" and "eop" are special only as a whole token."""
    model = sentencepiece.SentencePieceProcessor(model_file=str(FOLDER / "sp-mini" / "tokenizer.model"))
    names = ["[MASK]", "[gMASK]", "[sMASK]", "sop", "eop", *roles]
    ids = {model.id_to_piece(i): i for i in range(3)} | {name: model.vocab_size() + i for i, name in enumerate(names)}
    found = re.compile("|".join(re.escape(name) for name in ids))

    def encode(text):
        out, begin, at = [], 0, 0
        while match := found.search(text, at):
            at = match.end()
            if match[0] in ("sop", "eop") and (begin != match.start() or begin == 0):
                continue
            out += model.encode(text[begin:match.start()]) + [ids[match[0]]]
            begin = match.end()
        return out + model.encode(text[begin:])

    front, inputs = [ids["[gMASK]"], ids["sop"]], texts() + ["philosophy [gMASK]sop", "[gMASK]sop<|user|>\n a<eop|assistant|>"]
    if roles:
        turns = [[ids[f"<|{m['role']}|>"], *model.encode("\n"), *model.encode(m["content"])] for m in CHAT]
        chat = [*front, *sum(turns, []), ids["<|assistant|>"]]
    else:
        first, answer, last = (m["content"] for m in CHAT)
        chat = front + model.encode(f"[Round 1]\n\n问：{first}\n\n答：{answer}\n\n[Round 2]\n\n问：{last}\n\n答：")
    return {"texts": inputs, "ids": [front + encode(text) for text in inputs], "chat": chat}


def own_tokenizers():
    ranks = vocabulary()
    lines = "".join(f"{base64.b64encode(token).decode()} {rank}\n" for token, rank in ranks.items())
    for name, (file, kind, *_) in KINDS.items():
        folder = FOLDER / name
        folder.mkdir(exist_ok=True)
        (folder / file).write_text(lines)
        (folder / "tokenizer_config.json").write_text(json.dumps({"tokenizer_class": kind}) + "\n")
        tiny.write_lines(FOLDER / f"{name}.golden.json", golden(ranks, name))
    (FOLDER / "qwen-tiktoken-mini" / "generation_config.json").write_text('{"chat_format": "chatml"}\n')
    roles = ["<|system|>", "<|user|>", "<|assistant|>", "<|observation|>"]
    tiny.write_lines(FOLDER / "chatglm-mini.golden.json", {"chat": CHAT, "2": chatglm([]), "3": chatglm(roles)})
