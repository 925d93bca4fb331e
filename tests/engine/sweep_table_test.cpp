#include "engine/eval/sweep_table.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>

#include "tests/engine/sweep_fixture.h"

namespace lariat::test {
namespace {

TEST(SweepTables, SharesAreSummedOverDepths) {
  Measurements log = empty_log({"none"}, {256, 512});
  log.plan.passkey.tasks = {NeedleTask::kPasskey, NeedleTask::kMultikey};
  for (const int64_t length : {256, 512})
    add_record(log, "passkey", "none", length,
               {{"depth", 0}, {"trials", 1}, {"correct", 0}, {"task", "multikey"}, {"recall", 0.5}});
  add_record(log, "passkey", "none", 512,
             {{"depth", 1}, {"trials", 1}, {"correct", 1}, {"task", "multikey"}});
  const SweepTable table = tabulate(log);
  EXPECT_FALSE(table.retrieval("none", NeedleTask::kPasskey, 512));
  EXPECT_EQ(table.retrieval("none", NeedleTask::kMultikey, 256).value().share(), 0.5);
  const RetrievalValue sum = table.retrieval("none", NeedleTask::kMultikey, 512).value();
  EXPECT_EQ(sum.share(), 0.75);
  EXPECT_TRUE(sum.in_parts);
  const auto maps = retrieval_maps(table);
  EXPECT_EQ(maps.at(0).name + " " + maps.at(1).name, "passkey multikey");
  log.plan.passkey.tasks.clear();
  EXPECT_EQ(retrieval_maps(tabulate(log)).at(0).name, "none");
}

TEST(SweepTables, ErrorsNeedTwoTokens) {
  LossSum sum;
  sum.add(1);
  EXPECT_DOUBLE_EQ(sum.ppl(), std::exp(1));
  EXPECT_TRUE(std::isnan(sum.mean_error()));
  sum.add(3);
  EXPECT_DOUBLE_EQ(sum.mean_error(), 1);
}

TEST(SweepTables, NumbersAreShort) {
  EXPECT_EQ(compact(10), "10.0");
  EXPECT_EQ(compact(100), "100");
  EXPECT_EQ(compact(1e6), "1e+06");
  EXPECT_EQ(compact(8.9273), "8.93");
  EXPECT_EQ(compact(44.14), "44.1");
  EXPECT_EQ(compact(5356.4), "5356");
  EXPECT_EQ(compact(2.5e7), "2.5e+07");
  EXPECT_EQ(compact(-std::numeric_limits<double>::quiet_NaN()), "nan");
  EXPECT_EQ(joined({"a"}), "a");
  EXPECT_EQ(joined({"a", "b", "c"}), "a, b and c");
}

}  // namespace
}  // namespace lariat::test
