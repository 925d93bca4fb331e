// What a user reads when a checkpoint is something else, or has a peculiarity: one line, and the exit code.
#include <cstring>
#include <nlohmann/json.hpp>

#include "tests/tools/program.h"

namespace lariat::test {
namespace {

namespace fs = std::filesystem;

class GateLines : public testing::Test {
 protected:
  GateLines() {
    const auto* info = testing::UnitTest::GetInstance()->current_test_info();
    dir_ = fs::path(testing::TempDir()) / ("lariat-gate-" + std::string(info->name()));
    fs::remove_all(dir_);
    fs::create_directories(dir_);
  }
  ~GateLines() override {
    std::error_code ec;
    fs::remove_all(dir_, ec);
  }

  void put(const std::string& name, const std::string& text) const {
    fs::create_directories((dir_ / name).parent_path());
    std::ofstream(dir_ / name, std::ios::binary) << text;
  }
  // A checkpoint that runs, with some keys changed, and a tokenizer that fits.
  void copy_checkpoint(const nlohmann::json& changes = nlohmann::json::object()) const {
    const fs::path golden = fs::path(LARIAT_SOURCE_DIR) / "tests" / "golden";
    nlohmann::json config =
        nlohmann::json::parse(slurp(golden / "checkpoints" / "llama_gqa" / "config.json"));
    config.update(changes);
    put("config.json", config.dump());
    put("model.safetensors", slurp(golden / "checkpoints" / "llama_gqa" / "model.safetensors"));
  }
  // A model of the repository, whose tokenizer begins a text with a token.
  void copy_demo(const nlohmann::json& changes = nlohmann::json::object()) const {
    const fs::path demo = fs::path(LARIAT_SOURCE_DIR) / "configs" / "demo";
    for (const auto& entry : fs::directory_iterator(demo)) fs::copy(entry.path(), dir_);
    nlohmann::json config = nlohmann::json::parse(slurp(demo / "config.json"));
    config.update(changes);
    fs::remove(dir_ / "config.json");
    put("config.json", config.dump());
  }
  Outcome generate(const std::string& more = "--prompt x") const {
    return run_lariat("generate --device cpu --model " + dir_.string() + " " + more);
  }
  Outcome logits(const std::string& more = "") const {
    return run_lariat("logits --device cpu --tokens 1,2,3 --model " + dir_.string() + " --out " +
                      (dir_ / "out").string() + more);
  }
  void expect_both(const std::string& part) const {
    expect_error(logits(), 1, part);
    expect_error(generate(), 1, part);
  }
  static void expect_warning(const Outcome& outcome, const std::string& part) {
    EXPECT_EQ(outcome.code, 0) << outcome.err;
    EXPECT_EQ(outcome.err.rfind("lariat: warning: ", 0), 0U) << outcome.err;
    EXPECT_EQ(std::count(outcome.err.begin(), outcome.err.end(), '\n'), 1) << outcome.err;
    EXPECT_NE(outcome.err.find(part), std::string::npos) << outcome.err;
  }

  fs::path dir_;
};

TEST_F(GateLines, Gguf) {
  const std::string magic("GGUF\3\0\0\0", 8);
  put("m.gguf", magic);
  expect_both("m.gguf: a GGUF file, which llama.cpp reads; --model takes the Hugging Face folder");
  dir_ /= "m.gguf";
  expect_error(generate(), 1, "m.gguf: a GGUF file");
  dir_ = dir_.parent_path();
}

TEST_F(GateLines, PickledWeights) {
  copy_checkpoint();
  fs::rename(dir_ / "model.safetensors", dir_ / "pytorch_model.bin");
  expect_both(
      "pytorch_model.bin: pickled weights, which lariat does not open; convert them, in Python: from "
      "transformers import AutoModelForCausalLM; AutoModelForCausalLM.from_pretrained('" +
      dir_.string() + "').save_pretrained('CONVERTED')");
}

TEST_F(GateLines, Adapter) {
  put("adapter_config.json", R"({"base_model_name_or_path": "some/base"})");
  put("adapter_model.safetensors", "");
  expect_both(
      "adapter_config.json: a LoRA adapter of some/base; merge it first, in Python: from peft import");
}

TEST_F(GateLines, FolderAboveASnapshot) {
  put("snapshots/0000/config.json", "{}");
  put("snapshots/0a1b/config.json", "{}");
  put("refs/main", "0a1b\n");
  expect_both("the folder above a snapshot; use --model " + (dir_ / "snapshots" / "0a1b").string());
  fs::remove_all(dir_ / "refs");
  fs::remove_all(dir_ / "snapshots" / "0a1b");
  expect_both("use --model " + (dir_ / "snapshots" / "0000").string());
}

TEST_F(GateLines, QuantisedCheckpoints) {
  for (const char* method : {"gptq", "awq", "fp8", "compressed-tensors", "bitsandbytes"}) {
    copy_checkpoint({{"quantization_config", {{"quant_method", method}}}});
    expect_error(logits(), 1,
                 std::string("a checkpoint quantised by ") + method + ", whose weights lariat does not");
  }
  copy_checkpoint({{"quantization", {{"group_size", 64}, {"bits", 4}}}});
  expect_error(logits(), 1, "a checkpoint quantised by MLX");
}

TEST_F(GateLines, WarningsStandOnStderrOnceAndNotWithQuiet) {
  copy_checkpoint({{"rope_interleaved", true}});
  expect_warning(logits(), "config.json: \"rope_interleaved\" is true; heeded");
  EXPECT_EQ(logits(" --quiet").err, "");
}

TEST_F(GateLines, BeyondTheTrainedContext) {
  copy_demo();
  const Outcome beyond = generate("--prompt 'The sea' --max-new-tokens 600 --ignore-eos --json");
  expect_warning(beyond, "and the model is made for 512 without RoPE scaling; use --rope-scaling dynamic");
  EXPECT_TRUE(nlohmann::json::parse(beyond.out).contains("tokens"));
  EXPECT_EQ(generate("--prompt 'The sea' --max-new-tokens 600 --quiet").err, "");
  EXPECT_EQ(generate("--prompt 'The sea' --max-new-tokens 600 --rope-scaling dynamic").err, "");
  EXPECT_EQ(generate("--prompt 'The sea' --max-new-tokens 600 --rope-scaling yarn --rope-factor 2").err, "");
  EXPECT_EQ(generate("--prompt 'The sea' --max-new-tokens 20").err, "");
  EXPECT_EQ(generate("--prompt 'The sea' --max-new-tokens 600 --ctx 100").err, "");
}

TEST_F(GateLines, RopeOfAFamilyThatDoesNotRun) {
  put("config.json", nlohmann::json({{"architectures", {"GptOssForCausalLM"}},
                                     {"head_dim", 64},
                                     {"max_position_embeddings", 131072},
                                     {"num_local_experts", 32},
                                     {"rope_theta", 150000},
                                     {"quantization_config", {{"quant_method", "mxfp4"}}}})
                         .dump());
  const Outcome outcome = run_lariat("rope --json --model " + dir_.string());
  expect_warning(outcome,
                 "config.json: \"architectures\" is [\"GptOssForCausalLM\"]; unknown to lariat; this is the "
                 "RoPE that a Llama with these keys would have");
  EXPECT_EQ(nlohmann::json::parse(outcome.out)["theta"], 150000);
  expect_error(logits(), 1, "no such architecture runs; docs/models.md");
}

}  // namespace
}  // namespace lariat::test
