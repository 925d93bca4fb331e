#!/usr/bin/env python3
"""Tests of the demo's tools, run by ctest: python3 tools/lab/demo/test_demo.py

Tests of the corpus generator need only Python, tests of positions also PyTorch.
"""
import itertools
import math
import re
import subprocess
import sys
import unittest
from pathlib import Path

HERE = Path(__file__).parent
sys.path.insert(0, str(HERE))
import make_corpus  # noqa: E402

try:
    import torch

    import positions
except ImportError:
    torch = None


def corpus(*args):
    return subprocess.run([sys.executable, HERE / "make_corpus.py", *args], check=True, capture_output=True).stdout


def texts(kind, split, n, seed=1):
    return list(itertools.islice(make_corpus.documents(kind, seed, split), n))


class Corpus(unittest.TestCase):
    def test_same_seed_same_bytes(self):
        for kind in ("stories", "passkey"):
            first = corpus("--kind", kind, "--docs", "50")
            self.assertEqual(first, corpus("--kind", kind, "--docs", "50"))
            self.assertNotEqual(first, corpus("--kind", kind, "--docs", "50", "--seed", "2"))
            self.assertTrue(corpus("--kind", kind, "--docs", "60").startswith(first))

    def test_splits_share_no_document(self):
        for kind in ("stories", "passkey"):
            self.assertFalse(set(texts(kind, "train", 500)) & set(texts(kind, "heldout", 500)))

    def test_a_few_hundred_words(self):
        words = set(re.findall(r"[A-Za-z]+", " ".join(texts("stories", "train", 2000))))
        self.assertGreater(len(words), 500)
        self.assertLess(len(words), 2000)

    def test_every_answer_was_stated_before(self):
        asked = 0
        for text in texts("stories", "train", 300):
            for match in re.finditer(r"What was the secret number of the ([a-z ]+)\? It was (\d+)\.", text):
                self.assertIn(match[2], text[:match.start()])
                asked += 1
        self.assertGreater(asked, 10)

    def test_passkey_form(self):
        for text in texts("passkey", "train", 300):
            self.assertTrue(text.startswith(make_corpus.TASK + "\n"))
            key = re.search(r"\nWhat is the pass key\? The pass key is (\d+)\.$", text)[1]
            self.assertIn("\n" + make_corpus.INFORMATION.format(key=key) + "\n", text)
            self.assertTrue(1 <= int(key) <= 50000)

    def test_keys_with_repeated_digits(self):
        def few(repeats):  # share of five-digit keys with at most three different digits
            docs = itertools.islice(make_corpus.documents("passkey", 1, "train", repeats=repeats), 600)
            keys = [re.search(r"The pass key is (\d+)\.$", text)[1] for text in docs]
            self.assertTrue(all(1 <= int(key) <= 50000 for key in keys))
            keys = [key for key in keys if len(key) == 5]
            return sum(len(set(key)) <= 3 for key in keys) / len(keys)
        self.assertEqual(few(1.0), 1.0)
        self.assertLess(few(0.0), 0.4)

    def test_document_ends(self):
        plain, marked = corpus("--docs", "5", "--end", ""), corpus("--docs", "5")
        self.assertEqual(plain, marked.replace(make_corpus.END.encode(), b""))

    def test_text_is_plain(self):
        for text in texts("stories", "train", 1000):
            self.assertTrue(text.isascii())
            self.assertNotIn("  ", text)
            self.assertIsNone(re.search(r"\ba [aeio][a-z]|\ban (?!hour)[^aeiou\W]", text))


@unittest.skipIf(torch is None, "needs torch")
class Positions(unittest.TestCase):
    """Complements compare_positions.py, which compares lariat with the trained models."""

    def test_positions_by_their_formulas(self):
        wave = positions.sinusoids(50, 8)  # arXiv 1706.03762, section 3.5
        self.assertAlmostEqual(wave[7, 2].item(), math.sin(7 / 10000 ** (2 / 8)), places=6)
        self.assertAlmostEqual(wave[7, 3].item(), math.cos(7 / 10000 ** (2 / 8)), places=6)
        bias = positions.alibi_bias(8, 5)  # arXiv 2108.12409, section 3
        self.assertEqual(bias[0, 4].tolist(), [-2.0, -1.5, -1.0, -0.5, 0.0])
        self.assertEqual(bias[7, 4, 0].item(), -4 / 256)
        self.assertEqual(bias[3, 1].tolist()[2:], [-math.inf] * 3)

    def test_only_positions_differ(self):
        models = {}
        for kind in positions.KINDS:
            torch.manual_seed(3)
            models[kind] = positions.Body(positions.BodyConfig(kind)).state_dict()
        self.assertEqual(set(models["learned"]) - set(models["rope"]), {"embed_positions.weight"})
        for kind in positions.KINDS:
            for name, p in models["rope"].items():
                self.assertTrue(torch.equal(p, models[kind][name]), f"{kind} {name}")


if __name__ == "__main__":
    result = unittest.main(exit=False).result
    for test, reason in result.skipped:  # repeated by scripts/test.sh
        print(f"SKIPPED {test.id().removeprefix('__main__.')}: {reason}")
    sys.exit(not result.wasSuccessful())
