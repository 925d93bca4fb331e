#include "models/config.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>
#include <random>

#include "kernels/error.h"

namespace lariat {
namespace {

using nlohmann::json;
namespace fs = std::filesystem;

class Config : public testing::Test {
 protected:
  Config()
      : dir_(fs::temp_directory_path() / ("lariat_config_" + std::to_string(getpid()) + "_" +
                                          testing::UnitTest::GetInstance()->current_test_info()->name())) {
    fs::create_directories(dir_);
  }
  ~Config() override {
    std::error_code ec;
    fs::remove_all(dir_, ec);
  }

  void write(const std::string& name, const std::string& text) const {
    std::ofstream(dir_ / name, std::ios::binary) << text;
  }
  ModelSpec load(const json& config) const {
    write("config.json", config.dump());
    return load_config(dir_);
  }
  ModelSpec load(const json& config, const json& changes) const {
    json merged = config;
    merged.update(changes);
    return load(merged);
  }
  // The error that loading gives, or "" when it loads.
  std::string error(const json& config, const json& changes = json::object()) const {
    try {
      load(config, changes);
    } catch (const Error& e) {
      return e.what();
    }
    return "";
  }
  void expect_error(const json& config, const json& changes, const std::string& part) const {
    const std::string what = error(config, changes);
    EXPECT_NE(what.find(part), std::string::npos)
        << changes.dump() << " -> '" << what << "', wanted '" << part << "'";
    EXPECT_NE(what.find((dir_ / "config.json").string()), std::string::npos) << what;
    EXPECT_EQ(what.find('\n'), std::string::npos) << what;
  }

  fs::path dir_;
};

json of(const std::string& name) { return {{"architectures", {name}}}; }
const json kLlama = of("LlamaForCausalLM"), kMistral = of("MistralForCausalLM"),
           kQwen2 = of("Qwen2ForCausalLM"), kQwen3 = of("Qwen3ForCausalLM"),
           kMiniMind = of("MiniMindForCausalLM");

std::vector<int64_t> windows_of(const ModelSpec& spec) {
  std::vector<int64_t> windows;
  for (const LayerSpec& layer : spec.layers) windows.push_back(layer.attention.sliding_window);
  return windows;
}

TEST_F(Config, MissingKeysHaveTransformersDefaults) {
  const ModelSpec llama = load(kLlama);
  EXPECT_EQ(llama.family, "LlamaForCausalLM");
  EXPECT_EQ(llama.vocab_size, 32000);
  EXPECT_EQ(llama.hidden_size, 4096);
  EXPECT_EQ(llama.layers[0].feed_forward.intermediate_size, 11008);
  EXPECT_EQ(llama.layers.size(), 32U);
  EXPECT_EQ(llama.layers[0].attention.n_heads, 32);
  EXPECT_EQ(llama.layers[0].attention.n_kv_heads, 32);
  EXPECT_EQ(llama.layers[0].attention.head_dim, 128);
  EXPECT_EQ(llama.max_position_embeddings, 2048);
  EXPECT_EQ(llama.norm_eps, 1e-6F);
  EXPECT_FALSE(llama.tie_word_embeddings);
  EXPECT_FALSE(llama.layers[0].attention.qkv_bias || llama.layers[0].attention.o_bias ||
               llama.layers[0].feed_forward.bias || llama.layers[0].attention.qk_norm != QkNorm::kNone);
  EXPECT_EQ(llama.dtype, DType::kF32);
  EXPECT_EQ(llama.bos_token_id, 1);
  EXPECT_EQ(llama.eos_token_ids, std::vector<int32_t>{2});
  EXPECT_EQ(windows_of(llama), std::vector<int64_t>(32, 0));
  EXPECT_EQ(llama.rope().type, RopeType::kDefault);
  EXPECT_EQ(llama.rope().theta, 1e4);
  EXPECT_EQ(llama.rope().rotary_dim, 128);
  EXPECT_EQ(llama.rope().original_ctx, 2048);

  const ModelSpec mistral = load(kMistral);
  EXPECT_EQ(mistral.layers[0].feed_forward.intermediate_size, 14336);
  EXPECT_EQ(mistral.layers[0].attention.n_kv_heads, 8);
  EXPECT_EQ(mistral.max_position_embeddings, 131072);
  EXPECT_EQ(windows_of(mistral), std::vector<int64_t>(32, 4096));

  const ModelSpec qwen2 = load(kQwen2);
  EXPECT_EQ(qwen2.vocab_size, 151936);
  EXPECT_EQ(qwen2.layers[0].feed_forward.intermediate_size, 22016);
  EXPECT_TRUE(qwen2.layers[0].attention.qkv_bias);
  EXPECT_FALSE(qwen2.layers[0].attention.o_bias);
  EXPECT_FALSE(qwen2.bos_token_id);
  EXPECT_TRUE(qwen2.eos_token_ids.empty());
  EXPECT_EQ(windows_of(qwen2), std::vector<int64_t>(32, 0));

  const ModelSpec qwen3 =
      load(kQwen3, {{"hidden_size", 1024}, {"num_attention_heads", 16}, {"num_key_value_heads", 8}});
  EXPECT_EQ(qwen3.layers[0].attention.head_dim, 128);
  EXPECT_EQ(qwen3.layers[0].attention.qk_norm, QkNorm::kPerHead);
  EXPECT_FALSE(qwen3.layers[0].attention.qkv_bias);

  const ModelSpec minimind = load(kMiniMind);
  EXPECT_EQ(minimind.vocab_size, 6400);
  EXPECT_EQ(minimind.hidden_size, 768);
  EXPECT_EQ(minimind.layers[0].feed_forward.intermediate_size, 2432);  // ceil(768 pi / 64) * 64
  EXPECT_EQ(minimind.layers.size(), 8U);
  EXPECT_EQ(minimind.layers[0].attention.n_kv_heads, 4);
  EXPECT_EQ(minimind.layers[0].attention.head_dim, 96);
  EXPECT_EQ(minimind.max_position_embeddings, 32768);
  EXPECT_TRUE(minimind.tie_word_embeddings);
  EXPECT_EQ(minimind.layers[0].attention.qk_norm, QkNorm::kPerHead);
  EXPECT_EQ(minimind.rope().theta, 1e6);
}

TEST_F(Config, ArchitectureMayComeFromModelType) {
  EXPECT_EQ(load({{"model_type", "qwen3"}}).family, "Qwen3ForCausalLM");
  EXPECT_EQ(load({{"model_type", "minimind"}, {"architectures", nullptr}}).family, "MiniMindForCausalLM");
  expect_error(kLlama, {{"architectures", "LlamaForCausalLM"}}, "expected a list of strings");
  EXPECT_EQ(load(of("LLaMAForCausalLM")).family, "LlamaForCausalLM");
}

TEST_F(Config, HeadsOfEveryKind) {
  EXPECT_EQ(load(kLlama, {{"num_key_value_heads", 1}}).layers[0].attention.n_kv_heads, 1);
  EXPECT_EQ(load(kLlama, {{"num_key_value_heads", 8}}).layers[0].attention.n_kv_heads, 8);
  EXPECT_EQ(load(kMistral, {{"num_key_value_heads", nullptr}}).layers[0].attention.n_kv_heads, 32);
  EXPECT_EQ(load(kLlama, {{"head_dim", 64}}).layers[0].attention.head_dim, 64);
  EXPECT_EQ(load(kLlama, {{"head_dim", nullptr}}).layers[0].attention.head_dim, 128);
  EXPECT_EQ(load(kLlama, {{"head_dim", 64}, {"num_attention_heads", 33}}).layers[0].attention.n_kv_heads, 33);
  expect_error(kLlama, {{"num_key_value_heads", 5}}, "\"num_key_value_heads\" is 5");
  expect_error(kLlama, {{"num_key_value_heads", 64}}, "do not divide");
  expect_error(kLlama, {{"num_attention_heads", 33}}, "\"num_attention_heads\" is 33");
  expect_error(kLlama, {{"head_dim", 63}}, "\"head_dim\" is 63");
  expect_error(kLlama, {{"head_dim", 2048}}, "\"head_dim\" is 2048; expected an integer from 2 to 1024");
  expect_error(kLlama, {{"num_attention_heads", 1}}, "head_dim");
  expect_error(kLlama, {{"num_attention_heads", 4096}}, "head_dim");
}

TEST_F(Config, BiasFlagsFollowTheArchitecture) {
  const json flags = {{"attention_bias", true}, {"mlp_bias", true}};
  const ModelSpec llama = load(kLlama, flags);
  EXPECT_TRUE(llama.layers[0].attention.qkv_bias && llama.layers[0].attention.o_bias &&
              llama.layers[0].feed_forward.bias);
  const ModelSpec mistral = load(kMistral, flags);
  EXPECT_FALSE(mistral.layers[0].attention.qkv_bias || mistral.layers[0].attention.o_bias ||
               mistral.layers[0].feed_forward.bias);
  const ModelSpec qwen3 = load(kQwen3, flags);
  EXPECT_TRUE(qwen3.layers[0].attention.qkv_bias && qwen3.layers[0].attention.o_bias);
  EXPECT_FALSE(qwen3.layers[0].feed_forward.bias);
  EXPECT_TRUE(load(kQwen2, {{"attention_bias", false}}).layers[0].attention.qkv_bias);
}

TEST_F(Config, SlidingWindows) {
  using Windows = std::vector<int64_t>;
  const json three = {{"num_hidden_layers", 3}};
  const auto windows = [&](const json& base, json changes) {
    changes.update(three);
    return windows_of(load(base, changes));
  };
  EXPECT_EQ(windows(kMistral, {{"sliding_window", 16}}), (Windows{16, 16, 16}));
  EXPECT_EQ(windows(kMistral, {{"sliding_window", nullptr}}), (Windows{0, 0, 0}));
  EXPECT_EQ(windows(kLlama, {{"sliding_window", 16}}), (Windows{0, 0, 0}));
  EXPECT_EQ(windows(kQwen2, {{"sliding_window", 16}, {"max_window_layers", 1}}), (Windows{0, 0, 0}));
  const json used = {{"sliding_window", 16}, {"max_window_layers", 1}, {"use_sliding_window", true}};
  EXPECT_EQ(windows(kQwen2, used), (Windows{0, 16, 16}));
  EXPECT_EQ(windows(kQwen3, {{"sliding_window", 16}, {"use_sliding_window", true}}), (Windows{0, 0, 0}));
  json typed = used;
  typed["layer_types"] = {"sliding_attention", "full_attention", "attention"};
  EXPECT_EQ(windows(kQwen3, typed), (Windows{16, 0, 0}));
  typed["use_sliding_window"] = false;
  EXPECT_ANY_THROW(windows(kQwen3, typed));  // transformers' mask finds no window and fails
  typed["layer_types"] = {"full_attention", "full_attention"};
  EXPECT_ANY_THROW(windows(kQwen3, typed));
  typed["layer_types"] = {"full_attention", "full_attention", "chunked_attention"};
  EXPECT_ANY_THROW(windows(kQwen3, typed));
  EXPECT_EQ(windows(kLlama, {{"layer_types", {"full_attention", "full_attention", "full_attention"}}}),
            (Windows{0, 0, 0}));
  EXPECT_ANY_THROW(
      windows(kLlama, {{"layer_types", {"full_attention", "full_attention", "sliding_attention"}}}));
  // To transformers such a file is a ministral's.
  const json some = {{"layer_types", {"full_attention", "full_attention", "sliding_attention"}}};
  EXPECT_EQ(windows(kMistral, some), (Windows{0, 0, 4096}));
  EXPECT_EQ(windows(of("MinistralForCausalLM"), some), (Windows{0, 0, 4096}));
  expect_error(kMistral, {{"sliding_window", 0}}, "\"sliding_window\" is 0");
}

TEST_F(Config, Tokens) {
  EXPECT_EQ(load(kLlama, {{"eos_token_id", {5, 7, 5}}}).eos_token_ids, (std::vector<int32_t>{5, 7}));
  EXPECT_TRUE(load(kLlama, {{"eos_token_id", nullptr}}).eos_token_ids.empty());
  EXPECT_FALSE(load(kLlama, {{"bos_token_id", nullptr}}).bos_token_id);
  // Ids that never occur.
  EXPECT_FALSE(load(kLlama, {{"bos_token_id", 32000}}).bos_token_id);
  EXPECT_TRUE(load(kLlama, {{"eos_token_id", -1}}).eos_token_ids.empty());
  EXPECT_EQ(load(kLlama, {{"eos_token_id", {2, -1, 32000}}}).eos_token_ids, std::vector<int32_t>{2});
  const auto warnings = load(kLlama, {{"eos_token_id", {2, 32000}}}).warnings;
  ASSERT_EQ(warnings.size(), 1U);
  EXPECT_NE(warnings[0].find("\"eos_token_id\" is [2,32000]; ids outside the vocabulary of 32000"),
            std::string::npos)
      << warnings[0];
  expect_error(kLlama, {{"bos_token_id", {1, 2}}}, "\"bos_token_id\" is [1,2]");
  expect_error(kLlama, {{"bos_token_id", 1.5}}, "\"bos_token_id\" is 1.5");
  expect_error(kLlama, {{"eos_token_id", {1, "x"}}}, "\"eos_token_id\"");
}

TEST_F(Config, EndTokensAreThoseOfTheGenerationConfigWhereItHasSome) {
  write("generation_config.json", R"({"eos_token_id": [2, 9, 11], "temperature": 0.6})");
  EXPECT_EQ(load(kLlama).eos_token_ids, (std::vector<int32_t>{2, 9, 11}));
  EXPECT_EQ(load_config(dir_ / "config.json").eos_token_ids.size(), 3U);
  write("other.json", kLlama.dump());
  EXPECT_EQ(load_config(dir_ / "other.json").eos_token_ids.size(), 1U);
  write("generation_config.json", R"({"eos_token_id": [3, 9]})");
  EXPECT_EQ(load(kLlama, {{"eos_token_id", 7}}).eos_token_ids, (std::vector<int32_t>{3, 9}));
  write("generation_config.json", R"({"eos_token_id": null})");
  EXPECT_EQ(load(kLlama, {{"eos_token_id", 7}}).eos_token_ids, (std::vector<int32_t>{7}));
  write("generation_config.json", R"({"eos_token_id": 32000})");
  EXPECT_EQ(load(kLlama).warnings.size(), 1U);
  EXPECT_NE(load(kLlama).warnings[0].find("generation_config.json"), std::string::npos);
  for (const char* bad : {"{", "[]", R"({"eos_token_id": 1.5})"}) {
    write("generation_config.json", bad);
    const std::string what = error(kLlama);
    EXPECT_NE(what.find("generation_config.json"), std::string::npos) << bad << " -> " << what;
  }
}

TEST_F(Config, Dtypes) {
  EXPECT_EQ(load(kLlama, {{"torch_dtype", "bfloat16"}}).dtype, DType::kBF16);
  EXPECT_EQ(load(kLlama, {{"dtype", "float16"}}).dtype, DType::kF16);
  EXPECT_EQ(load(kLlama, {{"dtype", "float32"}, {"torch_dtype", "float16"}}).dtype, DType::kF32);
  EXPECT_EQ(load(kLlama, {{"torch_dtype", "auto"}}).dtype, DType::kF32);
  expect_error(kLlama, {{"dtype", "float8_e4m3fn"}}, "\"dtype\" is \"float8_e4m3fn\"; known: float32");
}

TEST_F(Config, EveryNumberIsBounded) {
  for (const char* key :
       {"vocab_size", "hidden_size", "intermediate_size", "num_hidden_layers", "num_attention_heads",
        "num_key_value_heads", "head_dim", "max_position_embeddings"}) {
    for (const json& bad : {json(0), json(-1), json(1.5), json("4"), json(true), json(json::array()),
                            json(INT64_MAX), json(INT64_MIN), json(UINT64_MAX), json(1e300)}) {
      expect_error(kLlama, {{key, bad}}, std::string(1, '"').append(key).append("\" is "));
    }
  }
  expect_error(kLlama, {{"num_hidden_layers", 10001}}, "10000");
  expect_error(kLlama, {{"hidden_size", (1 << 20) + 1}}, "1048576");
  expect_error(kLlama, {{"vocab_size", (1 << 24) + 1}}, "16777216");
  expect_error(kLlama, {{"rms_norm_eps", 0}}, "\"rms_norm_eps\" is 0");
  expect_error(kLlama, {{"rms_norm_eps", "1e-5"}}, "\"rms_norm_eps\"");
  expect_error(kLlama, {{"tie_word_embeddings", 1}}, "\"tie_word_embeddings\" is 1; expected true or false");
}

TEST_F(Config, WhatIsNotSupportedIsRefused) {
  expect_error(kLlama, {{"quantization_config", {{"bits", 4}}}}, "\"quantization_config\"");
  EXPECT_EQ(error(kLlama, {{"hidden_act", "swish"}}), "");
  expect_error(kLlama, {{"hidden_act", "relu"}}, "\"hidden_act\" is \"relu\"");
  expect_error(kMiniMind, {{"use_moe", true}}, "\"use_moe\"");
  EXPECT_EQ(error(kMiniMind, {{"use_moe", false}, {"quantization_config", nullptr}}), "");
}

TEST_F(Config, FilesThatAreNotConfigs) {
  const auto text_error = [&](const std::string& text) {
    write("config.json", text);
    try {
      load_config(dir_);
    } catch (const Error& e) {
      return std::string(e.what());
    }
    return std::string();
  };
  EXPECT_NE(text_error("").find("not valid JSON"), std::string::npos);
  EXPECT_NE(text_error("[1]").find("expected a JSON object"), std::string::npos);
  EXPECT_NE(text_error("{\"vocab_size\": nan}").find("not valid JSON"), std::string::npos);
  EXPECT_NE(text_error(R"({"model_type": "llama", "vocab_size": 1, "vocab_size": 2})").find("stands twice"),
            std::string::npos);
  EXPECT_NE(text_error(R"({"a": {"b": [{"c": 1, "c": 1}]}})").find("\"c\" stands twice"), std::string::npos);
  EXPECT_EQ(text_error(R"({"model_type": "llama", "a": {"b": 1}, "c": {"b": 1}})"), "");
  fs::remove(dir_ / "config.json");
  EXPECT_THROW(load_config(dir_), Error);
  EXPECT_THROW(load_config(dir_ / "nowhere"), Error);
}

// Python writes them; only who reads such a key is troubled.
TEST_F(Config, NumbersThatJsonDoesNotHave) {
  const auto with = [&](const std::string& member) {
    write("config.json", R"({"model_type": "llama", "a\\\"b": "Infinity: NaN", )" + member + "}");
    try {
      load_config(dir_);
    } catch (const Error& e) {
      return std::string(e.what());
    }
    return std::string();
  };
  for (const char* value :
       {"Infinity", "-Infinity", "NaN", "1e400", "-1e400", "[0.0, Infinity]", "{\"x\":NaN}"}) {
    EXPECT_EQ(with(std::string("\"time_step_limit\": ") + value), "") << value;
    EXPECT_NE(with(std::string("\"vocab_size\": ") + value).find("\"vocab_size\" is "), std::string::npos)
        << value;
    EXPECT_NE(with(std::string("\"rope_theta\": ") + value).find("\"rope_theta\" is "), std::string::npos)
        << value;
  }
  EXPECT_NE(with("\"x\": Infinit").find("not valid JSON"), std::string::npos);
  EXPECT_NE(with("\"x\": 1e400e").find("not valid JSON"), std::string::npos);
}

// A config is untrusted: whatever stands in it, it loads or is refused with an Error.
TEST_F(Config, AnyMutationLoadsOrIsAnError) {
  const json good = {{"architectures", {"Qwen3ForCausalLM"}},
                     {"vocab_size", 100},
                     {"hidden_size", 64},
                     {"num_attention_heads", 4},
                     {"num_key_value_heads", 2},
                     {"num_hidden_layers", 2},
                     {"head_dim", 16},
                     {"eos_token_id", {1, 2}},
                     {"layer_types", {"full_attention", "sliding_attention"}},
                     {"use_sliding_window", true},
                     {"rope_scaling",
                      {{"rope_type", "longrope"},
                       {"factor", 4.0},
                       {"original_max_position_embeddings", 1024},
                       {"short_factor", {1, 1, 1, 1, 1, 1, 1, 1}},
                       {"long_factor", {1, 1, 1, 2, 2, 2, 2, 2}}}}};
  const std::string text = good.dump();
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
    write("config.json", mutated);
    try {
      const ModelSpec config = load_config(dir_);
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

TEST_F(Config, MiniMindTakesItsScalingFromTheFlag) {
  EXPECT_EQ(load(kMiniMind).rope().type, RopeType::kDefault);
  const json on = {{"inference_rope_scaling", true}};
  const RopeScaling rope = load(kMiniMind, on).rope();
  EXPECT_EQ(rope.type, RopeType::kYarn);
  EXPECT_EQ(rope.factor, 16.0);
  EXPECT_EQ(rope.original_ctx, 2048);
  EXPECT_EQ(rope.attention_factor, 1.0);
  EXPECT_EQ(rope.theta, 1e6);
  json both = on;
  both["rope_scaling"] = {
      {"beta_fast", 32},         {"beta_slow", 1}, {"factor", 16}, {"original_max_position_embeddings", 2048},
      {"attention_factor", 1.0}, {"type", "yarn"}};
  EXPECT_EQ(load(kMiniMind, both).rope(), rope);
  both["rope_scaling"]["factor"] = 32;
  expect_error(kMiniMind, both, "inference_rope_scaling");
  both["rope_scaling"]["factor"] = 16;
  both["inference_rope_scaling"] = false;
  expect_error(kMiniMind, both, "inference_rope_scaling");
  // Its table is never longer than 2048 then (precompute_freqs_cis).
  EXPECT_EQ(
      load(kMiniMind, {{"inference_rope_scaling", true}, {"max_position_embeddings", 2048}}).rope().type,
      RopeType::kDefault);
}

TEST_F(Config, TheRepositorysConfigsLoad) {
  int count = 0;
  for (const auto& entry : fs::directory_iterator(fs::path(LARIAT_SOURCE_DIR) / "configs")) {
    if (entry.path().extension() != ".json") continue;
    EXPECT_NO_THROW(load_config(entry.path())) << entry.path();
    ++count;
  }
  EXPECT_GE(count, 7);
}

TEST_F(Config, TheGoldenCheckpointsLoad) {
  int count = 0;
  for (const auto& entry : fs::directory_iterator(fs::path(LARIAT_SOURCE_DIR) / "tests/golden/checkpoints")) {
    if (!entry.is_directory()) continue;
    EXPECT_NO_THROW(load_config(entry.path())) << entry.path();
    ++count;
  }
  EXPECT_GE(count, 10);
}

}  // namespace
}  // namespace lariat
