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

// The object of a scaling, and what is named, the first of it behind "rope_scaling.".
constexpr std::pair<const char*, const char*> kBadScalings[] = {
    {R"({"rope_type": "sun", "factor": 4})", "rope_type | sun | linear"},
    {R"({"type": "none"})", "type | none"},
    {R"({"type": 3})", "type | 3"},
    {R"({"factor": 4})", "rope_type"},
    {R"({"type": "mrope", "mrope_section": [1, 2]})", "mrope_section | [1,2] | 3"},
    {R"({"rope_type": "yarn", "factor": 4, "original_max_position_embeddings": 2048.5})",
     "original_max_position_embeddings | 2048.5"},
    {R"({"rope_type": "yarn", "factor": 4, "beta_fast": 1, "beta_slow": 2})", "beta_fast | 1"},
    {R"({"rope_type": "yarn", "factor": 4, "attention_factor": 0})", "attention_factor | 0"},
    {R"({"rope_type": "yarn", "factor": 4, "truncate": 1})", "truncate | 1"},
    {R"({"rope_type": "dynamic-yarn", "finetuned": true})", "finetuned | true"},
    {R"({"rope_type": "ntk", "factor": 2, "partial_rotary_factor": 0.25})", "rope_type | ntk"},
    {R"({"rope_type": "llama3", "factor": 8, "high_freq_factor": 4})", "low_freq_factor"},
    {R"({"rope_type": "llama3", "factor": 8, "low_freq_factor": 1})", "high_freq_factor"},
    {R"({"rope_type": "llama3", "factor": 8, "low_freq_factor": 0, "high_freq_factor": 4})",
     "low_freq_factor | 0"},
    {R"({"rope_type": "llama3", "factor": 8, "low_freq_factor": 1, "high_freq_factor": 1})",
     "high_freq_factor | 1"},
    {R"({"rope_type": "su", "factor": 4})", "short_factor"},
    {R"({"rope_type": "longrope", "short_factor": [1, 1, 1, 1]})", "long_factor"},
    {R"({"rope_type": "longrope", "short_factor": [1, 1, 1], "long_factor": [4, 4, 4, 4]})",
     "short_factor | [1,1,1] | 3 | 4"},
    {R"({"rope_type": "longrope", "short_factor": [1, 1, 1, 1], "long_factor": [4]})",
     "long_factor | [4] | 1"},
    {R"({"rope_type": "longrope", "short_factor": [0, 1, 1, 1], "long_factor": [4, 4, 4, 4]})",
     "short_factor | [0,1,1,1] | 0"},
    {R"({"rope_type": "longrope", "short_factor": [1, 1, 1, 1], "long_factor": "x"})", "long_factor | x"},
    {R"({"rope_type": "longrope", "short_factor": [1, 1, 1, 1], "long_factor": [4, 4, 4, 4],
         "partial_rotary_factor": 0.5})",
     "short_factor | [1,1,1,1] | 4 | 2"},
};

// A config, and what is named.
constexpr std::pair<const char*, const char*> kBadRopes[] = {
    {R"({"rope_scaling": "yarn"})", "rope_scaling | yarn"},
    {R"({"rope_theta": 1})", "rope_theta | 1"},
    {R"({"rope_theta": "1e4"})", "rope_theta | 1e4"},
    {R"({"rope_theta": 1e16})", "rope_theta | 1e+16"},
    {R"({"rope_theta": null})", "rope_theta | null"},
    {R"({"rope_parameters": {"rope_theta": null}})", "rope_parameters.rope_theta | null"},
    {R"({"partial_rotary_factor": 0.01})", "partial_rotary_factor | 0.01 | 0 | 8"},
    {R"({"partial_rotary_factor": 1.5})", "partial_rotary_factor | 1.5"},
    {R"({"partial_rotary_factor": 0})", "partial_rotary_factor | 0"},
    {R"({"rope_parameters": {"full_attention": {"rope_theta": 1e4}, "sliding_attention": {"rope_theta": 1e6}}})",
     "rope_parameters.sliding_attention"},
    {R"({"rope_parameters": {"full_attention": {"rope_theta": 1e4}, "sliding_attention": null}})",
     "rope_parameters.sliding_attention | null"},
};

TEST(RopeConfig, NothingIsGuessed) {
  const auto refused = [](const json& config, const std::string& words) {
    SCOPED_TRACE(config);
    expect_line(error_of([&] { rope_of(config); }), "config.json", words);
  };
  for (const auto& [config, words] : kBadRopes) refused(json::parse(config), words);
  const std::string prefix = "rope_scaling.";
  for (const auto& [scaling, words] : kBadScalings)
    refused({{"rope_scaling", json::parse(scaling)}}, prefix + words);
  for (const std::string type : {"linear", "ntk", "dynamic", "yarn", "llama3"}) {
    refused({{"rope_scaling", {{"rope_type", type}}}}, prefix + "factor");
    for (const json& factor : {json(0.99), json(nullptr), json("4"), json(1e7)}) {
      const bool taken = type == "yarn" && (factor == 0.99 || factor.is_null());
      const json config = {{"rope_scaling", {{"rope_type", type}, {"factor", factor}}}};
      if (!taken) refused(config, prefix + "factor");
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
     {"rope_embedding_base | 1000000", "rope_position_scale | 1.0"}},
    {R"({"architectures": ["MysteryLMHeadModel"], "model_type": "mystery", "hidden_size": 4096,
      "num_attention_heads": 32, "max_position_embeddings": 8192, "rotary_emb_base": 10000, "rotary_pct": 1.0,
      "use_dynamic_ntk": true, "use_logn_attn": true})",
     R"({"rotary_dim": 128})",
     true,
     {"rotary_emb_base | 10000", "rotary_pct | 1.0", "use_dynamic_ntk | true", "use_logn_attn | true"}},
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
  const std::string file = (dir.path / "config.json").string();
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
    ASSERT_EQ(warnings.size(), 1 + row.unread.size());
    expect_line(warnings[0], file, key);
    for (size_t i = 0; i < row.unread.size(); ++i) expect_line(warnings[i + 1], file, row.unread[i]);
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
