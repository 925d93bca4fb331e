"""Writes the tables of tokenizer and generation_config.json keys in docs/checkpoints.md, for checkpoints_table.py.

Each row is two runs of the program, with and without the key. A key that causes an error is refused, one that causes a
message on stderr is warned, one that changes the output is used, and any other is harmless.
"""

import json
import re
import shutil

from checkpoints_table import DEMO, ROOT, kind, row, spoken, write

# --- a tokenizer's files ---

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
    (CONFIG, "model_specific_special_tokens", {"name": "er"}, "byte-mini", {}),
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
    """Harmless keys of tokenizer_config.json, as listed in the source."""
    source = (ROOT / "models" / "text" / "tokenizer_settings.cpp").read_text()
    return " ".join(re.findall('"([^"]*)"', re.search("kHarmless =(.*?);", source, re.S)[1])).split()


def tokenize(program, tokenizer, files):
    """A run on TEXT with a vocabulary and these files. Keys for the vocabulary's file replace its keys."""
    folder = program.folder / "tokenizer"
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir()
    for file in (VOCABULARY, "tokenizer.model"):
        if (GOLDEN / tokenizer / file).exists():
            shutil.copy(GOLDEN / tokenizer / file, folder)
    for file, keys in files.items():
        if file == VOCABULARY:
            keys = json.loads((folder / file).read_text()) | keys
        if keys:
            (folder / file).write_text(json.dumps(keys))
    return program.run("tokenize", "--model", folder, "--text", TEXT)


def judged(program, file, key, value, tokenizer, config):
    """(kind, line on stderr)"""
    _, ids, _ = tokenize(program, tokenizer, {CONFIG: config})
    files = {CONFIG: config} | {file: (config if file == CONFIG else {}) | {key: value}}
    code, changed, line = tokenize(program, tokenizer, files)
    return kind(code, ids, changed, line), line.replace("DIR/tokenizer/", "DIR/")


def rows_of(folder):
    """Keys in the folder's files that no row has, each with its value."""
    known = {(file, key) for file, key, *_ in ROWS} | {(CONFIG, key) for key in harmless_names()}
    found = {}
    for path in sorted([*folder.glob(f"*/{CONFIG}"), *folder.glob(f"*/{MAP}")]):
        for key, value in json.loads(path.read_text()).items():
            says = value not in (None, False, "", [], {}) and not key.endswith("_token")  # these are all alike
            if says and (path.name, key) not in known:
                found.setdefault((path.name, key), value)
    return [(file, key, value, "byte-mini", {}) for (file, key), value in found.items()]


def tokenizer_keys(program, folder):
    rows = []
    for file, key, value, tokenizer, config in ROWS + (rows_of(folder) if folder else []):
        result, line = judged(program, file, key, value, tokenizer, config)
        with_files = "tokenizer.model" if tokenizer == "sp-mini" else VOCABULARY
        with_files = "" if file == VOCABULARY else with_files + "".join(f", `{k}`" for k in config)
        text = json.dumps(value, ensure_ascii=False).replace("|", "\\|")
        line = line.replace("lariat: warning: ", "").replace("lariat: error: ", "")
        rows.append([file, f"`{key}`: `{text if len(text) < 50 else '…'}`", with_files, result, spoken(line)])
    values = {"model_max_length": 2, "max_length": 2, "padding": "max_length", "truncation": True}
    kinds = {judged(program, CONFIG, key, values.get(key, "x"), "byte-mini", {})[0] for key in harmless_names()}
    rows.append([CONFIG, ", ".join(f"`{key}`" for key in harmless_names()), VOCABULARY, ", ".join(sorted(kinds)), ""])
    write("tokenizer", rows, ("file", "key", "with", "effect", "message on stderr"))


# --- generation_config.json ---

BASE = {"do_sample": True, "eos_token_id": 2}  # keys of every run

# Values other than transformers' defaults.
KEYS = [
    ("default of `--repetition-penalty`, in greedy decoding too", {"repetition_penalty": 1.3}),
    ("defaults of `chat` and of `generate --sampling model`; as in transformers, decoding is greedy without `do_sample`, "
     "and with it the default of `top_k` is 50", {"do_sample": False, "temperature": 0.5, "top_k": 3, "top_p": 0.5,
                                                       "min_p": 0.5}),
    ("default of `--stop` (transformers needs the tokenizer for it, and prints the stop text; "
     "[which text it searches](chat.md#where-a-text-ends))", {"stop_strings": [" "]}),
    ("end-of-text tokens, before those of config.json", {"eos_token_id": list(range(1000, 2048))}),
    ("not implemented: banned, forced or weighted tokens",
     {"suppress_tokens": [5], "begin_suppress_tokens": [5], "bad_words_ids": [[5]], "force_words_ids": [[5]],
      "constraints": [5], "sequence_bias": [[[5], 1.5]], "forced_bos_token_id": 5, "forced_eos_token_id": 5,
      "no_repeat_ngram_size": 3, "encoder_no_repeat_ngram_size": 3, "encoder_repetition_penalty": 1.5,
      "exponential_decay_length_penalty": [5, 1.5], "guidance_scale": 1.5, "token_healing": True,
      "watermarking_config": {"bias": 2.5}}),
    ("not implemented: minimum length, time limit", {"min_length": 5, "min_new_tokens": 5, "max_time": 5.0}),
    ("not implemented: other search and sampling methods",
     {"num_beams": 4, "num_beam_groups": 2, "num_return_sequences": 2, "penalty_alpha": 0.6, "dola_layers": "low",
      "typical_p": 0.5, "top_h": 0.5, "epsilon_cutoff": 0.1, "eta_cutoff": 0.1}),
    ("`--max-new-tokens` limits the length", {"max_length": 5, "max_new_tokens": 5}),
    ("beam search only", {"early_stopping": True, "length_penalty": 2.0, "diversity_penalty": 0.5,
                                          "low_memory": True}),
    ("no change, or another warning (non-finite logits)",
     {"renormalize_logits": True, "remove_invalid_values": True}),
    ("the prompt defines the first tokens, and there is no padding",
     {"bos_token_id": 5, "pad_token_id": 5, "decoder_start_token_id": 5}),
    ("speed only: cache, compilation, speculative decoding",
     {"use_cache": False, "cache_implementation": "hybrid", "cache_config": {"a": 1}, "max_cache_len": 5,
      "prefill_chunk_size": 5, "compile_config": {"a": 1}, "disable_compile": True,
      "continuous_batching_config": {"a": 1}, "use_mtp": True, "is_assistant": True, "num_assistant_tokens": 5,
      "num_assistant_tokens_schedule": "heuristic", "assistant_confidence_threshold": 0.5, "assistant_early_exit": 2,
      "assistant_lookbehind": 5, "target_lookbehind": 5, "assistant_ensemble_weight": 0.5,
      "prompt_lookup_num_tokens": 5, "max_matching_ngram_size": 5, "speculation_type": "x"}),
    ("additional return values of transformers' generate()",
     {"output_attentions": True, "output_hidden_states": True, "output_scores": True, "output_logits": True,
      "return_dict_in_generate": True}),
    ("origin of the file", {"_from_model_config": True, "transformers_version": "4.0", "_commit_hash": "0a1b"}),
    ("unknown to transformers; any other name", {"chat_format": "x"}),
]  # fmt: skip


def tried(program, file):
    """Runs the program with this generation_config.json."""
    shutil.copytree(DEMO, program.folder / "demo", dirs_exist_ok=True)
    (program.folder / "demo" / "generation_config.json").write_text(json.dumps(file))
    return program.run("generate", "--device", "cpu", "--model", program.folder / "demo", "--prompt", "The sea", "--json",
                       "-n", 8, "--sampling", "model")  # fmt: skip


def written(run):
    out = json.loads(run[1]) if run[0] == 0 else {}
    return {key: out.get(key) for key in ("tokens", "stop_reason", "sampling")}


def generation_keys(program):
    known = json.loads((ROOT / "tests" / "golden" / "generation.json").read_text())["keys"]
    listed = {key for _, values in KEYS for key in values}
    assert not set(known) - listed, set(known) - listed
    plain, rows = written(tried(program, BASE)), []
    for what, values in KEYS:
        kinds = {}
        for key, value in values.items():
            run = tried(program, BASE | {key: value})
            kinds.setdefault(kind(run[0], plain, written(run), run[2]), []).append(f"`{key}`")
        rows += [[result, ", ".join(keys), what] for result, keys in kinds.items()]
    write("generation", rows, ("effect", "keys", "meaning"))
    files = ({"repetition_penalty": 3.0}, {"suppress_tokens": [5], "num_beams": 4}, {"num_beams": 1, "chat_format": "x"},
             {"repetition_penalty": 0}, {"temperature": "hot"}, {"temperature": "hot", "do_sample": False},
             {"top_k": -1, "top_p": 1.2})  # fmt: skip
    write("generation files", [row(f"`{json.dumps(file)}`", tried(program, BASE | file)) for file in files],
          ("generation_config.json", "message on stderr", "exit code"))  # fmt: skip
