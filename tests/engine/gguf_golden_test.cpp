// GGUF files by llama.cpp's converter (tools/lab/golden/gguf_files.py).
#include <nlohmann/json.hpp>

#include "models/load/open_files.h"
#include "tests/engine/engine_test_util.h"

namespace lariat::test {
namespace {

struct GgufCase {
  const char* name;
  // Config change before the conversion, for keys that GGUF or the converter lacks. Logits then differ from
  // golden ones.
  const char* change = nullptr;
};

class GgufGolden : public testing::TestWithParam<GgufCase> {};

std::filesystem::path gguf_path(const std::string& name) { return golden_dir() / "gguf" / (name + ".gguf"); }

std::vector<float> logits_of(const std::filesystem::path& path, const ModelSpec& spec,
                             const std::vector<int32_t>& tokens, DType dtype = DType::kF32) {
  CpuBackend backend(2);
  const Model model = load_model(open_files(path), spec, backend, dtype);
  Session session(model, backend, f32_session());
  return all_logits(session, tokens, tokens.size() - 8);
}

ModelSpec changed_spec(const std::filesystem::path& dir, const char* change) {
  if (change == nullptr) return load_config(dir);
  const TempFolder folder;
  nlohmann::json config = nlohmann::json::parse(std::ifstream(dir / "config.json"));
  const int64_t all = config["num_hidden_layers"];
  config.merge_patch(nlohmann::json::parse(change));
  folder.put("config.json", config.dump());
  ModelSpec spec = load_config(folder.path);
  spec.n_unread_layers = all - std::ssize(spec.layers);
  return spec;
}

TEST_P(GgufGolden, LogitsEqualTheFolder) {
  const GgufCase& c = GetParam();
  const std::filesystem::path dir = checkpoint_dir(c.name), path = gguf_path(c.name);
  const Tensors golden = open_safetensors_file(dir / "golden.safetensors");
  const std::vector<int32_t> tokens = int_tensor(golden, "tokens");
  const ModelSpec spec = load_config(open_text_files(path).texts);
  EXPECT_EQ(spec.warnings, std::vector<std::string>());
  const std::vector<float> logits = logits_of(path, spec, tokens);
  const std::vector<float> folder = logits_of(dir, changed_spec(dir, c.change), tokens);
  double largest = 0;
  for (const float value : folder) largest = std::max(largest, std::abs(static_cast<double>(value)));
  EXPECT_LE(max_abs_difference(logits, folder), 2e-5 * largest);
  if (c.change == nullptr) {
    EXPECT_LE(max_abs_difference(logits, float_tensor(golden, "logits")), 1e-4);
  }
}

INSTANTIATE_TEST_SUITE_P(
    Families, GgufGolden,
    testing::Values(GgufCase{"llama_gqa"}, GgufCase{"llama_llama3"}, GgufCase{"llama_bias"},
                    GgufCase{"mistral_window", R"({"sliding_window": null})"}, GgufCase{"mixtral"},
                    GgufCase{"qwen2"}, GgufCase{"qwen3_yarn_tied"},
                    GgufCase{"qwen3_moe", R"({"num_hidden_layers": 1, "mlp_only_layers": []})"},
                    GgufCase{"qwen2_moe", R"({"num_hidden_layers": 1, "mlp_only_layers": []})"},
                    GgufCase{"gemma"}, GgufCase{"gemma2", R"({"query_pre_attn_scalar": 16})"},
                    GgufCase{"gemma3", R"({"query_pre_attn_scalar": 16, "sliding_window_pattern": 6})"},
                    GgufCase{"phi3"}, GgufCase{"phi4_mini"}, GgufCase{"granite"}, GgufCase{"olmo2"},
                    GgufCase{"olmo3"}, GgufCase{"deepseek_v2"}, GgufCase{"deepseek_v3"}, GgufCase{"gpt_oss"},
                    GgufCase{"gpt_oss_mxfp4"}, GgufCase{"olmoe"}, GgufCase{"exaone4_full"},
                    GgufCase{"exaone"}, GgufCase{"ernie4_5"}, GgufCase{"seed_oss"}, GgufCase{"granite4"},
                    GgufCase{"deepseek"}, GgufCase{"kimi_k2"}, GgufCase{"glm4_moe"},
                    GgufCase{"glm4_moe_lite"}, GgufCase{"granite_moe"}, GgufCase{"granite_moe_shared"},
                    GgufCase{"ernie4_5_moe"}, GgufCase{"qwen3_vl_moe"}, GgufCase{"baichuan2"},
                    GgufCase{"mistral4"}, GgufCase{"youtu"}, GgufCase{"minicpm"}, GgufCase{"smollm3"},
                    GgufCase{"hunyuan", R"({"max_position_embeddings": 32768})"}, GgufCase{"hunyuan_moe"},
                    GgufCase{"qwen"}, GgufCase{"glm4"}, GgufCase{"phi"},
                    GgufCase{"starcoder2", R"({"sliding_window": null})"}, GgufCase{"stablelm"},
                    GgufCase{"stablelm_parallel"}, GgufCase{"cohere"}, GgufCase{"cohere2"}, GgufCase{"gpt2"},
                    GgufCase{"gpt_bigcode"}, GgufCase{"orion", R"({"rope_theta": 10000.0})"},
                    GgufCase{"arcee"}, GgufCase{"nemotron"}, GgufCase{"jais2"}, GgufCase{"apertus"}),
    [](const auto& test) { return std::string(test.param.name); });

// The file splits kv_b in two and transposes one part.
TEST(GgufLatent, EqualsTheFolder) {
  const std::filesystem::path dir = checkpoint_dir("deepseek_v3"), path = gguf_path("deepseek_v3");
  const std::vector<int32_t> tokens = int_tensor(open_safetensors_file(dir / "golden.safetensors"), "tokens");
  const std::vector<float> folder = logits_of(dir, load_config(dir), tokens, DType::kQ8);
  EXPECT_LE(max_abs_difference(logits_of(path, load_config(open_text_files(path).texts), tokens, DType::kQ8),
                               folder),
            1e-5);
}

}  // namespace
}  // namespace lariat::test
