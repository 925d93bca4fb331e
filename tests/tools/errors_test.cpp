// What a user does wrong, or a damaged download brings: one clear line, the right exit code.
#include <algorithm>
#include <nlohmann/json.hpp>

#include "tests/tools/program.h"

namespace lariat::test {
namespace {

namespace fs = std::filesystem;

const fs::path kSource = LARIAT_SOURCE_DIR;
const fs::path kGolden = kSource / "tests" / "golden" / "checkpoints" / "llama_gqa";

void write(const fs::path& file, const std::string& bytes) {
  std::ofstream(file, std::ios::binary | std::ios::trunc) << bytes;
}

// A copy of a good checkpoint that a test may damage.
class Damaged : public testing::Test {
 protected:
  void SetUp() override {
    dir_ = fresh_dir() / "model";
    fs::create_directories(dir_);
    for (const char* name : {"config.json", "model.safetensors"}) fs::copy_file(kGolden / name, dir_ / name);
  }
  // run_lariat empties the test's folder, so the checkpoint is kept beside it.
  fs::path keep() const {
    const fs::path kept = dir_.parent_path().string() + "-kept";
    fs::remove_all(kept);
    fs::rename(dir_, kept);
    return kept;
  }
  Outcome logits(const std::string& more = "--tokens 1,2,3") const {
    const fs::path kept = keep();
    return run_lariat("logits --model " + kept.string() + " " + more + " --out " +
                      (kept / "out.st").string());
  }
  fs::path weights() const { return dir_ / "model.safetensors"; }
  void edit_header(const std::function<void(nlohmann::json&)>& edit) const {
    const std::string bytes = slurp(weights());
    uint64_t length = 0;
    std::memcpy(&length, bytes.data(), 8);
    nlohmann::json header = nlohmann::json::parse(bytes.substr(8, length));
    edit(header);
    const std::string text = header.dump();
    length = text.size();
    write(weights(), std::string(reinterpret_cast<const char*>(&length), 8) + text +
                         bytes.substr(8 + *reinterpret_cast<const uint64_t*>(bytes.data())));
  }
  void edit_config(const std::function<void(nlohmann::json&)>& edit) const {
    nlohmann::json config = nlohmann::json::parse(slurp(dir_ / "config.json"));
    edit(config);
    write(dir_ / "config.json", config.dump());
  }
  fs::path dir_;
};

TEST_F(Damaged, NotAtAll) { EXPECT_EQ(logits().code, 0); }

TEST_F(Damaged, NoSuchFolder) {
  expect_error(run_lariat("logits --model /no/such/folder --tokens 1 --out /dev/null"), 1, "/no/such/folder");
  expect_error(run_lariat("generate --model /no/such/folder --prompt x"), 1, "/no/such/folder");
}

TEST_F(Damaged, TruncatedWeights) {
  fs::resize_file(weights(), fs::file_size(weights()) - 100);
  expect_error(logits(), 1, "truncated");
}

TEST_F(Damaged, WeightsOfAFewBytes) {
  write(weights(), "abc");
  expect_error(logits(), 1, "too short");
}

TEST_F(Damaged, HeaderLengthOf2To60) {
  std::string bytes = slurp(weights());
  const uint64_t length = uint64_t{1} << 60;
  std::memcpy(bytes.data(), &length, 8);
  write(weights(), bytes);
  expect_error(logits(), 1, "the header claims 1152921504606846976 bytes");
}

TEST_F(Damaged, HeaderNotJson) {
  std::string bytes = slurp(weights());
  bytes[8] = '!';
  write(weights(), bytes);
  expect_error(logits(), 1, "not valid JSON");
}

TEST_F(Damaged, TensorMissing) {
  edit_header([](nlohmann::json& header) { header.erase("model.layers.0.mlp.up_proj.weight"); });
  expect_error(logits(), 1, "'model.layers.0.mlp.up_proj.weight' is missing");
}

TEST_F(Damaged, TensorOfTheWrongShape) {
  edit_config([](nlohmann::json& config) {
    config["intermediate_size"] = config["intermediate_size"].get<int>() + 2;
  });
  expect_error(logits(), 1, "mlp.gate_proj.weight' has shape");
}

TEST_F(Damaged, ShapeThatOverflows) {
  edit_header([](nlohmann::json& header) {
    header["model.norm.weight"]["shape"] = {uint64_t{1} << 40, uint64_t{1} << 40};
  });
  expect_error(logits(), 1, "overflows");
}

TEST_F(Damaged, OverlappingTensors) {
  edit_header([](nlohmann::json& header) {
    header["model.layers.0.input_layernorm.weight"]["data_offsets"] =
        header["model.norm.weight"]["data_offsets"];
  });
  expect_error(logits(), 1, "overlap");
}

TEST_F(Damaged, IntegerWeights) {
  edit_header([](nlohmann::json& header) { header["model.norm.weight"]["dtype"] = "I32"; });
  expect_error(logits(), 1, "'model.norm.weight' is I32");
}

TEST_F(Damaged, ConfigNotJson) {
  write(dir_ / "config.json", "{\"architectures\": [");
  expect_error(logits(), 1, "config.json: not valid JSON");
}

TEST_F(Damaged, ConfigMissing) {
  fs::remove(dir_ / "config.json");
  expect_error(logits(), 1, "config.json: no such file");
}

TEST_F(Damaged, WeightsMissing) {
  fs::remove(weights());
  expect_error(logits(), 1, "neither model.safetensors nor model.safetensors.index.json");
}

TEST_F(Damaged, ShardMissing) {
  fs::remove(weights());
  write(dir_ / "model.safetensors.index.json",
        R"({"weight_map": {"model.norm.weight": "model-00001.safetensors"}})");
  expect_error(logits(), 1, "model-00001.safetensors: cannot be opened");
}

TEST_F(Damaged, ShardOutsideTheFolder) {
  fs::remove(weights());
  write(dir_ / "model.safetensors.index.json",
        R"({"weight_map": {"model.norm.weight": "../other.safetensors"}})");
  expect_error(logits(), 1, "not a plain file name");
}

TEST_F(Damaged, TokenIdBeyondTheVocabulary) {
  expect_error(logits("--tokens 1,2,61"), 1,
               "token id 61 (at index 2) is outside the model's vocabulary of 61");
}

TEST_F(Damaged, TokensThatAreNone) {
  expect_error(logits("--tokens 1,two"), 1, "'two' is not a token id");
  SetUp();
  expect_error(logits("--tokens 1,99999999999"), 1, "'99999999999' is not a token id");
}

TEST_F(Damaged, PromptLongerThanTheContext) {
  expect_error(logits("--tokens 1,2,3,4 --ctx 3"), 1, "the sequence would have 4 tokens");
  SetUp();
  expect_error(logits("--tokens 1,2,3,4 --ctx 3"), 1, "; shorten the prompt or raise --ctx");
}

TEST_F(Damaged, PromptFileEmptyOrMissing) {
  const fs::path file = fs::path(testing::TempDir()) / "lariat-empty-prompt.txt";
  write(file, "");
  const std::string generate = "generate --model " + kGolden.string() + " --prompt-file ";
  expect_error(run_lariat(generate + file.string()), 1, "the prompt file is empty");
  expect_error(run_lariat(generate + "/no/such/file"), 1, "/no/such/file: no such file");
}

// A tokenizer with more ids than the model has embeddings for.
TEST_F(Damaged, VocabularySmallerThanATokenId) {
  const fs::path kept = keep();
  for (const char* name : {"tokenizer.json", "tokenizer_config.json"}) {
    fs::copy_file(kSource / "tests" / "golden" / "tokenizers" / "llama3-mini" / name, kept / name);
  }
  expect_error(run_lariat("generate --model " + kept.string() + " --prompt 'the zebra'"), 1,
               "is outside the model's vocabulary of 61");
}

TEST_F(Damaged, OutputThatCannotBeWritten) {
  expect_error(run_lariat("logits --model " + kGolden.string() + " --tokens 1 --out /no/such/folder/x"), 1,
               "/no/such/folder/x");
}

TEST(Usage, IsAnErrorOfItsOwn) {
  expect_error(run_lariat("generate --no-such-flag"), 2, "");
  expect_error(run_lariat("logits --model " + kGolden.string() + " --tokens 1 --out x --no-such-flag"), 2,
               "--no-such-flag");
  expect_error(run_lariat("''"), 2, "");
  expect_error(run_lariat("logits --model x --tokens 1 --out y --dtype f64"), 2, "--dtype");
  expect_error(run_lariat("bench"), 2, "--random-weights");
}

TEST(Usage, HelpAndVersionAreNot) {
  EXPECT_EQ(run_lariat("--help").code, 0);
  EXPECT_EQ(run_lariat("generate --help").code, 0);
  EXPECT_EQ(run_lariat("--version").out.rfind("lariat ", 0), 0U);
}

}  // namespace
}  // namespace lariat::test
