// What each family makes of its config.json: its defaults, what its keys change, and what is refused. What a
// model then computes is tests/engine/golden_test.cpp.
#include <gtest/gtest.h>

#include <cmath>
#include <fstream>
#include <nlohmann/json.hpp>

#include "kernels/error.h"
#include "models/config.h"
#include "models/io/json_file.h"
#include "models/rope_config.h"

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
  EXPECT_EQ(spec.rope().type, RopeType::kLongRope);
  EXPECT_EQ(spec.rope().original_ctx, 96);
  EXPECT_TRUE(spec.warnings.empty());
  EXPECT_EQ(spec.names.q, spec.names.v);
  EXPECT_EQ(spec.names.gate, spec.names.up);
  // Where only the object has it, transformers takes its own default instead.
  json inside = config_of("phi3")["rope_scaling"];
  inside["original_max_position_embeddings"] = 96;
  EXPECT_EQ(read("phi3", {{"original_max_position_embeddings", nullptr}, {"rope_scaling", inside}})
                .rope()
                .original_ctx,
            4096);
  EXPECT_EQ(read("phi3_window").layers[1].attention.sliding_window, 16);
  EXPECT_EQ(read("phi4_mini").rope().rotary_dim, 3 * read("phi4_mini").rope().head_dim / 4);
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
  EXPECT_EQ(spec.layers[0].attention.rope, 1);
  EXPECT_EQ(spec.layers[2].attention.rope, 0);
  EXPECT_EQ(spec.rope().type, RopeType::kLinear);
  EXPECT_EQ(spec.rope().factor, 8.0);
  EXPECT_EQ(spec.rope().theta, 1e6);
  ASSERT_EQ(spec.ropes.size(), 2U);
  EXPECT_EQ(spec.ropes[1].type, RopeType::kDefault);
  EXPECT_EQ(spec.ropes[1].theta, 1e4);
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
    for (const LayerSpec& layer : spec.layers) with.push_back(layer.attention.rope >= 0);
    return with;
  };
  EXPECT_EQ(ropes(read("smollm3")), (std::vector<bool>{true, true, true, false}));
  EXPECT_EQ(ropes(read("smollm3", {{"no_rope_layers", {1, 0, 1, 0}}})),
            (std::vector<bool>{true, false, true, false}));
  EXPECT_EQ(ropes(read("smollm3", {{"no_rope_layers", nullptr}, {"no_rope_layer_interval", 2}})),
            (std::vector<bool>{true, false, true, false}));
  expect_refused("smollm3", {{"no_rope_layers", {1, 1}}}, "for each layer, 4 numbers");
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
  EXPECT_EQ(third.rope().type, RopeType::kYarn);
  EXPECT_EQ(third.rope().attention_factor, 1.2);
  EXPECT_EQ(third.ropes[1].type, RopeType::kDefault);
  // transformers gives the layers with a window the default base, whatever the other is.
  const ModelSpec other = read("olmo3", {{"rope_theta", 1e4}});
  EXPECT_EQ(other.rope().theta, 1e4);
  EXPECT_EQ(other.ropes[1].theta, 5e5);
  expect_refused("olmo2", {{"attention_bias", true}}, "attention_bias");
}

TEST(Families, InternLM) {
  EXPECT_EQ(read("internlm2").rope().type, RopeType::kDynamic);
  EXPECT_TRUE(read("internlm2").names.qkv_by_kv_head);
  expect_refused("internlm2", {{"bias", true}}, "bias of fused projections");
  expect_refused("internlm2", {{"bias", nullptr}}, "\"bias\"");
  const ModelSpec first = read("internlm");
  EXPECT_TRUE(first.layers[0].attention.qkv_bias && first.layers[0].attention.o_bias);
  EXPECT_EQ(first.rope().type, RopeType::kDynamic);
  EXPECT_EQ(first.rope().factor, 1.0);
  EXPECT_EQ(read("internlm", {{"rotary", {{"type", "origin"}, {"base", 5e4}}}}).rope().theta, 5e4);
  expect_refused("internlm", {{"rotary", {{"type", "x"}}}}, "rotary.type");
}

TEST(Families, BaichuanIsTheFirst7bOnly) {
  EXPECT_EQ(read("baichuan").names.q, "self_attn.W_pack");
  expect_refused("baichuan", {{"architectures", {"BaichuanForCausalLM"}}},
                 "did you mean BaiChuanForCausalLM, or is it another model?");
}

TEST(Families, AnEmptyQuantizationIsNone) {
  for (const char* key : {"quantization_config", "quantization"}) {
    EXPECT_TRUE(read("qwen2", {{key, json::object()}}).warnings.empty());
    expect_refused("qwen2", {{key, {{"bits", 4}}}}, "a checkpoint quantised by");
  }
}

TEST(Families, ConfigsInConfigs) {
  const ModelSpec ministral = read("ministral3");
  EXPECT_EQ(ministral.family, "Ministral3ForCausalLM");
  EXPECT_EQ(ministral.query_log_beta, 0.1);
  EXPECT_EQ(ministral.query_log_ctx, 16);
  EXPECT_EQ(ministral.rope().type, RopeType::kYarn);
  EXPECT_EQ(read("llava").family, "LlamaForCausalLM");
  EXPECT_EQ(read("qwen2_vl").rope().type, RopeType::kDefault);
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

TEST(Families, GptNeoX) {
  const ModelSpec spec = read("gpt_neox");
  EXPECT_TRUE(spec.layer_norm && spec.norm_bias && spec.layers[0].parallel);
  EXPECT_FALSE(spec.layers[0].feed_forward.gated);
  EXPECT_EQ(spec.layers[0].feed_forward.activation, Activation::kGelu);
  EXPECT_EQ(4 * spec.rope().rotary_dim, spec.rope().head_dim);
  EXPECT_EQ(read("gpt_neox", {{"rotary_emb_base", 5e4}}).rope().theta, 5e4);
  EXPECT_FALSE(read("gpt_neox_serial").layers[0].parallel);
  EXPECT_EQ(read("gpt_neox_serial").rope().type, RopeType::kYarn);
  // int(18 * 0.44) = 7: eight dimensions rotate.
  EXPECT_EQ(read("gpt_neox_odd").rope().rotary_dim, 8);
  EXPECT_EQ(rope_frequencies(read("gpt_neox_odd").rope(), 1).inv_freq[3], std::pow(1e4, -6.0 / 7.0));
  EXPECT_EQ(rope_of_type(read("gpt_neox_odd").rope(), RopeType::kLinear).rotary_dim, 8);
  expect_refused("gpt_neox_odd", {{"rope_scaling", {{"type", "yarn"}, {"factor", 4}}}},
                 "\"rotary_pct\" is 0.44; rotates 7 of 18 dimensions, an odd number, on which YaRN fails");
  EXPECT_FALSE(read("gpt_neox", {{"attention_bias", false}}).layers[0].attention.qkv_bias);
}

// The slopes of the paper (arXiv 2108.12409, section 3 and its code for other numbers of heads).
TEST(Families, AlibiSlopes) {
  const ModelSpec three = read("bloom_prefixed");
  const std::vector<float> expected = {1.0F / 16, 1.0F / 256, 1.0F / 4};
  EXPECT_EQ(three.alibi_slopes, expected);
  EXPECT_FALSE(three.has_rope());
  EXPECT_EQ(read("mpt_max16").alibi_slopes, (std::vector<float>{1.0F / 256, 1.0F / 65536, 1.0F / 16}));
  EXPECT_EQ(read("mpt_max16").layers[0].attention.clip, 1.5F);
}

TEST(Families, BloomAndMpt) {
  EXPECT_TRUE(read("bloom").embedding_norm && read("bloom").norm_bias);
  EXPECT_FALSE(read("mpt").norm_bias);
  EXPECT_EQ(read("mpt").layers[0].feed_forward.intermediate_size, 4 * read("mpt").hidden_size);
  expect_refused("bloom", {{"apply_residual_connection_post_layernorm", true}}, "residual connection");
  expect_refused("mpt", {{"no_bias", false}}, "no_bias");
  expect_refused("mpt", {{"expansion_ratio", 2}}, "expansion_ratio");
  expect_refused("mpt", {{"logit_scale", 0.5}}, "logit_scale");
  for (const char* key : {"qk_ln", "prefix_lm"})
    expect_refused("mpt", {{"attn_config", {{key, true}}}}, std::string("attn_config.") + key);
  expect_refused("mpt", {{"attn_config", {{"alibi", false}}}}, "attn_config.alibi");
  expect_refused("mpt", {{"attn_config", {{"attn_type", "multiquery_attention"}}}}, "attn_type");
}

TEST(Families, Experts) {
  const FeedForwardSpec mixtral = read("mixtral").layers[0].feed_forward;
  EXPECT_TRUE(mixtral.experts.router.normalise);
  EXPECT_EQ(mixtral.intermediate_size, 0);
  EXPECT_FALSE(read("qwen3_moe_step").layers[1].feed_forward.experts.router.normalise);
  EXPECT_EQ(read("qwen3_moe_step").layers[0].feed_forward.experts.n, 0) << "every second layer";
  EXPECT_EQ(read("qwen3_moe").layers[1].feed_forward.experts.n, 0) << "mlp_only_layers";
  EXPECT_GT(read("qwen3_moe").layers[0].feed_forward.experts.n, 0);
  EXPECT_EQ(windows(read("qwen3_moe", {{"use_sliding_window", true}, {"sliding_window", 9}})),
            std::vector<int64_t>(read("qwen3_moe").layers.size(), 9))
      << "all layers, unlike Qwen 3";
  expect_refused("mixtral", {{"num_experts_per_tok", 1000}}, "num_experts_per_tok");
  expect_refused("mixtral", {{"num_local_experts", 100000}}, "num_local_experts");
}

TEST(Families, LatentAttention) {
  const ModelSpec v2 = read("deepseek_v2");
  const AttentionSpec& attention = v2.layers[0].attention;
  EXPECT_TRUE(attention.latent && v2.rope().interleaved && v2.scores_take_mscale);
  EXPECT_EQ(attention.head_dim, attention.latent.kv_rank + attention.latent.rope_dim);
  EXPECT_EQ(attention.n_kv_heads, 1);
  EXPECT_EQ(attention.latent.q_rank, 0);
  EXPECT_EQ(v2.layers[0].feed_forward.experts.n, 0) << "first_k_dense_replace";
  EXPECT_GT(v2.layers[1].feed_forward.intermediate_size, 0) << "shared experts";
  const Router full = read("deepseek_v2_full").layers.back().feed_forward.experts.router;
  EXPECT_EQ(full.n_groups, 4);
  EXPECT_EQ(full.scale, 16.0F);
  const ModelSpec v3 = read("deepseek_v3");
  EXPECT_TRUE(v3.layers.back().feed_forward.experts.router.sigmoid);
  EXPECT_FALSE(read("deepseek_v3", {{"rope_interleave", false}}).rope().interleaved);
  EXPECT_FALSE(read("minicpm3").rope().interleaved);
  json without = config_of("minicpm3");
  without["scale_depth"] = without["dim_model_base"] = nullptr;
  const ModelSpec plain = parse_config(without.dump(), "config.json");
  EXPECT_EQ(plain.layers[0].residual_multiplier, 1.0F);
  EXPECT_EQ(plain.logits_multiplier, 1.0F);
  expect_refused("deepseek_v2", {{"norm_topk_prob", true}}, "norm_topk_prob");
  expect_refused("deepseek_v2", {{"attention_bias", true}}, "attention_bias");
  expect_refused("deepseek_v2", {{"topk_method", "best"}}, "topk_method");
  expect_refused("deepseek_v2", {{"scoring_func", "sigmoid"}}, "scoring_func");
  expect_refused("deepseek_v2", {{"kv_lora_rank", 1020}}, "kv_lora_rank");
  expect_refused("deepseek_v3", {{"n_group", 5}}, "n_group");
  expect_refused(
      "deepseek_v3",
      {{"num_attention_heads", 65536}, {"num_key_value_heads", 65536}, {"num_hidden_layers", 10000}},
      "experts and heads in all layers");
  expect_refused("deepseek_v2", {{"moe_intermediate_size", 1 << 24}}, "moe_intermediate_size");
  expect_refused("deepseek_v2", {{"rope_scaling", {{"type", "dynamic-yarn"}, {"mscale_all_dim", 0.7}}}},
                 "mscale_all_dim");
  expect_refused("minicpm3", {{"v_head_dim", nullptr}, {"num_attention_heads", 64}}, "num_attention_heads");
  expect_refused("deepseek_v3", {{"moe_layer_freq", 2}}, "moe_layer_freq");
}

TEST(Families, PairsOfImages) {
  const std::vector<uint8_t> in_order = read("qwen2_vl").mrope_axes;
  EXPECT_TRUE(std::is_sorted(in_order.begin(), in_order.end()));
  EXPECT_EQ(in_order.back(), 2);
  EXPECT_EQ(read("qwen3_vl").mrope_axes, (std::vector<uint8_t>{0, 1, 2, 0, 1, 2, 0, 0}));
  EXPECT_TRUE(read("qwen3").mrope_axes.empty());
}

// The real configs of these families, where they are at hand.
TEST(Families, RealConfigsOpen) {
  const fs::path shared = fs::path(LARIAT_SOURCE_DIR).parent_path() / "shared" / "configs";
  if (!fs::exists(shared)) GTEST_SKIP() << "SKIPPED: no ../shared/configs";
  for (const char* name :
       {"mlc_ministral3_3b_2512", "mlc_olmo2_7b", "ome_gemma3_text", "ome_gemma_2_2b_it", "ome_gemma_7b",
        "ome_internlm2_7b", "ome_llava_1.5_7b_hf", "ome_phi3", "ome_qwen2.5_vl_7b", "ome_qwen2_vl_2b",
        "mlc_deepseek_v2_lite", "ome_deepseek_v3", "ome_minicpm3_4b", "ome_mixtral", "ome_qwen3_30b"}) {
    const fs::path file = shared / (std::string(name) + ".json");
    EXPECT_NO_THROW(parse_config(read_file(file, 1 << 20), file)) << name;
  }
}

}  // namespace
}  // namespace lariat::families_test
