// How the keys of RoPE are read from a config.json. What frequencies they make is in rope_golden_test.cpp.
#include "models/rope_config.h"

#include "models/io/json_fields.h"
#include "tests/models/config_cases.h"
#include "tests/models/tokenizer_test_util.h"

namespace lariat::test {
namespace {

// The scaling of a model with heads of 4 pairs and a context of 8192.
RopeScaling rope_of(const json& config) {
  RopeDefaults defaults;
  defaults.head_dim = 8;
  defaults.max_position_embeddings = 8192;
  return read_rope(JsonFields(config, "config.json"), defaults);
}
RopeScaling rope_of(const char* config) { return rope_of(json::parse(config)); }

TEST(RopeConfig, SpellingsThatMeanTheSame) {
  const RopeScaling want =
      rope_of(R"({"rope_theta": 5e5, "rope_scaling": {"rope_type": "linear", "factor": 4}})");
  EXPECT_EQ(want.type, RopeType::kLinear);
  EXPECT_EQ(want.theta, 5e5);
  EXPECT_EQ(want.factor, 4.0);
  for (
      const char* same :
      {R"({"rope_theta": 5e5, "rope_scaling": {"type": "linear", "factor": 4.0}})",
       R"({"rope_theta": 5e5, "rope_scaling": {"rope_type": "linear", "type": "yarn", "factor": 4}})",
       R"({"rope_parameters": {"rope_theta": 5e5, "rope_type": "linear", "factor": 4}, "rope_scaling": null})",
       R"({"rope_parameters": {"rope_theta": 5e5, "rope_type": "linear", "factor": 4}, "rope_scaling": {}})",
       R"({"rope_parameters": {"rope_theta": 5e5, "rope_type": "linear", "factor": 4}, "rope_theta": 1e4})",
       R"({"rope_parameters": {"rope_theta": 5e5, "rope_type": "linear", "factor": 4}, "rope_theta": null})",
       R"({"rope_theta": 5e5, "rope_scaling": {"type": "linear", "factor": 4},
            "rope_parameters": {"rope_type": "ntk", "factor": 3, "rope_theta": 2e5}})",
       R"({"rope_parameters": {"full_attention": {"rope_theta": 5e5, "rope_type": "linear", "factor": 4},
                                "sliding_attention": {"rope_theta": 5e5, "rope_type": "linear", "factor": 4}}})"})
    EXPECT_EQ(rope_of(same), want) << same;
}

// A config, and members of what it becomes (config_cases.h).
constexpr std::pair<const char*, const char*> kRopes[] = {
    {"{}", R"({"rotary_dim": 8, "interleaved": false})"},
    {R"({"rope_interleaved": true})", R"({"interleaved": true})"},
    {R"({"rope_interleave": true})", R"({"interleaved": true})"},
    {R"({"rope_scaling": {"rope_type": "yarn", "factor": 4}})", R"({"original_ctx": 8192})"},
    // max_position_embeddings may have been lowered to save memory.
    {R"({"rope_scaling": {"rope_type": "yarn", "factor": 4, "original_max_position_embeddings": 8193}})",
     R"({"original_ctx": 8193})"},
    // The top level does not reach into nested objects.
    {R"({"original_max_position_embeddings": 1024, "rope_parameters": {"full_attention":
         {"rope_type": "yarn", "factor": 4, "original_max_position_embeddings": 2048}}})",
     R"({"original_ctx": 2048})"},
    // dynamic stretches from max_position_embeddings whatever stands there.
    {R"({"original_max_position_embeddings": 1024, "rope_scaling":
         {"rope_type": "dynamic", "factor": 4, "original_max_position_embeddings": 2048}})",
     R"({"original_ctx": 8192})"},
    // transformers warns of a factor below 1 and runs it.
    {R"({"rope_scaling": {"rope_type": "yarn", "factor": 0.5}})", R"({"factor": 0.5, "scaled_by": 1})"},
    {R"({"rope_scaling": {"rope_type": "dynamic-yarn"}})", R"({"factor": 1})"},
    {R"({"rope_scaling": {"rope_type": "dynamic-yarn", "factor": 4}})", R"({"factor": 4})"},
    {R"({"rope_scaling": {"rope_type": "default", "factor": 4}})", R"({"factor": 1})"},
    {R"({"rope_scaling": {"rope_type": "longrope", "short_factor": [1, 1, 1, 1], "long_factor": [4, 4, 4, 4],
         "original_max_position_embeddings": 2048}})",
     R"({"factor": 4})"},
};

TEST(RopeConfig, Values) {
  for (const auto& [config, expected] : kRopes) {
    const RopeScaling rope = rope_of(config);
    json found = described(rope);
    found["scaled_by"] = rope_frequencies(rope, 1).attention_factor;
    EXPECT_EQ(difference(found, json::parse(expected)), "") << config;
  }
}

// The object of a scaling, and the line behind "config.json: "rope_scaling.".
constexpr std::pair<const char*, const char*> kBadScalings[] = {
    {R"({"rope_type": "sun", "factor": 4})", "rope_type\" is \"sun\"; known types: default, linear"},
    {R"({"type": "none"})", "type\" is \"none\""},
    {R"({"type": 3})", "type\" is 3"},
    {R"({"factor": 4})", "rope_type\" is missing"},
    {R"({"type": "mrope", "mrope_section": [1, 2]})", "mrope_section\" is [1,2]; the sections have 3 pairs"},
    {R"({"rope_type": "yarn", "factor": 4, "original_max_position_embeddings": 2048.5})",
     "original_max_position_embeddings\" is 2048.5"},
    {R"({"rope_type": "yarn", "factor": 4, "beta_fast": 1, "beta_slow": 2})", "beta_fast\" is 1"},
    {R"({"rope_type": "yarn", "factor": 4, "attention_factor": 0})", "attention_factor\" is 0"},
    {R"({"rope_type": "yarn", "factor": 4, "truncate": 1})", "truncate\" is 1"},
    {R"({"rope_type": "dynamic-yarn", "finetuned": true})", "finetuned\" is true"},
    {R"({"rope_type": "ntk", "factor": 2, "partial_rotary_factor": 0.25})", "rope_type\" is \"ntk\""},
    {R"({"rope_type": "llama3", "factor": 8, "high_freq_factor": 4})", "low_freq_factor\" is missing"},
    {R"({"rope_type": "llama3", "factor": 8, "low_freq_factor": 1})", "high_freq_factor\" is missing"},
    {R"({"rope_type": "llama3", "factor": 8, "low_freq_factor": 0, "high_freq_factor": 4})",
     "low_freq_factor\" is 0"},
    {R"({"rope_type": "llama3", "factor": 8, "low_freq_factor": 1, "high_freq_factor": 1})",
     "high_freq_factor\" is 1"},
    {R"({"rope_type": "su", "factor": 4})", "short_factor\" is missing; longrope scaling needs it"},
    {R"({"rope_type": "longrope", "short_factor": [1, 1, 1, 1]})", "long_factor\" is missing"},
    {R"({"rope_type": "longrope", "short_factor": [1, 1, 1], "long_factor": [4, 4, 4, 4]})",
     "short_factor\" is [1,1,1]; has 3 values; expected 4"},
    {R"({"rope_type": "longrope", "short_factor": [1, 1, 1, 1], "long_factor": [4]})",
     "long_factor\" is [4]; has 1 value"},
    {R"({"rope_type": "longrope", "short_factor": [0, 1, 1, 1], "long_factor": [4, 4, 4, 4]})",
     "short_factor\" is [0,1,1,1]; item 0 is 0"},
    {R"({"rope_type": "longrope", "short_factor": [1, 1, 1, 1], "long_factor": "x"})",
     "long_factor\" is \"x\""},
    {R"({"rope_type": "longrope", "short_factor": [1, 1, 1, 1], "long_factor": [4, 4, 4, 4],
         "partial_rotary_factor": 0.5})",
     "short_factor\" is [1,1,1,1]; has 4 values; expected 2"},
};

// A config, and the line behind "config.json: ".
constexpr std::pair<const char*, const char*> kBadRopes[] = {
    {R"({"rope_scaling": "yarn"})", "\"rope_scaling\" is \"yarn\"; expected an object"},
    {R"({"rope_theta": 1})", "\"rope_theta\" is 1; expected a number above 1"},
    {R"({"rope_theta": "1e4"})", "\"rope_theta\" is \"1e4\""},
    {R"({"rope_theta": 1e16})", "\"rope_theta\" is 1e+16"},
    {R"({"rope_theta": null})", "\"rope_theta\" is null"},
    {R"({"rope_parameters": {"rope_theta": null}})", "\"rope_parameters.rope_theta\" is null"},
    {R"({"partial_rotary_factor": 0.01})", "\"partial_rotary_factor\" is 0.01; rotates 0 of 8"},
    {R"({"partial_rotary_factor": 1.5})", "\"partial_rotary_factor\" is 1.5"},
    {R"({"partial_rotary_factor": 0})", "\"partial_rotary_factor\" is 0"},
    {R"({"rope_parameters": {"full_attention": {"rope_theta": 1e4}, "sliding_attention": {"rope_theta": 1e6}}})",
     "\"rope_parameters.sliding_attention\" is {"},
    {R"({"rope_parameters": {"full_attention": {"rope_theta": 1e4}, "sliding_attention": null}})",
     "\"rope_parameters.sliding_attention\" is null; stands beside the object"},
};

TEST(RopeConfig, NothingIsGuessed) {
  const auto expect_line = [](const json& config, const std::string& line) {
    const std::string what = error_of([&] { rope_of(config); });
    EXPECT_EQ(what.find("config.json: " + line), 0U) << config << " -> " << what;
  };
  for (const auto& [config, line] : kBadRopes) expect_line(json::parse(config), line);
  const std::string prefix = "\"rope_scaling.";
  for (const auto& [scaling, line] : kBadScalings)
    expect_line({{"rope_scaling", json::parse(scaling)}}, prefix + line);
  for (const std::string type : {"linear", "ntk", "dynamic", "yarn", "llama3"}) {
    expect_line({{"rope_scaling", {{"rope_type", type}}}}, prefix + "factor\" is missing");
    for (const json& factor : {json(0.99), json(nullptr), json("4"), json(1e7)}) {
      const bool taken = type == "yarn" && (factor == 0.99 || factor.is_null());
      const json config = {{"rope_scaling", {{"rope_type", type}, {"factor", factor}}}};
      if (!taken) expect_line(config, prefix + "factor\" is ");
    }
  }
}

// `lariat rope` reads any config.json: that of an architecture that does not run as a Llama's, which it says,
// with the keys of RoPE that this leaves out.
struct AnyConfig {
  const char *config, *expected;
  bool foreign = true;
  std::vector<std::string> unread{};  // keys of positions that are named, with their values
};

const AnyConfig kAnyConfigs[] = {
    {R"({"architectures": ["Phi3SmallForCausalLM"], "model_type": "phi3small", "hidden_size": 4096,
      "num_attention_heads": 32, "max_position_embeddings": 8192, "rope_embedding_base": 1000000,
      "rope_position_scale": 1.0, "rope_scaling": null})",
     R"({"rotary_dim": 128, "interleaved": false})",
     true,
     {"\"rope_embedding_base\" is 1000000", "\"rope_position_scale\" is 1.0"}},
    {R"({"architectures": ["MysteryLMHeadModel"], "model_type": "mystery", "hidden_size": 4096,
      "num_attention_heads": 32, "max_position_embeddings": 8192, "rotary_emb_base": 10000, "rotary_pct": 1.0,
      "use_dynamic_ntk": true, "use_logn_attn": true})",
     R"({"rotary_dim": 128})",
     true,
     {"\"rotary_emb_base\" is 10000", "\"rotary_pct\" is 1.0", "\"use_dynamic_ntk\" is true",
      "\"use_logn_attn\" is true"}},
    // Their classes heed partial_rotary_factor, and nothing says that they do not.
    {R"({"architectures": ["StableLmForCausalLM"], "hidden_size": 2048, "num_attention_heads": 32,
      "max_position_embeddings": 4096, "partial_rotary_factor": 0.25, "rope_theta": 10000})",
     R"({"rotary_dim": 16})"},
    // A key that is false or null is no news.
    {R"({"model_type": "mystery", "head_dim": 64, "max_position_embeddings": 64, "alibi": false,
      "rope_ratio": null, "rope_interleave": true})",
     R"({"rotary_dim": 64, "interleaved": true})"},
    {R"({"model_type": "x", "head_dim": 576, "qk_rope_head_dim": 64, "max_position_embeddings": 64})",
     R"({"head_dim": 64})"},
    {R"({"head_dim": 64, "max_position_embeddings": 64})", R"({"head_dim": 64})"},
    // A family's defaults and rules hold where it is known; keys that it does not read do not matter.
    {R"({"model_type": "minimind", "inference_rope_scaling": true, "clip_qkv": 8})", R"({"type": "yarn"})",
     false},
    {R"({"model_type": "qwen2", "rope_scaling": {"type": "mrope", "mrope_section": [16, 24, 24]}})",
     R"({"type": "default"})", false},
    {R"({"text_config": {"model_type": "llama", "rope_theta": 5e5}, "model_type": "llava"})",
     R"({"theta": 5e5, "head_dim": 128})", false},
    {R"({"architectures": ["Gemma3ForCausalLM"], "rope_local_base_freq": 1e4, "hidden_act": "gelu"})",
     R"({"rotary_dim": 256, "theta": 1e6})", false},
};

TEST(RopeConfig, OfAConfigOfAnyFamily) {
  const TempFolder dir;
  const std::string file = (dir.path / "config.json").string() + ": ";
  std::vector<std::string> warnings;
  const auto load = [&](const std::string& config) {
    dir.put("config.json", config);
    warnings.clear();
    ConfigRope read = load_rope(dir.path);
    warnings = std::move(read.warnings);
    return read.rope;
  };
  for (const AnyConfig& row : kAnyConfigs) {
    EXPECT_EQ(difference(described(load(row.config)), json::parse(row.expected)), "") << row.config;
    if (!row.foreign) continue;
    const json config = json::parse(row.config);
    const char* key =
        config.contains("model_type") && !config.contains("architectures") ? "model_type" : "architectures";
    const std::string value = config.contains(key) ? "is " + config[key].dump() : "is missing";
    std::vector<std::string> expected{file + "\"" + key + "\" " + value +
                                      "; unknown to lariat; this is the RoPE that a Llama with these keys "
                                      "would have, and may not be the model's"};
    for (const std::string& unread : row.unread)
      expected.push_back(file + unread + "; not read: a Llama has no such key");
    EXPECT_EQ(warnings, expected);
  }
  load(R"({"architectures": ["Gemma3ForCausalLM"], "rope_local_base_freq": 1e4})");
  ASSERT_EQ(warnings.size(), 1U) << "Gemma's layers with a window have another RoPE";
  EXPECT_NE(warnings[0].find("10000"), std::string::npos) << warnings[0];
  for (const char* bad :
       {R"({"model_type": "x", "rope_theta": 1e4})", R"({"model_type": "x", "head_dim": 64})"})
    EXPECT_THROW(load(bad), Error) << bad;
}

}  // namespace
}  // namespace lariat::test
