// config.json as a file: beside a generation_config.json, damaged, and those of this repository and others.
#include "models/config.h"

#include <fstream>
#include <random>

#include "tests/models/config_cases.h"
#include "tests/models/tokenizer_test_util.h"

namespace lariat::test {
namespace {

namespace fs = std::filesystem;

const json kLlamaConfig = {{"architectures", {"LlamaForCausalLM"}}};

// The line that the text of a config is refused with; "" where it is not.
std::string text_error(const std::string& text) {
  try {
    parse_config(text, "config.json");
  } catch (const Error& e) {
    return e.what();
  }
  return "";
}

TEST(Config, EndTokensAreThoseOfTheGenerationConfigWhereItHasSome) {
  const TempDir dir;
  const auto load = [&](const std::string& generation, const json& own = json::object()) {
    dir.write("config.json", changed(kLlamaConfig, own).dump());
    dir.write("generation_config.json", generation);
    return load_config(dir.path);
  };
  using Ids = std::vector<int32_t>;
  EXPECT_EQ(load(R"({"eos_token_id": [2, 9, 11], "temperature": 0.6})").eos_token_ids, (Ids{2, 9, 11}));
  EXPECT_EQ(load_config(dir.path / "config.json").eos_token_ids.size(), 3U);
  dir.write("other.json", kLlamaConfig.dump());
  EXPECT_EQ(load_config(dir.path / "other.json").eos_token_ids.size(), 1U);
  EXPECT_EQ(load(R"({"eos_token_id": [3, 9]})", {{"eos_token_id", 7}}).eos_token_ids, (Ids{3, 9}));
  EXPECT_EQ(load(R"({"eos_token_id": null})", {{"eos_token_id", 7}}).eos_token_ids, (Ids{7}));
  const auto warnings = load(R"({"eos_token_id": 32000})").warnings;
  ASSERT_EQ(warnings.size(), 1U);
  EXPECT_NE(warnings[0].find("generation_config.json"), std::string::npos);
  for (const char* bad : {"{", "[]", R"({"eos_token_id": 1.5})"})
    expect_line(error_of([&] { load(bad); }), (dir.path / "generation_config.json").string(), "");
}

TEST(Config, FilesThatAreNotConfigs) {
  const std::pair<const char*, const char*> damaged[] = {
      {"", "not valid JSON"},
      {"[1]", "expected a JSON object"},
      {"{\"vocab_size\": nan}", "not valid JSON"},
      {R"({"model_type": "llama", "vocab_size": 1, "vocab_size": 2})", "stands twice"},
      {R"({"a": {"b": [{"c": 1, "c": 1}]}})", "\"c\" stands twice"},
  };
  for (const auto& [text, part] : damaged) EXPECT_NE(text_error(text).find(part), std::string::npos) << text;
  EXPECT_EQ(text_error(R"({"model_type": "llama", "a": {"b": 1}, "c": {"b": 1}})"), "");
  const TempDir dir;
  EXPECT_THROW(load_config(dir.path), Error);
  EXPECT_THROW(load_config(dir.path / "nowhere"), Error);
}

// Python writes them; only who reads such a key is troubled.
TEST(Config, NumbersThatJsonDoesNotHave) {
  const auto with = [&](const std::string& member) {
    return text_error(R"({"model_type": "llama", "a\\\"b": "Infinity: NaN", )" + member + "}");
  };
  for (const std::string value :
       {"Infinity", "-Infinity", "NaN", "1e400", "-1e400", "[0.0, Infinity]", "{\"x\":NaN}"}) {
    EXPECT_EQ(with("\"time_step_limit\": " + value), "") << value;
    for (const std::string key : {"\"vocab_size\"", "\"rope_theta\""})
      EXPECT_NE(with(key + ": " + value).find(key + " is "), std::string::npos) << value;
  }
  for (const char* bad : {"\"x\": Infinit", "\"x\": 1e400e"})
    EXPECT_NE(with(bad).find("not valid JSON"), std::string::npos);
}

// A config is untrusted: whatever stands in it, it loads or is refused with an Error.
TEST(Config, AnyMutationLoadsOrIsAnError) {
  const std::string text = R"({"architectures": ["Qwen3ForCausalLM"], "vocab_size": 100, "hidden_size": 64,
    "num_attention_heads": 4, "num_key_value_heads": 2, "num_hidden_layers": 2, "head_dim": 16,
    "eos_token_id": [1, 2], "layer_types": ["full_attention", "sliding_attention"], "use_sliding_window": true,
    "rope_scaling": {"rope_type": "longrope", "factor": 4.0, "original_max_position_embeddings": 1024,
    "short_factor": [1, 1, 1, 1, 1, 1, 1, 1], "long_factor": [1, 1, 1, 2, 2, 2, 2, 2]}})";
  std::mt19937 random(7);
  int loaded = 0, refused = 0;
  for (int round = 0; round < 3000; ++round) {
    std::string mutated = text;
    for (unsigned n = 1 + random() % 3; n > 0; --n) {
      const size_t at = random() % mutated.size();
      static constexpr char kChars[] = "0123456789-+.eE\"{}[],:ntf\\\0\xff ";
      if (random() % 4 == 0) {
        mutated.erase(at, 1 + random() % 8);
      } else {
        mutated[at] = kChars[random() % (sizeof kChars - 1)];
      }
      if (mutated.empty()) mutated.push_back('x');
    }
    try {
      const ModelSpec config = parse_config(mutated, "config.json");
      EXPECT_EQ(rope_frequencies(config.rope(), 5000).inv_freq.size(),
                static_cast<size_t>(config.rope().rotary_dim / 2));
      ++loaded;
    } catch (const Error& e) {
      EXPECT_EQ(std::string(e.what()).find('\n'), std::string::npos);
      ++refused;
    }
  }
  EXPECT_GT(loaded, 100);
  EXPECT_GT(refused, 100);
}

// The configs of a folder: of checkpoints in its folders, and its own *.json.
std::vector<fs::path> configs_in(const fs::path& folder) {
  std::vector<fs::path> files;
  for (const auto& entry : fs::recursive_directory_iterator(folder)) {
    const fs::path& path = entry.path();
    const bool checkpoint = path.filename() == "config.json";
    if (checkpoint || (path.extension() == ".json" && path.parent_path() == folder)) files.push_back(path);
  }
  return files;
}

// All open, or are of an architecture that does not run, and none has a key that is not known.
void expect_known(const fs::path& folder, size_t least, bool all_run) {
  size_t count = 0;
  for (const fs::path& file : configs_in(folder)) {
    try {
      for (const std::string& line : load_config(file).warnings)
        EXPECT_EQ(line.find("; not a key of this architecture; ignored"), std::string::npos) << line;
      ++count;
    } catch (const Error& e) {
      EXPECT_FALSE(all_run) << e.what();
      EXPECT_NE(std::string(e.what()).find("\"architectures\""), std::string::npos) << e.what();
    }
  }
  EXPECT_GE(count, least) << folder;
}

TEST(Config, ThoseOfThisRepositoryAreKnown) {
  expect_known(golden_file("checkpoints"), 50, true);
  expect_known(fs::path(LARIAT_SOURCE_DIR) / "configs", 9, true);
}

TEST(Config, PublishedOnesAreKnown) {
  const fs::path shared = fs::path(LARIAT_SOURCE_DIR).parent_path() / "shared" / "configs";
  if (!fs::exists(shared)) GTEST_SKIP() << "SKIPPED: no ../shared/configs";
  expect_known(shared, 22, false);
  for (const char* name :
       {"mlc_ministral3_3b_2512", "mlc_olmo2_7b", "ome_gemma3_text", "ome_gemma_2_2b_it", "ome_gemma_7b",
        "ome_internlm2_7b", "ome_llava_1.5_7b_hf", "ome_phi3", "ome_qwen2.5_vl_7b", "ome_qwen2_vl_2b",
        "mlc_deepseek_v2_lite", "ome_deepseek_v3", "ome_minicpm3_4b", "ome_mixtral", "ome_qwen3_30b"})
    EXPECT_NO_THROW(load_config(shared / (std::string(name) + ".json"))) << name;
}

}  // namespace
}  // namespace lariat::test
