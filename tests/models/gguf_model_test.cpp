#include "models/gguf/gguf_model.h"

#include <fmt/format.h>

#include <cmath>
#include <functional>
#include <map>
#include <numbers>

#include "models/load/config.h"
#include "models/load/weights.h"
#include "models/quantization/gguf_blocks.h"
#include "tests/models/gguf_builder.h"
#include "tests/test_util.h"

namespace lariat::test {
namespace {

using nlohmann::json;
using Builder = GgufBuilder;

const StoredTensor& named(const std::vector<StoredTensor>& tensors, const std::string& name) {
  const auto found = std::ranges::find(tensors, name, &StoredTensor::name);
  if (found == tensors.end()) throw Error("no tensor " + name);
  return *found;
}

// The tensor's elements number its rows.
std::vector<float> row_numbers(const StoredTensor& tensor) {
  const HostWeight all = tensor.rows();
  std::vector<float> values(static_cast<size_t>(all.m.rows * all.m.cols)), numbers;
  read_floats(all, 0, {values.data(), DType::kF32, all.m.rows, all.m.cols});
  for (size_t i = 0; i<values.size(); i += tensor.shape.size()> 1 ? static_cast<size_t>(all.m.cols) : 1)
    numbers.push_back(values[i]);
  return numbers;
}

TEST(GgufModel, LlamasRowsAreReordered) {
  const auto numbered = [](size_t rows, size_t cols) {
    std::string data(rows * cols * 4, '\0');
    for (size_t i = 0; i < rows * cols; ++i) {
      const auto number = static_cast<float>(i / cols);
      std::memcpy(data.data() + i * 4, &number, 4);
    }
    return data;
  };
  Builder b = small_gguf("llama");
  b.tensor("blk.1.attn_q.weight", {32, 32}, 0, numbered(32, 32));
  b.tensor("blk.1.attn_k.bias", {16}, 0, numbered(16, 1));
  b.tensor("blk.1.attn_k.weight", {32, 32}, 8, 32 * 34);
  b.tensor("blk.1.attn_v.weight", {16, 32}, 0, numbered(16, 32))
      .floats("blk.1.ffn_norm.weight", {32})
      .floats("rope_freqs.weight", {4});
  b.floats("output.weight", {64, 32}).floats("blk.1.odd.weight", {2});
  const std::string bytes = b.bytes();
  const auto tensors = gguf_tensors(parse_gguf(bytes));
  EXPECT_EQ(tensors.size(), 8U);  // without rope_freqs
  std::vector<float> halves, plain;
  for (int i = 0; i < 32; ++i) {
    halves.push_back(static_cast<float>(i / 8 * 8 + i % 4 * 2 + i / 4 % 2));
    plain.push_back(static_cast<float>(i));
  }
  EXPECT_EQ(row_numbers(named(tensors, "model.layers.1.self_attn.q_proj.weight")), halves);
  halves.resize(16);
  plain.resize(16);
  EXPECT_EQ(row_numbers(named(tensors, "model.layers.1.self_attn.k_proj.bias")), halves);
  EXPECT_EQ(row_numbers(named(tensors, "model.layers.1.self_attn.v_proj.weight")), plain);
  const StoredTensor& k = named(tensors, "model.layers.1.self_attn.k_proj.weight");
  EXPECT_EQ(k.dtype, "Q8_0");
  EXPECT_TRUE(k.quantized);
  EXPECT_FALSE(named(tensors, "model.layers.1.post_attention_layernorm.weight").reader) << "memory-mapped";
  EXPECT_EQ(named(tensors, "lm_head.weight").shape, (std::vector<int64_t>{64, 32}));
  EXPECT_EQ(named(tensors, "blk.1.odd.weight").name, "blk.1.odd.weight");
}

// All bits set: NaN scales.
TEST(GgufModel, NonFiniteScalesAreFound) {
  int found = 0;
  for (const GgufType& type : gguf_types()) {
    if (type.elements == 1) continue;
    Builder b = small_gguf("llama");
    const auto bytes = static_cast<size_t>(256 / type.elements * type.bytes);
    b.tensor("blk.0.ffn_up.weight", {1, 256}, type.id, std::string(bytes, '\xff'));
    const std::string file = b.bytes();
    Tensors tensors("m.gguf");
    const std::string error = error_of([&] {
      for (StoredTensor& tensor : gguf_tensors(parse_gguf(file))) tensors.put(std::move(tensor));
    });
    if (!error.empty()) continue;
    ++found;
    const auto bad = find_not_finite(tensors);
    ASSERT_TRUE(bad) << type.name;
    EXPECT_EQ(bad->tensor, "model.layers.0.mlp.up_proj.weight") << type.name;
  }
  EXPECT_GE(found, 11);
}

TEST(GgufModel, GemmasNormsSubtractOne) {
  const std::string bytes = small_gguf("gemma3")
                                .floats("blk.0.ffn_norm.weight", {32})
                                .floats("blk.0.attn_q_norm.weight", {8})
                                .floats("blk.0.post_attention_norm.weight", {32})
                                .floats("blk.0.post_ffw_norm.weight", {32})
                                .floats("output_norm.weight", {32})
                                .bytes();
  const auto tensors = gguf_tensors(parse_gguf(bytes));
  for (const char* name : {"layers.0.pre_feedforward_layernorm", "layers.0.self_attn.q_norm", "norm",
                           "layers.0.post_attention_layernorm", "layers.0.post_feedforward_layernorm"}) {
    for (const float value : row_numbers(named(tensors, fmt::format("model.{}.weight", name))))
      ASSERT_EQ(value, -1.0F) << name;
  }
  EXPECT_EQ(row_numbers(named(tensors, "model.embed_tokens.weight")).front(), 0.0F);
}

// Fused projections are views; stacked experts are one tensor.
TEST(GgufModel, FusedTensorsAreSplit) {
  const std::string up(2 * 4 * 2 * 34, 'u');
  const std::string bytes = small_gguf("qwen3moe")
                                .tensor("blk.0.ffn_up_exps.weight", {2, 4, 64}, 8, up)
                                .floats("blk.0.ffn_gate_up_exps.weight", {2, 6, 32})
                                .floats("blk.0.attn_qkv.weight", {64, 32})
                                .floats("blk.0.ffn_gate_inp.weight", {2, 32})
                                .bytes();
  const GgufFile file = parse_gguf(bytes);
  const auto tensors = gguf_tensors(file);
  const StoredTensor& whole = *file.tensor("blk.0.ffn_up_exps.weight");
  const auto find = [&](const std::string& name) {
    return named(tensors, "model.layers.0." + name + ".weight");
  };
  const StoredTensor stack = find("mlp.experts.up_proj"), second = find("mlp.experts.1.up_proj");
  EXPECT_EQ(stack.shape, (std::vector<int64_t>{2, 4, 64}));
  EXPECT_EQ(stack.data, whole.data);
  EXPECT_EQ(stack.reader->m.rows, 8);
  EXPECT_EQ(second.shape, (std::vector<int64_t>{3, 32}));
  EXPECT_FALSE(second.reader) << "memory-mapped floats";
  const StoredTensor gate = find("mlp.experts.1.gate_proj");
  EXPECT_EQ(gate.shape, (std::vector<int64_t>{3, 32}));
  EXPECT_EQ(gate.data, file.tensor("blk.0.ffn_gate_up_exps.weight")->data + 6 * 32 * 4);
  EXPECT_EQ(find("mlp.gate").shape, (std::vector<int64_t>{2, 32}));
  const std::byte* qkv = file.tensor("blk.0.attn_qkv.weight")->data;
  EXPECT_EQ(find("self_attn.q_proj").data, qkv);
  EXPECT_EQ(find("self_attn.k_proj").data, qkv + 32 * 32 * 4);
  EXPECT_EQ(find("self_attn.v_proj").data, qkv + 48 * 32 * 4);
  EXPECT_EQ(find("self_attn.v_proj").shape, (std::vector<int64_t>{16, 32}));
  const std::string old =
      small_gguf("llama").set("llama.expert_count", 2U).floats("blk.0.ffn_down.1.weight", {32, 64}).bytes();
  EXPECT_EQ(named(gguf_tensors(parse_gguf(old)), "model.layers.0.block_sparse_moe.experts.1.w2.weight")
                .shape.size(),
            2U);
  const std::string phi = small_gguf("phi3")
                              .floats("blk.0.attn_qkv.weight", {64, 32})
                              .floats("blk.0.ffn_up.weight", {128, 32})
                              .bytes();
  EXPECT_EQ(named(gguf_tensors(parse_gguf(phi)), "model.layers.0.self_attn.qkv_proj.weight").shape[0], 64);
  EXPECT_EQ(named(gguf_tensors(parse_gguf(phi)), "model.layers.0.mlp.gate_up_proj.weight").shape[0], 128);
}

// The file must load without warnings.
ModelSpec spec_of(const Builder& b) {
  const std::string bytes = b.bytes();
  const json config = gguf_config(parse_gguf(bytes));
  ModelSpec spec = parse_config(config.dump(), "m.gguf");
  EXPECT_EQ(spec.warnings, std::vector<std::string>()) << config.dump();
  return spec;
}

TEST(GgufModel, EveryArchitectureHasItsFamily) {
  const std::map<std::string, std::string> families = {
      {"llama", "LlamaForCausalLM"},     {"qwen2", "Qwen2ForCausalLM"},     {"qwen3", "Qwen3ForCausalLM"},
      {"gemma", "GemmaForCausalLM"},     {"gemma2", "Gemma2ForCausalLM"},   {"gemma3", "Gemma3ForCausalLM"},
      {"phi3", "Phi3ForCausalLM"},       {"granite", "GraniteForCausalLM"}, {"olmo2", "Olmo2ForCausalLM"},
      {"smollm3", "SmolLM3ForCausalLM"}, {"exaone", "LlamaForCausalLM"},    {"glm4", "Glm4ForCausalLM"},
      {"chatglm", "GlmForCausalLM"}};
  for (const auto& [arch, family] : families) {
    SCOPED_TRACE(arch);
    const ModelSpec spec = spec_of(small_gguf(arch));
    EXPECT_EQ(spec.family, family);
    EXPECT_EQ(spec.vocab_size, 64);
    EXPECT_EQ(spec.hidden_size, 32);
    EXPECT_EQ(spec.layers.size(), 2U);
    EXPECT_EQ(spec.layers[0].attention.n_heads, 4);
    EXPECT_EQ(spec.layers[0].attention.n_kv_heads, 2);
    EXPECT_EQ(spec.layers[0].attention.head_dim, 8);
    EXPECT_FLOAT_EQ(spec.layers[0].attention.scale, 1.0F / std::sqrt(8.0F));
    EXPECT_EQ(spec.layers[0].feed_forward.intermediate_size, 64);
    EXPECT_EQ(spec.max_position_embeddings, 128);
    EXPECT_EQ(spec.norm_eps, 1e-5F);
    EXPECT_TRUE(spec.tie_word_embeddings);
    EXPECT_EQ(spec.bos_token_id, std::nullopt);
    EXPECT_EQ(spec.eos_token_ids, std::vector<int32_t>());
    EXPECT_EQ(spec.dtype, DType::kF32);
  }
  EXPECT_EQ(spec_of(small_gguf("llama").set("llama.attention.sliding_window", 16U)).family,
            "MistralForCausalLM");
  EXPECT_EQ(spec_of(small_gguf("olmo2").set("olmo2.attention.sliding_window", 16U)).family,
            "Olmo3ForCausalLM");
}

TEST(GgufModel, ConfigsOfEveryKey) {
  const ModelSpec head = spec_of(small_gguf("llama")
                                     .floats("output.weight", {64, 32})
                                     .floats("blk.0.attn_output.bias", {32})
                                     .set("tokenizer.ggml.tokens", std::vector<std::string>(64, "t"))
                                     .set("tokenizer.ggml.bos_token_id", 5U)
                                     .set("tokenizer.ggml.eos_token_id", 9U)
                                     .set("tokenizer.ggml.eot_token_id", 7U)
                                     .set("tokenizer.ggml.eom_token_id", 64U));  // ignored: no such token
  EXPECT_FALSE(head.tie_word_embeddings);
  EXPECT_TRUE(head.layers[0].attention.o_bias);
  EXPECT_EQ(head.bos_token_id, 5);
  EXPECT_EQ(head.eos_token_ids, (std::vector<int32_t>{7, 9}));
  const ModelSpec granite = spec_of(small_gguf("granite")
                                        .set("granite.attention.scale", 0.25F)
                                        .set("granite.embedding_scale", 12.0F)
                                        .set("granite.residual_scale", 0.22F)
                                        .set("granite.logit_scale", 8.0F));
  EXPECT_EQ(granite.layers[0].attention.scale, 0.25F);
  EXPECT_EQ(granite.embedding_multiplier, 12.0F);
  EXPECT_EQ(granite.layers[0].residual_multiplier, 0.22F);
  EXPECT_EQ(granite.logits_multiplier, 0.125F);
  const ModelSpec gemma =
      spec_of(small_gguf("gemma3")
                  .set("gemma3.attention.sliding_window", 16U)
                  .array("gemma3.attention.sliding_window_pattern", 7, 2, std::string("\0\1", 2))
                  .set("gemma3.rope.scaling.factor", 8.0F));
  EXPECT_EQ(gemma.layers[0].attention.sliding_window, 0);
  EXPECT_EQ(gemma.layers[1].attention.sliding_window, 16);
  EXPECT_EQ(gemma.ropes[0].factor, 8.0);
  EXPECT_EQ(gemma.ropes[1].type, RopeType::kDefault);
  const ModelSpec moe = spec_of(small_gguf("qwen3moe")
                                    .set("qwen3moe.expert_count", 8U)
                                    .set("qwen3moe.expert_used_count", 2U)
                                    .set("qwen3moe.expert_feed_forward_length", 16U));
  EXPECT_EQ(moe.layers[1].feed_forward.experts.n, 8);
  EXPECT_EQ(moe.layers[1].feed_forward.experts.intermediate_size, 16);
  EXPECT_TRUE(moe.layers[1].feed_forward.experts.router.normalise);
  const ModelSpec mixtral =
      spec_of(small_gguf("llama").set("llama.expert_count", 4U).set("llama.expert_used_count", 2U));
  EXPECT_EQ(mixtral.family, "MixtralForCausalLM");
  EXPECT_EQ(mixtral.layers[0].feed_forward.experts.n, 4);
}

Builder deepseek(uint32_t gating) {
  const std::string arch = "deepseek2.";
  Builder b = small_gguf("deepseek2");
  for (const auto& [key, value] :
       {std::pair("attention.key_length", 20U), std::pair("attention.value_length", 16U),
        std::pair("attention.key_length_mla", 12U), std::pair("attention.value_length_mla", 6U),
        std::pair("attention.kv_lora_rank", 16U), std::pair("rope.dimension_count", 4U),
        std::pair("expert_count", 8U), std::pair("expert_used_count", 2U),
        std::pair("expert_feed_forward_length", 16U), std::pair("expert_shared_count", 1U),
        std::pair("leading_dense_block_count", 1U), std::pair("expert_gating_func", gating),
        std::pair("expert_group_count", 4U), std::pair("expert_group_used_count", 2U)})
    b.set(arch + key, value);
  return b.set("deepseek2.expert_weights_scale", 2.5F).set("deepseek2.expert_weights_norm", gating == 2);
}

// block_count includes layers of multi-token prediction.
TEST(GgufModel, LayersOfPredictionDoNotRun) {
  const ModelSpec spec = spec_of(small_gguf("glm4moe")
                                     .set("glm4moe.nextn_predict_layers", 1U)
                                     .set("glm4moe.expert_count", 8U)
                                     .set("glm4moe.expert_used_count", 2U));
  EXPECT_EQ(spec.layers.size(), 1U);
  EXPECT_EQ(spec.n_unread_layers, 1);
}

// A file of GLM-4.7-Flash says nothing about its gates; the correction of the choice does.
TEST(GgufModel, ACorrectionMeansSigmoids) {
  Builder b = deepseek(1);
  const size_t at = b.pairs.find("deepseek2.expert_gating_func");
  b.pairs[at] = 'x';
  EXPECT_EQ(spec_of(Builder(b)).family, "DeepseekV2ForCausalLM");
  const ModelSpec spec = spec_of(b.floats("blk.1.exp_probs_b.bias", {8}));
  EXPECT_EQ(spec.family, "DeepseekV3ForCausalLM");
  EXPECT_TRUE(spec.layers[1].feed_forward.experts.router.sigmoid);
}

// Files before 2024-12 have none of MiniCPM's multipliers.
TEST(GgufModel, OldMiniCpmHasThePublishedMultipliers) {
  const ModelSpec spec = spec_of(small_gguf("minicpm"));
  EXPECT_EQ(spec.embedding_multiplier, 12.0F);
  EXPECT_FLOAT_EQ(spec.layers[0].residual_multiplier, 1.4F / std::sqrt(2.0F));
  EXPECT_EQ(spec.logits_multiplier, 8.0F);  // 256 / 32
}

// ChatGLM's converter keeps one projection for q, k and v.
TEST(GgufModel, FusedBiasesAreFound) {
  EXPECT_TRUE(
      spec_of(small_gguf("chatglm").floats("blk.0.attn_qkv.bias", {64})).layers[0].attention.qkv_bias);
}

TEST(GgufModel, Deepseek) {
  for (const uint32_t gating : {1U, 2U}) {
    const ModelSpec spec = spec_of(deepseek(gating));
    EXPECT_EQ(spec.family, gating == 1 ? "DeepseekV2ForCausalLM" : "DeepseekV3ForCausalLM");
    const LatentSpec& latent = spec.layers[0].attention.latent;
    EXPECT_EQ(latent.kv_rank, 16);
    EXPECT_EQ(latent.rope_dim, 4);
    EXPECT_EQ(latent.nope_dim, 8);
    EXPECT_EQ(latent.v_dim, 6);
    EXPECT_EQ(latent.q_rank, 0);
    EXPECT_EQ(spec.layers[0].feed_forward.experts.n, 0);
    const ExpertsSpec& experts = spec.layers[1].feed_forward.experts;
    EXPECT_EQ(experts.n, 8);
    EXPECT_EQ(experts.router.n_groups, 4);
    EXPECT_EQ(experts.router.kept_groups, 2);
    EXPECT_EQ(experts.router.scale, 2.5F);
    EXPECT_EQ(experts.router.sigmoid, gating == 2);
  }
  const std::string bytes = deepseek(1).floats("blk.0.attn_k_b.weight", {4, 16, 8}).bytes();
  EXPECT_EQ(named(gguf_tensors(parse_gguf(bytes)), "model.layers.0.self_attn.k_b_proj.weight").shape,
            (std::vector<int64_t>{4 * 16, 8}));
}

TEST(GgufModel, RopeScaling) {
  const auto rope = [](const std::function<void(Builder&)>& change) {
    Builder b = small_gguf("llama");
    change(b);
    return spec_of(b).rope();
  };
  const auto freqs = [](Builder& b, const std::vector<float>& divisors) {
    std::string data;
    for (const float value : divisors) Builder::put(data, value);
    b.tensor("rope_freqs.weight", {divisors.size()}, 0, data);
  };
  EXPECT_EQ(rope([](Builder& b) { b.set("llama.rope.scaling.factor", 4.0F); }).type, RopeType::kLinear);
  EXPECT_EQ(rope([](Builder& b) { b.set("llama.rope.scale_linear", 4.0F); }).factor, 4.0);
  EXPECT_EQ(rope([](Builder& b) {
              b.set("llama.rope.scaling.factor", 4.0F).set("llama.rope.scaling.type", "none");
            }).type,
            RopeType::kDefault);
  const RopeScaling yarn = rope([](Builder& b) {
    b.set("llama.rope.scaling.type", "yarn").set("llama.rope.scaling.factor", 4.0F);
    b.set("llama.rope.scaling.original_context_length", 32U).set("llama.rope.scaling.yarn_beta_fast", 16.0F);
  });
  EXPECT_EQ(yarn.type, RopeType::kYarn);
  EXPECT_EQ(yarn.original_ctx, 32);
  EXPECT_EQ(yarn.beta_fast, 16.0);
  // Llama 3's factors of four frequencies, and invalid ones.
  std::vector<float> divisors;
  for (int i = 0; i < 4; ++i) {
    const double turns = 8192.0 * std::pow(5e5, -i / 4.0) / (2 * std::numbers::pi);
    const double smooth = std::clamp((turns - 1) / 3, 0.0, 1.0);
    divisors.push_back(static_cast<float>(1 / ((1 - smooth) / 32 + smooth)));
  }
  Builder llama3 = small_gguf("llama");
  EXPECT_EQ(rope([&](Builder& b) {
              freqs(b, {1.0F, 2.0F, 3.0F, 8.0F});
            }).long_factor,
            (std::vector<double>{1.0, 2.0, 3.0, 8.0}));
  const RopeScaling odd = rope([&](Builder& b) { freqs(b, {1.0F, 2.0F, 3.0F, 8.0F}); });
  EXPECT_EQ(odd.type, RopeType::kLongRope);
  EXPECT_EQ(odd.long_factor, (std::vector<double>{1.0, 2.0, 3.0, 8.0}));
  EXPECT_EQ(odd.short_factor, odd.long_factor);
  EXPECT_EQ(odd.attention_factor, 1.0);
  Builder b = small_gguf("qwen2");  // another base
  const std::string base = "qwen2.rope.freq_base";
  b.pairs.replace(b.pairs.find(base) + base.size() + 4, 4, std::string("\0\x24\xF4\x48", 4));  // 500000
  freqs(b, divisors);
  const RopeScaling found = spec_of(b).rope();
  EXPECT_EQ(found.theta, 5e5);
  EXPECT_EQ(found.type, RopeType::kLlama3);
  EXPECT_EQ(found.factor, 32.0);
  const std::pair<const char*, std::function<void(Builder&)>> bad[] = {
      {"rope_freqs.weight",
       [&](Builder& c) {
         freqs(c, {1.0F, 0.0F, 1.0F, 1.0F});
       }},
      {"m.gguf | 2 | 4",
       [&](Builder& c) {
         freqs(c, {1.0F, 2.0F});
       }},
      {"llama.rope.scaling.type | rope_freqs.weight",
       [&](Builder& c) { freqs(c, divisors), c.set("llama.rope.scaling.factor", 2.0F); }},
      {"llama.rope.scaling.type | none, linear, yarn",
       [](Builder& c) { c.set("llama.rope.scaling.factor", 2.0F).set("llama.rope.scaling.type", "su"); }}};
  for (const auto& each : bad) EXPECT_TRUE(names(error_of([&] { rope(each.second); }), each.first));
}

TEST(GgufModel, PhiHasTwoListsOfFactors) {
  Builder b = small_gguf("phi3");
  std::string data;
  for (const float value : {1.0F, 2.0F, 3.0F, 4.0F}) Builder::put(data, value);
  b.tensor("rope_factors_long.weight", {4}, 0, data).floats("rope_factors_short.weight", {4});
  std::fill(b.data.end() - 32, b.data.end(), '\x3F');
  const RopeScaling rope =
      spec_of(
          b.set("phi3.rope.scaling.original_context_length", 32U).set("phi3.rope.scaling.attn_factor", 1.19F))
          .rope();
  EXPECT_EQ(rope.type, RopeType::kLongRope);
  EXPECT_EQ(rope.original_ctx, 32);
  EXPECT_EQ(rope.long_factor, (std::vector<double>{1, 2, 3, 4}));
  EXPECT_EQ(rope.attention_factor, 1.19);
}

TEST(GgufModel, ValuesMissingFromConfigs) {
  const auto error = [](const std::string& arch, const std::function<void(Builder&)>& change) {
    Builder b = small_gguf(arch);
    change(b);
    return error_of([&] { spec_of(b); });
  };
  const auto nothing = [](Builder&) {};
  EXPECT_TRUE(names(error("mamba", nothing), "general.architecture | mamba | llama"));
  const auto layers = [](Builder& b) { b.set("qwen2.expert_count", std::vector<int32_t>{1, 2}); };
  EXPECT_TRUE(names(error("qwen2", layers), "qwen2.expert_count"));
  const auto values = [](Builder& b) { b.set("llama.attention.value_length", 16U); };
  EXPECT_TRUE(names(error("llama", values), "llama.attention.value_length"));
  EXPECT_TRUE(names(error("llama", [](Builder& b) { b.set("llama.attention.key_length", 0U); }),
                    "llama.attention.key_length | 0"));
  EXPECT_TRUE(
      names(error("llama", [](Builder& b) { b.set("llama.logit_scale", 2.0F); }), "logits_scaling | 2.0"));
  Builder none;
  EXPECT_TRUE(names(error_of([&] { spec_of(none); }), "general.architecture"));
}

}  // namespace
}  // namespace lariat::test
