// A key of config.json does what it does in transformers, or is refused, or is named in a warning; that goes
// for the keys of other families and for those that nobody knows.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "kernels/error.h"
#include "models/config.h"
#include "models/io/json_file.h"

namespace lariat::keys_test {
namespace {

using nlohmann::json;
namespace fs = std::filesystem;

const fs::path kGolden = fs::path(LARIAT_SOURCE_DIR) / "tests" / "golden";
constexpr const char* kUnknown = "; not a key of this architecture; ignored";

json config_of(const std::string& checkpoint) {
  return json::parse(read_file(kGolden / "checkpoints" / checkpoint / "config.json", 1 << 20));
}

json with_key(json config, const std::string& key, const json& value) {
  (config.contains("text_config") ? config["text_config"] : config)[key] = value;
  return config;
}

// What of a config reaches the computation.
std::string computed(const ModelSpec& s) {
  std::string text = fmt::format("{} {} {} {} {} {}", s.family, s.vocab_size, s.hidden_size, s.norm_eps,
                                 s.layer_norm, s.tie_word_embeddings);
  text += fmt::format(" {} {} {}", s.embedding_multiplier, s.logits_multiplier, s.logits_softcap);
  for (const LayerSpec& layer : s.layers) {
    const AttentionSpec& a = layer.attention;
    const FeedForwardSpec& f = layer.feed_forward;
    text += fmt::format(" | {} {} {} {} {} {} {} {} {}", a.n_heads, a.n_kv_heads, a.head_dim, a.qkv_bias,
                        a.o_bias, static_cast<int>(a.qk_norm), a.rope, a.scale, a.sliding_window);
    text += fmt::format(" {} {} {} {} {}", a.latent.rope_dim, a.latent.v_dim, f.intermediate_size,
                        static_cast<int>(f.activation), f.bias);
    text += fmt::format(" {} {} {}", f.experts.n, f.experts.intermediate_size, layer.residual_multiplier);
  }
  for (const RopeScaling& rope : s.ropes) {
    for (const double frequency : rope_frequencies(rope, 1.0).inv_freq) text += fmt::format(" {}", frequency);
  }
  for (const float slope : s.alibi_slopes) text += fmt::format(" {}", slope);
  return text;
}

struct Answer {
  std::string computed;  // "" where the config is refused
  bool named = false;    // an error or a warning that the unchanged config does not have names the key
  std::string lines;
};

Answer ask(const json& config, const std::string& key, const std::vector<std::string>& known = {}) {
  Answer answer;
  const auto add = [&](const std::string& line) {
    answer.lines += line + "\n";
    answer.named |= line.find(key + "\" is ") != std::string::npos;
  };
  try {
    const ModelSpec spec = parse_config(config.dump(), "config.json");
    answer.computed = computed(spec);
    for (const std::string& line : spec.warnings) {
      if (std::find(known.begin(), known.end(), line) == known.end()) add(line);
    }
  } catch (const Error& e) {
    add(e.what());
  }
  return answer;
}

// Where lariat does more than transformers, and says so.
bool heeded_and_said(const std::string& key, const Answer& answer) {
  return key == "partial_rotary_factor" && answer.lines.find("; heeded: ") != std::string::npos;
}

TEST(Keys, OfOtherFamiliesArePassedOverAsInTransformers) {
  const json golden = json::parse(read_file(kGolden / "keys.json", 1 << 20));
  size_t ignored = 0, heeded = 0;
  for (const json& row : golden["checkpoints"]) {
    const json config = config_of(row["checkpoint"]);
    const ModelSpec base = parse_config(config.dump(), "config.json");
    for (const auto& [key, value] : row["ignored"].items()) {
      SCOPED_TRACE(row["checkpoint"].get<std::string>() + " ignores " + key + " " + value.dump());
      const Answer answer = ask(with_key(config, key, value), key, base.warnings);
      EXPECT_TRUE(answer.named || value == false) << answer.lines;
      const bool other = answer.computed.empty() || heeded_and_said(key, answer);
      EXPECT_TRUE(other || answer.computed == computed(base)) << answer.lines;
      ++ignored;
    }
    for (const auto& [key, value] : row["heeded"].items()) {
      SCOPED_TRACE(row["checkpoint"].get<std::string>() + " heeds " + key + " " + value.dump());
      const Answer answer = ask(with_key(config, key, value), key, base.warnings);
      EXPECT_TRUE(answer.named || answer.computed != computed(base));
      ++heeded;
    }
  }
  EXPECT_GE(ignored, 400U);
  EXPECT_GE(heeded, 150U);
}

TEST(Keys, ThatNobodyKnowsAreNamedOnce) {
  for (const char* checkpoint : {"llama_gqa", "gpt_neox", "bloom", "mpt", "deepseek_v2", "llava"}) {
    const json config = config_of(checkpoint);
    const auto base = parse_config(config.dump(), "config.json").warnings;
    const Answer answer = ask(with_key(config, "unheard_of", 3), "unheard_of", base);
    EXPECT_EQ(answer.lines, fmt::format("config.json: \"{}unheard_of\" is 3{}\n",
                                        config.contains("text_config") ? "text_config." : "", kUnknown));
    for (const json& nothing : {json(nullptr), json(false), json(0), json(""), json::array(), json::object()})
      EXPECT_EQ(ask(with_key(config, "unheard_of", nothing), "unheard_of", base).lines, "") << nothing;
  }
  json mpt = config_of("mpt");
  mpt["attn_config"]["kv_n_heads"] = 2;
  EXPECT_TRUE(ask(mpt, "attn_config.kv_n_heads").named);
}

// A file that transformers saved may hold keys of other families that say what is so.
TEST(Keys, ThatSayWhatIsSoAreNoNews) {
  const auto expect_quiet = [](const std::string& checkpoint, const json& keys) {
    json config = config_of(checkpoint);
    config.update(keys);
    EXPECT_EQ(ask(config, "").lines, "") << checkpoint << " " << keys;
  };
  expect_quiet("gpt_neox", {{"num_key_value_heads", 2},
                            {"head_dim", 16},
                            {"rope_theta", 10000},
                            {"partial_rotary_factor", 0.25},
                            {"hidden_dropout", 0.1},
                            {"dtype", "float32"}});
  expect_quiet("bloom", {{"n_inner", 192}, {"num_key_value_heads", 6}, {"head_dim", 8}});
  expect_quiet("mpt", {{"intermediate_size", 192}});
  expect_quiet("llama_gqa", {{"hidden_activation", "silu"}, {"use_sliding_window", false}});
}

// Errors name the key as the family calls it.
TEST(Keys, RopeOfGptNeoX) {
  json config = config_of("gpt_neox");
  EXPECT_TRUE(ask(with_key(config, "rotary_emb_base", 0.5), "rotary_emb_base").named);
  EXPECT_TRUE(ask(with_key(config, "rotary_pct", 0.01), "rotary_pct").named);
  EXPECT_TRUE(ask(with_key(config, "head_dim", 8), "head_dim").computed.empty());
}

std::vector<fs::path> configs_in(const fs::path& folder) {
  std::vector<fs::path> files;
  for (const auto& entry : fs::recursive_directory_iterator(folder)) {
    const fs::path& path = entry.path();
    const bool checkpoint = path.filename() == "config.json";
    if (checkpoint || (path.extension() == ".json" && path.parent_path() == folder)) files.push_back(path);
  }
  return files;
}

void expect_no_unknown_key(const fs::path& folder, size_t least) {
  size_t count = 0;
  for (const fs::path& file : configs_in(folder)) {
    try {
      for (const std::string& line : load_config(file).warnings)
        EXPECT_EQ(line.find(kUnknown), std::string::npos) << line;
      ++count;
    } catch (const Error& e) {
      EXPECT_NE(std::string(e.what()).find("\"architectures\""), std::string::npos) << e.what();
    }
  }
  EXPECT_GE(count, least) << folder;
}

TEST(Keys, OfThisRepositorysConfigsAreKnown) {
  expect_no_unknown_key(kGolden / "checkpoints", 50);
  expect_no_unknown_key(fs::path(LARIAT_SOURCE_DIR) / "configs", 9);
}

TEST(Keys, OfPublishedConfigsAreKnown) {
  const fs::path shared = fs::path(LARIAT_SOURCE_DIR).parent_path() / "shared" / "configs";
  if (!fs::exists(shared)) GTEST_SKIP() << "SKIPPED: no ../shared/configs";
  expect_no_unknown_key(shared, 22);
}

}  // namespace
}  // namespace lariat::keys_test
