"""Tokenizer training and conversion of text files to token streams."""
import hashlib
from pathlib import Path

import numpy as np
import sentencepiece as spm

BOS, EOS = 1, 2
END = "<|endoftext|>"


def read_documents(path):
    text = Path(path).read_text(encoding="utf-8")
    docs = [d.strip("\n") for d in text.split(END)]
    return [d for d in docs if d.strip()]


def train_tokenizer(documents, vocab_size, prefix):
    """A LLaMA-like SentencePiece model: BPE, single digits, byte fallback, no normalization.

    Line breaks stay bytes, as in LLaMA. The trainer sees a digit in their place: digits are always separated from their
    neighbours, so words that start a line get pieces without the leading space.
    """
    sentences = (d.replace("\n", "0")[:4000] for d in documents)
    spm.SentencePieceTrainer.train(
        sentence_iterator=sentences, model_prefix=str(prefix), vocab_size=vocab_size, model_type="bpe",
        split_digits=True, byte_fallback=True, normalization_rule_name="identity",
        remove_extra_whitespaces=False, add_dummy_prefix=True, character_coverage=0.9999,
        unk_id=0, bos_id=1, eos_id=2, pad_id=-1, max_sentence_length=20000,
        num_threads=2, minloglevel=1)


def load_tokenizer(path):
    return spm.SentencePieceProcessor(model_file=str(path))


def encode_file(path, tokenizer, cache_dir):
    """(tokens uint16, offsets): document i is tokens[offsets[i]:offsets[i+1]], BOS ... EOS. Cached."""
    stamp = hashlib.sha256(Path(path).read_bytes() + tokenizer.serialized_model_proto()).hexdigest()[:16]
    cache = Path(cache_dir) / f"{Path(path).stem}-{stamp}.npz"
    if cache.exists():
        data = np.load(cache)
        return data["tokens"], data["offsets"]
    ids = tokenizer.encode(read_documents(path), num_threads=2)
    offsets = np.cumsum([0] + [len(d) + 2 for d in ids])
    tokens = np.empty(offsets[-1], dtype=np.uint16)
    for start, d in zip(offsets, ids):
        tokens[start] = BOS
        tokens[start + 1:start + 1 + len(d)] = d
        tokens[start + 1 + len(d)] = EOS
    np.savez(cache, tokens=tokens, offsets=offsets)
    return tokens, offsets
