"""Numbers equal the command line's to the bit."""

import json
import os
from pathlib import Path

import numpy as np
import pytest
from conftest import DEMO, GOLDEN, json_of, logits_of, run, same, trace_of

import lariat

IDS = [1, 7, 31, 4, 90, 12, 3, 77, 5, 60, 21, 8, 14, 2, 33, 9, 50, 6, 11, 40]
# One of every kind of attention: grouped queries, interleaved pairs, softcap, two RoPEs, sinks, latent, ALiBi, windows, partial
# rotation, norms of queries and keys, long factors, experts.
KINDS = ["llama_gqa", "llama_gqa_interleaved", "gemma2", "gemma3", "gpt_oss", "deepseek_v2", "bloom", "mistral_window", "glm4",
         "qwen3", "phi3", "mixtral", "llama_llama3"]  # fmt: skip


def check_logits(path, ids, folder, model, *options):
    expected = logits_of(path, ids, folder, *options)
    session = model.session()
    assert same(session.append(ids, logits="all"), expected)
    session.truncate(0)
    # Products of one row round differently than products of several.
    np.testing.assert_allclose(session.append(ids, logits="last"), expected[-1], rtol=0, atol=1e-3 * np.abs(expected).max())
    return session


@pytest.mark.parametrize("kind", KINDS)
def test_logits_and_trace_of_every_attention(kind, tmp_path):
    path = GOLDEN / "checkpoints" / kind
    config = json.loads((path / "config.json").read_text())
    ids = [i % config.get("text_config", config)["vocab_size"] for i in IDS]
    session = check_logits(path, ids, tmp_path, lariat.open(path, text=False))
    session.truncate(0)
    trace = trace_of(path, ids, tmp_path)
    rows = session.trace(ids, 1)
    assert set(rows) == {name.removeprefix("layers.1.") for name in trace if name.startswith("layers.1.")}
    assert all(same(found, trace[f"layers.1.{name}"]) for name, found in rows.items())


@pytest.mark.parametrize("scaling", ["none", "dynamic-yarn", "yarn/factor=4", "dynamic"])
def test_logits_of_scalings(scaling, book, tmp_path):
    name, _, factor = scaling.partition("/factor=")
    options = ["--rope-scaling", name, *(["--rope-factor", factor] if factor else [])]
    check_logits(DEMO, book, tmp_path, lariat.open(DEMO, rope_scaling=scaling), *options)


def test_logits_of_a_position_method(book, tmp_path):
    check_logits(DEMO, book, tmp_path, lariat.open(DEMO, position_method="dca"), "--position-method", "dca")


def test_logprobs_are_those_of_score_and_logits(demo, tmp_path):
    prompt, continuation = "Once upon a time", " there was a little girl named Lily."
    lines = tmp_path / "lines.jsonl"
    lines.write_text('{"prompt": "%s", "continuation": "%s"}\n' % (prompt, continuation))
    expected = lariat_lines(run("score", "-m", DEMO, "--file", lines, "--top", "3"))[0]
    score = demo.score([prompt], [continuation])[0]
    assert score["logprobs"].tolist() == expected["logprobs"]
    assert (score["sum"], score["per_byte"], score["greedy"]) == (expected["sum"], expected["per_byte"], expected["greedy"])
    assert score["tokens"].tolist() == expected["tokens"]
    by_ids = demo.score([demo.tokenize(prompt)], [score["tokens"]])[0]
    assert same(by_ids["logprobs"], score["logprobs"])
    ids = demo.tokenize(prompt + continuation)
    first = len(ids) - len(score["tokens"])
    logprobs, top, values = demo.session().logprobs(ids, top=3)
    assert np.isnan(logprobs[0])
    np.testing.assert_allclose(logprobs[first:], score["logprobs"], rtol=0, atol=1e-3)  # other rows share the products
    assert [[one["token"] for one in row] for row in expected["top"]] == top[first:].tolist()
    rows = demo.session().append(ids, logits="all").astype(np.float64)
    ln = rows - rows.max(1, keepdims=True)
    ln -= np.log(np.exp(ln).sum(1, keepdims=True))
    np.testing.assert_allclose(logprobs[1:], ln[np.arange(len(ids) - 1), ids[1:]], rtol=0, atol=1e-6)
    np.testing.assert_allclose(values[1:], -np.sort(-ln[:-1])[:, :3], rtol=0, atol=1e-6)


def lariat_lines(text):
    return [json.loads(line) for line in text.splitlines()]


def test_logprobs_continue_a_text(demo, book):
    whole = demo.session().logprobs(book)
    session = demo.session()
    session.append(book[:300])
    np.testing.assert_allclose(session.logprobs(book[300:]), whole[300:], rtol=0, atol=0.1)
    assert len(session) == len(book)


@pytest.mark.parametrize("options", [{}, {"temperature": 0.8, "top_p": 0.9, "seed": 7}])
def test_texts(demo, options):
    words = [word for name, value in options.items() for word in ("--" + name.replace("_", "-"), value)]
    prompt = "Once upon a time"
    expected = json_of("generate", "-m", DEMO, "-p", prompt, "-n", 48, "--logprobs", 1, *words)
    session = demo.session()
    text = session.generate(prompt, max_tokens=48, logprobs=1, **options)
    assert "".join(text) == expected["text"]
    result = text.result()
    assert result["tokens"].tolist() == expected["tokens"] and result["stop_reason"] == expected["stop_reason"]
    assert result["logprobs"].tolist() == [one["logprob"] for one in expected["logprobs"]]
    assert session.tokens.tolist() == demo.tokenize(prompt).tolist() + expected["tokens"]
    batch = demo.generate([prompt, demo.tokenize("The sun"), prompt], max_tokens=48, **options)
    assert [one["text"] for one in batch][::2] == [expected["text"]] * 2


def test_stops_and_continuing(demo):
    prompt = "Once upon a time"
    whole = demo.generate([prompt], max_tokens=40)[0]["text"]
    stop = whole[20:24]
    assert demo.generate([prompt], max_tokens=40, stop=[stop])[0]["text"] == whole[: whole.index(stop)]
    session = demo.session()
    first = "".join(session.generate(prompt, max_tokens=20))
    assert first + "".join(session.generate(max_tokens=20)) == whole


def test_tokens_and_facts(demo):
    text = "Once upon a time, été 你好."
    assert demo.tokenize(text).tolist() == json_of("tokenize", "-m", DEMO, "--text", text)["tokens"]
    assert demo.detokenize(demo.tokenize(text)) == text
    expected = json_of("inspect", "-m", DEMO)
    del expected["build"]
    assert demo.facts == expected


def test_measurements(demo):
    text = DEMO / "heldout.txt"
    for method in ("sliding", "growing"):
        expected = json_of("perplexity", "-m", DEMO, "--file", text, "--ctx", "128,256", "--method", method, "--max-tokens", 1024)
        found = lariat.measure.perplexity(demo, text, [128, 256], method=method, max_tokens=1024)
        assert [(one["length"], one["tokens"], one["nll"], one["ppl"]) for one in found] == [
            (one["ctx"], one["tokens"], one["nll"], one["ppl"]) for one in expected["results"]]  # fmt: skip
        labels = ("model", "dtype", "rope_scaling", "window_method", "settings")
        assert [[one[key] for key in labels] for one in found] == [[one[key] for key in labels] for one in expected["results"]]
    expected = json_of("passkey", "-m", DEMO, "--lengths", 200, "--depths", "0,1", "--trials", 2)["results"]
    found = lariat.measure.passkey(demo, 200, depths=[0, 1], trials=2)
    for key in ("length", "depth", "trials", "correct", "settings"):
        assert [one[key] for one in found] == [one[key] for one in expected]


def test_sweep(demo, tmp_path):
    options = ("--scalings", "none,dynamic-yarn", "--lengths", 1024, "--no-speed", "--no-passkey", "--max-tokens", 2048)
    log = tmp_path / "log.jsonl"
    run("sweep", "-m", DEMO, *options, "--report", tmp_path / "r.html", "--results", log)
    expected = [one for one in lariat_lines(log.read_text()) if one.get("kind") in ("growing", "perplexity")]
    found = lariat.measure.sweep(demo, scalings=["none", "dynamic-yarn"], lengths=1024, speed=False, passkey=False, max_tokens=2048)
    key = lambda one: (one["kind"], one["scaling"], one["length"])  # noqa: E731
    assert sorted((*key(one), one["nll"]) for one in found) == sorted((*key(one), one["nll"]) for one in expected)
    pandas = pytest.importorskip("pandas")
    assert set(pandas.DataFrame(found)["scaling"]) == {"none", "dynamic-yarn", "dynamic-yarn stale"}


def test_published_gguf(tmp_path):
    path = os.environ.get("LARIAT_SMOLLM2", "")
    if not Path(path).is_file():
        pytest.skip("LARIAT_SMOLLM2 names no GGUF file of SmolLM2")
    model = lariat.open(path)
    prompt = "The largest planet in the solar system is"
    ids = model.tokenize(prompt).tolist()
    expected = logits_of(path, ids, tmp_path)
    assert same(model.session().append(ids, logits="all"), expected)
    text = json_of("generate", "-m", path, "-p", prompt, "-n", 10)["text"]
    assert model.generate([prompt], max_tokens=10)[0]["text"] == text
    messages = [{"role": "user", "content": "Hi"}]
    (tmp_path / "m.json").write_text('[{"role": "user", "content": "Hi"}]')
    assert model.chat(messages).tolist() == json_of("tokenize", "-m", path, "--messages", tmp_path / "m.json")["tokens"]
