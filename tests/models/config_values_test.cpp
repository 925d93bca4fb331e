// What each family makes of its config.json: its defaults, what its keys change, and what is warned of. What
// a model then computes is tests/engine/golden_test.cpp.
#include <gtest/gtest.h>

#include <cmath>

#include "models/rope_config.h"
#include "tests/models/config_cases.h"

namespace lariat::test {
namespace {

// A golden checkpoint's config, or that of an architecture at its defaults, with changes, and some of what it
// becomes (config_cases.h).
struct Value {
  const char *base, *changes, *expected;
};

constexpr Value kValues[] = {
    // Defaults
    {"LlamaForCausalLM", "{}", R"({"family": "LlamaForCausalLM", "vocab_size": 32000, "hidden_size": 4096,
      "n_layers": 32, "max_position_embeddings": 2048, "norm_eps": 1e-6, "tied": false, "dtype": "f32", "bos": 1,
      "eos": [2], "rope": {"type": "default", "theta": 1e4, "rotary_dim": 128, "original_ctx": 2048},
      "layers": {"0": {"intermediate_size": 11008, "n_heads": 32, "n_kv_heads": 32, "head_dim": 128,
      "qkv_bias": false, "o_bias": false, "mlp_bias": false, "qk_norm": 0}, "-1": {"window": 0}}})"},
    {"MistralForCausalLM", "{}", R"({"n_layers": 32, "max_position_embeddings": 131072,
      "layers": {"0": {"intermediate_size": 14336, "n_kv_heads": 8, "window": 4096}, "-1": {"window": 4096}}})"},
    {"Qwen2ForCausalLM", "{}", R"({"vocab_size": 151936, "n_layers": 32, "bos": -1, "eos": [],
      "layers": {"0": {"intermediate_size": 22016, "qkv_bias": true, "o_bias": false, "window": 0},
      "-1": {"window": 0}}})"},
    {"Qwen3ForCausalLM", R"({"hidden_size": 1024, "num_attention_heads": 16, "num_key_value_heads": 8})",
     R"({"layers": {"0": {"head_dim": 128, "qk_norm": 1, "qkv_bias": false}}})"},
    // 2432 is ceil(768 pi / 64) * 64.
    {"MiniMindForCausalLM", "{}", R"({"vocab_size": 6400, "hidden_size": 768, "n_layers": 8, "tied": true,
      "max_position_embeddings": 32768, "rope": {"type": "default", "theta": 1e6}, "layers": {"0":
      {"intermediate_size": 2432, "n_kv_heads": 4, "head_dim": 96, "qk_norm": 1}}})"},
    {"", R"({"architectures": "absent", "model_type": "qwen3"})", R"({"family": "Qwen3ForCausalLM"})"},
    {"", R"({"architectures": null, "model_type": "minimind"})", R"({"family": "MiniMindForCausalLM"})"},
    {"LLaMAForCausalLM", "{}", R"({"family": "LlamaForCausalLM"})"},
    // Heads
    {"MistralForCausalLM", R"({"num_key_value_heads": null})", R"({"layers": {"0": {"n_kv_heads": 32}}})"},
    {"LlamaForCausalLM", R"({"head_dim": 64})", R"({"layers": {"0": {"head_dim": 64}}})"},
    {"LlamaForCausalLM", R"({"head_dim": null})", R"({"layers": {"0": {"head_dim": 128}}})"},
    {"LlamaForCausalLM", R"({"head_dim": 64, "num_attention_heads": 33})",
     R"({"layers": {"0": {"n_kv_heads": 33}}})"},
    // Biases
    {"MistralForCausalLM", R"({"attention_bias": true, "mlp_bias": true})",
     R"({"layers": {"0": {"qkv_bias": false, "o_bias": false, "mlp_bias": false}}})"},
    {"Qwen3ForCausalLM", R"({"attention_bias": true, "mlp_bias": true})",
     R"({"layers": {"0": {"qkv_bias": true, "o_bias": true, "mlp_bias": false}}})"},
    {"Qwen2ForCausalLM", R"({"attention_bias": false})", R"({"layers": {"0": {"qkv_bias": true}}})"},
    {"gpt_neox", R"({"attention_bias": false})", R"({"layers": {"0": {"qkv_bias": false}}})"},
    // Dtypes and token ids
    {"LlamaForCausalLM", R"({"torch_dtype": "bfloat16"})", R"({"dtype": "bf16"})"},
    {"LlamaForCausalLM", R"({"dtype": "float16"})", R"({"dtype": "f16"})"},
    {"LlamaForCausalLM", R"({"dtype": "float32", "torch_dtype": "float16"})", R"({"dtype": "f32"})"},
    {"LlamaForCausalLM", R"({"torch_dtype": "auto"})", R"({"dtype": "f32"})"},
    {"LlamaForCausalLM", R"({"eos_token_id": [5, 7, 5]})", R"({"eos": [5, 7]})"},
    {"LlamaForCausalLM", R"({"eos_token_id": null, "bos_token_id": null})", R"({"eos": [], "bos": -1})"},
    {"LlamaForCausalLM", R"({"bos_token_id": 32000, "eos_token_id": -1})", R"({"eos": [], "bos": -1})"},
    {"LlamaForCausalLM", R"({"eos_token_id": [2, -1, 32000]})", R"({"eos": [2]})"},
    // Windows
    {"LlamaForCausalLM", R"({"num_hidden_layers": 3, "sliding_window": 16})", R"({"windows": [0, 0, 0]})"},
    {"Qwen3ForCausalLM", R"({"num_hidden_layers": 3, "sliding_window": 16, "use_sliding_window": true})",
     R"({"windows": [0, 0, 0]})"},
    {"Qwen3ForCausalLM", R"({"num_hidden_layers": 3, "sliding_window": 16, "use_sliding_window": true,
      "layer_types": ["sliding_attention", "full_attention", "attention"]})",
     R"({"windows": [16, 0, 0]})"},
    {"LlamaForCausalLM", R"({"num_hidden_layers": 2, "layer_types": ["full_attention", "full_attention"]})",
     R"({"windows": [0, 0]})"},
    // To transformers such a file is a ministral's.
    {"MistralForCausalLM",
     R"({"num_hidden_layers": 2, "layer_types": ["full_attention", "sliding_attention"]})",
     R"({"windows": [0, 4096]})"},
    {"MinistralForCausalLM",
     R"({"num_hidden_layers": 2, "layer_types": ["full_attention", "sliding_attention"]})",
     R"({"windows": [0, 4096]})"},
    {"qwen3_moe", R"({"use_sliding_window": true, "sliding_window": 9})",  // all layers, unlike Qwen 3
     R"({"layers": {"0": {"window": 9}, "1": {"window": 9}, "-1": {"window": 9}}})"},
    // Families: what the golden checkpoints come to as they are is in engine/golden_test.cpp.
    // Where only the object has it, transformers takes its own default instead.
    {"phi3", R"({"original_max_position_embeddings": "absent",
      "rope_scaling": {"original_max_position_embeddings": 96}})",
     R"({"rope": {"original_ctx": 4096}})"},
    {"gemma", "{}", R"({"norm_plus_one": true, "tied": true, "round_embedding_multiplier": true,
      "embedding_multiplier": 5.6568542, "hidden_size": 32, "layers": {"0": {"activation": 1}}})"},
    {"gemma2", R"({"final_logit_softcapping": "absent"})", R"({"logits_softcap": 30})"},
    {"gemma2", R"({"final_logit_softcapping": null})", R"({"logits_softcap": 0})"},
    {"smollm3", R"({"no_rope_layers": [1, 0, 1, 0]})",
     R"({"layers": {"0": {"rope": 0}, "1": {"rope": -1}, "2": {"rope": 0}, "3": {"rope": -1}}})"},
    {"smollm3", R"({"no_rope_layers": "absent", "no_rope_layer_interval": 2})",
     R"({"layers": {"0": {"rope": 0}, "1": {"rope": -1}, "2": {"rope": 0}, "3": {"rope": -1}}})"},
    {"granite", R"({"attention_multiplier": "absent"})", R"({"layers": {"0": {"scale": 1}}})"},
    // transformers gives the layers with a window the default base, whatever the other is.
    {"olmo3", R"({"rope_theta": 1e4})", R"({"rope": {"theta": 1e4}, "local_rope": {"theta": 5e5}})"},
    {"internlm", "{}", R"({"rope": {"type": "dynamic", "factor": 1}})"},
    {"internlm", R"({"rotary": {"type": "origin", "base": 5e4}})",
     R"({"rope": {"type": "default", "theta": 5e4}})"},
    {"qwen2", R"({"quantization_config": {}, "quantization": {}})", "{}"},
    {"ministral3", "{}",
     R"({"family": "Ministral3ForCausalLM", "query_log": [0.1, 16, true], "rope": {"type": "yarn"}})"},
    // What stands in text_config beside its type is no matter to transformers.
    {"llava", R"({"architectures": ["MysteryForCausalLM"]})", R"({"family": "LlamaForCausalLM"})"},
    {"llava", R"({"model_type": "absent", "architectures": ["Qwen3ForCausalLM"], "num_key_value_heads": 4})",
     R"({"family": "Qwen3ForCausalLM"})"},
    {"qwen3", "{}", R"({"mrope_axes": []})"},
    {"gpt_neox", R"({"rotary_emb_base": 5e4})", R"({"rope": {"theta": 5e4}})"},
    {"deepseek_v3", R"({"rope_interleave": false})", R"({"rope": {"interleaved": false}})"},
    // transformers looks for it beside full_attention.
    {"gemma3", R"({"rope_scaling": null, "rope_parameters": {"full_attention":
         {"rope_type": "yarn", "factor": 4, "truncate": false}}})",
     R"({"rope": {"type": "yarn", "truncate": false}})"},
    {"minicpm3", R"({"scale_depth": null, "dim_model_base": null})",
     R"({"logits_multiplier": 1, "layers": {"0": {"residual_multiplier": 1}}})"},
    {"GptOssForCausalLM", R"({"rope_scaling": {"rope_type": "yarn", "factor": 32, "truncate": false}})",
     R"({"hidden_size": 2880, "n_layers": 36, "vocab_size": 201088, "eos": [], "rope": {"theta": 150000},
      "layers": {"0": {"window": 128, "n_heads": 64, "n_kv_heads": 8, "head_dim": 64, "o_bias": true},
      "1": {"window": 0, "qkv_bias": true}, "-1": {"window": 0}}})"},
    {"gpt_oss", R"({"attention_bias": false, "swiglu_limit": 7, "swiglu_alpha": 1.702, "layer_types": null})",
     R"({"windows": [16, 0, 16], "layers": {"0": {"qkv_bias": false, "o_bias": false}}})"},
    {"GlmForCausalLM", R"({"vocab_size": 151337})",
     R"({"eos": [151329, 151336], "bos": -1, "norm_eps": 1.5625e-7,
      "rope": {"theta": 1e4, "head_dim": 128, "rotary_dim": 64, "interleaved": true}, "layers": {"0": {"n_kv_heads": 2,
      "qkv_bias": true, "o_bias": false, "norm_after": false}}})"},
    {"Glm4ForCausalLM", R"({"attention_bias": false, "eos_token_id": 7})",
     R"({"eos": [7], "layers": {"0": {"qkv_bias": false, "norm_after": true}}})"},
    {"ChatGLMModel", "{}",
     R"({"family": "ChatGLMForConditionalGeneration", "vocab_size": 65024, "n_layers": 28,
      "qkv_by_kv_head": true, "rope": {"theta": 1e4, "rotary_dim": 64}, "layers": {"0": {"intermediate_size": 13696,
      "n_kv_heads": 32, "head_dim": 128, "qkv_bias": false}}})"},
    // ChatGLM2 divides positions by rope_ratio, the others multiply the base.
    {"chatglm", R"({"rope_ratio": 10000, "seq_length": 1048576})",
     R"({"rope": {"type": "default", "theta": 1e8}, "max_position_embeddings": 1048576})"},
    {"chatglm2", "{}", R"({"rope": {"type": "linear", "factor": 16, "theta": 1e4, "interleaved": true}})"},
    {"chatglm2", R"({"transformers_version": "4.30.2"})", R"({"rope": {"type": "linear", "factor": 16}})"},
    {"chatglm2", R"({"transformers_version": "4.30.2", "_name_or_path": "THUDM/chatglm3-6b"})",
     R"({"rope": {"type": "default", "theta": 1.6e5}})"},
    {"qwen", "{}", R"({"rope": {"type": "dynamic", "factor": 2, "original_ctx": 1024}, "layers": {"0": {
      "intermediate_size": 48, "qkv_bias": true, "o_bias": false, "mlp_bias": false}}})"},
    {"qwen", R"({"use_dynamic_ntk": false, "no_bias": false})",
     R"({"rope": {"type": "default", "original_ctx": 1024}, "layers": {"0": {"o_bias": true, "mlp_bias": true}}})"},
    // As published of Qwen2.5-7B-Instruct-1M, Qwen3-30B-A3B-Instruct-2507 and with what vLLM takes where
    // there
    // is nothing; a window ends with its chunk, and a scaling is as good as not there.
    {"qwen2", R"({"max_position_embeddings": 1010000, "dual_chunk_attention_config": {"chunk_size": 262144,
      "local_size": 8192, "original_max_position_embeddings": 262144}})",
     R"({"position_method": "dca/chunk=253952/window=8193/temperature=length",
      "max_position_embeddings": 1010000, "rope": {"type": "default", "original_ctx": 262144}})"},
    {"qwen3_moe",
     R"({"max_position_embeddings": 1010000, "dual_chunk_attention_config": {"chunk_size": 131072,
      "local_size": 4096, "original_max_position_embeddings": 131072, "sparse_attention_enabled": true,
      "sparse_attention_config": [{"0": ["vertical_and_slash", 30, 800, 1.0]}]}})",
     R"({"position_method": "dca/chunk=126976/window=4097/temperature=length", "rope": {"original_ctx": 131072}})"},
    {"qwen2", R"({"dual_chunk_attention_config": {"sparse_attention_enabled": false}})",
     R"({"position_method": "dca/chunk=7168/window=1025", "rope": {"original_ctx": 128}})"},
    {"qwen2", R"({"dual_chunk_attention_config": {"chunk_size": 9, "local_size": 7}})",
     R"({"position_method": "dca/chunk=2/window=2"})"},
    {"qwen2", R"({"dual_chunk_attention_config": {}})", R"({"position_method": ""})"},
    {"qwen2", R"({"dual_chunk_attention_config": null})", R"({"position_method": ""})"},
    {"qwen3_yarn_tied", R"({"dual_chunk_attention_config": {"chunk_size": 24, "local_size": 8}})",
     R"({"position_method": "dca/chunk=16/window=9", "rope": {"type": "default", "original_ctx": 32}})"},
    // MiniMind takes its scaling from a flag, and its table is never longer than 2048 then
    // (precompute_freqs_cis).
    {"MiniMindForCausalLM", R"({"inference_rope_scaling": true})", R"({"rope": {"type": "yarn", "factor": 16,
      "original_ctx": 2048, "attention_factor": 1, "theta": 1e6}})"},
    {"MiniMindForCausalLM",
     R"({"inference_rope_scaling": true, "rope_scaling": {"beta_fast": 32, "beta_slow": 1,
      "factor": 16, "original_max_position_embeddings": 2048, "attention_factor": 1.0, "type": "yarn"}})",
     R"({"rope": {"type": "yarn", "factor": 16, "original_ctx": 2048, "attention_factor": 1}})"},
    {"MiniMindForCausalLM", R"({"inference_rope_scaling": true, "max_position_embeddings": 2048})",
     R"({"rope": {"type": "default"}})"},
};

TEST(ConfigValues, AreThoseOfTransformers) {
  for (const Value& row : kValues) {
    const Answer got = answer(changed(config_of(row.base), json::parse(row.changes)));
    ASSERT_TRUE(got.spec) << row.base << " " << row.changes << ": " << got.error;
    EXPECT_EQ(difference(described(*got.spec), json::parse(row.expected)), "")
        << row.base << " " << row.changes;
  }
}

// NTK's alpha by the length, and the base that it makes (get_ntk_alpha of modeling_qwen.py).
TEST(ConfigValues, TheScaleOfQwen1MovesOnceInAnOctave) {
  constexpr struct {
    int64_t trained, length;
    double alpha, base;
  } kRows[] = {{2048, 1, 1, 10000},         {2048, 2048, 1, 10000},    {2048, 2049, 3, 30527.74},
               {2048, 4096, 3, 30527.74},   {2048, 8192, 7, 72195.86}, {2048, 8193, 15, 156588.32},
               {2048, 20000, 31, 327366.4}, {8192, 2049, 1, 10000},    {8192, 8192, 1, 10000},
               {8192, 8193, 3, 30527.74},   {8192, 20000, 7, 72195.86}};
  for (const auto& row : kRows) {
    const json change{{"seq_length", row.trained}, {"kv_channels", 128}};
    const RopeScaling rope = answer(changed(config_of("qwen"), change)).spec->rope();
    const double seen = rope_step_length(rope, row.length, 4);
    EXPECT_NEAR(rope_scale(rope, seen), row.alpha, 1e-12) << row.length;
    EXPECT_NEAR(std::pow(rope_frequencies(rope, seen).inv_freq[1], -64.0), row.base, 0.01) << row.length;
  }
}

// Exponents of the seven dimensions that int(18 * 0.44) is, not of the eight that rotate.
TEST(ConfigValues, FrequenciesOfAnOddRotaryDim) {
  const RopeScaling rope = answer(config_of("gpt_neox_odd")).spec->rope();
  EXPECT_EQ(rope_frequencies(rope, 1).inv_freq[3], std::pow(1e4, -6.0 / 7.0));
  EXPECT_EQ(rope_of_type(rope, RopeType::kLinear).rotary_dim, 8);
}

// A change, and what the one warning names that it brings; "": none, and nothing else changes.
struct Warning {
  const char *base, *changes, *part;
};
constexpr Warning kWarnings[] = {
    {"llama_gqa", R"({"rope_parameters": {"unheard_of": 3}})", "rope_parameters.unheard_of | 3"},
    {"llama_gqa", R"({"rope_interleaved": true})", "rope_interleaved | true"},
    {"llama_gqa", R"({"partial_rotary_factor": 0.5})", "partial_rotary_factor | 0.5 | 8 | 16"},
    {"qwen2", R"({"partial_rotary_factor": 0.5})", "partial_rotary_factor | 0.5"},
    {"llama_gqa", R"({"rope_parameters": {"rope_type": "dynamic", "factor": 2.0,
      "original_max_position_embeddings": 32}})",
     "rope_parameters.original_max_position_embeddings | max_position_embeddings | 64"},
    {"llama_gqa", R"({"rope_parameters": {"rope_type": "yarn", "factor": 0.5}})",
     "rope_parameters.factor | 0.5"},
    {"llama_gqa", R"({"sliding_window": 16})", "sliding_window | 16"},
    {"mistral_window", R"({"use_sliding_window": false})", "use_sliding_window | false"},
    {"mistral_window", R"({"attention_bias": true})", "attention_bias | true"},
    {"qwen2", R"({"mlp_bias": true})", "mlp_bias | true"},
    {"llama_gqa", R"({"auto_map": {"AutoModelForCausalLM": "modeling_x.XForCausalLM"}})", "auto_map"},
    {"llama_gqa", R"({"eos_token_id": -1})", "eos_token_id | -1 | 61"},
    {"llama_gqa", R"({"bos_token_id": 61})", "bos_token_id | 61"},
    {"LlamaForCausalLM", R"({"eos_token_id": [2, 32000]})", "eos_token_id | [2,32000] | 32000"},
    {"qwen2", R"({"dual_chunk_attention_config": {"chunk_size": 8192}})",
     "dual_chunk_attention_config | {\"chunk_size\":8192} | 32768"},
    {"qwen2", R"({"dual_chunk_attention_config": {"sparse_attention_threshold": 99}})",
     "dual_chunk_attention_config | 99"},
    {"qwen2", R"({"dual_chunk_attention_config": {"sparse_attention_enabled": false, "unheard_of": 3}})",
     "dual_chunk_attention_config.unheard_of | 3"},
    {"qwen3_yarn_tied", R"({"dual_chunk_attention_config": {"sparse_attention_enabled": false}})",
     "dual_chunk_attention_config | vLLM"},
    {"llama_gqa", R"({"hidden_act": "swish"})", ""},
    {"llama_gqa", R"({"torch_dtype": "auto"})", ""},
    {"llama_gqa", R"({"pretraining_tp": 2, "attention_dropout": 0.5, "use_cache": false})", ""},
    {"llama_gqa", R"({"architectures": ["LLaMAForCausalLM"]})", ""},
    {"llama_gqa", R"({"architectures": null})", ""},
    {"llama_gqa",
     R"({"embedding_multiplier": 1.0, "attention_multiplier": 0.25, "query_pre_attn_scalar": 16})", ""},
    {"llama_gqa", R"({"num_experts": 0, "clip_qkv": null, "no_rope_layers": [1, 1], "is_causal": true})", ""},
    {"llama_gqa", R"({"hidden_activation": "silu", "use_sliding_window": false})", ""},
    {"llama_gqa", R"({"rope_parameters": {"mrope_section": [2, 3, 3]}})", ""},
    {"qwen3", R"({"use_qk_norm": true, "attn_logit_softcapping": null})", ""},
    {"minimind", R"({"num_experts": 8, "moe_intermediate_size": 99})", ""},
    {"minimind", R"({"use_moe": false, "quantization_config": null})", ""},
    {"llama_gqa", R"({"quantization_config": {"quant_method": "gptq", "bits": 4}})", ""},
    {"llama_gqa", R"({"quantization": {"group_size": 64, "bits": 4}})", ""},
    {"mistral_window", R"({"layer_types": ["sliding_attention", "sliding_attention"]})", ""},
    {"qwen3_yarn_tied", R"({"max_window_layers": 0, "sliding_window": 8})",
     ""},  // use_sliding_window is false
    // A file that transformers saved may hold keys of other families that say what is so.
    {"gpt_neox",
     R"({"num_key_value_heads": 2, "head_dim": 16, "rope_theta": 10000, "partial_rotary_factor": 0.25,
      "hidden_dropout": 0.1, "dtype": "float32"})",
     ""},
    {"bloom", R"({"n_inner": 192, "num_key_value_heads": 6, "head_dim": 8})", ""},
    {"mpt", R"({"intermediate_size": 192})", ""},
};

TEST(ConfigValues, WhatIsWarnedOf) {
  for (const Warning& row : kWarnings) {
    SCOPED_TRACE(std::string(row.base) + " " + row.changes);
    const Answer base = answer(config_of(row.base)),
                 got = answer(changed(config_of(row.base), json::parse(row.changes)));
    ASSERT_TRUE(got.spec) << got.error;
    std::vector<std::string> warnings = got.spec->warnings;
    if (*row.part == '\0') {
      EXPECT_EQ(warnings, base.spec->warnings);
      json same = described(*got.spec);
      same["dtype"] = described(*base.spec)["dtype"];  // "auto" is what the tensors are
      EXPECT_EQ(same, described(*base.spec));
      continue;
    }
    ASSERT_EQ(warnings.size(), 1U);
    expect_line(warnings[0], "config.json", row.part);
  }
  // Below the original length, to save memory.
  const auto saved = answer(changed(config_of("qwen3_yarn_tied"), {{"max_position_embeddings", 16}}));
  EXPECT_TRUE(saved.spec && saved.spec->warnings.empty());
}

}  // namespace
}  // namespace lariat::test
