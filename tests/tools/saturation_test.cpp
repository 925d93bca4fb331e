// What the program says when keys do not fit into its cache.
#include <fmt/ranges.h>

#include "tests/engine/large_keys.h"
#include "tests/tools/program.h"

namespace lariat::test {
namespace {

class SaturationWarning : public testing::Test {
 protected:
  ~SaturationWarning() override { std::filesystem::remove_all(dir_); }

  // Of the golden tokens; `more` is typed, too.
  std::vector<float> logits(const std::string& more) {
    const std::vector<int32_t> ids =
        int_tensor(Checkpoint::open_file(checkpoint_dir("llama_gqa") / "golden.safetensors"), "tokens");
    const std::filesystem::path out = dir_ / "logits.safetensors";
    const Outcome outcome = run_lariat(fmt::format("logits --device cpu -m {} --tokens {} --out {} {}",
                                                   model_.string(), fmt::join(ids, ","), out.string(), more));
    EXPECT_EQ(outcome.code, 0) << outcome.err;
    err_ = outcome.err;
    return float_tensor(Checkpoint::open_file(out), "logits");
  }

  std::filesystem::path dir_ =
      std::filesystem::path(testing::TempDir()) / fmt::format("lariat-saturation-{}", getpid());
  std::filesystem::path model_ = dir_ / "model";
  std::string err_;  // what the last run said
};

TEST_F(SaturationWarning, OneLineSaysWhatHelps) {
  write_large_keys(model_, 1e5F);
  for (const char* more : {"", "--decode-from 8", "--kv-dtype f16", "--prefill-chunk 7"}) {
    EXPECT_LT(golden_argmaxes(logits(more)), 64) << more;
    EXPECT_EQ(err_.find("lariat: warning: "), 0U) << more << err_;
    EXPECT_NE(
        err_.find(" numbers of the cached keys are beyond f16 and were cut to 65504, so that the results "
                  "are not the model's; use --kv-dtype k=bf16\n"),
        std::string::npos)
        << more << err_;
    EXPECT_EQ(std::count(err_.begin(), err_.end(), '\n'), 1) << more << err_;
  }
  for (const char* more : {"--kv-dtype k=bf16", "--kv-dtype k=bf16 --decode-from 8", "--kv-dtype f32"}) {
    EXPECT_EQ(golden_argmaxes(logits(more)), 64) << more;
    EXPECT_EQ(err_, "") << more;
  }
  logits("--quiet");
  EXPECT_EQ(err_, "");
}

// A checkpoint that no test makes, of the same kind.
TEST_F(SaturationWarning, SharedCase) {
  model_ = std::filesystem::path(LARIAT_SOURCE_DIR) / ".." / "shared" / "cases" / "kov1e5";
  if (!std::filesystem::exists(model_)) GTEST_SKIP() << "SKIPPED: no ../shared/cases/kov1e5";
  std::filesystem::create_directories(dir_);
  logits("");
  EXPECT_NE(err_.find("use --kv-dtype k=bf16"), std::string::npos) << err_;
  logits("--kv-dtype k=bf16");
  EXPECT_EQ(err_, "");
}

}  // namespace
}  // namespace lariat::test
