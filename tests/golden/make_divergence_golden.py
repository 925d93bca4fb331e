"""Every number of a divergence (`lariat perplexity --against`), from two small matrices of logits, by numpy in float64.

    python tests/golden/make_divergence_golden.py

Writes tests/golden/divergence.json: `model`, `reference` (logits, one row per token, multiples of 1/64, so that they
are exact in float32), `tokens` and `figures`. The definitions are those of llama.cpp's `llama-perplexity
--kl-divergence`, written down in engine/eval/divergence.h; here the error of the ratio comes from the covariance of
both losses, as llama.cpp has it.
"""

import json
from pathlib import Path

import numpy as np

TOKENS, VOCAB = 30, 12


def log_softmax(logits):
    shifted = logits - logits.max(axis=1, keepdims=True)
    return shifted - np.log(np.exp(shifted).sum(axis=1, keepdims=True))


def error_of_mean(values):
    return values.std() / np.sqrt(len(values) - 1)


def figures(model, reference, tokens):
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


def main():
    random = np.random.default_rng(18)
    reference = np.round(random.normal(0, 3, (TOKENS, VOCAB)) * 64) / 64
    model = reference + np.round(random.normal(0, 1, (TOKENS, VOCAB)) * 64) / 64
    model[0] = reference[0]  # no divergence
    reference[1, [3, 7]] = model[1, [3, 7]] = 10  # two largest: the first counts
    reference[2, [3, 7]], model[2, [3, 7]] = [10, 10], [9, 10]
    reference[3, 5] = -2000  # a probability of 0
    model[4] += 500  # what is the same for all ids means nothing
    tokens = random.integers(0, VOCAB, TOKENS)
    tokens[3] = 0
    values = figures(model, reference, tokens)
    assert 0.5 < values["same_top"] < 1 and values["kl"] > 0.05
    golden = {"model": model.tolist(), "reference": reference.tolist(), "tokens": tokens.tolist(), "figures": values}
    text = json.dumps(golden, indent=None).replace("], [", "],\n[").replace(', "', ',\n"')
    (Path(__file__).parent / "divergence.json").write_text(text + "\n")


if __name__ == "__main__":
    main()
