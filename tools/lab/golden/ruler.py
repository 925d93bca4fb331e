#!/usr/bin/env python3
"""tests/golden/ruler/NAME.json: rows of RULER's own scripts, for `lariat tasks`.

    tools/lab/golden/ruler.py RULER [--shared DIR] [NAME...]

RULER is a checkout of github.com/NVIDIA/RULER at COMMIT. Needs transformers 5.24.0, numpy 2.4.6, scipy, nltk, tenacity, tqdm, pyyaml
and wonderwords 3.0.1. The scripts open json/english_words.json, a Git LFS object that rows up to 64k do not use: `{}` replaces it
here. Each script is imported once per process; each file of rows begins with its seeds. Names: see TOKENIZERS.
"""

import argparse
import hashlib
import importlib
import json
import pathlib
import random
import shutil
import sys
import tempfile

import numpy
import wonderwords
import yaml
from transformers import AutoTokenizer, __version__ as transformers_version

ROOT = pathlib.Path(__file__).resolve().parents[3]
COMMIT = "c3f5e3b"
SEED, ROWS = 42, 3
TASKS = ("niah_single_1", "niah_multikey_2", "niah_multikey_3", "vt", "fwe", "cwe")
# Folders of tokenizers, in the repository or (shared/) outside, and lengths. Up to SHORT the fixture holds the first row itself.
# ENDLESS: no row fits, so the script does not end (vt: its example has at most 500 tokens).
TOKENIZERS = {
    "demo": ("configs/demo", (1024, 4096, 8192, 16384)),
    "llama3-mini": ("tests/golden/tokenizers/llama3-mini", (2048, 4096, 8192)),
    "qwen2": ("shared/tokenizers/qwen2", (4096, 8192, 16384, 65536)),
    "llama2-hf": ("shared/tokenizers/llama2-hf", (4096, 8192, 16384)),
}
SHORT = 2048
ENDLESS = {("llama3-mini", "vt"), ("llama3-mini", "cwe", 4096)}


def open_tokenizer(folder):
    """A tokenizer.json is read unchanged: transformers 5 rebuilds the pipelines of some classes."""
    if not (folder / "tokenizer.json").exists():
        return AutoTokenizer.from_pretrained(folder)
    with tempfile.TemporaryDirectory() as plain:
        shutil.copy(folder / "tokenizer.json", plain)
        (pathlib.Path(plain) / "tokenizer_config.json").write_text('{"tokenizer_class": "PreTrainedTokenizerFast"}')
        return AutoTokenizer.from_pretrained(plain)


class Scripts:
    def __init__(self, ruler):
        folder = ruler / "scripts" / "data"
        (folder / "synthetic" / "json" / "english_words.json").write_text("{}")
        sys.path[:0] = [str(folder), str(folder / "synthetic")]
        self.constants = importlib.import_module("constants").TASKS
        self.configs = yaml.safe_load((ruler / "scripts" / "synthetic.yaml").read_text())

    def module(self, task):
        config = self.configs[task]
        constants = self.constants[config["task"]]
        sys.argv = [task, "--save_dir=.", f"--save_name={task}", "--tokenizer_type=openai", "--tokenizer_path=", "--max_seq_length=0",
                    f"--num_samples={ROWS}", f"--tokens_to_generate={constants['tokens_to_generate']}", f"--random_seed={SEED}",
                    "--template=" + constants["template"] + constants["answer_prefix"]]  # fmt: skip
        sys.argv += [f"--{key}={value}" for key, value in config["args"].items()]
        tokenizers = importlib.import_module("tokenizer")
        tokenizers.select_tokenizer = lambda *_: None
        module = importlib.import_module(config["task"])
        module.args = module.parser.parse_args()
        if hasattr(module.args, "num_needle_k"):
            module.args.num_needle_k = max(module.args.num_needle_k, module.args.num_needle_q)
            noise = module.args.type_haystack == "noise"
            module.haystack = ("The grass is green. The sky is blue. The sun is yellow. Here we go. There and back again."
                               if noise else module.needle)  # fmt: skip
        return module

    def rows(self, task, tokenizer, length):
        """-> (lines of validation.jsonl, number of rows drawn again)"""
        module = self.module(task)
        module.TOKENIZER = tokenizer
        module.args.max_seq_length = length
        draws, before_rows, generate, progress = [0], [0], module.generate_input_output, module.tqdm

        def counted(*args, **named):
            draws[0] += 1
            return generate(*args, **named)

        def rows_begin(rows):
            before_rows[0] = draws[0]
            return rows

        module.generate_input_output, module.tqdm = counted, rows_begin
        random.seed(SEED)
        numpy.random.seed(SEED)
        written = []
        module.write_manifest = lambda _, rows: written.extend(rows)
        with tempfile.TemporaryDirectory() as folder:
            module.args.save_dir = pathlib.Path(folder)
            module.main()
        module.generate_input_output, module.tqdm = generate, progress
        return [json.dumps(row) for row in written], draws[0] - before_rows[0] - ROWS


class Counter:
    def __init__(self, tokenizer):
        self.tokenizer = tokenizer

    def text_to_tokens(self, text):
        return self.tokenizer.tokenize(text)


def sha256(text):
    return hashlib.sha256(text.encode()).hexdigest()


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("ruler", type=pathlib.Path)
    parser.add_argument("names", nargs="*", metavar="NAME")
    parser.add_argument("--shared", type=pathlib.Path, default=ROOT.parent / "shared")
    args = parser.parse_args()
    scripts = Scripts(args.ruler)
    for name in args.names or TOKENIZERS:
        path, lengths = TOKENIZERS[name]
        folder = args.shared / path.removeprefix("shared/") if path.startswith("shared/") else ROOT / path
        counter = Counter(open_tokenizer(folder))
        files = []
        for task in TASKS:
            for length in lengths:
                if {(name, task), (name, task, length)} & ENDLESS:
                    continue
                lines, retries = scripts.rows(task, counter, length)
                parsed = [json.loads(line) for line in lines]
                rows = [{"input": sha256(row["input"]), "answer_prefix": sha256(row["answer_prefix"]), "line": sha256(line)}
                        for row, line in zip(parsed, lines)]  # fmt: skip
                files.append({"task": task, "length": length, "retries": retries, "rows": rows})
                if length <= SHORT:
                    files[-1]["first"] = lines[0]
                print(name, task, length, "retries", retries, [row["length"] for row in parsed], flush=True)
        fixture = {"ruler": COMMIT, "transformers": transformers_version, "wonderwords": wonderwords.__version__,
                   "tokenizer": path, "seed": SEED, "files": files}  # fmt: skip
        out = ROOT / "tests" / "golden" / "ruler" / f"{name}.json"
        out.write_text(json.dumps(fixture, indent=1) + "\n")


if __name__ == "__main__":
    main()
