// lariat join, as a user types it.
#include <array>

#include "tests/tools/program.h"

namespace lariat::test {
namespace {

Outcome join(const std::string& options) {
  return run_lariat(fmt::format("join --model {0} --file {0}/heldout.txt -t 1 --next-tokens 30 {1}",
                                kDemo.string(), options));
}

TEST(JoinProgram, PrintsARowForEachWay) {
  const std::string options = "--parts 2,1,2 --part-tokens 130 --join rotate,anew --depths 0.9";
  const Json json = json_of(join(options + " --json --rope-scaling dynamic-yarn"));
  EXPECT_EQ(json["scaling"], "dynamic-yarn");
  EXPECT_EQ(json["part_tokens"], 130);
  EXPECT_EQ(json["complete"], true);
  const Json& results = json["results"];
  ASSERT_EQ(results.size(), 6U);
  for (size_t i = 0; i < 6; ++i) {
    EXPECT_EQ(results[i]["parts"], i < 3 ? 1 : 2);
    EXPECT_EQ(results[i]["join"], (std::array{"anew", "rotate", "last part"}[i % 3]));
    EXPECT_EQ(results[i]["tokens"], 29);
    const double kl = results[i]["kl"], ratio = results[i]["ppl_ratio"];  // of a NaN there is no number
    EXPECT_GE(kl, 0);
    EXPECT_EQ(kl > 0, i >= 4) << i;
    EXPECT_EQ(ratio == 1, i < 4) << i;
    EXPECT_NEAR(ratio, results[i]["ppl"].get<double>() / results[i - i % 3]["ppl"].get<double>(), 1e-9);
    EXPECT_GE(results[i]["same_top"], i < 4 ? 1 : 0.8) << i;
    EXPECT_EQ(results[i]["trials"], 1);
    EXPECT_EQ(results[i]["seconds"].size(), 2U);
  }
  EXPECT_EQ(results[5]["ppl"], results[2]["ppl"]);
  const Outcome printed = join(options);
  EXPECT_EQ(printed.code, 0) << printed.err;
  EXPECT_EQ(printed.err, "");
  EXPECT_EQ(std::count(printed.out.begin(), printed.out.end(), '\n'), 7);
  EXPECT_TRUE(names(printed.out, "anew | rotate"));
}

}  // namespace
}  // namespace lariat::test
