#pragma once
#include <fmt/format.h>
#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdio>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <string>

#include "tests/test_util.h"

namespace lariat::test {

using Json = nlohmann::ordered_json;

inline const std::filesystem::path kSource = source_dir(), kDemo = kSource / "configs" / "demo";

struct Outcome {
  int code = -1;  // 128 + n after signal n
  std::string out, err;
};

inline std::filesystem::path fresh_dir() {
  const auto* info = testing::UnitTest::GetInstance()->current_test_info();
  std::string name = std::string(info->test_suite_name()) + "." + info->name();
  for (char& c : name) c = c == '/' ? '_' : c;
  const auto dir = std::filesystem::path(testing::TempDir()) / fmt::format("lariat-{}-{}", getpid(), name);
  std::filesystem::remove_all(dir);
  std::filesystem::create_directories(dir);
  return dir;
}

// arguments: shell syntax. input: a file.
inline Outcome run_lariat(const std::string& arguments, const std::filesystem::path& input = "/dev/null") {
  const TempFolder folder;
  const auto out = folder.path / "out", err = folder.path / "err";
  const std::string command =
      lariat_program() + " " + arguments + " >" + out.string() + " 2>" + err.string() + " <" + input.string();
  const int status = std::system(command.c_str());
  Outcome outcome;
  outcome.code = WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
  outcome.out = slurp(out);
  outcome.err = slurp(err);
  return outcome;
}

inline Json json_of(const Outcome& outcome) {
  EXPECT_EQ(outcome.code, 0) << outcome.err;
  return Json::parse(outcome.out);
}

// Expects one stderr line with the standard prefix, and no stdout.
inline void expect_error(const Outcome& outcome, int code, std::string_view words) {
  EXPECT_EQ(outcome.code, code) << outcome.err;
  EXPECT_EQ(outcome.err.rfind("lariat: error: ", 0), 0U) << outcome.err;
  EXPECT_EQ(std::count(outcome.err.begin(), outcome.err.end(), '\n'), 1) << outcome.err;
  EXPECT_TRUE(names(outcome.err, words));
  EXPECT_EQ(outcome.out, "");
}

}  // namespace lariat::test
