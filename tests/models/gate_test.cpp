// Nothing that changes a model's result passes in silence: tiny checkpoints are changed in one place each,
// and every change is equal to what transformers 5.23 makes of it, or an error, or a warning.
#include "models/families/gate.h"

#include <fmt/format.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <cstring>
#include <fstream>
#include <nlohmann/json.hpp>

#include "kernels/cpu/cpu_backend.h"
#include "kernels/error.h"
#include "kernels/quant.h"
#include "models/config.h"
#include "models/io/json_file.h"
#include "models/model.h"

namespace lariat::gate_test {
namespace {

using nlohmann::json;
namespace fs = std::filesystem;

const fs::path kCheckpoints = fs::path(LARIAT_SOURCE_DIR) / "tests" / "golden" / "checkpoints";

// What of a checkpoint reaches the computation.
std::string fingerprint(const Model& model) {
  const ModelSpec& s = model.spec;
  std::string text = fmt::format("{} {} {} {} {} {} {}", s.family, s.vocab_size, s.hidden_size, s.norm_eps,
                                 s.tie_word_embeddings, s.bos_token_id.value_or(-1), s.eos_token_ids.size());
  for (const LayerSpec& layer : s.layers) {
    const AttentionSpec& a = layer.attention;
    const FeedForwardSpec& f = layer.feed_forward;
    text += fmt::format(" | {} {} {} {} {} {} {} {} {} {} {} {}", a.n_heads, a.n_kv_heads, a.head_dim,
                        a.qkv_bias, a.o_bias, static_cast<int>(a.qk_norm), static_cast<int>(a.rope), a.scale,
                        a.sliding_window, f.intermediate_size, static_cast<int>(f.activation), f.bias);
  }
  for (const double length : {1.0, 100.0, 5000.0}) {
    const RopeFrequencies f = rope_frequencies(s.rope(), length);
    text += fmt::format(" | {}", f.attention_factor);
    for (const double frequency : f.inv_freq) text += fmt::format(" {}", frequency);
  }
  text += s.rope().interleaved ? " | interleaved" : "";
  for (const Matrix* m : {&model.weights.embed, &model.weights.head.blocks[0].w}) {
    const std::string_view bytes(static_cast<const char*>(m->data), stored_bytes(*m));
    text += fmt::format(" | {}", std::hash<std::string_view>()(bytes));
  }
  return text;
}

enum class Outcome { kEqual, kRefused, kWarned };

struct Mutation {
  std::string base;
  json set = json::object();  // keys of config.json
  std::vector<std::string> erase{};
  // Tensors: added with ones, taken out, or written again under another name.
  std::vector<std::pair<std::string, std::vector<int64_t>>> add{};
  std::vector<std::pair<std::string, std::string>> copy{};  // from, to
  std::vector<std::string> remove{};
  Outcome outcome = Outcome::kRefused;
  std::string part{};  // of the line
};

class Gate : public testing::Test {
 protected:
  Gate()
      : dir_(fs::temp_directory_path() / ("lariat_gate_" + std::to_string(getpid()) +
                                          testing::UnitTest::GetInstance()->current_test_info()->name())) {
    fs::create_directories(dir_);
  }
  ~Gate() override {
    std::error_code ec;
    fs::remove_all(dir_, ec);
  }

  void write_config(const Mutation& m) const {
    json config = json::parse(read_file(kCheckpoints / m.base / "config.json", 1 << 20));
    config.update(m.set);
    for (const std::string& key : m.erase) config.erase(key);
    std::ofstream(dir_ / "config.json") << config.dump();
  }

  void write_weights(const Mutation& m) const {
    const std::string file = read_file(kCheckpoints / m.base / "model.safetensors", 1 << 24);
    uint64_t length = 0;
    std::memcpy(&length, file.data(), sizeof length);
    json header = json::parse(file.substr(8, length));
    std::string data = file.substr(8 + length);
    const auto append = [&](const std::string& name, json entry, const std::string& bytes) {
      entry["data_offsets"] = {data.size(), data.size() + bytes.size()};
      header[name] = entry;
      data += bytes;
    };
    for (const auto& [from, to] : m.copy) {
      const json entry = header.at(from);
      const size_t begin = entry["data_offsets"][0], end = entry["data_offsets"][1];
      append(to, entry, data.substr(begin, end - begin));
    }
    for (const auto& [name, shape] : m.add) {
      int64_t count = 1;
      for (const int64_t size : shape) count *= size;
      const std::vector<float> ones(static_cast<size_t>(count), 1.0F);
      append(name, {{"dtype", "F32"}, {"shape", shape}},
             std::string(reinterpret_cast<const char*>(ones.data()), ones.size() * sizeof(float)));
    }
    for (const std::string& name : m.remove) {
      ASSERT_TRUE(header.contains(name)) << name;
      header.erase(name);
    }
    const std::string text = header.dump();
    length = text.size();
    // What a removed tensor leaves stays: only bytes behind the last one would be an error.
    std::ofstream(dir_ / "model.safetensors", std::ios::binary)
        << std::string(reinterpret_cast<const char*>(&length), 8) << text << data;
  }

  Model load(const Mutation& m) {
    write_config(m);
    write_weights(m);
    return load_model(dir_, load_config(dir_), backend_, std::nullopt);
  }

  std::string base_fingerprint(const std::string& name) {
    const fs::path dir = kCheckpoints / name;
    return fingerprint(load_model(dir, load_config(dir), backend_, std::nullopt));
  }

  void check(const Mutation& m) {
    SCOPED_TRACE(m.base + " " + m.set.dump() + " " + (m.add.empty() ? "" : m.add[0].first) + " " + m.part);
    std::string error;
    std::vector<std::string> warnings;
    std::string changed;
    try {
      const Model model = load(m);
      warnings = model.spec.warnings;
      changed = fingerprint(model);
    } catch (const Error& e) {
      error = e.what();
    }
    if (m.outcome == Outcome::kRefused) {
      EXPECT_NE(error.find(m.part), std::string::npos) << error;
      EXPECT_EQ(error.find((dir_ / "").string()), 0U) << "does not begin with the file: " << error;
      EXPECT_EQ(error.find('\n'), std::string::npos) << error;
      return;
    }
    EXPECT_EQ(error, "");
    if (m.outcome == Outcome::kEqual) {
      EXPECT_EQ(warnings, std::vector<std::string>{});
      EXPECT_EQ(changed, base_fingerprint(m.base));
      return;
    }
    ASSERT_EQ(warnings.size(), 1U);
    EXPECT_NE(warnings[0].find(m.part), std::string::npos) << warnings[0];
    EXPECT_EQ(warnings[0].find((dir_ / "").string()), 0U) << warnings[0];
  }

  fs::path dir_;
  CpuBackend backend_{1};
};

const std::string kLlama = "llama_gqa", kTied = "llama_mqa_tied", kBias = "llama_bias", kQwen2 = "qwen2",
                  kQwen3 = "qwen3", kMiniMind = "minimind", kMistral = "mistral_window",
                  kYarn = "qwen3_yarn_tied";

Mutation refused(std::string base, json set, std::string part = "") {
  if (part.empty()) part = "\"" + set.begin().key() + "\" is ";
  return {
      .base = std::move(base), .set = std::move(set), .outcome = Outcome::kRefused, .part = std::move(part)};
}
Mutation warned(std::string base, json set, std::string part) {
  return {
      .base = std::move(base), .set = std::move(set), .outcome = Outcome::kWarned, .part = std::move(part)};
}
Mutation equal(std::string base, json set) {
  return {.base = std::move(base), .set = std::move(set), .outcome = Outcome::kEqual};
}
Mutation tensor(std::string base, const std::string& name, std::vector<int64_t> shape,
                const std::string& part) {
  return {.base = std::move(base),
          .add = {{name, std::move(shape)}},
          .outcome = Outcome::kRefused,
          .part = "model.safetensors: tensor '" + name + "' " + part};
}

// A rope_parameters object of llama_gqa with one member more.
json rope(const char* key, const json& value) {
  return {{"rope_parameters", {{"rope_theta", 1e4}, {"rope_type", "default"}, {key, value}}}};
}
json yarn(const json& more) {
  json object = {
      {"rope_theta", 1e4}, {"rope_type", "yarn"}, {"factor", 4.0}, {"original_max_position_embeddings", 16}};
  object.update(more);
  return {{"rope_parameters", object}};
}

// Another model's settings: some of those of TheTableOfKeys, in the families that they are seen with.
std::vector<Mutation> foreign_keys() {
  return {
      refused(kLlama, {{"embedding_multiplier", 12.0}},
              "multiplies the embeddings (Granite), which lariat does not do"),
      refused(kLlama, {{"attention_multiplier", 0.0078125}}),
      refused(kLlama, {{"logits_scaling", 8.0}}),
      refused(kLlama, {{"scale_depth", 1.4}}),
      refused(kLlama, {{"dim_model_base", 256}}),
      refused(kQwen2, {{"attn_logit_softcapping", 50.0}}),
      refused(kLlama, {{"query_pre_attn_scalar", 256}}),
      refused(kLlama, {{"no_rope_layers", {1, 0}}}),
      refused(kQwen3, {{"num_experts", 128}}),
      refused(kMistral, {{"num_local_experts", 8}}),
      refused(kQwen3, {{"moe_intermediate_size", 768}}),
      refused(kMiniMind, {{"use_moe", true}}),
      refused(kLlama, {{"clip_qkv", 8.0}}),
      refused(kLlama, {{"alibi", true}}),
      refused(kLlama, {{"hidden_activation", "gelu_pytorch_tanh"}}),
      refused(kLlama, {{"hidden_act", "relu"}}),
      refused(kQwen2, {{"dual_chunk_attention_config", {{"chunk_size", 262144}}}}),
      refused(kLlama, {{"is_causal", false}}),
      refused(kLlama, {{"use_qk_norm", true}}),
      refused(kQwen3, {{"use_qk_norm", false}}),
      refused(kLlama, {{"quantization_config", {{"quant_method", "gptq"}, {"bits", 4}}}},
              "quantised by gptq"),
      refused(kLlama, {{"quantization", {{"group_size", 64}, {"bits", 4}}}}, "quantised by MLX"),
  };
}

std::vector<Mutation> contradictions_and_rope() {
  return {
      refused(kLlama, {{"model_type", "qwen2"}},
              "\"model_type\" is \"qwen2\"; \"architectures\" says LlamaForCausalLM"),
      refused(kQwen3, {{"use_sliding_window", false}}, "\"layer_types\" is "),
      refused(kLlama, {{"layer_types", {"full_attention", "sliding_attention"}}}),
      refused(kQwen3, {{"head_dim", nullptr}}, "\"head_dim\" is null"),
      refused(kBias, {{"rope_theta", nullptr}}, "\"rope_theta\" is null"),
      refused(kLlama, rope("llama_4_scaling_beta", 0.1), "\"rope_parameters.llama_4_scaling_beta\" is 0.1"),
      refused(kLlama, yarn({{"attn_factor", 1.5}}), "\"rope_parameters.attn_factor\" is 1.5"),
      refused(kLlama, yarn({{"extrapolation_factor", 0.5}}), "extrapolation_factor"),
      refused(kLlama, rope("alpha", 1000.0), "\"rope_parameters.alpha\" is 1000"),
      refused(kLlama, rope("short_mscale", 1.24), "\"rope_parameters.short_mscale\" is 1.24"),
      warned(kLlama, rope("unheard_of", 3),
             "\"rope_parameters.unheard_of\" is 3; no such key of RoPE is known"),
      warned(kLlama, {{"rope_interleaved", true}}, "\"rope_interleaved\" is true; heeded"),
      warned(kLlama, {{"partial_rotary_factor", 0.5}}, "\"partial_rotary_factor\" is 0.5; heeded: 8 of 16"),
      warned(kQwen2, {{"partial_rotary_factor", 0.5}}, "transformers ignores the key here"),
      warned(kLlama,
             {{"rope_parameters",
               {{"rope_theta", 1e4},
                {"rope_type", "dynamic"},
                {"factor", 2.0},
                {"original_max_position_embeddings", 32}}}},
             "dynamic scaling starts only at max_position_embeddings, 64"),
      warned(kLlama, yarn({{"factor", 0.5}}), "\"rope_parameters.factor\" is 0.5; below 1"),
  };
}

// What others heed and these families do not, and what means the same.
std::vector<Mutation> harmless_keys() {
  return {
      warned(kLlama, {{"sliding_window", 16}}, "\"sliding_window\" is 16; ignored, as in transformers"),
      warned(kMistral, {{"use_sliding_window", false}}, "\"use_sliding_window\" is false; ignored"),
      warned(kMistral, {{"attention_bias", true}}, "\"attention_bias\" is true; ignored"),
      warned(kQwen2, {{"mlp_bias", true}}, "\"mlp_bias\" is true; ignored"),
      warned(kLlama, {{"auto_map", {{"AutoModelForCausalLM", "modeling_x.XForCausalLM"}}}},
             "code that lariat never runs"),
      warned(kLlama, {{"eos_token_id", -1}}, "\"eos_token_id\" is -1; ids outside the vocabulary of 61"),
      warned(kLlama, {{"bos_token_id", 61}}, "\"bos_token_id\" is 61; ids outside"),
      equal(kLlama, {{"hidden_act", "swish"}}),
      equal(kLlama, {{"torch_dtype", "auto"}}),
      equal(kLlama, {{"pretraining_tp", 2}}),
      equal(kLlama, {{"attention_dropout", 0.5}, {"use_cache", false}}),
      equal(kLlama, {{"architectures", {"LLaMAForCausalLM"}}}),
      equal(kLlama, {{"architectures", nullptr}}),
      equal(kLlama,
            {{"embedding_multiplier", 1.0}, {"attention_multiplier", 0.25}, {"query_pre_attn_scalar", 16}}),
      equal(kLlama,
            {{"num_experts", 0}, {"clip_qkv", nullptr}, {"no_rope_layers", {1, 1}}, {"is_causal", true}}),
      equal(kQwen3, {{"use_qk_norm", true}, {"attn_logit_softcapping", nullptr}}),
      equal(kMiniMind, {{"num_experts", 8}, {"moe_intermediate_size", 99}}),
      equal(kMistral, {{"layer_types", {"sliding_attention", "sliding_attention"}}}),
      equal(kYarn, {{"max_position_embeddings", 16}}),  // below the original length, to save memory
      equal(kYarn, {{"max_window_layers", 0}, {"sliding_window", 8}}),  // use_sliding_window is false
      equal(kLlama, rope("mrope_section", {2, 3, 3})),
  };
}

std::vector<Mutation> tensor_mutations() {
  const std::string layer = "model.layers.0.";
  std::vector<Mutation> all = {
      tensor(kLlama, layer + "self_attn.q_proj.bias", {64},
             "is a bias, which is not read; if the model has biases there, set \"attention_bias\": true"),
      tensor(kLlama, layer + "self_attn.o_proj.bias", {32}, "is a bias"),
      tensor(kLlama, layer + "mlp.down_proj.bias", {32},
             "is a bias, which is not read; if the model has biases there, set \"mlp_bias\""),
      tensor(kQwen2, layer + "self_attn.o_proj.bias", {32},
             "is a bias, which is not read: the weights are not those of a Qwen2ForCausalLM"),
      tensor(kMistral, layer + "self_attn.q_proj.bias", {32}, "is a bias"),
      tensor(kLlama, layer + "self_attn.q_norm.weight", {16}, "normalises heads of q"),
      tensor(kLlama, layer + "self_attn.k_norm.weight", {16}, "normalises heads of k"),
      tensor(kLlama, layer + "post_feedforward_layernorm.weight", {32}, "is a norm around the feed-forward"),
      tensor(kLlama, layer + "self_attn.sinks", {4}, "holds attention sinks"),
      tensor(kLlama, "lm_head.bias", {61}, "is a bias of the logits"),
      tensor(kLlama, "model.layers.2.input_layernorm.weight", {32},
             "is of a layer beyond \"num_hidden_layers\", 2"),
      tensor(kLlama, layer + "self_attn.q_proj.lora_A.weight", {4, 32}, "belongs to a LoRA adapter"),
      tensor(kLlama, layer + "self_attn.q_proj.weight_scale", {64}, "belongs to quantised weights"),
      tensor(kLlama, layer + "self_attn.q_proj.qweight", {4, 64}, "belongs to quantised weights"),
      tensor(kLlama, layer + "mlp.experts.0.w1.weight", {4, 4}, "belongs to experts"),
      tensor(kMiniMind, layer + "mlp.gate.weight", {4, 32}, "chooses between experts"),
      tensor(kLlama, "score.weight", {2, 32}, "is not read: the weights are not those of a LlamaForCausalLM"),
      tensor(kLlama, "embed_positions", {64, 32}, "is not read"),
  };
  // More layers are stored than run; fewer; biases that a flag hides.
  all.push_back(refused(kLlama, {{"num_hidden_layers", 1}},
                        "tensor 'model.layers.1.input_layernorm.weight' (and 8 more) is of a layer beyond"));
  all.push_back(refused(kLlama, {{"num_hidden_layers", 3}}, "model.layers.2.input_layernorm.weight"));
  all.push_back(refused(kBias, {{"attention_bias", false}}, "set \"attention_bias\": true"));
  all.push_back(refused(kBias, {{"mlp_bias", false}}, "set \"mlp_bias\": true"));
  all.push_back(refused(
      kQwen3, {{"architectures", {"LlamaForCausalLM"}}, {"model_type", "llama"}, {"layer_types", nullptr}},
      "normalises heads"));
  // What may stand there.
  all.push_back(
      {.base = kLlama, .add = {{layer + "self_attn.rotary_emb.inv_freq", {8}}}, .outcome = Outcome::kEqual});
  all.push_back({.base = kLlama,
                 .add = {{"vision_tower.patch.weight", {4}}, {"model.visual.norm.bias", {4}}},
                 .outcome = Outcome::kWarned,
                 .part = "tensor 'model.visual.norm.bias' and 1 more belong to an image or audio part"});
  // Tied embeddings: an equal head, another one, only the head.
  const std::string embed = "model.embed_tokens.weight", head = "lm_head.weight";
  all.push_back({.base = kTied, .copy = {{embed, head}}, .outcome = Outcome::kEqual});
  all.push_back(
      {.base = kTied,
       .add = {{head, {64, 32}}},
       .outcome = Outcome::kWarned,
       .part = "tensor 'lm_head.weight' differs from 'model.embed_tokens.weight', so the two are not tied"});
  all.push_back({.base = kTied, .copy = {{embed, head}}, .remove = {embed}, .outcome = Outcome::kEqual});
  all.push_back(
      {.base = kTied, .remove = {embed}, .outcome = Outcome::kRefused, .part = "model.embed_tokens.weight"});
  return all;
}

TEST_F(Gate, EveryChangeOfAConfigIsAccountedFor) {
  size_t count = 0;
  for (const auto& part : {foreign_keys(), contradictions_and_rope(), harmless_keys()}) {
    for (const Mutation& mutation : part) check(mutation);
    count += part.size();
  }
  EXPECT_GE(count, 55U);
}

TEST_F(Gate, EveryTensorIsAccountedFor) {
  const auto all = tensor_mutations();
  EXPECT_GE(all.size(), 25U);
  for (const Mutation& mutation : all) check(mutation);
}

TEST_F(Gate, ADifferentHeadIsNotTied) {
  const Mutation other{.base = kTied, .add = {{"lm_head.weight", {64, 32}}}};
  const Model model = load(other);
  EXPECT_FALSE(model.spec.tie_word_embeddings);
  EXPECT_EQ(static_cast<const float*>(model.weights.head.blocks[0].w.data)[0], 1.0F);
  EXPECT_NE(static_cast<const float*>(model.weights.embed.data)[0], 1.0F);
}

// The words of a rule's neutral values, as JSON for llama_gqa (hidden size 32, head size 16, no head norms).
std::vector<json> neutral_values(std::string_view neutral) {
  std::vector<json> values = {nullptr, json::array(), json::object(), ""};
  for (size_t at = 0; at < neutral.size();) {
    const size_t end = std::min(neutral.find('|', at), neutral.size());
    const std::string word(neutral.substr(at, end - at));
    at = end + 1;
    if (word == "hidden_size") values.push_back(32);
    if (word == "head_dim") values.push_back(16);
    if (word == "1/sqrt(head_dim)") values.push_back(0.25);
    if (word == "qk_norm") values.push_back(false);
    if (word == "ones") values.push_back({1, 1});
    const json parsed = json::parse(word, nullptr, false);
    if (!parsed.is_discarded()) values.push_back(parsed);
    if (word == "rope" || word == "rotary") values.push_back(word);
    if (word == "activation") values.push_back("swish");
  }
  return values;
}

std::vector<json> other_values(std::string_view neutral) {
  std::vector<json> values = {12.5, -3, "other", {{"a", 1}}, {0, 1}};
  const std::vector<json> fine = neutral_values(neutral);
  for (const json& flag : {json(true), json(false)}) {
    if (std::find(fine.begin(), fine.end(), flag) == fine.end()) values.push_back(flag);
  }
  return values;
}

TEST_F(Gate, TheTableOfKeys) {
  const std::string base = base_fingerprint(kLlama);
  for (const KeyRule& rule : key_rules()) {
    const std::string key(rule.key);
    for (const json& value : neutral_values(rule.neutral)) check(equal(kLlama, {{key, value}}));
    for (const json& value : other_values(rule.neutral)) {
      check(refused(kLlama, {{key, value}}));
      const std::string what(rule.what);
      check(refused(kLlama, {{key, value}}, what + ", which lariat does not do in this architecture"));
    }
  }
  for (const KeyRule& rule : rope_key_rules()) {
    const std::string key(rule.key);
    for (const json& value : neutral_values(rule.neutral)) {
      if (!value.is_object()) check(equal(kLlama, rope(key.c_str(), value)));
    }
    for (const json& value : other_values(rule.neutral)) {
      if (!value.is_object())
        check(refused(kLlama, rope(key.c_str(), value), "\"rope_parameters." + key + "\" is "));
    }
  }
}

}  // namespace
}  // namespace lariat::gate_test
