#include "tests/tools/program.h"

namespace lariat::test {
namespace {

namespace fs = std::filesystem;

class PerplexityCache : public FolderTest {
 protected:
  PerplexityCache() {
    const std::string text = slurp(kDemo / "heldout.txt");
    put("first.txt", text.substr(0, 1500));
    put("second.txt", text.substr(1500, 500));
  }
  Outcome run(const std::string& file, const std::string& options) const {
    return run_lariat(fmt::format("perplexity --model {} --device cpu --threads 1 --file {} {}",
                                  kDemo.string(), (dir_ / file).string(), options));
  }
  Json json(const std::string& file, const std::string& options) const {
    return json_of(run(file, options + " --json"));
  }
  const fs::path context_ = dir_ / "context";
};

TEST_F(PerplexityCache, ATextAfterASavedContext) {
  const std::string save = "--save-cache " + context_.string(), load = "--load-cache " + context_.string();
  const auto first = json("first.txt", save), alone = json("second.txt", "--save-cache /dev/null");
  const int64_t n = first["results"][0]["ctx"];
  EXPECT_EQ(first["context_tokens"], 0);
  EXPECT_EQ(first["results"][0]["window_method"], "continuation");
  const std::string saved = slurp(context_);
  const auto behind = json("second.txt", load);
  EXPECT_EQ(behind["context_tokens"], n);
  EXPECT_EQ(behind["results"][0]["tokens"], behind["results"][0]["ctx"].get<int64_t>() - n);
  // The context lowers the loss.
  EXPECT_LT(behind["results"][0]["nll"].get<double>(), alone["results"][0]["nll"].get<double>());
  EXPECT_EQ(slurp(context_), saved);
  // The loaded file is overwritten.
  const auto grown = json("second.txt", load + " " + save);
  EXPECT_EQ(grown["results"], behind["results"]);
  EXPECT_EQ(json("second.txt", load)["context_tokens"], behind["results"][0]["ctx"]);
}

TEST_F(PerplexityCache, AFailedSaveFollowsTheResults) {
  Outcome outcome = run("first.txt", "--save-cache /dev/full --json");
  const auto printed = Json::parse(outcome.out);
  EXPECT_EQ(printed, json("first.txt", "--save-cache " + context_.string()));
  outcome.out.clear();
  expect_error(outcome, 1, "/dev/full");
}

// Later parts drop the BOS by default. f32: missing attention between parts changes the nll by 2.4e-4, as
// much as bf16 products differ between processors.
TEST_F(PerplexityCache, ATextAfterJoinedContexts) {
  const std::string text = slurp(kDemo / "heldout.txt");
  put("a.txt", text.substr(0, 600));
  put("b.txt", text.substr(600, 600));
  put("next.txt", text.substr(1200, 400));
  const std::string a = (dir_ / "a.ctx").string(), b = (dir_ / "b.ctx").string(), both = a + "," + b;
  const std::string f32 = "--dtype f32 --kv-dtype f32 ";
  ASSERT_EQ(run("a.txt", f32 + "--save-cache " + a).code, 0);
  ASSERT_EQ(run("b.txt", f32 + "--save-cache " + b).code, 0);
  const auto behind = [&](const std::string& join) {
    return json("next.txt", f32 + fmt::format("--load-cache {} --join {}", both, join));
  };
  const auto nll = [](const Json& result) { return result["results"][0]["nll"].get<double>(); };
  const Json anew = behind("anew"), rotate = behind("rotate"), kept = behind("anew/bos=keep");
  EXPECT_EQ(kept["context_tokens"], anew["context_tokens"].get<int64_t>() + 1);
  EXPECT_EQ(rotate["context_tokens"], anew["context_tokens"]);
  EXPECT_NEAR(nll(behind("recompute=100000")), nll(anew), 1e-6 * nll(anew));
  EXPECT_GT(std::abs(nll(rotate) - nll(anew)), 1e-4 * nll(anew));
  EXPECT_LT(nll(rotate), 2 * nll(anew)) << "the model can continue the text";
}

}  // namespace
}  // namespace lariat::test
