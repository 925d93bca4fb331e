// Prints each skipped test with its reason; returns 77 (skipped in ctest) if every test was skipped, which
// GoogleTest counts as passed.
#include <gtest/gtest.h>

#include <cstdio>
#include <map>
#include <string>
#include <utility>
#include <vector>

namespace {

class SkippedTests : public testing::EmptyTestEventListener {
  void OnTestEnd(const testing::TestInfo& test) override {
    if (!test.result()->Skipped()) return;
    std::string reason;
    for (int i = 0; i < test.result()->total_part_count(); ++i) {
      const testing::TestPartResult& part = test.result()->GetTestPartResult(i);
      if (part.skipped()) reason = part.message();
    }
    const size_t first = reason.find_first_not_of(" \n"), end = reason.find('\n', first);
    reason = first == std::string::npos ? "no reason given" : reason.substr(first, end - first);
    tests_[{test.test_suite_name(), reason}].emplace_back(test.name());
  }

  void OnTestProgramEnd(const testing::UnitTest& /*unit_test*/) override {
    for (const auto& [where, names] : tests_) {
      const std::string what =
          names.size() == 1 ? "." + names[0] : " (" + std::to_string(names.size()) + " tests)";
      std::printf("SKIPPED %s%s: %s\n", where.first.c_str(), what.c_str(), where.second.c_str());
    }
  }

  std::map<std::pair<std::string, std::string>, std::vector<std::string>> tests_;  // by suite and reason
};

}  // namespace

int main(int argc, char** argv) {
  testing::InitGoogleTest(&argc, argv);
  testing::UnitTest& all = *testing::UnitTest::GetInstance();
  all.listeners().Append(new SkippedTests);
  const int failed = RUN_ALL_TESTS();
  constexpr int kSkipped = 77;
  const bool nothing_ran = all.skipped_test_count() > 0 && all.successful_test_count() == 0;
  return failed == 0 && nothing_ran ? kSkipped : failed;
}
