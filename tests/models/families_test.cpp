// What each family makes of its config.json: its defaults, what its keys change, and what is refused. What a
// model then computes is tests/engine/golden_test.cpp.
#include <gtest/gtest.h>

#include <cmath>
#include <fstream>
#include <nlohmann/json.hpp>

#include "kernels/error.h"
#include "models/config.h"
#include "models/json_file.h"

namespace lariat::families_test {
namespace {

using nlohmann::json;
namespace fs = std::filesystem;

const fs::path kCheckpoints = fs::path(LARIAT_SOURCE_DIR) / "tests" / "golden" / "checkpoints";

json config_of(const std::string& checkpoint) {
  return json::parse(read_file(kCheckpoints / checkpoint / "config.json", 1 << 20));
}

// With keys changed, and those that are to be null taken out (merge_patch).
ModelSpec read(const std::string& checkpoint, const json& changes = json::object()) {
  json config = config_of(checkpoint);
  (config.contains("text_config") ? config["text_config"] : config).merge_patch(changes);
  return parse_config(config.dump(), "config.json");
}

void expect_refused(const std::string& checkpoint, const json& changes, const std::string& part) {
  try {
    read(checkpoint, changes);
    ADD_FAILURE() << checkpoint << " " << changes << " was accepted";
  } catch (const Error& e) {
    EXPECT_NE(std::string(e.what()).find(part), std::string::npos) << e.what();
  }
}

std::vector<int64_t> windows(const ModelSpec& spec) {
  std::vector<int64_t> all;
  for (const LayerSpec& layer : spec.layers) all.push_back(layer.attention.sliding_window);
  return all;
}

TEST(Families, Phi3) {
  const ModelSpec spec = read("phi3");
  EXPECT_EQ(spec.rope.type, RopeType::kLongRope);
  EXPECT_EQ(spec.rope.original_ctx, 96);
  EXPECT_TRUE(spec.warnings.empty());
  EXPECT_EQ(spec.names.q, spec.names.v);
  EXPECT_EQ(spec.names.gate, spec.names.up);
  // Where only the object has it, transformers takes its own default instead.
  json inside = config_of("phi3")["rope_scaling"];
  inside["original_max_position_embeddings"] = 96;
  EXPECT_EQ(read("phi3", {{"original_max_position_embeddings", nullptr}, {"rope_scaling", inside}})
                .rope.original_ctx,
            4096);
  EXPECT_EQ(read("phi3_window").layers[1].attention.sliding_window, 16);
  EXPECT_EQ(read("phi4_mini").rope.rotary_dim, 3 * read("phi4_mini").rope.head_dim / 4);
  EXPECT_TRUE(read("phi4_mini").warnings.empty());
  expect_refused("phi3", {{"rope_scaling", {{"long_factor", {1.0}}}}}, "long_factor");
}

TEST(Families, Gemma) {
  const ModelSpec first = read("gemma");
  EXPECT_TRUE(first.norm_plus_one && first.tie_word_embeddings && first.round_embedding_multiplier);
  EXPECT_EQ(first.layers[0].feed_forward.activation, Activation::kGeluTanh);
  EXPECT_FLOAT_EQ(first.embedding_multiplier, std::sqrt(static_cast<float>(first.hidden_size)));
  expect_refused("gemma", {{"hidden_act", "relu"}}, "only silu");
  expect_refused("gemma", {{"use_bidirectional_attention", true}}, "lets a token see later ones");

  const ModelSpec second = read("gemma2");
  EXPECT_EQ(windows(second), (std::vector<int64_t>{16, 0, 16, 0}));
  EXPECT_EQ(second.logits_softcap, 6.0F);
  EXPECT_EQ(second.layers[0].attention.softcap, 5.0F);
  EXPECT_FLOAT_EQ(second.layers[0].attention.scale, 1.0F / std::sqrt(24.0F));
  EXPECT_TRUE(second.layers[0].norm_before && second.layers[0].norm_after);
  EXPECT_EQ(read("gemma2", {{"final_logit_softcapping", nullptr}}).logits_softcap, 30.0F);
  json off = config_of("gemma2");
  off["final_logit_softcapping"] = nullptr;
  EXPECT_EQ(parse_config(off.dump(), "config.json").logits_softcap, 0.0F);
  expect_refused("gemma2", {{"attn_logit_softcapping", -1}}, "attn_logit_softcapping");
}

TEST(Families, Gemma3HasTwoRopes) {
  const ModelSpec spec = read("gemma3");
  EXPECT_EQ(windows(spec), (std::vector<int64_t>{16, 16, 0, 16, 16, 0}));
  EXPECT_EQ(spec.layers[0].attention.rope, LayerRope::kLocal);
  EXPECT_EQ(spec.layers[2].attention.rope, LayerRope::kGlobal);
  EXPECT_EQ(spec.rope.type, RopeType::kLinear);
  EXPECT_EQ(spec.rope.factor, 8.0);
  EXPECT_EQ(spec.rope.theta, 1e6);
  ASSERT_TRUE(spec.local_rope);
  EXPECT_EQ(spec.local_rope->type, RopeType::kDefault);
  EXPECT_EQ(spec.local_rope->theta, 1e4);
  EXPECT_EQ(spec.layers[0].attention.qk_norm, QkNorm::kPerHead);
  // layer_types beats the pattern.
  EXPECT_EQ(windows(read("gemma3_new")), (std::vector<int64_t>{16, 16, 0}));
  expect_refused("gemma3", {{"attn_logit_softcapping", 50}}, "caps the attention scores");
  expect_refused("gemma3", {{"rope_parameters", {{"rope_type", "linear"}}}},
                 "full_attention and sliding_attention");
  expect_refused("gemma3",
                 {{"rope_parameters", {{"sliding_attention", {{"rope_type", "dynamic"}, {"factor", 2}}}}}},
                 "depends on the length");
}

TEST(Families, SmolLM3LeavesRopeOut) {
  const auto ropes = [](const ModelSpec& spec) {
    std::vector<bool> with;
    for (const LayerSpec& layer : spec.layers) with.push_back(layer.attention.rope != LayerRope::kNone);
    return with;
  };
  EXPECT_EQ(ropes(read("smollm3")), (std::vector<bool>{true, true, true, false}));
  EXPECT_EQ(ropes(read("smollm3", {{"no_rope_layers", {1, 0, 1, 0}}})),
            (std::vector<bool>{true, false, true, false}));
  EXPECT_EQ(ropes(read("smollm3", {{"no_rope_layers", nullptr}, {"no_rope_layer_interval", 2}})),
            (std::vector<bool>{true, false, true, false}));
  expect_refused("smollm3", {{"no_rope_layers", {1, 1}}}, "each of 4 layers");
}

TEST(Families, GraniteMultiplies) {
  const ModelSpec spec = read("granite");
  EXPECT_EQ(spec.embedding_multiplier, 12.0F);
  EXPECT_EQ(spec.logits_multiplier, 0.125F);
  EXPECT_EQ(spec.layers[1].residual_multiplier, 0.22F);
  EXPECT_EQ(spec.layers[1].attention.scale, 0.1F);
  expect_refused("granite", {{"logits_scaling", 0}}, "logits_scaling");
  EXPECT_EQ(read("granite", {{"attention_multiplier", nullptr}}).layers[0].attention.scale, 1.0F);
}

TEST(Families, OlmoNormsStandBehind) {
  const ModelSpec second = read("olmo2"), third = read("olmo3");
  for (const ModelSpec* spec : {&second, &third}) {
    EXPECT_TRUE(!spec->layers[0].norm_before && spec->layers[0].norm_after);
    EXPECT_EQ(spec->layers[0].attention.qk_norm, QkNorm::kAllHeads);
  }
  EXPECT_EQ(windows(third), (std::vector<int64_t>{16, 16, 16, 0}));
  EXPECT_EQ(third.rope.type, RopeType::kYarn);
  EXPECT_EQ(third.rope.attention_factor, 1.2);
  EXPECT_EQ(third.local_rope->type, RopeType::kDefault);
  // transformers gives the layers with a window the default base, whatever the other is.
  const ModelSpec other = read("olmo3", {{"rope_theta", 1e4}});
  EXPECT_EQ(other.rope.theta, 1e4);
  EXPECT_EQ(other.local_rope->theta, 5e5);
  expect_refused("olmo2", {{"attention_bias", true}}, "attention_bias");
}

TEST(Families, InternLM) {
  EXPECT_EQ(read("internlm2").rope.type, RopeType::kDynamic);
  EXPECT_TRUE(read("internlm2").names.qkv_by_kv_head);
  expect_refused("internlm2", {{"bias", true}}, "bias of fused projections");
  expect_refused("internlm2", {{"bias", nullptr}}, "\"bias\"");
  const ModelSpec first = read("internlm");
  EXPECT_TRUE(first.layers[0].attention.qkv_bias && first.layers[0].attention.o_bias);
  EXPECT_EQ(first.rope.type, RopeType::kDynamic);
  EXPECT_EQ(first.rope.factor, 1.0);
  EXPECT_EQ(read("internlm", {{"rotary", {{"type", "origin"}, {"base", 5e4}}}}).rope.theta, 5e4);
  expect_refused("internlm", {{"rotary", {{"type", "x"}}}}, "rotary.type");
}

TEST(Families, BaichuanIsTheFirst7bOnly) {
  EXPECT_EQ(read("baichuan").names.q, "self_attn.W_pack");
  expect_refused("baichuan", {{"architectures", {"BaichuanForCausalLM"}}}, "known architectures");
}

TEST(Families, ConfigsInConfigs) {
  const ModelSpec ministral = read("ministral3");
  EXPECT_EQ(ministral.family, "Ministral3ForCausalLM");
  EXPECT_EQ(ministral.query_log_beta, 0.1);
  EXPECT_EQ(ministral.query_log_ctx, 16);
  EXPECT_EQ(ministral.rope.type, RopeType::kYarn);
  EXPECT_EQ(read("llava").family, "LlamaForCausalLM");
  EXPECT_EQ(read("qwen2_vl").rope.type, RopeType::kDefault);
  EXPECT_TRUE(read("qwen25_vl").layers[0].attention.qkv_bias);
  expect_refused("qwen2_vl", {{"rope_scaling", {{"mrope_section", {1, 1}}}}}, "the sections have 2 pairs");
  expect_refused("llava", {{"model_type", "mystery"}}, "text_config.");
  expect_refused("ministral3", {{"rope_parameters", {{"partial_rotary_factor", 0.5}}}},
                 "llama_4_scaling_beta");
  // A quantised checkpoint says so at the top.
  json quantised = config_of("llava");
  quantised["quantization_config"] = {{"quant_method", "awq"}};
  EXPECT_THROW(parse_config(quantised.dump(), "config.json"), Error);
}

// The real configs of these families, where they are at hand.
TEST(Families, RealConfigsOpen) {
  const fs::path shared = fs::path(LARIAT_SOURCE_DIR).parent_path() / "shared" / "configs";
  if (!fs::exists(shared)) GTEST_SKIP() << "SKIPPED: no ../shared/configs";
  for (const char* name :
       {"mlc_ministral3_3b_2512", "mlc_olmo2_7b", "ome_gemma3_text", "ome_gemma_2_2b_it", "ome_gemma_7b",
        "ome_internlm2_7b", "ome_llava_1.5_7b_hf", "ome_phi3", "ome_qwen2.5_vl_7b", "ome_qwen2_vl_2b"}) {
    const fs::path file = shared / (std::string(name) + ".json");
    EXPECT_NO_THROW(parse_config(read_file(file, 1 << 20), file)) << name;
  }
}

}  // namespace
}  // namespace lariat::families_test
