// Published quantized formats vs the same weights as floats (tools/lab/golden/forms.py).
#include "kernels/reference/reference_backend.h"
#include "models/load/open_files.h"
#include "tests/engine/engine_test_util.h"

namespace lariat::test {
namespace {

class FormatLogits : public testing::TestWithParam<const char*> {};

// f32 weights on the CPU, then quantized values with 16-bit inputs; on the reference, with 8-bit inputs.
TEST_P(FormatLogits, EqualTheFloats) {
  const std::filesystem::path dir = golden_dir() / "forms" / GetParam();
  const Tensors golden = open_safetensors_file(dir / "golden.safetensors");
  const std::vector<int32_t> tokens = int_tensor(golden, "tokens");
  const std::vector<float> expected = float_tensor(golden, "logits");
  const double largest = max_abs_difference(expected, std::vector<float>(expected.size()));
  const auto difference = [&](Backend& backend, const Model& model, int bits = 8) {
    SessionOptions options = f32_session();
    options.activations = bits;
    Session session(model, backend, options);
    return max_abs_difference(all_logits(session, tokens, tokens.size() - 2), expected);
  };
  CpuBackend cpu(2);
  EXPECT_LE(difference(cpu, open_f32(dir, cpu)), 2e-5 * largest);
  EXPECT_LE(difference(cpu, load_model(dir, load_config(dir), cpu, {}), 16), 5e-4 * largest);
  ReferenceBackend reference;
  const Model stored = load_model(dir, load_config(dir), reference, {});
  EXPECT_TRUE(is_quantized(stored.weights.layers[0].qkv.blocks[0].w.dtype));
  EXPECT_LE(difference(reference, stored), 0.06 * largest);
}

int64_t warnings_of_rounding(const std::filesystem::path& path, std::optional<WeightFormat> asked) {
  CpuBackend backend(1);
  ModelFiles files = open_files(path);
  const ModelSpec spec = load_config(files.texts);
  return std::ranges::count_if(
      load_model(std::move(files), spec, backend, asked).spec.warnings,
      [](const std::string& line) { return line.find("`quantize`") != std::string::npos; });
}

TEST_P(FormatLogits, RequantizationWarns) {
  const std::filesystem::path dir = golden_dir() / "forms" / GetParam();
  for (const DType asked : {DType::kQ8, DType::kQ4}) EXPECT_EQ(warnings_of_rounding(dir, asked), 1);
  EXPECT_EQ(warnings_of_rounding(dir, {}), 0);
  EXPECT_EQ(warnings_of_rounding(dir, DType::kF32), 0);
}

TEST(GgufLogits, RequantizationWarns) {
  const std::filesystem::path gguf = golden_dir() / "gguf";
  EXPECT_EQ(warnings_of_rounding(gguf / "gpt_oss_mxfp4.gguf", DType::kQ8), 1);
  EXPECT_EQ(warnings_of_rounding(gguf / "gpt_oss_mxfp4.gguf", {}), 0);
  EXPECT_EQ(warnings_of_rounding(gguf / "llama_bias.gguf", DType::kQ8), 0) << "floats";
}

INSTANTIATE_TEST_SUITE_P(Methods, FormatLogits,
                         testing::Values("awq", "bitsandbytes", "compressed_tensors", "fbgemm_fp8", "fp8",
                                         "gptq", "gptq_v2", "mlx", "mlx_mxfp4", "mxfp4_packed",
                                         "pack_quantized"),
                         [](const auto& test) { return std::string(test.param); });

}  // namespace
}  // namespace lariat::test
