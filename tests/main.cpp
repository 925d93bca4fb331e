// Prints each skipped test with its reason; returns 77 (skipped in ctest) if every test was skipped, which
// GoogleTest counts as passed.
#include <gtest/gtest.h>

#include "tests/skipped_tests.h"

int main(int argc, char** argv) {
  testing::InitGoogleTest(&argc, argv);
  testing::UnitTest::GetInstance()->listeners().Append(new lariat::test::SkippedTests);
  return lariat::test::run_tests();
}
