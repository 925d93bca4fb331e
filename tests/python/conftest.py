"""Fixtures of the Python package's tests. scripts/test.sh sets LARIAT_PROGRAM and PYTHONPATH."""

import json
import os
import subprocess
from pathlib import Path

import numpy as np
import pytest

import lariat

ROOT = Path(__file__).resolve().parents[2]
DEMO = ROOT / "configs/demo"
GOLDEN = ROOT / "tests/golden"


def run(*words):
    """-> stdout of the command line."""
    common = [] if words[0] in ("tokenize", "inspect", "rope") else ["--device", "cpu", "--quiet"]
    program = [os.environ["LARIAT_PROGRAM"], words[0], *common, *words[1:]]
    environment = {name: value for name, value in os.environ.items() if name != "LD_PRELOAD"}  # the module's sanitizer
    words = [str(word) for word in program]
    return subprocess.run(words, check=True, stdout=subprocess.PIPE, text=True, env=environment).stdout


def json_of(*words):
    return json.loads(run(*words, "--json"))


def tensors(file):
    """-> the f32 tensors of a safetensors file."""
    data = file.read_bytes()
    begin = 8 + int.from_bytes(data[:8], "little")
    found = {}
    for name, tensor in json.loads(data[8:begin]).items():
        if name != "__metadata__" and tensor["dtype"] == "F32":
            first, last = tensor["data_offsets"]
            found[name] = np.frombuffer(data[begin + first : begin + last], np.float32).reshape(tensor["shape"])
    return found


def logits_of(model, ids, folder, *options):
    """-> logits of the command line."""
    out = folder / "logits.safetensors"
    run("logits", "-m", model, "--tokens", ",".join(map(str, ids)), "--out", out, *options)
    return tensors(out)["logits"]


def trace_of(model, ids, folder):
    """-> results of all layers of the command line."""
    out = folder / "trace.safetensors"
    run("logits", "-m", model, "--tokens", ",".join(map(str, ids)), "--out", folder / "traced.safetensors", "--trace", out)
    return tensors(out)


def same(a, b):
    """Whether two arrays have the same bits."""
    a, b = np.asarray(a), np.asarray(b)
    return a.shape == b.shape and a.dtype == b.dtype and a.tobytes() == b.tobytes()


@pytest.fixture(scope="session")
def demo():
    return lariat.open(DEMO)


@pytest.fixture(scope="session")
def book(demo):
    """Ids of the held-out text, longer than the trained 512 tokens."""
    return demo.tokenize((DEMO / "heldout.txt").read_text())[:900]
