"""lariat.search: the first candidate is the base, candidates are kept, the result is confirmed and read by others."""

import json
import math
import re
import signal
import subprocess
import sys

import numpy as np
import pytest
from conftest import DEMO, json_of

import lariat
from lariat import search

HELDOUT = DEMO / "heldout.txt"
CTX, TAIL = 856, 128  # one scale of dynamic-yarn


def words(folder, *more):
    return ["--model", str(DEMO), "--text", str(HELDOUT), "--confirm", str(HELDOUT), "--ctx", str(CTX), "--tail", str(TAIL),
            "--windows", "2", "--out", str(folder / "rope.json"), *more]  # fmt: skip


def lines_of(file):
    return [json.loads(line) for line in file.read_text().splitlines()]


@pytest.fixture(scope="module")
def searched(tmp_path_factory):
    folder = tmp_path_factory.mktemp("search")
    log = folder / "search.jsonl"
    command = [sys.executable, "-m", "lariat.search", *words(folder, "--minutes", "0.05", "--log", str(log))]
    done = subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True)
    return folder, log, done.stdout


def test_the_first_candidate_is_the_base(demo, searched):
    _, log, _ = searched
    plan, first, *_ = lines_of(log)
    assert plan["base"] == "dynamic-yarn"
    true = search.true_losses(demo, search.windows(demo, HELDOUT, CTX, 2), TAIL, "dynamic-yarn")
    assert math.isclose(first["loss"], true.mean(), abs_tol=2e-3)  # keys are rounded when re-rotated


def test_the_best_candidate_is_confirmed(demo, searched):
    folder, log, printed = searched
    best = min(lines_of(log)[1:], key=lambda line: line["loss"])
    found = json.loads((folder / "rope.json").read_text())["rope_scaling"]
    assert found["long_factor"] == best["long_factor"] and found["attention_factor"] == best["attention_factor"]
    true = search.true_losses(demo, search.windows(demo, HELDOUT, CTX, 2), TAIL, found)
    shown = float(re.search(r"^found: perplexity ([0-9.]+)", printed, re.M)[1])
    assert math.isclose(shown, math.exp(true.mean()), rel_tol=1e-4)
    read = json_of("rope", "-m", DEMO, "--rope-config", folder / "rope.json", "--length", CTX)
    session = search.prefilled(demo, search.windows(demo, HELDOUT, CTX, 1)[0], TAIL, found)
    assert np.allclose(session.rope()["inv_freq"], read["inv_freq"], rtol=1e-6)


def test_a_log_is_continued(searched, tmp_path, capsys):
    _, log, _ = searched
    copy = tmp_path / "search.jsonl"
    copy.write_text(log.read_text())
    assert search.main(words(tmp_path, "--minutes", "0", "--log", str(copy))) == 0
    assert copy.read_text() == log.read_text()
    again, before = (json.loads((folder / "rope.json").read_text()) for folder in (tmp_path, log.parent))
    assert again == before
    copy.write_text(log.read_text() + '{"loss": 0.1, "long_fac')  # a killed search
    (tmp_path / "rope.json").unlink()
    assert search.main(words(tmp_path, "--minutes", "0.001", "--log", str(copy))) == 0
    kept, half, *added = copy.read_text()[len(log.read_text()) - 1 :].split("\n")
    assert (kept, half) == ("", '{"loss": 0.1, "long_fac') and all(json.loads(line) for line in added[:-1])
    capsys.readouterr()


def test_what_is_refused(searched, tmp_path, capsys):
    folder, log, _ = searched
    with pytest.raises(SystemExit):
        search.main(words(folder))  # the result exists
    for more in (["--log", str(log), "--seed", "1"], ["--log", str(HELDOUT)], ["--ctx", "512"], ["--ctx", "65536"],
                 ["--text", "missing.txt"]):  # fmt: skip
        with pytest.raises(lariat.Error):
            search.main(words(tmp_path, *more))
    assert not (tmp_path / "rope.json").exists()
    capsys.readouterr()


def test_an_interrupt_keeps_the_best(tmp_path):
    log = tmp_path / "search.jsonl"
    command = [sys.executable, "-m", "lariat.search", *words(tmp_path, "--minutes", "5", "--log", str(log))]
    with subprocess.Popen(command, stderr=subprocess.PIPE, text=True) as running:
        running.stderr.readline()  # the first candidate
        running.send_signal(signal.SIGINT)
        running.stderr.read()
    assert running.returncode == 130
    assert json.loads((tmp_path / "rope.json").read_text())["rope_scaling"]["rope_type"] == "longrope"
