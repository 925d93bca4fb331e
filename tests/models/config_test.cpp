#include "models/load/config.h"

#include <fstream>

#include "models/quantization/quantization.h"
#include "tests/models/config_cases.h"
#include "tests/models/tokenizer_test_util.h"

namespace lariat::test {
namespace {

namespace fs = std::filesystem;

const json kLlamaConfig = {{"architectures", {"LlamaForCausalLM"}}};

TEST(Config, EndTokensComeFromGenerationConfigIfPresent) {
  const TempFolder dir;
  const auto load = [&](const std::string& generation, const json& own = json::object()) {
    dir.put("config.json", changed(kLlamaConfig, own).dump());
    dir.put("generation_config.json", generation);
    return load_config(dir.path);
  };
  using Ids = std::vector<int32_t>;
  EXPECT_EQ(load(R"({"eos_token_id": [2, 9, 11], "temperature": 0.6})").eos_token_ids, (Ids{2, 9, 11}));
  EXPECT_EQ(load_config(dir.path / "config.json").eos_token_ids.size(), 3U);
  dir.put("other.json", kLlamaConfig.dump());
  EXPECT_EQ(load_config(dir.path / "other.json").eos_token_ids.size(), 1U);
  EXPECT_EQ(load(R"({"eos_token_id": [3, 9]})", {{"eos_token_id", 7}}).eos_token_ids, (Ids{3, 9}));
  EXPECT_EQ(load(R"({"eos_token_id": null})", {{"eos_token_id", 7}}).eos_token_ids, (Ids{7}));
  const auto warnings = load(R"({"eos_token_id": 32000})").warnings;
  ASSERT_EQ(warnings.size(), 1U);
  EXPECT_TRUE(names(warnings[0], "generation_config.json"));
  for (const char* bad : {"{", "[]", R"({"eos_token_id": 1.5})"})
    expect_line(error_of([&] { load(bad); }), (dir.path / "generation_config.json").string(), "");
}

TEST(Config, OtherFilesAreRefused) {
  const std::pair<const char*, const char*> damaged[] = {
      {"", "JSON"},
      {"[1]", "[1] | JSON"},
      {"{\"vocab_size\": nan}", "JSON"},
      {R"({"model_type": "llama", "vocab_size": 1, "vocab_size": 2})", "vocab_size"},
  };
  for (const auto& [text, words] : damaged) expect_line(answer_to(text).error, "config.json", words);
  const TempFolder dir;
  EXPECT_THROW(load_config(dir.path), Error);
  EXPECT_THROW(load_config(dir.path / "nowhere"), Error);
}

// All readers of a checkpoint share its JSON, also with a non-JSON number.
TEST(Config, IsParsedOnce) {
  const TempFolder dir;
  dir.put("config.json",
          R"({"model_type": "llama", "x": Infinity, "quantization_config": {"quant_method": "gptq"}})");
  const ModelTexts texts(dir.path), copy = texts;
  EXPECT_EQ(load_config(texts).family, "LlamaForCausalLM");
  std::filesystem::remove(dir.path / "config.json");
  EXPECT_EQ(quantization_method(copy), "gptq");
  EXPECT_EQ(&copy.object("config.json"), &texts.object("config.json"));
}

// Python writes NaN and Infinity; they matter only in keys that are read.
TEST(Config, NonJsonNumbers) {
  const auto with = [&](const std::string& member) {
    return answer_to(R"({"model_type": "llama", "a\\\"b": "Infinity: NaN", )" + member + "}").error;
  };
  for (const std::string value :
       {"Infinity", "-Infinity", "NaN", "1e400", "-1e400", "[0.0, Infinity]", "{\"x\":NaN}"}) {
    EXPECT_EQ(with("\"time_step_limit\": " + value), "") << value;
    for (const std::string key : {"vocab_size", "rope_theta"})
      EXPECT_TRUE(names(with("\"" + key + "\": " + value), "config.json | " + key)) << value;
  }
  for (const char* bad : {"\"x\": Infinit", "\"x\": 1e400e"})
    EXPECT_TRUE(names(with(bad), "config.json | JSON"));
}

// Returns the folder's *.json and its checkpoints' config.json.
std::vector<fs::path> configs_in(const fs::path& folder) {
  std::vector<fs::path> files;
  for (const auto& entry : fs::recursive_directory_iterator(folder)) {
    const fs::path& path = entry.path();
    const bool checkpoint = path.filename() == "config.json";
    if (checkpoint || (path.extension() == ".json" && path.parent_path() == folder)) files.push_back(path);
  }
  return files;
}

// Expects that every config opens or has an unsupported architecture, without unknown keys.
void expect_known(const fs::path& folder, size_t least, bool all_run) {
  size_t count = 0;
  const std::string unknown = of_an_unknown_key();
  for (const fs::path& file : configs_in(folder)) {
    try {
      for (const std::string& line : load_config(file).warnings)
        EXPECT_FALSE(line.ends_with(unknown)) << line;
      ++count;
    } catch (const Error& e) {
      EXPECT_FALSE(all_run) << e.what();
      EXPECT_TRUE(names(e.what(), "architectures"));
    }
  }
  EXPECT_GE(count, least) << folder;
}

TEST(Config, ThisRepositorysConfigsAreKnown) {
  expect_known(golden_file("checkpoints"), 50, true);
  expect_known(source_dir() / "configs", 9, true);
}

TEST(Config, PublishedConfigsAreKnown) {
  const fs::path shared = shared_dir() / "configs";
  LARIAT_NEEDS(shared);
  expect_known(shared, 22, false);
  for (const char* name : {"mlc_ministral3_3b_2512", "mlc_olmo2_7b", "ome_gemma3_text", "ome_gemma_2_2b_it",
                           "ome_gemma_7b", "ome_gpt_oss_20b", "ome_internlm2_7b", "ome_llava_1.5_7b_hf",
                           "ome_phi3", "ome_qwen2.5_vl_7b", "ome_qwen2_vl_2b", "mlc_deepseek_v2_lite",
                           "ome_deepseek_v3", "ome_minicpm3_4b", "ome_mixtral", "ome_qwen3_30b"})
    EXPECT_NO_THROW(load_config(shared / (std::string(name) + ".json"))) << name;
}

}  // namespace
}  // namespace lariat::test
