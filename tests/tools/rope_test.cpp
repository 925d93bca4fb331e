// `lariat rope` from outside, as scripts use it.
#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdio>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <string>

#include "models/config.h"
#include "models/io/json_file.h"

namespace lariat {
namespace {

namespace fs = std::filesystem;
using nlohmann::json;

struct Result {
  int status = -1;
  std::string out, err;
};

class RopeCommand : public testing::Test {
 protected:
  RopeCommand() : dir_(fs::temp_directory_path() / ("lariat_rope_command_" + std::to_string(getpid()))) {
    fs::create_directories(dir_);
  }
  ~RopeCommand() override {
    std::error_code ec;
    fs::remove_all(dir_, ec);
  }

  Result run(const std::string& args) const {
    Result result;
    const fs::path err = dir_ / "stderr";
    const std::string command = std::string(LARIAT_PROGRAM) + " rope " + args + " 2>" + err.string();
    FILE* pipe = popen(command.c_str(), "r");
    char chunk[4096];
    for (size_t n = 0; (n = fread(chunk, 1, sizeof chunk, pipe)) > 0;) result.out.append(chunk, n);
    const int status = pclose(pipe);
    result.status = WIFEXITED(status) ? WEXITSTATUS(status) : -1;
    result.err = read_file(err, 1 << 20);
    return result;
  }

  void expect_failure(const std::string& args, int status, const std::string& part) const {
    const Result result = run(args);
    EXPECT_EQ(result.status, status) << args;
    EXPECT_EQ(result.out, "") << args;
    EXPECT_EQ(result.err.rfind("lariat: error: ", 0), 0U) << args << " -> " << result.err;
    EXPECT_NE(result.err.find(part), std::string::npos) << args << " -> " << result.err;
    EXPECT_EQ(result.err.find('\n'), result.err.size() - 1) << "one line: " << result.err;
  }

  static std::string config(const std::string& name) {
    return (fs::path(LARIAT_SOURCE_DIR) / "configs" / name).string();
  }

  fs::path dir_;
};

const std::string kHead = "--head-dim 128 --rope-theta 10000 --rope-original-ctx 4096 ";

TEST_F(RopeCommand, JsonHoldsTheFrequenciesOfTheLength) {
  const Result result = run(kHead + "--rope-scaling dynamic --rope-factor 2 --length 6000 --json");
  ASSERT_EQ(result.status, 0) << result.err;
  EXPECT_EQ(result.err, "");
  const json got = json::parse(result.out);
  std::vector<std::string> keys;
  for (const auto& [key, value] : got.items()) keys.push_back(key);
  EXPECT_EQ(keys, (std::vector<std::string>{"attention_factor", "factor", "inv_freq", "inv_freq_unscaled",
                                            "length", "original_ctx", "rotary_dim", "theta", "type"}));
  EXPECT_EQ(got["type"], "dynamic");
  EXPECT_EQ(got["rotary_dim"], 128);
  EXPECT_EQ(got["theta"], 10000.0);
  EXPECT_EQ(got["factor"], 2.0);
  EXPECT_EQ(got["original_ctx"], 4096);
  EXPECT_EQ(got["length"], 6000);
  RopeScaling rope;
  rope.head_dim = rope.rotary_dim = 128;
  rope.type = RopeType::kDynamic;
  rope.factor = 2.0;
  rope.original_ctx = rope.max_position_embeddings = 4096;
  EXPECT_EQ(got["inv_freq"].get<std::vector<double>>(), rope_frequencies(rope, 6000).inv_freq);
  EXPECT_EQ(got["inv_freq_unscaled"].get<std::vector<double>>(), rope_unscaled(rope).inv_freq);
  const json step = json::parse(
      run(kHead + "--rope-scaling dynamic --rope-factor 2 --length 6000 --rope-steps 4 --json").out);
  EXPECT_EQ(step["length"], 6000);
  EXPECT_EQ(step["inv_freq"].get<std::vector<double>>(),
            rope_frequencies(rope, rope_step_length(rope, 6000, 4)).inv_freq);
}

TEST_F(RopeCommand, AModelBringsItsOwnScaling) {
  const json got = json::parse(run("--json --model " + config("llama-3.1-8b.json")).out);
  EXPECT_EQ(got["type"], "llama3");
  EXPECT_EQ(got["original_ctx"], 8192);
  EXPECT_EQ(got["length"], 131072);
  const RopeScaling rope = load_config(config("llama-3.1-8b.json")).rope();
  EXPECT_EQ(got["inv_freq"].get<std::vector<double>>(), rope_frequencies(rope, 1).inv_freq);
  const json off = json::parse(run("--json --rope-scaling none --model " + config("llama-3.1-8b.json")).out);
  EXPECT_EQ(off["type"], "default");
  EXPECT_EQ(off["inv_freq"], off["inv_freq_unscaled"]);
  EXPECT_EQ(off["inv_freq"], got["inv_freq_unscaled"]);
  const json preset = json::parse(run("--json --model " + config("qwen3-8b.json") + " --rope-config " +
                                      config("rope/qwen-yarn-128k.json"))
                                      .out);
  EXPECT_EQ(preset["type"], "yarn");
  EXPECT_NEAR(preset["attention_factor"].get<double>(), 1.1386294361, 1e-9);
}

TEST_F(RopeCommand, TheTableCountsItsPairs) {
  const Result result = run(kHead + "--rope-scaling yarn --rope-factor 4");
  ASSERT_EQ(result.status, 0) << result.err;
  EXPECT_NE(result.out.find("attention factor 1.13863"), std::string::npos) << result.out;
  EXPECT_NE(result.out.find("interpolated: 21 none, 25 partly, 18 fully"), std::string::npos) << result.out;
  EXPECT_NE(run(kHead + "--rope-scaling linear --rope-factor 2").out.find("0 none, 0 partly, 64 fully"),
            std::string::npos);
  EXPECT_NE(run(kHead).out.find("64 none, 0 partly, 0 fully"), std::string::npos);
  EXPECT_NE(run(kHead + "--rope-scaling dynamic-yarn --length 5000 --rope-steps 4")
                .out.find("(on the scale step of 5792.6)"),
            std::string::npos);
}

TEST_F(RopeCommand, DrawsAPictureBesideTheJson) {
  const fs::path svg = dir_ / "out.svg";
  const Result result = run(kHead + "--rope-scaling ntk --rope-factor 4 --json --svg " + svg.string());
  ASSERT_EQ(result.status, 0) << result.err;
  EXPECT_TRUE(json::accept(result.out));
  EXPECT_EQ(read_file(svg, 1 << 20).rfind("<svg ", 0), 0U);
}

TEST_F(RopeCommand, WrongUsageIs2) {
  expect_failure("", 2, "--head-dim");
  expect_failure("--head-dim 128 --rope-theta 10000", 2, "--rope-original-ctx");
  expect_failure("--head-dim 127 --rope-theta 10000 --rope-original-ctx 4096", 2, "--head-dim is 127");
  expect_failure("--model " + config("qwen3-8b.json") + " --head-dim 64", 2, "--head-dim");
  expect_failure(kHead + "--rope-scaling yarn", 2, "--rope-factor");
  expect_failure(kHead + "--rope-scaling yarn --rope-factor nan", 2, "--rope-factor");
  expect_failure(kHead + "--rope-scaling yarn --rope-factor 0.5", 2, "--rope-factor");
  expect_failure(kHead + "--rope-scaling bogus", 2, "known: none, linear");
  expect_failure(kHead + "--rope-scaling longrope --rope-factor 4", 2, "--rope-config");
  expect_failure(kHead + "--rope-factor 4", 2, "--rope-scaling");
  expect_failure(kHead + "--rope-steps 65", 2, "--rope-steps");
  expect_failure(kHead + "--rope-steps -1", 2, "--rope-steps");
  expect_failure(kHead + "--rope-steps four", 2, "--rope-steps");
  expect_failure(kHead + "--rope-rungs four", 2, "--rope-rungs");  // its older name
  expect_failure(kHead + "--rope-cache fresh", 2, "--rope-cache");
  expect_failure(kHead + "--length 0", 2, "--length");
}

TEST_F(RopeCommand, FailuresAre1) {
  expect_failure("--model " + (dir_ / "none").string(), 1, (dir_ / "none").string());
  expect_failure(kHead + "--rope-config " + (dir_ / "none.json").string(), 1, "none.json");
  expect_failure(kHead + "--svg " + (dir_ / "none" / "a.svg").string(), 1, "a.svg");
  expect_failure(kHead + "--json --svg " + dir_.string(), 1, dir_.string());
}

}  // namespace
}  // namespace lariat
