// Every config.json key, also of another family or unknown, has transformers' effect, is refused or named.
#include <map>

#include "tests/models/config_cases.h"

namespace lariat::test {
namespace {

struct Effect {
  bool refused = true, other = true;  // other: changes the result
  bool named = false;                 // in an error or warning, unlike for the unchanged config
  std::string lines;
};

Effect effect(const json& config, const json& change, const std::string& key) {
  const ModelSpec base = *answer(config).spec;
  const Answer got = answer(changed(config, change));
  Effect effect;
  std::vector<std::string> lines{got.error};
  if (got.spec) {
    effect.refused = false;
    effect.other = described(*got.spec) != described(base);
    lines = got.spec->warnings;
    std::erase_if(lines, [&](const auto& line) { return std::ranges::count(base.warnings, line) > 0; });
  }
  for (const std::string& line : lines) {
    effect.lines += line + "\n";
    effect.named |= bool(names(line, key));
  }
  return effect;
}

// transformers writes this sum and recomputes it.
TEST(Keys, TheLatentHeadSizeIsKnown) {
  for (const char* name : {"deepseek_v2", "deepseek_v3", "minicpm3"}) {
    const json config = config_of(name);
    const int sum = effect(config, {{"qk_head_dim", 1}}, "qk_head_dim").named
                        ? config["qk_nope_head_dim"].get<int>() + config["qk_rope_head_dim"].get<int>()
                        : 0;
    EXPECT_GT(sum, 0) << "a wrong value is not named: " << name;
    EXPECT_FALSE(effect(config, {{"qk_head_dim", sum}}, "qk_head_dim").named) << name;
  }
}

TEST(Keys, OtherFamiliesKeysAreIgnoredAsInTransformers) {
  const json golden = read_json(golden_file("keys.json"));
  size_t ignored = 0, heeded = 0;
  for (const json& row : golden["checkpoints"]) {
    const json config = config_of(row["checkpoint"]);
    for (const auto& [key, value] : row["ignored"].items()) {
      SCOPED_TRACE(row["checkpoint"].get<std::string>() + " ignores " + key + " " + value.dump());
      const Effect got = effect(config, {{key, value}}, key);
      EXPECT_TRUE(got.named || value == false) << got.lines;
      // lariat warns where it uses more than transformers.
      const bool more = key == "partial_rotary_factor" && got.named;
      EXPECT_TRUE(!got.other || got.refused || more) << got.lines;
      ++ignored;
    }
    for (const auto& [key, value] : row["heeded"].items()) {
      SCOPED_TRACE(row["checkpoint"].get<std::string>() + " heeds " + key + " " + value.dump());
      const Effect got = effect(config, {{key, value}}, key);
      EXPECT_TRUE(got.named || got.other);
      ++heeded;
    }
  }
  EXPECT_GE(ignored, 400U);
  EXPECT_GE(heeded, 150U);
}

TEST(Keys, UnknownKeysAreNamedOnce) {
  for (const char* checkpoint : {"llama_gqa", "gpt_neox", "bloom", "mpt", "deepseek_v2", "llava"}) {
    const json config = config_of(checkpoint);
    const std::string part = config.contains("text_config") ? "text_config." : "";
    const std::string lines = effect(config, {{"unheard_of", 3}}, "unheard_of").lines;
    expect_line(lines.substr(0, lines.find('\n')), "config.json", part + "unheard_of | 3");
    EXPECT_TRUE(lines.ends_with(of_an_unknown_key() + "\n"));
    EXPECT_EQ(std::count(lines.begin(), lines.end(), '\n'), 1);
    for (const json& nothing : {json(nullptr), json(false), json(0), json(""), json::array(), json::object()})
      EXPECT_EQ(effect(config, {{"unheard_of", nothing}}, "unheard_of").lines, "") << nothing;
  }
  EXPECT_TRUE(
      effect(config_of("mpt"), {{"attn_config", {{"kv_n_heads", 2}}}}, "attn_config.kv_n_heads").named);
}

TEST(Keys, RopeOfGptNeoX) {
  const json config = config_of("gpt_neox");
  EXPECT_TRUE(effect(config, {{"rotary_emb_base", 0.5}}, "rotary_emb_base").named);
  EXPECT_TRUE(effect(config, {{"rotary_pct", 0.01}}, "rotary_pct").named);
  EXPECT_FALSE(answer(changed(config, {{"head_dim", 8}})).spec);
}

// Every true, false and absent at both levels of a multimodal model vs transformers (tools/lab/golden/make.py
// ties).
TEST(Keys, TiesEqualTransformers) {
  std::map<std::string, size_t> seen;
  const json golden = read_json(golden_file("ties.json"));
  for (const json& kind : golden["kinds"]) {
    for (const json& tie : kind["ties"]) {
      json config = kind["config"];
      if (!tie["outer"].is_null()) config["tie_word_embeddings"] = tie["outer"];
      if (!tie["inner"].is_null()) config["text_config"]["tie_word_embeddings"] = tie["inner"];
      const ModelSpec spec = parse_config(config.dump(), "config.json");
      EXPECT_EQ(spec.tie_word_embeddings, tie["tied"].get<bool>())
          << config["model_type"] << " of " << config["text_config"]["model_type"] << " " << tie;
      ++seen[config["model_type"]];
    }
    // The architecture replaces a missing model_type.
    json unnamed = kind["config"];
    unnamed.erase("model_type");
    EXPECT_EQ(answer(unnamed).spec->tie_word_embeddings, answer(kind["config"]).spec->tie_word_embeddings);
  }
  EXPECT_EQ(seen, (std::map<std::string, size_t>{{"gemma3", 9},
                                                 {"llava", 18},
                                                 {"mistral3", 18},
                                                 {"qwen2_5_vl", 9},
                                                 {"qwen2_vl", 9},
                                                 {"qwen3_vl", 9}}));
}

}  // namespace
}  // namespace lariat::test
