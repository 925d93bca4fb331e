"""Goldens of whole models besides the tiny checkpoints: the demo's greedy text and generation_config.json, perplexity,
divergence, which config.json keys each family uses, and tied embeddings.

Golden files contain their inputs (prompts, files, windows, configs, logits); keys.json uses KEYS.
"""

import copy
import json
import math
import shutil
import tempfile
from pathlib import Path

import numpy as np
import sentencepiece
import torch
import transformers
from safetensors.torch import load_file, save_file
from transformers import (AutoConfig, AutoModelForCausalLM, AutoModelForImageTextToText, AutoTokenizer,
                          GenerationConfig)  # fmt: skip

import tiny
from families import golden_checkpoints  # of tools/lab; tiny adds the path

DEMO = tiny.ROOT / "configs" / "demo"


def generated(folder, prompt, count, **options):
    """Up to `count` ids of greedy generate(), with score margins."""
    model = AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32).eval()
    out = model.generate(torch.tensor([prompt]), max_new_tokens=count, output_scores=True, return_dict_in_generate=True,
                         **options)  # fmt: skip
    margins = [(top[0] - top[1]).item() for top in (scores[0].topk(2).values for scores in out.scores)]
    return out.sequences[0, len(prompt) :].tolist(), margins


def demo():
    """demo/greedy_200.json: logit errors below half the smallest margin give the same text."""
    path = tiny.GOLDEN / "demo" / "greedy_200.json"
    golden = tiny.read(path)
    tokenizer = AutoTokenizer.from_pretrained(DEMO)
    prompt = tokenizer(golden["prompt"]).input_ids
    # The end-of-text token is an ordinary token here.
    tokens, margins = generated(DEMO, prompt, len(golden["tokens"]), eos_token_id=None)
    golden |= {"prompt_tokens": prompt, "tokens": tokens, "text": tokenizer.decode(tokens),
               "smallest_margin": min(margins), "smallest_margin_index": margins.index(min(margins)),
               "transformers": transformers.__version__, "torch": torch.__version__.split("+")[0]}  # fmt: skip
    path.write_text(json.dumps(golden, indent=1) + "\n")


def sampling(model, file):
    """Parameters of transformers' logits warpers; None for greedy decoding."""
    model.generation_config = GenerationConfig.from_dict(dict(file))
    config, _ = model._prepare_generation_config(None)
    processors = model._get_logits_processor(config, input_ids_seq_length=1, device="cpu")
    if not config.do_sample:
        return None
    found = {"temperature": 1.0, "top_k": 0, "top_p": 1.0, "min_p": 0.0}
    return {key: next((getattr(p, key) for p in processors if hasattr(p, key)), none) for key, none in found.items()}


def generation():
    path = tiny.GOLDEN / "generation.json"
    golden = tiny.read(path)
    config = GenerationConfig()
    defaults = config._get_default_generation_params()
    golden |= {"transformers": transformers.__version__,
               "keys": {key: defaults.get(key) for key in sorted(config.to_dict() | defaults)}}  # fmt: skip
    model = AutoModelForCausalLM.from_pretrained(DEMO, dtype=torch.float32)
    for case in golden["sampling"]:
        case["sampling"] = sampling(model, case["file"])
    golden["prompt_tokens"] = AutoTokenizer.from_pretrained(DEMO)(golden["prompt"]).input_ids
    for case in golden["greedy"]:
        with tempfile.TemporaryDirectory() as name:
            folder = Path(shutil.copytree(DEMO, Path(name) / "model"))
            (folder / "generation_config.json").write_text(json.dumps(case["file"]))
            tokens, margins = generated(folder, golden["prompt_tokens"], 60)
        case |= {"tokens": tokens, "smallest_margin": min(margins)}
    path.write_text(json.dumps(golden, indent=1) + "\n")


def score():
    """score.json: ln p of continuations, with ids as in lm-evaluation-harness (TemplateLM._encode_pair)."""
    path = tiny.GOLDEN / "score.json"
    golden = tiny.read(path)
    tokenizer = AutoTokenizer.from_pretrained(DEMO)
    model = AutoModelForCausalLM.from_pretrained(DEMO, dtype=torch.float32, attn_implementation="eager").eval()
    for case in golden["cases"]:
        case["scores"] = []
        for continuation in case["continuations"]:
            before = case["prompt"].rstrip()
            context = tokenizer(before).input_ids if before else [tokenizer.bos_token_id]
            tokens = tokenizer(case["prompt"] + continuation).input_ids[len(context) :]
            logits = tiny.one_shot(model, context + tokens).double()[len(context) - 1 : -1]
            rows = torch.log_softmax(logits, -1)
            case["scores"].append({"tokens": tokens, "greedy": logits.argmax(-1).tolist() == tokens,
                                   "logprobs": rows[torch.arange(len(tokens)), tokens].tolist()})  # fmt: skip
    golden |= {"transformers": transformers.__version__, "torch": torch.__version__.split("+")[0]}
    path.write_text(json.dumps(golden, indent=1) + "\n")


# ---- perplexity -------------------------------------------------------------------------------------------------


def window_losses(model, window, first):
    """-ln p of window[first:] given the tokens before, float64. Copies the model, which keeps a longer window's dynamic scale."""
    logits = tiny.one_shot(copy.deepcopy(model), window).double()[first - 1 : -1]
    return torch.nn.functional.cross_entropy(logits, torch.tensor(window[first:]), reduction="none")


def sliding(model, tokens, bos, ctx, stride):
    scored = 0  # tokens[:scored] are done
    parts = []
    for begin in range(0, len(tokens), min(stride, ctx - 1)):
        end = min(begin + ctx - 1, len(tokens))
        parts.append(window_losses(model, [bos, *tokens[begin:end]], 1 + scored - begin))
        scored = end
        if end == len(tokens):
            return torch.cat(parts)


def chunks(model, tokens, bos, ctx):
    tokens = [bos, *tokens]
    starts = range(0, len(tokens) - ctx + 1, ctx)
    return torch.cat([window_losses(model, [bos, *tokens[at + 1 : at + ctx]], ctx // 2 + 1) for at in starts])


def perplexity(shared):
    """demo/perplexity.json, and perplexity.json with its model and text in `shared` (unless None). `definitions` in the latter
    explain each number; losses in float64 from float32 logits."""
    measure_perplexity(tiny.GOLDEN / "demo" / "perplexity.json", tiny.ROOT)
    if shared:
        measure_perplexity(tiny.GOLDEN / "perplexity.json", shared)


def measure_perplexity(path, root):
    golden = tiny.read(path)
    folder = root / golden["model"]
    processor = sentencepiece.SentencePieceProcessor(model_file=str(folder / "tokenizer.model"))
    tokens = processor.encode((root / golden["text"]).read_bytes().decode())[: golden["text_tokens"]]
    for result in golden["results"]:
        config = AutoConfig.for_model(**tiny.read(folder / "config.json") | copy.deepcopy(result["config"]))
        model = AutoModelForCausalLM.from_pretrained(folder, config=config, dtype=torch.float32,
                                                     attn_implementation="eager")  # fmt: skip
        if result["method"] == "sliding":
            loss = sliding(model, tokens, processor.bos_id(), result["ctx"], result["stride"])
            assert len(loss) == len(tokens)
        else:
            loss = chunks(model, tokens, processor.bos_id(), result["ctx"])
        n, ppl, variance = len(loss), math.exp(loss.mean()), (loss**2).mean() - loss.mean() ** 2
        result |= {"tokens": n, "nll": loss.sum().item(), "ppl": ppl, "stderr": ppl * math.sqrt(variance / (n - 1))}
    golden |= {"made_with": tiny.VERSIONS, "bos": processor.bos_id(), "first_tokens": tokens[:16],
               "last_tokens": tokens[-16:]}  # fmt: skip
    path.write_text(json.dumps(golden, indent=2) + "\n")


# ---- divergence -------------------------------------------------------------------------------------------------


def log_softmax(logits):
    shifted = logits - logits.max(axis=1, keepdims=True)
    return shifted - np.log(np.exp(shifted).sum(axis=1, keepdims=True))


def error_of_mean(values):
    return values.std() / np.sqrt(len(values) - 1)


def figures(model, reference, tokens):
    """The metrics of llama.cpp's `llama-perplexity --kl-divergence` (engine/eval/measure/divergence.h); the ratio's standard error uses
    the covariance of both losses."""
    ln_p, ln_r = log_softmax(model), log_softmax(reference)
    kl = (np.exp(ln_r) * (ln_r - ln_p)).sum(axis=1)
    rows = np.arange(len(tokens))
    loss, against_loss = -ln_p[rows, tokens], -ln_r[rows, tokens]
    p_diff = np.exp(-loss) - np.exp(-against_loss)
    same = (model.argmax(axis=1) == reference.argmax(axis=1)).mean()
    ratio = np.exp(loss.mean() - against_loss.mean())
    covariance = np.cov(loss, against_loss, ddof=0) / (len(tokens) - 1)
    rms = np.sqrt((p_diff**2).mean())
    return {
        "ppl": np.exp(loss.mean()),
        "ppl_stderr": np.exp(loss.mean()) * error_of_mean(loss),
        "against_ppl": np.exp(against_loss.mean()),
        "against_ppl_stderr": np.exp(against_loss.mean()) * error_of_mean(against_loss),
        "ppl_ratio": ratio,
        "ppl_ratio_stderr": ratio * np.sqrt(covariance[0, 0] + covariance[1, 1] - 2 * covariance[0, 1]),
        "kl": kl.mean(),
        "kl_stderr": error_of_mean(kl),
        "kl_p99": np.percentile(kl, 99),
        "kl_max": kl.max(),
        "p_diff": p_diff.mean(),
        "p_diff_stderr": error_of_mean(p_diff),
        "p_diff_rms": rms,
        "p_diff_rms_stderr": 0.5 / rms * error_of_mean(p_diff**2),
        "p_diff_max": np.abs(p_diff).max(),
        "same_top": same,
        "same_top_stderr": np.sqrt(same * (1 - same) / (len(tokens) - 1)),
    }


def divergence():
    path = tiny.GOLDEN / "divergence.json"
    golden = tiny.read(path)
    golden["figures"] = figures(*(np.array(golden[key]) for key in ("model", "reference", "tokens")))
    path.write_text(json.dumps(golden).replace("], [", "],\n[").replace(', "', ',\n"') + "\n")


# ---- keys of config.json ----------------------------------------------------------------------------------------

# Keys of all families, each with a value that no checkpoint has.
KEYS = {
    "hidden_size": 16, "n_embed": 16, "n_embd": 16, "d_model": 16,
    "num_hidden_layers": 1, "n_layer": 1, "n_layers": 1,
    "num_attention_heads": 1, "n_head": 1, "n_heads": 1,
    "num_key_value_heads": 1, "head_dim": 4, "v_head_dim": 4, "qk_rope_head_dim": 4,
    "intermediate_size": 40, "n_inner": 40, "ffn_hidden_size": 40, "expansion_ratio": 2,
    "hidden_act": ["silu", "gelu"], "hidden_activation": "relu", "activation_function": "relu",
    "rms_norm_eps": 0.1, "layer_norm_eps": 0.1, "layer_norm_epsilon": 0.1, "norm_eps": 0.1,
    "attention_bias": True, "mlp_bias": True, "bias": True, "no_bias": False,
    "rope_theta": 777.0, "rotary_emb_base": 777.0, "rotary_pct": 0.5, "partial_rotary_factor": 0.5,
}  # fmt: skip


def holder(config):
    return config.get("text_config", config)


def logits_by_class(folder):
    """Logits of the checkpoint by its own class; None if it fails or tensors do not match the class.

    transformers has no class for DeepSeek-V3's multi-token prediction tensors.
    """
    kind = getattr(transformers, tiny.read(folder / "config.json")["architectures"][0], transformers.MptForCausalLM)
    try:
        model, report = kind.from_pretrained(folder, dtype=torch.float32, attn_implementation="eager",
                                             output_loading_info=True)  # fmt: skip
        extra = [name for name in report["unexpected_keys"] if ".layers.3." not in name]
        if report["missing_keys"] or extra or report["mismatched_keys"]:
            return None
        return model.eval()(torch.arange(1, 49, 4)[None]).logits
    except (ValueError, RuntimeError, TypeError, KeyError, AttributeError, OSError) as error:
        if "model_type" in str(error) or "No such file" in str(error):
            raise
        return None
    except Exception as error:  # exceptions of @strict have no common class
        if "Strict" not in type(error).__name__:
            raise
        return None


def other_value(key, config):
    """A value different from the model's."""
    now, value = holder(config).get(key), KEYS[key]
    if key == "attention_bias" and config["model_type"] == "gpt_neox":
        return False
    if isinstance(value, list):
        return next(other for other in value if other != now)
    return 2 if value == now == 1 else 2 * value if value == now else value


def tried_keys(source, folder):
    """{key: value} that changed logits, tensors or loading, and {key: value} with bitwise identical results."""
    shutil.copytree(source, folder)
    base = logits_by_class(folder)
    assert base is not None, source
    found = {"heeded": {}, "ignored": {}}
    for key in KEYS:
        config = tiny.read(source / "config.json")
        if key == "rope_theta" and "rope_parameters" in holder(config):
            continue  # the inner value overrides it in every family
        holder(config)[key] = other_value(key, config)
        (folder / "config.json").write_text(json.dumps(config))
        changed = logits_by_class(folder)
        kind = "heeded" if changed is None or not torch.equal(changed, base) else "ignored"
        found[kind][key] = holder(config)[key]
    return found


def keys():
    path, rows = tiny.GOLDEN / "keys.json", []
    # Appends new names after the existing ones.
    listed = [row["checkpoint"] for row in tiny.read(path)["checkpoints"]]
    listed += [name for name in golden_checkpoints("kKeys") if name not in listed]
    with tempfile.TemporaryDirectory() as name:
        for checkpoint in listed:
            found = tried_keys(tiny.CHECKPOINTS / checkpoint, Path(name) / checkpoint)
            print(checkpoint, "ignores", *found["ignored"], flush=True)
            rows.append(json.dumps({"checkpoint": checkpoint} | found))
    version = json.dumps(transformers.__version__)
    path.write_text('{\n "transformers": ' + version + ',\n "checkpoints": [\n  ' + ",\n  ".join(rows) + "\n ]\n}\n")


# ---- tied embeddings --------------------------------------------------------------------------------------------


def is_tied(model):
    return model.get_output_embeddings().weight is model.get_input_embeddings().weight


def ties_of(config, outer, inner):
    """Whether head and embedding are tied: in a model built from the config, and in one loaded without lm_head.weight."""
    config = config | {"text_config": dict(config["text_config"])}
    for part, value in ((config, outer), (config["text_config"], inner)):
        if value is not None:
            part["tie_word_embeddings"] = value
    with tempfile.TemporaryDirectory() as name:
        file, weights_file = Path(name) / "config.json", Path(name) / "model.safetensors"
        file.write_text(json.dumps(config))
        model = AutoModelForImageTextToText.from_config(AutoConfig.from_pretrained(name))
        model.save_pretrained(name)
        file.write_text(json.dumps(config))
        weights = load_file(weights_file)
        rest = {key: rows for key, rows in weights.items() if not key.endswith("lm_head.weight")}
        tied = is_tied(model)
        assert (len(rest) < len(weights)) != tied, "save_pretrained leaves out a tied head"
        save_file(rest, weights_file, {"format": "pt"})
        assert is_tied(AutoModelForImageTextToText.from_pretrained(name)) == tied, config
    return {"outer": outer, "inner": inner, "tied": tied}


def ties():
    path, kinds = tiny.GOLDEN / "ties.json", []
    for kind in tiny.read(path)["kinds"]:
        places = [(outer, inner) for outer in (True, False, None) for inner in (True, False, None)]
        rows = ",\n    ".join(json.dumps(ties_of(kind["config"], *place)) for place in places)
        kinds.append(f'  {{"config": {json.dumps(kind["config"])},\n   "ties": [\n    {rows}]}}')
    head = f'{{\n "transformers": "{transformers.__version__}",\n "kinds": [\n'
    path.write_text(head + ",\n".join(kinds) + "\n ]\n}\n")
