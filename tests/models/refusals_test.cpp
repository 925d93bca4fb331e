// What a config.json is refused for: every row is a golden checkpoint's config, or that of an architecture at
// its defaults, with a damage, and what the one line names.
#include <gtest/gtest.h>

#include "tests/models/config_cases.h"

namespace lariat::test {
namespace {

struct Refusal {
  const char *base, *damage;
  const char* words = nullptr;  // null: the first key and its value
};

void expect_refused(const Refusal& r) {
  const json damage = json::parse(r.damage);
  SCOPED_TRACE(std::string(r.base) + " " + r.damage);
  const Answer got = answer(changed(config_of(r.base), damage));
  EXPECT_FALSE(got.spec) << "accepted";
  std::string words;
  if (r.words != nullptr) {
    words = r.words;
  } else {
    const json& value = *damage.begin();
    words = damage.begin().key() + " | ";
    if (!value.is_structured()) words += value.is_string() ? value.get<std::string>() : value.dump();
  }
  expect_line(got.error, "config.json", words);
}

constexpr const char *kGqa = "llama_gqa", *kPlain = "LlamaForCausalLM";

constexpr Refusal kRefusals[] = {
    // Settings of other families, in those that they are seen with (on a Llama: TheTableOfKeys of
    // gate_test.cpp).
    {kGqa, R"({"embedding_multiplier": 12.0})", "embedding_multiplier | 12.0 | Granite"},
    {"qwen2", R"({"attn_logit_softcapping": 50.0})"},
    {"gemma3", R"({"attn_logit_softcapping": 50})"},
    {"qwen3", R"({"num_experts": 128})"},
    {"mistral_window", R"({"num_local_experts": 8})"},
    {"qwen3", R"({"moe_intermediate_size": 768})"},
    {"minimind", R"({"use_moe": true})"},
    {kGqa, R"({"dual_chunk_attention_config": {"chunk_size": 262144}})"},
    {"qwen2_vl", R"({"dual_chunk_attention_config": {"chunk_size": 262144}})"},
    {"qwen2", R"({"dual_chunk_attention_config": {"chunk_size": 1024}})",
     "dual_chunk_attention_config.local_size | chunk_size | 1024"},
    {"qwen3", R"({"dual_chunk_attention_config": {"local_size": 8192}})",
     "dual_chunk_attention_config.local_size | 8192 | chunk_size"},
    {"qwen2", R"({"dual_chunk_attention_config": {"local_size": 0}})",
     "dual_chunk_attention_config.local_size | 0 | 1 | 134217728"},
    {"qwen2", R"({"dual_chunk_attention_config": {"chunk_size": 0}})",
     "dual_chunk_attention_config.chunk_size | 0 | 2 | 134217728"},
    {"qwen2", R"({"dual_chunk_attention_config": {"chunk_size": -8192}})",
     "dual_chunk_attention_config.chunk_size | -8192"},
    {"qwen2", R"({"dual_chunk_attention_config": {"chunk_size": 8192.5}})",
     "dual_chunk_attention_config.chunk_size | 8192.5"},
    {"qwen2", R"({"dual_chunk_attention_config": {"chunk_size": 134217729}})",
     "dual_chunk_attention_config.chunk_size | 134217729"},
    {"qwen3_moe", R"({"dual_chunk_attention_config": {"chunk_size": 1e300}})",
     "dual_chunk_attention_config.chunk_size | 1e+300"},
    {"qwen2", R"({"dual_chunk_attention_config": {"original_max_position_embeddings": -1}})",
     "original_max_position_embeddings | -1"},
    {"qwen2", R"({"dual_chunk_attention_config": {"sparse_attention_enabled": 1}})",
     "sparse_attention_enabled | 1"},
    {"qwen2", R"({"dual_chunk_attention_config": 8192})"},
    {"qwen2", R"({"dual_chunk_attention_config": [8192]})"},
    {"qwen2", R"({"dual_chunk_attention_config": {"chunk_size": 8192}, "use_sliding_window": true})",
     "use_sliding_window | true | dual_chunk_attention_config"},
    {"qwen3", R"({"use_qk_norm": false})"},
    {"gemma", R"({"use_bidirectional_attention": true})"},
    {"bloom", R"({"apply_residual_connection_post_layernorm": true})"},
    {"mpt", R"({"logit_scale": 0.5})"},
    {kGqa, R"({"quantization_config": {"quant_method": "hqq", "bits": 4}})", "hqq"},
    {kGqa, R"({"quantization_config": {"quant_method": "quark"}})", "quark"},
    {kGqa, R"({"quantization_config": {"quant_method": 1}})", "quantization_config.quant_method"},
    {kGqa, R"({"quantization": 4})"},
    // RoPE (of the object itself: rope_config_test.cpp, gate_test.cpp).
    {"qwen3", R"({"head_dim": null})", "head_dim | null"},
    {"phi3", R"({"rope_scaling": {"long_factor": [1.0]}})", "long_factor"},
    {"gemma3", R"({"rope_parameters": {"rope_type": "linear"}})", "full_attention | sliding_attention"},
    {"gemma3",
     R"({"rope_parameters": {"full_attention": {"rope_type": "linear", "factor": 2}, "truncate": false}})",
     "rope_parameters.truncate"},
    {"gemma3", R"({"rope_parameters": {"sliding_attention": {"rope_type": "dynamic", "factor": 2}}})",
     "rope_parameters | sliding_attention | dynamic"},
    {"gpt_oss", R"({"rope_scaling": null})", "rope_parameters"},
    {"gpt_oss", R"({"swiglu_limit": 6.5})"},
    {"gpt_oss", R"({"swiglu_alpha": 1.0})"},
    {"internlm", R"({"rotary": {"type": "x"}})", "rotary.type"},
    {"chatglm", R"({"position_encoding_2d": true})"},
    {"chatglm", R"({"inner_hidden_size": 16384})"},
    {"chatglm", R"({"pre_seq_len": 128})"},
    {"chatglm", R"({"quantization_bit": 4})"},
    {"chatglm", R"({"rmsnorm": false})"},
    {"chatglm", R"({"add_bias_linear": true})"},
    {"chatglm", R"({"rope_ratio": 0.5})"},
    {"qwen", R"({"seq_length": "absent"})", "seq_length"},
    {"qwen", R"({"intermediate_size": 95})"},
    {"qwen", R"({"scale_attn_weights": false})"},
    {"qwen", R"({"activation": "geglu"})"},
    {"qwen2_vl", R"({"rope_scaling": {"mrope_section": [1, 1]}})", "mrope_section | [1,1] | 2"},
    {"gpt_neox_odd", R"({"rope_scaling": {"type": "yarn", "factor": 4}})",
     "rotary_pct | 0.44 | 7 | 18 | YaRN"},
    {"deepseek_v2", R"({"rope_scaling": {"type": "dynamic-yarn", "mscale_all_dim": 0.7}})",
     "mscale_all_dim | 0.7"},
    {"MiniMindForCausalLM",
     R"({"inference_rope_scaling": true, "rope_scaling": {"type": "yarn", "factor": 32, "attention_factor": 1.0,
         "original_max_position_embeddings": 2048}})",
     "rope_scaling | inference_rope_scaling"},
    {"MiniMindForCausalLM",
     R"({"inference_rope_scaling": false, "rope_scaling": {"type": "yarn", "factor": 16,
         "attention_factor": 1.0, "original_max_position_embeddings": 2048}})",
     "rope_scaling | inference_rope_scaling"},
    // Shapes and values.
    {kPlain, R"({"num_key_value_heads": 5})"},
    {kPlain, R"({"num_key_value_heads": 64})"},
    {kPlain, R"({"num_attention_heads": 33})"},
    {kPlain, R"({"head_dim": 63})"},
    {kPlain, R"({"head_dim": 2048})", "head_dim | 2048 | 2 | 1024"},
    {kPlain, R"({"num_attention_heads": 1})", "head_dim"},
    {kPlain, R"({"num_attention_heads": 4096})", "head_dim"},
    {kPlain, R"({"num_hidden_layers": 10001})", "num_hidden_layers | 10001 | 10000"},
    {kPlain, R"({"hidden_size": 1048577})", "hidden_size | 1048577 | 1048576"},
    {kPlain, R"({"vocab_size": 16777217})", "vocab_size | 16777217 | 16777216"},
    {kPlain, R"({"rms_norm_eps": 0})"},
    {kPlain, R"({"rms_norm_eps": "1e-5"})"},
    {kPlain, R"({"rms_norm_eps": 1e300})"},
    {kPlain, R"({"num_attention_heads": 1048576})"},
    {kPlain, R"({"num_key_value_heads": 1048576})"},
    {kPlain, R"({"eos_token_id": 2147483648})"},
    {kPlain, R"({"eos_token_id": [1, 1099511627776]})"},
    {kPlain, R"({"tie_word_embeddings": 1})"},
    {kPlain, R"({"dtype": "float8_e4m3fn"})", "dtype | float8_e4m3fn"},
    {kPlain, R"({"hidden_act": "relu"})"},
    {kPlain, R"({"bos_token_id": [1, 2]})", "bos_token_id | [1,2]"},
    {kPlain, R"({"bos_token_id": 1.5})"},
    {kPlain, R"({"eos_token_id": [1, "x"]})"},
    {kPlain, R"({"architectures": "LlamaForCausalLM"})"},
    {"gemma", R"({"hidden_act": "relu"})", "hidden_act | relu | silu"},
    {"gemma2", R"({"attn_logit_softcapping": -1})"},
    {"smollm3", R"({"no_rope_layers": [1, 1]})", "no_rope_layers | 4"},
    {"granite", R"({"logits_scaling": 0})"},
    {"olmo2", R"({"attention_bias": true})"},
    {"internlm2", R"({"bias": true})"},
    {"internlm2", R"({"bias": "absent"})", "bias"},
    {"mpt", R"({"no_bias": false})"},
    {"mpt", R"({"expansion_ratio": 2})"},
    {"mpt", R"({"attn_config": {"qk_ln": true}})", "attn_config.qk_ln"},
    {"mpt", R"({"attn_config": {"prefix_lm": true}})", "attn_config.prefix_lm"},
    {"mpt", R"({"attn_config": {"alibi": false}})", "attn_config.alibi"},
    {"mpt", R"({"attn_config": {"attn_type": "multiquery_attention"}})", "attn_type"},
    {"mixtral", R"({"num_experts_per_tok": 1000})"},
    {"mixtral", R"({"num_local_experts": 100000})"},
    {"deepseek_v2", R"({"norm_topk_prob": true})"},
    {"deepseek_v2", R"({"attention_bias": true})"},
    {"deepseek_v2", R"({"topk_method": "best"})"},
    {"deepseek_v2", R"({"scoring_func": "sigmoid"})"},
    {"deepseek_v2", R"({"kv_lora_rank": 1020})"},
    {"deepseek_v2", R"({"moe_intermediate_size": 16777216})"},
    {"deepseek_v3", R"({"n_group": 5})"},
    {"deepseek_v3", R"({"moe_layer_freq": 2})"},
    {"deepseek_v3",
     R"({"num_attention_heads": 65536, "num_key_value_heads": 65536, "num_hidden_layers": 10000})",
     "num_hidden_layers | 10000 | 262144"},
    {"minicpm3", R"({"v_head_dim": "absent", "num_attention_heads": 64})", "num_attention_heads"},
    // Windows.
    {"MistralForCausalLM", R"({"sliding_window": 0})"},
    {"qwen3", R"({"use_sliding_window": false})", "layer_types"},
    {kGqa, R"({"layer_types": ["full_attention", "sliding_attention"]})"},
    {kPlain, R"({"num_hidden_layers": 2, "layer_types": ["full_attention", "sliding_attention"]})",
     "layer_types"},
    {"qwen3", R"({"layer_types": ["full_attention"]})", "layer_types | full_attention"},
    {"qwen3", R"({"layer_types": ["full_attention", "chunked_attention"]})", "chunked_attention"},
    // Names of architectures.
    {"GPT2LMHeadModel", "{}", "architectures | GPT2LMHeadModel"},
    {"LlamaForCasualLM", "{}", "architectures | LlamaForCasualLM | LlamaForCausalLM"},
    {"MixtralForCausaLM", "{}", "MixtralForCausalLM"},
    {"llama", "{}", "LlamaForCausalLM"},
    {"BaichuanForCausalLM", "{}", "BaiChuanForCausalLM"},
    {"Gemma3nForConditionalGeneration", "{}", "Gemma3ForCausalLM"},
    {"Qwen2_5_VlForConditionalGeneration", "{}", "Qwen2_5_VLForConditionalGeneration"},
    {"OrionForCausalLM", "{}", "architectures"},
    {"BertModel", "{}", "architectures"},
    {"ForCausalLM", "{}", "architectures"},
    {"", R"({"architectures": "absent"})", "architectures"},
    {"", R"({"architectures": "absent", "model_type": "gpt2"})", "model_type | gpt2"},
    {"", R"({"architectures": "absent", "model_type": "qwen_3"})", "model_type | qwen_3 | qwen3"},
    {kGqa, R"({"model_type": "qwen2"})", "model_type | qwen2 | architectures | LlamaForCausalLM"},
    {kPlain, R"({"model_type": "mistral"})",
     "model_type | mistral | architectures | LlamaForCausalLM | MistralForCausalLM | llama"},
    {"DeepseekV3ForCausalLM", R"({"model_type": "kimi_k2"})",
     "model_type | kimi_k2 | architectures | DeepseekV3ForCausalLM | deepseek_v3"},
    {"llava", R"({"model_type": "mystery"})", "text_config.model_type | mystery"},
    {"llava", R"({"model_type": "mistrall"})", "text_config.model_type | mistrall | mistral"},
    {"llava", R"({"model_type": "absent", "architectures": "absent"})", "text_config.model_type"},
};

TEST(Refusals, NameFileKeyAndValue) {
  for (const Refusal& row : kRefusals) expect_refused(row);
}

TEST(Refusals, EveryNumberIsBounded) {
  for (const std::string key :
       {"vocab_size", "hidden_size", "intermediate_size", "num_hidden_layers", "num_attention_heads",
        "num_key_value_heads", "head_dim", "max_position_embeddings"}) {
    for (const char* bad : {"0", "-1", "1.5", "\"4\"", "true", "[]", "9223372036854775807",
                            "-9223372036854775808", "18446744073709551615", "1e300"})
      expect_refused({kPlain, ("{\"" + key + "\": " + bad + "}").c_str()});
  }
}

// A quantised checkpoint with an image part says so at the top.
TEST(Refusals, OfWhatStandsAtTheTopOfATextPart) {
  json quantised = config_of("llava");
  quantised["quantization_config"] = {{"quant_method", "aqlm"}};
  EXPECT_FALSE(answer(quantised).spec);
  json tied = config_of("llava");
  tied["tie_word_embeddings"] = "yes";
  expect_line(answer(tied).error, "config.json", "tie_word_embeddings | yes");
}

}  // namespace
}  // namespace lariat::test
