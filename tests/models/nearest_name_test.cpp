#include "models/io/nearest_name.h"

#include <gtest/gtest.h>

#include <vector>

namespace lariat::test {
namespace {

TEST(NearestName, FindsTheIntendedName) {
  const std::vector<std::string> names = {"--prompt", "--prompt-file", "--max-new-tokens", "--temperature",
                                          "--top-p",  "--ctx",         "--kv-dtype"};
  const auto near = [&](const char* typed) { return nearest_name(typed, names); };
  EXPECT_EQ(near("--promt"), "--prompt");
  EXPECT_EQ(near("--prmopt"), "--prompt");
  EXPECT_EQ(near("--prompt-fil"), "--prompt-file");
  EXPECT_EQ(near("--PROMPT"), "--prompt");
  EXPECT_EQ(near("--max_new_tokens"), "--max-new-tokens");
  EXPECT_EQ(near("--max-tokens"), "--max-new-tokens");
  EXPECT_EQ(near("--temp"), "--temperature");
  EXPECT_EQ(near("--ctx-size"), "--ctx");
  EXPECT_EQ(near("--top_p"), "--top-p");
  EXPECT_EQ(near("--dtype"), "--kv-dtype");
  EXPECT_EQ(near("--cxt"), "--ctx");
  EXPECT_EQ(near("--grammar"), "");
  EXPECT_EQ(near(""), "");
  EXPECT_EQ(near(std::string(100'000, 'p').c_str()), "");
  EXPECT_EQ(nearest_name("x", {}), "");
}

}  // namespace
}  // namespace lariat::test
