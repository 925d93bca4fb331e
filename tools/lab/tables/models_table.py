#!/usr/bin/env python3
"""Measures every family against transformers, on the tiny checkpoints of tests/golden, for docs/models.md.

    pip install numpy safetensors
    build/engine_test --gtest_filter='*FamilyCache*' --gtest_output=xml:family.xml
    tools/lab/tables/models_table.py build/lariat family.xml

Writes the marked parts of docs/models.md, and exits with 1 if a number misses its aim. Measured are the checkpoints of
tests/golden/long.safetensors, and all others whose greedy text has 64 tokens; a row is the worst of an architecture.
Without the XML file the last two columns stay empty.
"""

import json
import pathlib
import re
import sys
import tempfile
import textwrap
import xml.etree.ElementTree as ElementTree

import numpy as np
from safetensors.numpy import load_file

import checkpoints_table as checkpoints
import pages  # found by way of checkpoints

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1]))
import families as definition

FAMILIES = checkpoints.ROOT / "models" / "families"
DOCUMENT = checkpoints.ROOT / "docs" / "models.md"
AIM = 2e-4  # maximum of largest difference / largest logit
F32 = ["--dtype", "f32", "--kv-dtype", "f32"]
# (model, architecture, reason)
OTHERS = [
    ("OLMo 1", "OlmoForCausalLM", "LayerNorm without weights"),
    ("Phi-3-small", "Phi3SmallForCausalLM", "block-sparse attention"),
    ("Phi-3.5-MoE", "PhiMoEForCausalLM", "its own router (sparsemixer)"),
]


def families():
    """{architecture or model_type: (rank, file)} of families.def."""
    defined = {name: file for file in FAMILIES.glob("*.cpp")
               for name in re.findall(r"^ModelSpec (read_\w+)", file.read_text(), re.M)}  # fmt: skip
    return {key: (rank, defined[read]) for rank, (*keys, read) in enumerate(definition.families()) for key in keys}


def family_of(name, known):
    """(rank, file, architecture) of a golden checkpoint; of an image model's text part."""
    config = json.loads((checkpoints.GOLDEN / name / "config.json").read_text())
    architecture = config["architectures"][0]
    for part in (config, config.get("text_config", {})):
        for key in (*part.get("architectures", []), part.get("model_type")):
            if key in known:
                return *known[key], architecture
    sys.exit(f"{name}: no family runs it")


def logits(program, name, tokens, *options):
    out = program.folder / "out.safetensors"
    ids = ",".join(map(str, tokens))
    code, _, text = program.run("logits", "--device", "cpu", "--threads", 1, "--quiet", *F32, *options,
                                "--model", checkpoints.GOLDEN / name, "--tokens", ids, "--out", out)  # fmt: skip
    if code:
        sys.exit(f"{name}: {text}")
    return load_file(out)["logits"]


def greedy_agreement(program, name, golden):
    """Decodes along the golden text: (number of tokens that are the argmax, number of tokens)."""
    prompt, greedy = golden["tokens"][:8].tolist(), golden["greedy"].tolist()
    rows = logits(program, name, prompt + greedy[:-1], "--decode-from", len(prompt))
    return int((rows[len(prompt) - 1 :].argmax(1) == greedy).sum()), len(greedy)


def measure(program, name, golden, long):
    """(largest difference over the largest logit, greedy tokens that agree, their number)"""
    if f"{name}.f32" in long:
        tokens, expected, kept = long[f"{name}.tokens"].tolist(), long[f"{name}.f32"], long["positions"]
    else:
        tokens, expected, kept = golden["tokens"].tolist(), golden["logits"], slice(None)
    found = logits(program, name, tokens)[kept]
    return np.abs(found - expected).max() / np.abs(expected).max(), *greedy_agreement(program, name, golden)


def cache_differences(file):
    """{checkpoint: [own RoPE, dynamic-yarn]} from the test's output."""
    found = {}
    for case in ElementTree.parse(file).iter("testcase"):
        values = {item.get("name"): item.get("value") for item in case.iter("property")}
        found[case.get("name").split("/")[-1]] = [values["own"], values["dynamic"]]
    return found


def worst(cells):
    """The largest number of a column of the XML file, or "" where no checkpoint has one."""
    return max(filter(None, cells), key=float, default="")


def measured_rows(program, cache):
    """(whether all is well, the table's rows in the order of families.def: the worst checkpoint of each architecture)"""
    known = families()
    long = load_file(checkpoints.ROOT / "tests" / "golden" / "long.safetensors")
    measured = {}
    for folder in sorted(checkpoints.GOLDEN.iterdir()):
        golden = load_file(folder / "golden.safetensors")
        if f"{folder.name}.f32" in long or len(golden["greedy"]) > 32:  # all but the first checkpoints keep 64
            rank, _, architecture = family_of(folder.name, known)
            numbers = (*measure(program, folder.name, golden, long), *cache.get(folder.name, ["", ""]))
            measured.setdefault((rank, architecture), []).append(numbers)
    rows, well = [], True
    for (_, architecture), numbers in sorted(measured.items()):
        ratios, agree, counts, own, dynamic = zip(*numbers)
        well = well and max(ratios) <= AIM and agree == counts
        rows.append([architecture, f"{max(ratios):.1e}", worst(own), worst(dynamic)])
    return well, rows


def refused(program):
    """A sentence about OTHERS, after a run that refuses each."""
    rows = []
    for name, architecture, reason in OTHERS:
        model = checkpoints.changed(program.model, "llama_gqa", {"architectures": [architecture]})
        code, _, text = program.logits(model)
        if not code:
            sys.exit(f"{architecture} runs")
        if architecture not in text:
            sys.exit(f"{architecture}: {text}")
        rows.append(f"{name} (`{architecture}`: {reason})")
    return textwrap.fill(", ".join(rows) + ".", 132)


def main():
    cache = cache_differences(sys.argv[2]) if len(sys.argv) > 2 else {}
    with tempfile.TemporaryDirectory() as name:
        program = checkpoints.Program(sys.argv[1], pathlib.Path(name).resolve())
        well, rows = measured_rows(program, cache)
        others = refused(program)
    head = ["architecture", "ratio", "cache, own RoPE", "cache, dynamic-yarn"]
    pages.replace(DOCUMENT, "measured", pages.table(head, rows))
    pages.replace(DOCUMENT, "refused", others)
    sys.exit(not well)


if __name__ == "__main__":
    main()
