#include "engine/stop_filter.h"

#include <gtest/gtest.h>

namespace lariat::test {
namespace {

TEST(StopFilter, HoldsBackOnlyWhatMayBeginAStop) {
  StopFilter filter({"###", "END"});
  EXPECT_EQ(filter.push("abc#"), "abc");
  EXPECT_EQ(filter.push("#d"), "##d");
  EXPECT_EQ(filter.push("E"), "");
  EXPECT_EQ(filter.push("N"), "");
  EXPECT_EQ(filter.push("xEN"), "ENx");
  EXPECT_FALSE(filter.stopped());
  EXPECT_EQ(filter.flush(), "EN");
}

TEST(StopFilter, CutsAtTheFirstStop) {
  StopFilter filter({"b\n", "\n"});
  EXPECT_EQ(filter.push("a"), "a");
  EXPECT_EQ(filter.push("b"), "");
  EXPECT_EQ(filter.push("\nmore"), "");
  EXPECT_TRUE(filter.stopped());
  EXPECT_EQ(filter.push("x"), "");
  EXPECT_EQ(filter.flush(), "");
}

TEST(StopFilter, WithoutStopsEverythingPasses) {
  StopFilter filter({""});
  EXPECT_EQ(filter.push("all of it"), "all of it");
}

}  // namespace
}  // namespace lariat::test
