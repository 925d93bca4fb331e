"""The cache's frequencies and keys, forks, saved contexts."""

import numpy as np
import pytest
from conftest import DEMO, same

import lariat

SCALINGS = ["none", "linear/factor=2", "ntk/factor=2", "dynamic", "yarn/factor=4", "dynamic-yarn", "llama3/factor=4"]


@pytest.fixture(scope="module")
def exact():
    """f32 keys: rotations are exact."""
    return lariat.open(DEMO, dtype="f32", kv_dtype="f32")


def rotate(keys, inv_freq, positions):
    """Rotates half-split pairs in float64. keys: [H, n, D]."""
    half = keys.shape[-1] // 2
    angles = np.outer(positions, inv_freq)
    a, b = keys[..., :half].astype(np.float64), keys[..., half:].astype(np.float64)
    return np.concatenate([a * np.cos(angles) - b * np.sin(angles), a * np.sin(angles) + b * np.cos(angles)], -1)


@pytest.mark.parametrize("scaling", SCALINGS)
def test_set_rope_is_a_restored_session(scaling, book, tmp_path, exact):
    session = exact.session()
    session.append(book[:800])
    session.save(tmp_path / "context")
    before, plain = session.rope(), session.keys(0)
    previous = session.set_rope(scaling)
    other = exact.load(tmp_path / "context", rope_scaling=scaling)
    assert same(session.append(book[800:810], logits="all"), other.append(book[800:810], logits="all"))
    assert same(session.rope()["inv_freq"], other.rope()["inv_freq"])
    assert all(same(session.keys(layer), other.keys(layer)) for layer in range(4))
    session.truncate(800)
    # The keys of layer 0 depend on the tokens and the rotation only.
    moved = session.rope()["inv_freq"] - before["inv_freq"]
    np.testing.assert_allclose(session.keys(0), rotate(plain, moved, np.arange(800)), rtol=0, atol=1e-6 * np.abs(plain).max())
    assert session.set_rope(previous)["rope_type"] == ("default" if scaling == "none" else scaling.partition("/")[0])
    session.append(book[800:801])
    assert same(session.rope()["inv_freq"], before["inv_freq"]) and session.rope()["scale"] == before["scale"]
    np.testing.assert_allclose(session.keys(0)[:, :800], plain, rtol=0, atol=1e-6 * np.abs(plain).max())


@pytest.mark.parametrize("layer", [0, 3])
def test_keys_are_a_float64_rotation(layer, book, exact):
    session = exact.session(rope_scaling="yarn/factor=4")
    rows = session.trace(book[:600], layer)
    keys, positions = session.keys(layer), np.arange(600)
    assert keys.shape == (2, 600, 64) and session.values(layer).shape == (2, 600, 64)
    assert same(keys.transpose(1, 0, 2).reshape(600, 128), rows["k"])
    assert same(session.values(layer).transpose(1, 0, 2).reshape(600, 128), rows["v"])
    unrotated = session.keys(layer, rotated=False)
    tolerance = 1e-6 * np.abs(keys).max()
    np.testing.assert_allclose(rotate(unrotated, session.rope()["inv_freq"], positions), keys, rtol=0, atol=tolerance)
    other = exact.session(rope_scaling="none")
    other.append(book[:600])
    if layer == 0:
        np.testing.assert_allclose(other.keys(0, rotated=False), unrotated, rtol=0, atol=tolerance)


def test_a_dict_as_in_config_json(book, exact):
    session = exact.session(rope_scaling={"rope_type": "yarn", "factor": 4.0, "original_max_position_embeddings": 512})
    named = exact.session(rope_scaling="yarn/factor=4")
    assert same(session.append(book[:600], logits="last"), named.append(book[:600], logits="last"))
    rope = session.rope()
    assert rope["factor"] == 4 and rope["scale"] == 4 and rope["attention_factor"] > 1 and rope["inv_freq"].dtype == np.float64


def test_stale_keys_differ(book, exact):
    fresh, stale = (exact.session(rope_scaling="dynamic-yarn", rope_cache=cache) for cache in ("consistent", "stale"))
    for session in (fresh, stale):
        session.append(book[:500])
        session.append(book[500:700])
    assert same(fresh.rope()["inv_freq"], stale.rope()["inv_freq"]) and not same(fresh.keys(0), stale.keys(0))


def test_fork_and_truncate(demo, book):
    session = demo.session(rope_scaling="dynamic-yarn")
    session.append(book[:600])
    fork = session.fork()
    expected = session.append(book[600:650], logits="all")
    assert same(fork.append(book[600:650], logits="all"), expected)
    plain, once = demo.session(), demo.session()
    plain.append(book[:512])
    short = plain.fork(300)
    assert len(short) == 300 and same(short.tokens, book[:300])
    once.append(book[:512])
    once.truncate(300)
    assert same(short.append(book[300:310], logits="last"), once.append(book[300:310], logits="last"))
    session.truncate(600)
    assert same(session.append(book[600:650], logits="all"), expected)
    keys = fork.keys(1)
    session.set_rope("none")  # rotates its own pages, not the fork's
    assert same(fork.keys(1), keys) and len(fork) == len(session) == 650


def test_save_load_join(demo, book, tmp_path):
    first, second = demo.session(), demo.session()
    first.append(book[:100])
    second.append(book[100:150])
    first.save(tmp_path / "a")
    second.save(tmp_path / "b")
    first.save(tmp_path / "a")
    again = demo.load(tmp_path / "a")
    assert same(again.tokens, book[:100])
    assert same(again.append(book[100:120], logits="all"), first.append(book[100:120], logits="all"))
    assert len(demo.join([tmp_path / "a", tmp_path / "b"])) == 150
    assert same(demo.join([tmp_path / "a", tmp_path / "b"], how="anew").tokens, book[:150])
