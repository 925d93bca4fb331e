// tools/lab/gguf_to_hf.py: lariat on the folders that it makes, beside the checkpoints and tokenizers they
// came from.
#include "tests/tools/program.h"

namespace lariat::test {
namespace {

namespace fs = std::filesystem;

class GgufToHf : public FolderTest {
 protected:
  void SetUp() override {
    if (std::system("python3 -c 'import gguf, numpy, safetensors' >/dev/null 2>&1") != 0)
      GTEST_SKIP() << "python3 with the packages gguf, numpy and safetensors is not installed";
    const std::string script = (source() / "tests/tools/gguf_round_trip.py").string();
    const std::string log = (dir_ / "log").string();
    ASSERT_EQ(std::system(("python3 " + script + " " + dir_.string() + " >" + log + " 2>&1").c_str()), 0)
        << slurp(log);
  }
  static fs::path source() { return LARIAT_SOURCE_DIR; }
  // The file of logits that lariat writes for a few ids.
  std::string logits(const fs::path& model) const {
    const std::string out = (dir_ / "logits.safetensors").string();
    fs::remove(out);
    const Outcome done = run_lariat("logits --model " + model.string() +
                                    " --tokens 5,17,3,60,21,44,2,9 --kv-dtype f32 --out " + out);
    EXPECT_EQ(done.code, 0) << done.err;
    return slurp(out);
  }
};

// Rows of q and k, biases, a tied head, linear scaling: one thing wrong and a logit differs.
TEST_F(GgufToHf, GivesTheLogitsAndIdsOfTheSource) {
  for (const std::string name : {"llama_gqa", "llama_mqa_tied", "llama_bias", "qwen2"}) {
    const std::string want = logits(source() / "tests/golden/checkpoints" / name);
    ASSERT_FALSE(want.empty());
    EXPECT_EQ(logits(dir_ / (name + "-F32")), want) << name;
  }
  for (const std::string name : {"llama3-mini", "qwen-mini", "llama-mini"}) {
    const auto ids = [](const fs::path& model) {
      const Outcome done = run_lariat("tokenize --json --model " + model.string() + " --file " +
                                      (source() / "tests/golden/tokenizers/cases.json").string());
      EXPECT_EQ(done.code, 0) << done.err;
      return done.out;
    };
    const std::string want = ids(source() / "tests/golden/tokenizers" / name);
    EXPECT_GT(want.size(), 1000U);
    EXPECT_EQ(ids(dir_ / name), want) << name;
  }
}

}  // namespace
}  // namespace lariat::test
