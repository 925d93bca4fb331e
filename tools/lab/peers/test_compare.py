#!/usr/bin/env python3
"""Tests of compare.py with programs that only pretend to measure; run by ctest."""
import subprocess
import sys
import tempfile
import unittest
from pathlib import Path

COMPARE = Path(__file__).with_name("compare.py")


class Compare(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.dir = Path(folder.name)
        # Throughputs 10, 30, 20, ... by run.
        self.lariat = self.script("lariat", f"""n=$(cat {self.dir}/count 2>/dev/null || echo 0); echo $((n + 1)) >{self.dir}/count
case $((n % 3)) in 0) s=10;; 1) s=30;; *) s=20;; esac
echo lariat "$@" >>{self.dir}/calls
echo '{{"results":[{{"test":"pp","tok_s_median":'$s'00}},{{"test":"tg","tok_s_median":'$s'}}],"limits":{{"read_gb_s":50,"gemm_tflop_s":0.5}}}}'
""")  # fmt: skip
        self.peer = self.script("llama-bench", f"""echo peer "$@" >>{self.dir}/calls
echo '[{{"n_prompt":512,"n_gen":0,"avg_ts":1000}},{{"n_prompt":0,"n_gen":64,"avg_ts":16}}]'
""")  # fmt: skip

    def script(self, name, body):
        path = self.dir / name
        path.write_text("#!/bin/sh\n" + body)
        path.chmod(0o700)
        return str(path)

    def run_compare(self, *arguments, lariat=None, code=0):
        """Returns stdout and stderr."""
        done = subprocess.run([sys.executable, COMPARE, "--lariat", lariat or self.lariat, *arguments],
                              capture_output=True, text=True)  # fmt: skip
        self.assertEqual(done.returncode, code, done.stderr)
        return done.stdout, done.stderr

    def calls(self):
        return (self.dir / "calls").read_text()

    def test_alternates_and_prints_medians_and_ratios(self):
        docs = self.dir / "performance.md"
        docs.write_text("before\n<!-- compare -->\nold\n<!-- /compare -->\nafter\n")
        out, _ = self.run_compare("--config", "c.json", "--dtypes", "bf16,q8", "--threads", "2", "--rounds", "3", "--peer",
                                  f"llama.cpp={self.peer} -rtr 1", "--gguf", "q8=/m-q8.gguf", "--docs", docs)  # fmt: skip
        # bf16 gets the throughputs 10, 20, 30 (runs 0, 2, 4), q8 30, 10, 20.
        self.assertIn("| tg64 | bf16 | 20.0 (10.0 .. 30.0) | - | - |", out)
        self.assertIn("| tg64 | q8 | 20.0 (10.0 .. 30.0) | 16.0 (16.0 .. 16.0) | 1.25 |", out)
        self.assertIn("| pp512 | q8 | 2000.0 ", out)
        self.assertIn("read 50.0 GB/s", out)
        self.assertNotIn(str(self.dir), out, "paths of this machine do not belong in a document")
        for call in ("--quantize q8", "--dtype bf16", "peer -rtr 1 -m /m-q8.gguf"):
            self.assertIn(call, self.calls())
        self.assertEqual(self.calls().count("\n"), 9)  # per round: two of lariat, one of the peer
        text = docs.read_text()
        self.assertTrue(text.startswith("before\n<!-- compare -->\n`tools/lab/peers/compare.py"), text)
        self.assertNotIn("old", text)
        self.assertIn("<!-- /compare -->\nafter\n", text)

    def test_opens_the_peers_file_without_a_model(self):
        out, _ = self.run_compare("--dtypes", "Q4_K_M", "--rounds", "1", "--gguf", "Q4_K_M=/m.gguf", "--peer",
                                  f"llama.cpp={self.peer}")  # fmt: skip
        self.assertIn("| tg64 | Q4_K_M | 10.0 (10.0 .. 10.0) | 16.0 (16.0 .. 16.0) | 0.62 |", out)
        self.assertIn("--model /m.gguf", self.calls())
        self.assertNotIn("--dtype", self.calls())
        self.assertNotIn("--quantize", self.calls())
        _, err = self.run_compare("--dtypes", "Q8_0", "--gguf", "Q4_K_M=/m.gguf", code=1)
        self.assertIn("--gguf", err)
        self.assertIn("--dtypes", err)

    def test_asks_a_peer_without_depths_in_its_own_way(self):
        """ik_llama.cpp's llama-bench has no -d."""
        peer = self.script("old-bench", """case "$*" in *' -d '*) echo 'error: invalid parameter for argument: -d' >&2; exit 1;; esac
case "$*" in *'-p 0 -n 0 '*'-gp 8192,32'*) ;; *) exit 7;; esac
echo '[{"n_prompt":8192,"n_gen":32,"avg_ts":5}]'
""")  # fmt: skip
        arguments = ("--config", "c.json", "--dtypes", "q8", "--rounds", "1", "--gen", "32", "--depths", "8192", "--gguf",
                     "q8=/m", "--peer", f"ik={peer}", "--prompt")  # fmt: skip
        out, _ = self.run_compare(*arguments, "0")
        self.assertIn("| tg32@8192 | q8 | 10.0 (10.0 .. 10.0) | 5.0 (5.0 .. 5.0) | 2.00 |", out)
        out, _ = self.run_compare(*arguments, "512")
        self.assertIn("exit 1", out, "it has no prefill after other tokens")

    def test_tells_near_cores_from_far_ones(self):
        """The cores are near, then far, then move during a run, which is repeated."""
        probe = self.script("core_hop", f"""n=$(cat {self.dir}/probes 2>/dev/null || echo 0); echo $((n + 1)) >{self.dir}/probes
case $n in 0|1|4) echo 15.2;; *) echo 151;; esac
""")  # fmt: skip
        out, _ = self.run_compare("--config", "c.json", "--dtypes", "bf16", "--rounds", "3", "--probe", probe)
        self.assertEqual(self.calls().count("\n"), 4)  # 10 near, 30 far, 20 discarded, 10 far
        self.assertIn("| tg64 | bf16 | near | 10.0 (10.0 .. 10.0; 1) |", out)
        self.assertIn("| tg64 | bf16 | far | 20.0 (10.0 .. 30.0; 2) |", out)
        self.assertIn("bf16 near: read 50.0 GB/s", out)

    def test_shows_peers_that_die(self):
        quits, crashes = self.script("quits", "echo tiles >&2; exit 132\n"), self.script("crashes", "kill -ILL $$\n")
        out, err = self.run_compare("--config", "c.json", "--dtypes", "bf16", "--rounds", "3", "--gguf", "bf16=m.gguf",
                                    "--peer", f"quits={quits}", "--peer", f"crashes={crashes}", "--peer",
                                    f"llama.cpp={self.peer}")  # fmt: skip
        self.assertIn("| tg64 | bf16 | 20.0 (10.0 .. 30.0) | exit 132 | SIGILL | 16.0 (16.0 .. 16.0) | - | - | 1.25 |", out)
        self.assertIn("quits: ", err)
        self.assertEqual(self.calls().count("\n"), 6)  # three rounds of the two working programs

    def test_takes_transformers_for_floats(self):
        """transformers runs like llama-bench, by its own script, for the model itself and for floats only."""
        out, _ = self.run_compare("--config", "c.json", "--dtypes", "bf16,q8", "--depths", "0,32", "--rounds", "1",
                                  "--transformers", self.peer)  # fmt: skip
        self.assertIn("transformers_bench.py --dtype bf16 -m c.json -t", self.calls())
        self.assertIn("-o json -d 32", self.calls())
        self.assertNotIn("--dtype q8", self.calls())
        self.assertIn("| transformers tok/s |", out)

    def test_names_what_is_wrong(self):
        self.assertIn("/no/such", self.run_compare("--config", "c.json", lariat="/no/such", code=1)[1])
        self.run_compare(code=1)
        self.assertIn("NAME=PATH", self.run_compare("--config", "c.json", "--peer", "nonsense", code=1)[1])
        _, err = self.run_compare("--config", "c.json", lariat=self.script("broken", "exit 3\n"), code=1)
        self.assertIn("broken", err)
        self.assertIn("3", err)


if __name__ == "__main__":
    unittest.main()
