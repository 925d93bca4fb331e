// Whole models as published methods store them, against the floats that they stand for
// (tests/golden/forms, made by tools/lab/golden/forms.py).
#include "kernels/reference/reference_backend.h"
#include "tests/engine/engine_test_util.h"

namespace lariat::test {
namespace {

class FormLogits : public testing::TestWithParam<const char*> {};

// Made f32, by the CPU; and the codes themselves, which the reference multiplies by inputs of 8 bits, as far
// as they are integers.
TEST_P(FormLogits, AreThoseOfTheFloats) {
  const std::filesystem::path dir = golden_dir() / "forms" / GetParam();
  const Tensors golden = open_safetensors_file(dir / "golden.safetensors");
  const std::vector<int32_t> tokens = int_tensor(golden, "tokens");
  const std::vector<float> expected = float_tensor(golden, "logits");
  const double largest = max_abs_difference(expected, std::vector<float>(expected.size()));
  const auto difference = [&](Backend& backend, const Model& model) {
    Session session(model, backend, f32_session());
    return max_abs_difference(all_logits(session, tokens, tokens.size() - 2), expected);
  };
  CpuBackend cpu(2);
  EXPECT_LE(difference(cpu, open_f32(dir, cpu)), 2e-5 * largest);
  ReferenceBackend reference;
  const Model stored = load_model(dir, load_config(dir), reference, {});
  EXPECT_TRUE(is_quantized(stored.weights.layers[0].qkv.blocks[0].w.dtype));
  EXPECT_LE(difference(reference, stored), 0.06 * largest);
}

INSTANTIATE_TEST_SUITE_P(Methods, FormLogits,
                         testing::Values("awq", "bitsandbytes", "compressed_tensors", "fbgemm_fp8", "fp8",
                                         "gptq", "gptq_v2", "mlx", "mlx_mxfp4", "mxfp4_packed",
                                         "pack_quantized"),
                         [](const auto& test) { return std::string(test.param); });

}  // namespace
}  // namespace lariat::test
