// Any change of a tiny checkpoint's tensors, or of listed keys, gives transformers 5.23's result, an error or
// a warning.
#include "models/spec/gate.h"

#include "kernels/cpu/cpu_backend.h"
#include "kernels/quant.h"
#include "models/files/safetensors.h"
#include "models/load/model.h"
#include "tests/models/config_cases.h"
#include "tests/models/tokenizer_test_util.h"

namespace lariat::test {
namespace {

enum class Outcome { kEqual, kRefused, kWarned };

// Changes config keys; adds a tensor of equal values, copies one, removes one.
struct Change {
  const char *base, *config = "{}";
  std::vector<std::pair<std::string, std::vector<int64_t>>> add{};
  std::pair<const char*, const char*> copy{};  // from, to
  const char* remove = nullptr;
  float value = 1;  // of the added tensor
  Outcome outcome = Outcome::kRefused;
  const char* words = "";  // in the message
};

void write_changed_weights(const Change& c, const std::filesystem::path& dir) {
  const Tensors base = open_safetensors(golden_file(std::string("checkpoints/") + c.base));
  std::vector<NamedShape> shapes;
  std::vector<std::span<const std::byte>> data;
  std::vector<std::vector<float>> ones;
  for (const auto& [name, tensor] : base.all()) {
    for (const char* kept : {c.remove && name == c.remove ? nullptr : name.c_str(),
                             c.copy.first && name == c.copy.first ? c.copy.second : nullptr}) {
      if (kept == nullptr) continue;
      shapes.push_back({kept, tensor.shape, tensor.dtype});
      data.emplace_back(tensor.data, tensor.bytes);
    }
  }
  for (const auto& [name, shape] : c.add) {
    size_t count = 1;
    for (const int64_t size : shape) count *= static_cast<size_t>(size);
    shapes.push_back({name, shape});
    data.push_back(std::as_bytes(std::span(ones.emplace_back(count, c.value))));
  }
  SafetensorsWriter writer(dir / "model.safetensors", shapes);
  for (const auto bytes : data) writer.append(bytes);
  writer.finish();
}

// The spec, and the bytes of embedding and head.
std::string fingerprint(const Model& model) {
  std::string all = described(model.spec);
  for (const Matrix* m : {&model.weights.embed.m, &model.weights.head.blocks[0].w}) {
    const std::string_view bytes(static_cast<const char*>(m->data), stored_bytes(*m));
    all += std::to_string(std::hash<std::string_view>()(bytes)) + "\n";
  }
  return all;
}

Model load(const std::filesystem::path& dir, Backend& backend) {
  return load_model(dir, load_config(dir), backend, std::nullopt);
}

void check(const Change& c) {
  SCOPED_TRACE(std::string(c.base) + " " + c.config + " " + (c.add.empty() ? "" : c.add[0].first) + c.words);
  CpuBackend backend(1);
  const TempFolder dir;
  dir.put("config.json", changed(config_of(c.base), json::parse(c.config)).dump());
  write_changed_weights(c, dir.path);
  const std::string file = dir.path.string() + "/";
  try {
    const Model model = load(dir.path, backend);
    EXPECT_NE(c.outcome, Outcome::kRefused);
    if (c.outcome == Outcome::kWarned) {
      ASSERT_EQ(model.spec.warnings.size(), 1U);
      EXPECT_EQ(model.spec.warnings[0].find(file), 0U) << model.spec.warnings[0];
      EXPECT_TRUE(names(model.spec.warnings[0], c.words));
    } else {
      EXPECT_EQ(model.spec.warnings, std::vector<std::string>{});
      EXPECT_EQ(fingerprint(model),
                fingerprint(load(golden_file(std::string("checkpoints/") + c.base), backend)));
    }
  } catch (const Error& e) {
    const std::string what = e.what();
    EXPECT_EQ(c.outcome, Outcome::kRefused) << what;
    EXPECT_TRUE(names(what, c.words));
    EXPECT_EQ(what.find(file), 0U) << "does not begin with the file: " << what;
    EXPECT_EQ(what.find('\n'), std::string::npos) << what;
  }
}

#define LAYER "model.layers.0."
constexpr const char *kLlama = "llama_gqa", *kTied = "llama_mqa_tied", *kBias = "llama_bias";
constexpr const char *kEmbed = "model.embed_tokens.weight", *kHead = "lm_head.weight";

struct Added {
  const char *base, *name;
  std::vector<int64_t> shape;
  std::string words{};
};

const Added kAdded[] = {
    {kLlama, LAYER "self_attn.q_proj.bias", {64}, "attention_bias"},
    {kLlama, LAYER "self_attn.o_proj.bias", {32}},
    {kLlama, LAYER "mlp.down_proj.bias", {32}, "mlp_bias"},
    {"qwen2", LAYER "self_attn.o_proj.bias", {32}, "Qwen2ForCausalLM"},
    {"mistral_window", LAYER "self_attn.q_proj.bias", {32}},
    {kLlama, LAYER "self_attn.q_norm.weight", {16}},
    {kLlama, LAYER "self_attn.k_norm.weight", {16}},
    {kLlama, LAYER "post_feedforward_layernorm.weight", {32}},
    {kLlama, LAYER "self_attn.sinks", {4}},
    {kLlama, "lm_head.bias", {61}},
    {kLlama, "model.layers.2.input_layernorm.weight", {32}, "num_hidden_layers | 2"},
    {kLlama, LAYER "self_attn.q_proj.lora_A.weight", {4, 32}, "LoRA"},
    {kLlama, LAYER "self_attn.q_proj.weight_scale", {64}},
    {kLlama, LAYER "self_attn.q_proj.qweight", {4, 64}},
    {kLlama, LAYER "mlp.experts.down_proj_blocks", {4, 64}},
    {kLlama, LAYER "mlp.experts.0.w1.weight", {4, 4}},
    {"minimind", LAYER "mlp.gate.weight", {4, 32}},
    {kLlama, "score.weight", {2, 32}, "LlamaForCausalLM"},
    {kLlama, "embed_positions", {64, 32}},
};

const Change kChanges[] = {
    // Too many stored layers; too few; biases that a flag disables.
    {.base = kLlama,
     .config = R"({"num_hidden_layers": 1})",
     .words = "model.layers.1.input_layernorm.weight | 8 | num_hidden_layers | 1"},
    {.base = kLlama,
     .config = R"({"num_hidden_layers": 3})",
     .words = "model.layers.2.input_layernorm.weight"},
    {.base = kBias, .config = R"({"attention_bias": false})", .words = "attention_bias | true"},
    {.base = kBias, .config = R"({"mlp_bias": false})", .words = "mlp_bias | true"},
    {.base = "qwen3",
     .config = R"({"architectures": ["LlamaForCausalLM"], "model_type": "llama", "layer_types": null})",
     .words = "model.layers.0.self_attn.k_norm.weight"},
    // Tensors that may be present.
    {.base = kLlama, .add = {{LAYER "self_attn.rotary_emb.inv_freq", {8}}}, .outcome = Outcome::kEqual},
    {.base = kLlama,
     .add = {{"vision_tower.patch.weight", {4}}, {"model.visual.norm.bias", {4}}},
     .outcome = Outcome::kWarned,
     .words = "model.visual.norm.bias | 1"},
    // Tied embeddings: an equal head, another head, only the head, neither.
    {.base = kTied, .copy = {kEmbed, kHead}, .outcome = Outcome::kEqual},
    {.base = kTied,
     .add = {{kHead, {64, 32}}},
     .outcome = Outcome::kWarned,
     .words = "lm_head.weight | model.embed_tokens.weight"},
    {.base = kTied, .copy = {kEmbed, kHead}, .remove = kEmbed, .outcome = Outcome::kEqual},
    {.base = kTied, .remove = kEmbed, .words = kEmbed},
    // Keys without effect.
    {.base = kLlama,
     .config = R"({"embedding_multiplier": 1.0, "hidden_act": "swish", "is_causal": true})",
     .outcome = Outcome::kEqual},
};

TEST(Gate, EveryTensorIsAccountedFor) {
  for (const Added& a : kAdded) {
    const std::string words =
        std::string("model.safetensors | ") + a.name + (a.words.empty() ? "" : " | ") + a.words;
    check({.base = a.base, .add = {{a.name, a.shape}}, .words = words.c_str()});
  }
  for (const Change& change : kChanges) check(change);
}

TEST(Gate, ADifferentHeadIsNotTied) {
  CpuBackend backend(1);
  const TempFolder dir;
  dir.put("config.json", config_of(kTied).dump());
  write_changed_weights({.base = kTied, .add = {{kHead, {64, 32}}}}, dir.path);
  const Model model = load(dir.path, backend);
  EXPECT_FALSE(model.spec.tie_word_embeddings);
  EXPECT_EQ(static_cast<const float*>(model.weights.head.blocks[0].w.data)[0], 1.0F);
  EXPECT_NE(static_cast<const float*>(model.weights.embed.m.data)[0], 1.0F);
}

// Quantizers write zero biases.
TEST(Gate, BiasesOfZerosChangeNothing) {
  for (const Added& added : kAdded) {
    if (std::string_view(added.name).ends_with(".bias"))
      check({.base = added.base, .add = {{added.name, added.shape}}, .value = 0, .outcome = Outcome::kEqual});
  }
}

// Neutral values as JSON for llama_gqa (hidden size 32, head size 16, no head norms).
std::vector<json> neutral_values(std::string_view neutral) {
  const std::map<std::string_view, json> words = {
      {"hidden_size", 32}, {"head_dim", 16}, {"1/sqrt(head_dim)", 0.25}, {"qk_norm", false},
      {"ones", {1, 1}},    {"rope", "rope"}, {"rotary", "rotary"},       {"hidden_act", "swish"}};
  std::vector<json> values = {nullptr, json::array(), json::object(), "", 0};
  if (neutral != "true") values.push_back(false);
  for (const std::string_view word : split(neutral, '|')) {
    const json parsed = json::parse(word, nullptr, false);
    if (words.contains(word)) values.push_back(words.at(word));
    if (!parsed.is_discarded()) values.push_back(parsed);
  }
  return values;
}

// Keys, also in the RoPE object, are ignored at neutral values and else refused.
TEST(Gate, TheTableOfKeys) {
  const json config = config_of(kLlama);
  const std::string base = described(*answer(config).spec);
  size_t keys = 0;
  for (const KeyRule& rule : refused_keys()) {
    const std::vector<json> neutral = neutral_values(rule.neutral);
    for (const std::string_view name : split(rule.keys, ' ')) {
      const std::string key(name);
      ++keys;
      const bool of_any_object = rule.neutral.empty() || rule.neutral == "1";
      for (const bool inside : {false, true}) {
        if (inside && !of_any_object) continue;  // a RoPE object has no model shapes
        const auto with = [&](const json& value) {
          const json change = {{key, value}};
          return changed(config, inside ? json{{"rope_parameters", change}} : change);
        };
        for (const json& value : neutral) {
          if (inside && value.is_object()) continue;
          const Answer got = answer(with(value));
          ASSERT_TRUE(got.spec) << got.error;
          EXPECT_EQ(described(*got.spec), base) << key << value;
          EXPECT_EQ(got.spec->warnings, std::vector<std::string>{}) << key << value;
        }
        for (const json& value :
             {json(12.5), json(-3), json("other"), json{{"a", 1}}, json{0, 1}, json(true), json(false)}) {
          if (std::ranges::count(neutral, value) > 0 || (inside && value.is_object())) continue;
          const std::string line = answer(with(value)).error;
          expect_line(line, "config.json", (inside ? "rope_parameters." : "") + key);
        }
      }
    }
  }
  EXPECT_EQ(keys, 82U) << "removing a key from the table would silence it";
}

}  // namespace
}  // namespace lariat::test
