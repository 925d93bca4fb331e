// tools/lab/peers/compare.py against programs that only pretend to measure.
#include "tests/tools/program.h"

namespace lariat::test {
namespace {

namespace fs = std::filesystem;

class CompareScript : public FolderTest {
 protected:
  void SetUp() override {
    if (std::system("python3 -c '' >/dev/null 2>&1") != 0) LARIAT_SKIP("python3 is not installed");
  }
  std::string script(const std::string& name, const std::string& body) const {
    put(name, "#!/bin/sh\n" + body);
    fs::permissions(dir_ / name, fs::perms::owner_all);
    return (dir_ / name).string();
  }
  // Speeds 10, 30, 20, ... from run to run: a counter file turns.
  std::string lariat() const {
    return script("lariat",
                  "n=$(cat " + (dir_ / "count").string() + " 2>/dev/null || echo 0); echo $((n + 1)) > " +
                      (dir_ / "count").string() +
                      "\ncase $((n % 3)) in 0) s=10;; 1) s=30;; *) s=20;; esac\necho lariat \"$@\" >> " +
                      (dir_ / "calls").string() +
                      "\necho '{\"results\":[{\"test\":\"pp\",\"tok_s_median\":'$s'00},{\"test\":\"tg\","
                      "\"tok_s_median\":'$s'}],\"limits\":{\"read_gb_s\":50,\"gemm_tflop_s\":0.5}}'\n");
  }
  std::string peer() const {
    return script("llama-bench", "echo peer \"$@\" >> " + (dir_ / "calls").string() +
                                     "\necho '[{\"n_prompt\":512,\"n_gen\":0,\"avg_ts\":1000},"
                                     "{\"n_prompt\":0,\"n_gen\":64,\"avg_ts\":16}]'\n");
  }
  int run(const std::string& arguments) const {
    const std::string command = "python3 " + (source_dir() / "tools/lab/peers/compare.py").string() + " " +
                                arguments + " >" + (dir_ / "out").string() + " 2>" + (dir_ / "err").string();
    return WEXITSTATUS(std::system(command.c_str()));
  }
};

TEST_F(CompareScript, AlternatesAndPrintsMediansAndRatios) {
  const std::string docs = (dir_ / "performance.md").string();
  std::ofstream(docs) << "before\n<!-- compare -->\nold\n<!-- /compare -->\nafter\n";
  ASSERT_EQ(run("--lariat " + lariat() +
                " --config c.json --dtypes bf16,q8 --threads 2 --rounds 3 --peer 'llama.cpp=" + peer() +
                " -rtr 1' --gguf q8=/m-q8.gguf --docs " + docs),
            0)
      << slurp(dir_ / "err");
  const std::string out = slurp(dir_ / "out");
  // bf16 takes the speeds 10, 20, 30 (turns 0, 2, 4), q8 30, 10, 20.
  EXPECT_TRUE(holds(out, "| tg64 | bf16 | 20.0 (10.0 .. 30.0) | - | - |"));
  EXPECT_TRUE(holds(out, "| tg64 | q8 | 20.0 (10.0 .. 30.0) | 16.0 (16.0 .. 16.0) | 1.25 |"));
  EXPECT_TRUE(holds(out, "| pp512 | q8 | 2000.0 "));
  EXPECT_TRUE(names(out, "read 50.0 GB/s"));
  EXPECT_FALSE(names(out, dir_.string())) << "paths of this machine do not belong in a document";
  const std::string calls = slurp(dir_ / "calls");
  EXPECT_TRUE(names(calls, "--quantize q8"));
  EXPECT_TRUE(names(calls, "--dtype bf16"));
  EXPECT_EQ(std::count(calls.begin(), calls.end(), '\n'), 9);  // per round: two of ours, one of theirs
  EXPECT_TRUE(names(calls, "peer -rtr 1 -m /m-q8.gguf"));
  const std::string text = slurp(docs);
  EXPECT_EQ(text.rfind("before\n<!-- compare -->\n`tools/lab/peers/compare.py", 0), 0U) << text;
  EXPECT_FALSE(names(text, "old"));
  EXPECT_TRUE(names(text, "<!-- /compare -->\nafter\n"));
}

// Without a config and a model of its own lariat opens the peers' files, as they are.
TEST_F(CompareScript, OpensTheSameFile) {
  ASSERT_EQ(run("--lariat " + lariat() +
                " --dtypes Q4_K_M --rounds 1 --gguf Q4_K_M=/m.gguf --peer llama.cpp=" + peer()),
            0)
      << slurp(dir_ / "err");
  EXPECT_TRUE(
      holds(slurp(dir_ / "out"), "| tg64 | Q4_K_M | 10.0 (10.0 .. 10.0) | 16.0 (16.0 .. 16.0) | 0.62 |"));
  const std::string calls = slurp(dir_ / "calls");
  EXPECT_TRUE(names(calls, "--model /m.gguf"));
  EXPECT_FALSE(names(calls, "--dtype") || names(calls, "--quantize"));
  EXPECT_EQ(run("--lariat " + lariat() + " --dtypes Q8_0 --gguf Q4_K_M=/m.gguf"), 1);
  EXPECT_TRUE(names(slurp(dir_ / "err"), "--gguf | --dtypes"));
}

// ik_llama.cpp's llama-bench does not know -d.
TEST_F(CompareScript, AsksAPeerWithoutDepthsInItsOwnWay) {
  const std::string peer =
      script("old-bench",
             "case \"$*\" in *' -d '*) echo 'error: invalid parameter for argument: -d' >&2; exit 1;; esac\n"
             "case \"$*\" in *'-p 0 -n 0 '*'-gp 8192,32'*) ;; *) exit 7;; esac\n"
             "echo '[{\"n_prompt\":8192,\"n_gen\":32,\"avg_ts\":5}]'\n");
  const std::string arguments = "--lariat " + lariat() +
                                " --config c.json --dtypes q8 --rounds 1 --gen 32 --depths 8192 --gguf q8=/m "
                                "--peer ik=" +
                                peer;
  ASSERT_EQ(run(arguments + " --prompt 0"), 0) << slurp(dir_ / "err");
  EXPECT_TRUE(
      holds(slurp(dir_ / "out"), "| tg32@8192 | q8 | 10.0 (10.0 .. 10.0) | 5.0 (5.0 .. 5.0) | 2.00 |"));
  ASSERT_EQ(run(arguments + " --prompt 512"), 0) << slurp(dir_ / "err");
  EXPECT_TRUE(names(slurp(dir_ / "out"), "exit 1")) << "it has no prefill after others";
}

// The cores are near, then far; then they move during a run, which is done again.
TEST_F(CompareScript, TellsNearCoresFromFarOnes) {
  const std::string count = (dir_ / "probes").string();
  const std::string probe =
      script("core_hop", "n=$(cat " + count + " 2>/dev/null || echo 0); echo $((n + 1)) > " + count +
                             "\ncase $n in 0|1|4) echo 15.2;; *) echo 151;; esac\n");
  ASSERT_EQ(run("--lariat " + lariat() + " --config c.json --dtypes bf16 --rounds 3 --probe " + probe), 0)
      << slurp(dir_ / "err");
  const std::string out = slurp(dir_ / "out"), calls = slurp(dir_ / "calls");
  EXPECT_EQ(std::count(calls.begin(), calls.end(), '\n'),
            4);  // 10 near, 30 far, 20 that does not count, 10 far
  EXPECT_TRUE(holds(out, "| tg64 | bf16 | near | 10.0 (10.0 .. 10.0; 1) |"));
  EXPECT_TRUE(holds(out, "| tg64 | bf16 | far | 20.0 (10.0 .. 30.0; 2) |"));
  EXPECT_TRUE(names(out, "bf16 near: read 50.0 GB/s"));
}

// A peer that dies is shown with what it died of, and the others go on.
TEST_F(CompareScript, ShowsPeersThatDie) {
  ASSERT_EQ(run("--lariat " + lariat() + " --config c.json --dtypes bf16 --rounds 3 --gguf bf16=m.gguf" +
                " --peer quits=" + script("quits", "echo tiles >&2; exit 132\n") +
                " --peer crashes=" + script("crashes", "kill -ILL $$\n") + " --peer llama.cpp=" + peer()),
            0)
      << slurp(dir_ / "err");
  const std::string out = slurp(dir_ / "out"), calls = slurp(dir_ / "calls");
  EXPECT_TRUE(holds(
      out, "| tg64 | bf16 | 20.0 (10.0 .. 30.0) | exit 132 | SIGILL | 16.0 (16.0 .. 16.0) | - | - | 1.25 |"));
  EXPECT_TRUE(names(slurp(dir_ / "err"), "quits: "));
  EXPECT_EQ(std::count(calls.begin(), calls.end(), '\n'), 6);  // three rounds of the two that live
}

// transformers is asked as llama-bench is, by its own script, for the model itself and for floats only.
TEST_F(CompareScript, TakesTransformersForFloats) {
  ASSERT_EQ(run("--lariat " + lariat() +
                " --config c.json --dtypes bf16,q8 --depths 0,32 --rounds 1 --transformers " + peer()),
            0)
      << slurp(dir_ / "err");
  const std::string out = slurp(dir_ / "out"), calls = slurp(dir_ / "calls");
  EXPECT_TRUE(names(calls, "transformers_bench.py --dtype bf16 -m c.json -t"));
  EXPECT_TRUE(names(calls, "-o json -d 32"));
  EXPECT_FALSE(names(calls, "--dtype q8"));
  EXPECT_TRUE(holds(out, "| transformers tok/s |"));
}

TEST_F(CompareScript, SaysWhatIsWrong) {
  EXPECT_EQ(run("--lariat /no/such --config c.json"), 1);
  EXPECT_TRUE(names(slurp(dir_ / "err"), "/no/such"));
  EXPECT_EQ(run("--lariat " + lariat()), 1);
  EXPECT_EQ(run("--lariat " + lariat() + " --config c.json --peer nonsense"), 1);
  EXPECT_TRUE(names(slurp(dir_ / "err"), "NAME=PATH"));
  EXPECT_EQ(run("--lariat " + script("broken", "exit 3\n") + " --config c.json"), 1);
  EXPECT_TRUE(names(slurp(dir_ / "err"), "broken | 3"));
}

}  // namespace
}  // namespace lariat::test
