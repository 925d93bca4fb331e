"""The table of generation_config.json in docs/checkpoints.md, for checkpoints_table.py."""

import json
import pathlib
import shutil

ROOT = pathlib.Path(__file__).resolve().parents[3]
BASE = {"do_sample": True, "eos_token_id": 2}  # beside which a key is tried

# What becomes of keys, and a value of each that is none of transformers' defaults. The kind is not written here: it is
# what the program makes of the value.
KEYS = [
    ("the default of `--repetition-penalty`, for greedy text too", {"repetition_penalty": 1.3}),
    ("defaults of `chat`, and of `generate --sampling model`. As in transformers nothing is sampled without `do_sample`, and "
     "with it `top_k` is 50 where the file has none", {"do_sample": False, "temperature": 0.5, "top_k": 3, "top_p": 0.5,
                                                       "min_p": 0.5}),
    ("the default of `--stop` (transformers wants the tokenizer for it, and leaves the text standing)", {"stop_strings": [" "]}),
    ("where a text ends, before config.json's", {"eos_token_id": list(range(1000, 2048))}),
    ("not done: tokens that are banned, forced or weighed",
     {"suppress_tokens": [5], "begin_suppress_tokens": [5], "bad_words_ids": [[5]], "force_words_ids": [[5]],
      "constraints": [5], "sequence_bias": [[[5], 1.5]], "forced_bos_token_id": 5, "forced_eos_token_id": 5,
      "no_repeat_ngram_size": 3, "encoder_no_repeat_ngram_size": 3, "encoder_repetition_penalty": 1.5,
      "exponential_decay_length_penalty": [5, 1.5], "guidance_scale": 1.5, "token_healing": True,
      "watermarking_config": {"bias": 2.5}}),
    ("not done: a least length, an end by the clock", {"min_length": 5, "min_new_tokens": 5, "max_time": 5.0}),
    ("not done: other ways to search and to sample",
     {"num_beams": 4, "num_beam_groups": 2, "num_return_sequences": 2, "penalty_alpha": 0.6, "dola_layers": "low",
      "typical_p": 0.5, "top_h": 0.5, "epsilon_cutoff": 0.1, "eta_cutoff": 0.1}),
    ("`--max-new-tokens` says how long a text may get", {"max_length": 5, "max_new_tokens": 5}),
    ("of beams, which are not searched", {"early_stopping": True, "length_penalty": 2.0, "diversity_penalty": 0.5,
                                          "low_memory": True}),
    ("the same tokens, or a warning of its own (logits that are not finite)",
     {"renormalize_logits": True, "remove_invalid_values": True}),
    ("the prompt says what a text begins with, and there is no padding",
     {"bos_token_id": 5, "pad_token_id": 5, "decoder_start_token_id": 5}),
    ("how fast, not what: the cache, compiling, speculation",
     {"use_cache": False, "cache_implementation": "hybrid", "cache_config": {"a": 1}, "max_cache_len": 5,
      "prefill_chunk_size": 5, "compile_config": {"a": 1}, "disable_compile": True,
      "continuous_batching_config": {"a": 1}, "use_mtp": True, "is_assistant": True, "num_assistant_tokens": 5,
      "num_assistant_tokens_schedule": "heuristic", "assistant_confidence_threshold": 0.5, "assistant_early_exit": 2,
      "assistant_lookbehind": 5, "target_lookbehind": 5, "assistant_ensemble_weight": 0.5,
      "prompt_lookup_num_tokens": 5, "max_matching_ngram_size": 5, "speculation_type": "x"}),
    ("what transformers' generate() returns beside the text",
     {"output_attentions": True, "output_hidden_states": True, "output_scores": True, "output_logits": True,
      "return_dict_in_generate": True}),
    ("where the file comes from", {"_from_model_config": True, "transformers_version": "4.0", "_commit_hash": "0a1b"}),
    ("no key of transformers; any other name", {"chat_format": "x"}),
]  # fmt: skip


def tried(program, demo, file):
    """What the program makes of such a generation_config.json: what it writes, its exit code, what it says."""
    model = program.folder / "model"
    shutil.rmtree(model, ignore_errors=True)
    shutil.copytree(demo, model)
    (model / "generation_config.json").write_text(json.dumps(file))
    out = program.folder / "out.json"
    code, err = program.run("generate", "--device", "cpu", "--model", model, "--prompt", "The sea", "--json", "-n", 8,
                            "--sampling", "model", out=out)  # fmt: skip
    written = json.loads(out.read_text()) if code == 0 else {}
    return {key: written.get(key) for key in ("tokens", "stop_reason", "sampling")}, code, err


def generation_keys(program, demo, row):
    known = json.loads((ROOT / "tests" / "golden" / "generation.json").read_text())["keys"]
    listed = {key for _, values in KEYS for key in values}
    assert not set(known) - listed, set(known) - listed
    plain, _, _ = tried(program, demo, BASE)
    print("\n## Keys of generation_config.json\n")
    print("Every key of transformers 5.24's GenerationConfig (`tests/golden/generation.json`), and what `generate` and `chat`")
    print("make of one whose value is not transformers' default; measurements pass all of them over but `eos_token_id`. Where")
    print("there is no such file, these keys count in config.json, as in transformers. An option on the command line wins.\n")
    print("| kind | keys | |\n|---|---|---|")
    for what, values in KEYS:
        kinds = {}
        for key, value in values.items():
            written, code, err = tried(program, demo, BASE | {key: value})
            kind = "refused" if code else "warned" if err else "heeded" if written != plain else "harmless"
            kinds.setdefault(kind, []).append(f"`{key}`")
        for kind, keys in kinds.items():
            print(f"| {kind} | {', '.join(keys)} | {what} |")
    print("\n| generation_config.json | what lariat prints on stderr | exit code |\n|---|---|---|")
    for file in ({"repetition_penalty": 3.0}, {"suppress_tokens": [5], "num_beams": 4}, {"num_beams": 1, "chat_format": "x"},
                 {"repetition_penalty": 0}, {"temperature": "hot"}):  # fmt: skip
        _, code, err = tried(program, demo, BASE | file)
        row(f"`{json.dumps(file)}`", code, err)
