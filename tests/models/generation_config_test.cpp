#include "models/load/generation_config.h"

#include "tests/models/config_cases.h"
#include "tests/models/tokenizer_test_util.h"

namespace lariat::test {
namespace {

json generation_golden() { return read_json(golden_file("generation.json")); }

class GenerationConfigFile : public FolderTest {
 protected:
  // generation: null for no file.
  ModelSpec load(const json& generation, const json& more = json::object()) const {
    put("config.json", changed(config_of("llama_gqa"), more).dump());
    std::filesystem::remove(file());
    if (!generation.is_null()) put("generation_config.json", generation.dump());
    return load_config(dir_);
  }
  std::string file() const { return (dir_ / "generation_config.json").string(); }
};

// transformers' defaults change nothing.
TEST_F(GenerationConfigFile, EveryKeyIsKnown) {
  const json keys = generation_golden()["keys"];
  ASSERT_GT(keys.size(), 70U);
  EXPECT_EQ(load(keys).generation.warnings, std::vector<std::string>());
  for (const auto& [key, value] : keys.items())
    EXPECT_EQ(load({{key, value}}).generation.warnings, std::vector<std::string>()) << key;
}

TEST_F(GenerationConfigFile, ChangesOfTheTextWarnInOneLine) {
  const json keys =
      json::parse(R"({"suppress_tokens": [3], "begin_suppress_tokens": [3], "bad_words_ids": [[3, 4]],
    "force_words_ids": [[3, 4]], "constraints": [3], "sequence_bias": [[[3], 1.5]], "forced_bos_token_id": 0,
    "forced_eos_token_id": [3], "no_repeat_ngram_size": 3, "encoder_no_repeat_ngram_size": 3,
    "encoder_repetition_penalty": 1.5, "exponential_decay_length_penalty": [3, 1.5], "guidance_scale": 1.5,
    "token_healing": true, "watermarking_config": {"greenlist_ratio": 0.5}, "min_length": 3, "min_new_tokens": 3,
    "max_time": 1.5, "num_beams": 3, "num_beam_groups": 3, "num_return_sequences": 3, "penalty_alpha": 0.5,
    "dola_layers": "low", "typical_p": 0.5, "top_h": 0.5, "epsilon_cutoff": 0.5, "eta_cutoff": 0.5})");
  for (const auto& [key, value] : keys.items()) {
    const std::vector<std::string> warnings = load({{key, value}}).generation.warnings;
    ASSERT_EQ(warnings.size(), 1U);
    expect_line(warnings[0], file(), key);
  }
  const std::vector<std::string> warnings = load(keys).generation.warnings;
  ASSERT_EQ(warnings.size(), 1U);
  for (const auto& [key, value] : keys.items()) EXPECT_TRUE(names(warnings[0], key));
}

TEST_F(GenerationConfigFile, UnknownKeysWarnInOneLine) {
  const ModelSpec spec = load({{"chat_format", "x"}, {"stop_words_ids", {{3}}}, {"top_k", 3}});
  ASSERT_EQ(spec.generation.warnings.size(), 1U);
  expect_line(spec.generation.warnings[0], file(), "chat_format | stop_words_ids");
  EXPECT_EQ(spec.warnings, std::vector<std::string>());
}

TEST_F(GenerationConfigFile, SamplingEqualsTransformers) {
  const json cases = generation_golden()["sampling"];
  for (const json& one : cases) {
    const GenerationDefaults sampling = load(one["file"]).generation;
    const json& expected = one["sampling"];
    if (expected.is_null()) {
      EXPECT_EQ(sampling.temperature.get(), 0.0F) << one;
      continue;
    }
    EXPECT_EQ(sampling.temperature.get(), expected["temperature"].get<float>()) << one;
    EXPECT_EQ(sampling.top_k.get(), expected["top_k"].get<int>()) << one;
    EXPECT_EQ(sampling.top_p.get(), expected["top_p"].get<float>()) << one;
    EXPECT_EQ(sampling.min_p.get(), expected["min_p"].get<float>()) << one;
  }
  // Without do_sample, settings apply once sampling is requested.
  EXPECT_EQ(load({{"top_p", 0.9}, {"top_k", 20}}).generation.top_k.get(), 20);
  EXPECT_EQ(load({{"temperature", 0.5}}).generation.top_k.get(), 0);
}

// config.json's settings apply only without this file, as in transformers.
TEST_F(GenerationConfigFile, OverridesConfigJson) {
  const json more = {{"repetition_penalty", 1.5}, {"num_beams", 2}};
  EXPECT_EQ(load(json::object(), more).generation.repetition_penalty.get(), 1.0F);
  EXPECT_EQ(load(json::object(), more).generation.warnings.size(), 0U);
  EXPECT_EQ(load(nullptr, more).generation.repetition_penalty.get(), 1.5F);
  expect_line(load(nullptr, more).generation.warnings.at(0), (dir_ / "config.json").string(), "num_beams");
  EXPECT_EQ(load(nullptr).generation.repetition_penalty.get(), 1.0F);
}

void use_all(const GenerationDefaults& asked) {
  for (const auto* setting : {&asked.temperature, &asked.top_p, &asked.min_p, &asked.repetition_penalty})
    setting->get();
  asked.top_k.get();
  asked.stop.get();
}

// Values are errors on sampling, from either file; else the key counts as absent.
TEST_F(GenerationConfigFile, ValuesRefusedByTransformers) {
  for (const char* bad :
       {R"({"temperature": "0.7"})", R"({"temperature": -1})", R"({"top_k": 1.5})", R"({"top_k": 50.0})",
        R"({"top_k": -2})", R"({"top_p": -0.1})", R"({"top_p": "x"})", R"({"min_p": -0.5})",
        R"({"repetition_penalty": 0})", R"({"stop_strings": 3})", R"({"stop_strings": [3]})"}) {
    json generation = json::parse(bad);
    const std::string key = generation.begin().key();
    generation["do_sample"] = true;
    const GenerationDefaults asked = load(generation).generation;
    expect_line(error_of([&] { use_all(asked); }), file(), key);
    const GenerationDefaults same = load(nullptr, generation).generation;
    expect_line(error_of([&] { use_all(same); }), (dir_ / "config.json").string(), key);
    EXPECT_EQ(asked.temperature.value, 1.0F);
    EXPECT_EQ(asked.top_k.value, 50);
    EXPECT_EQ(asked.top_p.value, 1.0F);
    EXPECT_EQ(asked.repetition_penalty.value, 1.0F);
  }
}

// vLLM writes some of these values.
TEST_F(GenerationConfigFile, ValuesAcceptedByTransformers) {
  EXPECT_EQ(load({{"do_sample", true}, {"top_p", 1.2}}).generation.top_p.get(), 1.0F);
  EXPECT_EQ(load({{"do_sample", true}, {"top_k", -1}}).generation.top_k.get(), 0);
  for (const json& yes : {json(1), json("no"), json::array({0})})
    EXPECT_EQ(load({{"do_sample", yes}}).generation.temperature.get(), 1.0F) << yes;
  for (const json& no : {json(0), json(""), json(nullptr)})
    EXPECT_EQ(load({{"do_sample", no}, {"temperature", "hot"}}).generation.temperature.get(), 0.0F) << no;
}

TEST_F(GenerationConfigFile, StopStrings) {
  EXPECT_EQ(load({{"stop_strings", "x"}}).generation.stop.get(), std::vector<std::string>{"x"});
  EXPECT_EQ(load({{"stop_strings", {"x", "", "yz"}}}).generation.stop.get(),
            (std::vector<std::string>{"x", "yz"}));
}

}  // namespace
}  // namespace lariat::test
