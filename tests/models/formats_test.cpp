// Published quantized weight formats (tools/lab/golden/forms.py).
#include "models/load/model.h"
#include "tests/models/formats_util.h"

namespace lariat::test {
namespace {

TEST(Formats, AWeightEqualsTheMethodsValues) {
  for (const char* name : kFolders) {
    SCOPED_TRACE(name);
    const Tensors tensors = open_format(format_dir(name));
    const Tensors golden = open_safetensors_file(format_dir(name) / "golden.safetensors");
    const StoredTensor& weight = tensors.check(kAttention + "k_proj.weight", {32, 64});
    ASSERT_TRUE(weight.reader) << "tensor is float";
    const std::vector<float> got = format_floats(weight),
                             expected = format_floats(golden.get("k_proj", {32, 64}));
    for (size_t i = 0; i < got.size(); ++i) ASSERT_EQ(got[i], expected[i]) << i;
  }
}

TEST(Formats, ValuesKeepTheirStoredWidth) {
  using enum ScaleType;
  struct Row {
    const char *folder, *module;
    WeightFormat format;
  };
  const auto format = [](DType width, Code code, ScaleType scales, bool minimum, uint8_t size,
                         uint8_t bits = 0) {
    const uint16_t block = size == 128 ? 128 : 64;
    return WeightFormat(width, {code, scales, minimum, size, block, bits});
  };
  constexpr DType kQ4 = DType::kQ4, kQ8 = DType::kQ8;
  const Row rows[] = {
      {"fp8", "self_attn.q_proj", format(kQ8, Code::kE4M3, kF32, false, 32)},
      {"fp8", "mlp.gate_proj", format(kQ8, Code::kE4M3, kF32, false, 128)},
      {"compressed_tensors", "self_attn.k_proj", format(kQ8, Code::kLinear, kF16, false, 128)},
      {"compressed_tensors", "self_attn.o_proj", format(kQ8, Code::kLinear, kF32, true, 128)},
      {"pack_quantized", "self_attn.q_proj", format(kQ4, Code::kLinear, kBF16, false, 32)},
      {"pack_quantized", "self_attn.k_proj", format(kQ4, Code::kLinear, kF32, true, 128)},
      {"pack_quantized", "mlp.gate_proj", format(kQ4, Code::kLinear, kF16, false, 32, 2)},
      {"gptq", "self_attn.q_proj", format(kQ4, Code::kLinear, kF16, false, 32)},
      {"gptq", "self_attn.k_proj", format(kQ4, Code::kLinear, kF32, true, 32)},
      {"gptq", "self_attn.v_proj", format(kQ8, Code::kLinear, kF16, false, 32)},
      {"gptq", "mlp.up_proj", format(kQ4, Code::kLinear, kF16, false, 32)},
      {"awq", "self_attn.o_proj", format(kQ4, Code::kLinear, kF16, false, 32)},
      {"awq", "self_attn.q_proj", format(kQ4, Code::kLinear, kF32, true, 32)},
      {"mlx", "self_attn.o_proj", format(kQ4, Code::kLinear, kF16, true, 128, 2)},
      {"mlx", "mlp.gate_proj", format(kQ8, Code::kLinear, kF16, true, 32, 5)},
      {"mlx_mxfp4", "self_attn.q_proj", format(kQ4, Code::kE2M1, kBF16, false, 32)},
      {"bitsandbytes", "self_attn.q_proj", format(kQ4, Code::kNf4, kF32, false, 128)},
      {"bitsandbytes", "self_attn.o_proj", format(kQ4, Code::kFp4, kF32, false, 128)},
      {"bitsandbytes", "mlp.up_proj", format(kQ8, Code::kLinear, kF32, false, 128)},
      {"bitsandbytes", "mlp.down_proj", format(kQ4, Code::kNf4, kF32, false, 32)}};
  for (const Row& row : rows) {
    const Tensors tensors = open_format(format_dir(row.folder));
    const StoredTensor* tensor = tensors.find(std::string("model.layers.0.") + row.module + ".weight");
    ASSERT_TRUE(tensor != nullptr && tensor->reader) << row.folder << " " << row.module;
    EXPECT_EQ(tensor->format(), row.format) << row.folder << " " << row.module;
  }
  for (const char* folder : {"gptq", "pack_quantized"}) {  // unordered groups
    const Tensors tensors = open_format(format_dir(folder));
    EXPECT_EQ(tensors.check(kAttention + "o_proj.weight", {64, 64}).dtype, "F32");
  }
}

TEST(Formats, WarnOfIgnoredSettings) {
  std::vector<std::string> warnings;
  open_format(format_dir("fp8"), &warnings);
  ASSERT_EQ(warnings.size(), 2U);
  EXPECT_TRUE(names(warnings[0], "activation_scheme"));
  EXPECT_TRUE(names(warnings[1], "model.safetensors | model.layers.0.mlp.gate_proj.input_scale"));
  open_format(format_dir("gptq"), &warnings);
  EXPECT_EQ(warnings.size(), 2U);
}

struct Damage {
  const char *folder, *settings, *tensor, *change;
  const char* words = "";  // null: no error
};

const Damage kDamages[] = {
    // Settings of methods.
    {"gptq", R"({"quant_method": "hqq"})", "", "", "hqq | fp8"},
    {"gptq", R"({"quant_method": 4})", "", "", "quantization_config.quant_method | 4"},
    {"gptq", R"({"bits": 3})", "", "", "quantization_config.bits | 3 | 4 | 8"},
    {"gptq", R"({"checkpoint_format": "marlin"})", "", "",
     "quantization_config.checkpoint_format | marlin | gptq | gptq_v2"},
    {"gptq", R"({"pack_dtype": "int16"})", "", "", "quantization_config.pack_dtype | int16 | int32"},
    {"gptq", R"({"group_size": "a"})", "", "", "quantization_config.group_size | a"},
    {"awq", R"({"version": "gemv"})", "", "", "quantization_config.version | gemv | gemm"},
    {"awq", R"({"bits": 8})", "", "", "quantization_config.bits | 8 | 4"},
    {"fp8", R"({"fmt": "e5m2"})", "", "", "quantization_config.fmt | e5m2 | e4m3"},
    {"fp8", R"({"expert_dtype": "fp4"})", "", "", "quantization_config.expert_dtype | fp4 | fp8"},
    {"fp8", R"({"weight_block_size": [0, 32]})", "", "", "quantization_config.weight_block_size | [0,32]"},
    {"fp8", R"({"weight_block_size": [32, 32]})", "", "", "down_proj.weight_scale_inv | [1, 3]"},
    {"fp8", R"({"weight_block_size": null})", "", "", "[64, 96]"},
    {"compressed_tensors", R"({"sparsity_config": {"format": "sparse-24-bitmask"}})", "", "",
     "quantization_config.sparsity_config"},
    {"compressed_tensors", R"({"transform_config": {"config_groups": {"R1": {}}}})", "", "",
     "quantization_config.transform_config"},
    {"compressed_tensors", R"({"config_groups": {"group_0": {"weights": {"block_structure": "64"}}}})", "",
     "", "up_proj.weight_scale"},
    {"mlx", R"({"mode": "nvfp4"})", "", "", "quantization.mode | nvfp4 | affine | mxfp4"},
    {"mlx", R"({"group_size": 0})", "", "", "quantization.group_size | 0"},
    {"mlx", R"({"group_size": 128})", "", "", "group_size | config.json"},
    // Missing parts, and parts without a weight.
    {"fp8", "{}", "self_attn.q_proj.weight_scale_inv", R"("absent")",
     "model.layers.0.self_attn.q_proj | .weight_scale"},
    {"fp8", "{}", "self_attn.q_proj.weight", R"("absent")"},
    {"fp8", "{}", "self_attn.q_proj.weight", R"({"dtype": "F8_E5M2"})", "F8_E5M2"},
    {"fp8", "{}", "self_attn.q_proj.weight_scale_inv", R"({"dtype": "I32"})",
     "I32 | F32 | F16 | BF16 | F8_E8M0"},
    {"fbgemm_fp8", "{}", "self_attn.q_proj.weight", R"({"shape": [64, 63]})", nullptr},
    {"gptq", "{}", "self_attn.q_proj.qzeros", R"("absent")", ".qzeros"},
    {"gptq", "{}", "self_attn.q_proj.scales", R"("absent")", ".scales"},
    {"gptq", "{}", "self_attn.q_proj.qweight", R"("absent")"},
    {"awq", "{}", "self_attn.q_proj.scales", R"("absent")", ".scales"},
    {"pack_quantized", "{}", "self_attn.q_proj.weight_shape", R"("absent")", ".weight_shape"},
    {"mlx", "{}", "self_attn.q_proj.biases", R"("absent")", ".biases"},
    {"mlx", "{}", "self_attn.q_proj.scales", R"("absent")"},
    {"bitsandbytes", "{}", "self_attn.q_proj.weight.absmax", R"("absent")", ".absmax"},
    {"bitsandbytes", "{}", "self_attn.k_proj.weight.nested_absmax", R"("absent")", ".nested_absmax"},
    {"bitsandbytes", "{}", "self_attn.q_proj.weight.quant_map", R"("absent")", ".quant_map"},
    {"bitsandbytes", "{}", "mlp.up_proj.SCB", R"("absent")", "I8"},
    {"mxfp4_packed", "{}", "self_attn.q_proj.weight_scale",
     R"({"name": "model.layers.0.self_attn.q_proj.weight_global_scale"})", "NVFP4"},
    // Shapes and values.
    {"gptq", "{}", "self_attn.o_proj.g_idx", R"({"i32": [5, 2]})", "5 | 2"},
    {"gptq", "{}", "self_attn.o_proj.g_idx", R"({"i32": [0, -1]})", "0 | -1 | 2"},
    {"gptq", "{}", "self_attn.o_proj.g_idx", R"({"shape": [63]})", "[63] | [64]"},
    {"gptq", "{}", "self_attn.q_proj.qzeros", R"({"shape": [2, 7]})", "4 | 8 | 64"},
    {"gptq", "{}", "self_attn.q_proj.qzeros", R"({"shape": [1, 8]})", "[1, 8] | [2, 8]"},
    {"gptq", "{}", "self_attn.q_proj.scales", R"({"shape": [3, 64]})", "[2, 8] | [3, 8]"},
    {"gptq", "{}", "self_attn.q_proj.scales", R"({"shape": [0, 64]})"},
    {"gptq", "{}", "self_attn.q_proj.qweight", R"({"shape": [512]})"},
    {"gptq", "{}", "self_attn.q_proj.qweight", R"({"dtype": "F32"})", "F32 | I32"},
    {"awq", "{}", "self_attn.q_proj.qzeros", R"({"shape": [2, 7]})", "[2, 7] | [2, 8]"},
    {"awq", "{}", "self_attn.q_proj.scales", R"({"shape": [2, 63]})", "[2, 63] | [2, 64]"},
    {"awq", "{}", "self_attn.o_proj.scales", R"({"shape": [5, 64]})", "64"},
    {"pack_quantized", "{}", "self_attn.q_proj.weight_shape", R"({"i32": [0, 63]})", "[64, 8]"},
    {"pack_quantized", "{}", "self_attn.q_proj.weight_shape", R"({"i32": [2, 80]})", "8 | 80"},
    {"pack_quantized", "{}", "self_attn.q_proj.weight_shape", R"({"i32": [3, 1]})"},
    {"pack_quantized", "{}", "self_attn.q_proj.weight_scale", R"({"shape": [64, 3]})", "64"},
    {"pack_quantized", "{}", "self_attn.k_proj.weight_zero_point", R"({"shape": [3, 1]})", "[4, 1]"},
    {"pack_quantized", "{}", "self_attn.o_proj.weight_g_idx", R"({"i32": [1, 7]})", "1 | 7 | 2"},
    {"compressed_tensors", "{}", "self_attn.o_proj.weight_zero_point", R"({"shape": [64]})", "[64, 1]"},
    {"mxfp4_packed", "{}", "self_attn.q_proj.weight_scale", R"({"shape": [64, 1]})", "[64, 1] | [64, 2]"},
    {"mxfp4_packed", "{}", "self_attn.q_proj.weight_packed", R"({"shape": [64, 31]})", "32"},
    {kGptOss, "{}", "mlp.experts.down_proj_scales", R"("absent")", "_scales"},
    {kGptOss, "{}", "mlp.experts.gate_up_proj_scales", R"({"shape": [4, 64, 1]})", "[4, 64, 2]"},
    {kGptOss, "{}", "mlp.experts.gate_up_proj_blocks", R"({"shape": [4, 64, 4, 8]})", "32"},
    {kGptOss, "{}", "mlp.experts.gate_up_proj_blocks", R"({"shape": [4, 63, 2, 16]})"},
    {kGptOss, "{}", "mlp.experts.gate_up_proj_blocks", R"({"shape": [0, 64, 2, 16]})"},
    {kGptOss, "{}", "mlp.experts.gate_up_proj_bias", R"({"shape": [4]})"},
    {kGptOss, "{}", "mlp.experts.down_proj_bias", R"({"shape": [513, 2]})"},
    {kGptOss, "{}", "mlp.experts.down_proj_bias", R"({"dtype": "I16"})", "I16 | F32"},
    {"mlx", "{}", "self_attn.q_proj.scales", R"({"shape": [63, 2]})", "[63, 2] | [64, 2]"},
    {"mlx", "{}", "self_attn.q_proj.biases", R"({"dtype": "F32"})", "F32 | BF16"},
    {"mlx", "{}", "self_attn.q_proj.weight", R"({"shape": [64, 7]})", "2 | 3 | 4 | 5 | 6 | 8"},
    {"mlx", "{}", "self_attn.q_proj.weight", R"({"shape": [8, 8, 8]})"},
    {"mlx_mxfp4", "{}", "self_attn.q_proj.weight", R"({"shape": [64, 9]})", "2 | 32"},
    {"bitsandbytes", "{}", "self_attn.q_proj.weight", R"({"shape": [2047, 1]})", "[64, 64] | 4"},
    {"bitsandbytes", "{}", "self_attn.q_proj.weight.absmax", R"({"shape": [63]})", "[63] | [64]"},
    {"bitsandbytes", "{}", "self_attn.q_proj.weight.quant_map", R"({"i32": [3, 0]})", "nf4"},
    {"bitsandbytes", "{}", "self_attn.k_proj.weight.nested_quant_map", R"({"shape": [255]})", "[256]"},
    {"bitsandbytes", "{}", "self_attn.q_proj.weight.quant_state.bitsandbytes__nf4", R"({"bytes": "{"})",
     "bitsandbytes__nf4"},
    {"bitsandbytes", "{}", "self_attn.q_proj.weight.quant_state.bitsandbytes__nf4",
     R"({"bytes": "{\"shape\": [64, 64], \"blocksize\": 0}"})", "blocksize | 0"},
    {"bitsandbytes", "{}", "self_attn.q_proj.weight.quant_state.bitsandbytes__nf4",
     R"({"bytes": "{\"shape\": [64], \"blocksize\": 64}"})"},
    {"bitsandbytes", "{}", "self_attn.q_proj.weight.quant_state.bitsandbytes__nf4",
     R"({"bytes": "{\"shape\": [2147483647, 2147483647], \"blocksize\": 64}"})", "2048"},
    {"bitsandbytes", "{}", "self_attn.q_proj.weight.quant_state.bitsandbytes__nf4",
     R"({"bytes": "{\"quant_type\": \"fp4\", \"shape\": [64, 64], \"blocksize\": 64}"})",
     "quant_type | fp4 | nf4"},
    {"bitsandbytes", "{}", "mlp.up_proj.weight_format", R"({"bytes": "\u0001"})"},
};

TEST(Formats, DamageIsOneLine) {
  for (const Damage& row : kDamages) {
    SCOPED_TRACE(std::string(row.folder) + " " + row.settings + " " + row.tensor + " " + row.change);
    json changes = json::object();
    if (*row.change != '\0') changes[std::string("model.layers.0.") + row.tensor] = json::parse(row.change);
    const ChangedForm changed(row.folder, json::parse(row.settings), changes);
    const std::string error = error_of([&] { open_format(changed.dir()); });
    if (row.words == nullptr) {
      EXPECT_EQ(error, "");
      continue;
    }
    EXPECT_TRUE(names(error, row.words));
    EXPECT_EQ(error.rfind(changed.dir().string(), 0), 0U) << error;
    const std::string_view tensor = row.tensor;  // its layer's part, as self_attn.q_proj
    EXPECT_TRUE(names(error, tensor.substr(0, tensor.find('.', tensor.find('.') + 1))));
  }
}

TEST(Formats, OddGroupsBecomeFloats) {
  const ChangedForm changed("awq", {{"group_size", 8}},
                            {{kAttention + "q_proj.scales", {{"shape", {8, 64}}}},
                             {kAttention + "q_proj.qzeros", {{"shape", {8, 8}}}}});
  const Tensors odd = open_format(changed.dir()), plain = open_format(format_dir("awq"));
  const StoredTensor& tensor = odd.check(kAttention + "q_proj.weight", {64, 64});
  EXPECT_EQ(tensor.dtype, "F32");
  EXPECT_TRUE(tensor.quantized);
  const auto got = format_floats(tensor),
             expected = format_floats(plain.check(kAttention + "q_proj.weight", {64, 64}));
  for (size_t row = 0; row < 64; ++row) {  // the first 8 inputs share a scale; the last have none
    for (size_t i = 0; i < 8; ++i) EXPECT_EQ(got[row * 64 + i], expected[row * 64 + i]);
    EXPECT_EQ(got[row * 64 + 63], 0);
  }
}

TEST(Formats, StackedExpertsStayOneTensor) {
  json changes;
  for (const auto& [end, width] : {std::pair("weight", 10), std::pair("scales", 2), std::pair("biases", 2)})
    changes[kMlp + "gate_proj." + end] = {{"name", kMlp + "switch_mlp.gate_proj." + end},
                                          {"shape", {2, 48, width}}};
  changes["model.norm.weight"] = {{"name", kMlp + "switch_mlp.up_proj.weight"}, {"shape", {2, 4, 8}}};
  const ChangedForm changed("mlx", json::object(), changes);
  const Tensors tensors = open_format(changed.dir()), plain = open_format(format_dir("mlx"));
  EXPECT_EQ(format_floats(tensors.check(kMlp + "experts.gate_proj.weight", {2, 48, 64})),
            format_floats(plain.check(kMlp + "gate_proj.weight", {96, 64})));
  EXPECT_FALSE(tensors.check(kMlp + "experts.up_proj.weight", {2, 4, 8}).reader) << "memory-mapped floats";
}

// Gate and up alternate in rows of quantized values and columns of floats.
TEST(Formats, GateAndUpOfGptOssAreSplit) {
  const Tensors codes = open_format(format_dir(kGptOss));
  const StoredTensor& up = codes.check(kMlp + "experts.up_proj.weight", {4, 32, 64});
  ASSERT_TRUE(up.reader);
  EXPECT_EQ(up.format(), WeightFormat(DType::kQ4, {Code::kE2M1, ScaleType::kBF16, false, 32, 64}));
  const std::filesystem::path dir = format_dir("../checkpoints/gpt_oss");
  const Tensors floats = open_format(dir), stored = open_safetensors(dir);
  // Elements of each part by index in the stack.
  const auto expect = [&](const std::string& name, const std::vector<int64_t>& shape, const char* stack,
                          const auto& index_of) {
    const std::vector<float> part = format_floats(floats.check(kMlp + name, shape)),
                             all = format_floats(*stored.find(kMlp + stack));
    ASSERT_FALSE(part.empty());
    for (size_t i = 0; i < part.size(); ++i) ASSERT_EQ(part[i], all[index_of(i)]) << name << " " << i;
  };
  expect("experts.up_proj.bias", {5, 24}, "experts.gate_up_proj_bias", [](size_t i) { return 2 * i + 1; });
  expect("experts.down_proj.weight", {5, 32, 24}, "experts.down_proj",
         [](size_t i) { return i / (32 * 24) * 32 * 24 + i % 24 * 32 + i / 24 % 32; });
  expect("experts.gate_proj.weight", {5, 24, 32}, "experts.gate_up_proj",
         [](size_t i) { return i / (24 * 32) * 48 * 32 + i % 32 * 48 + i / 32 % 24 * 2; });
  EXPECT_EQ(floats.find(kMlp + "experts.up_proj.bias")->bytes, 5U * 24 * 2);
}

TEST(Formats, FloatsUnderAMethodsNameRun) {
  const json config = {{"quantization_config", {{"quant_method", "fp8"}}}};
  Tensors tensors = open_safetensors(source_dir() / "tests/golden/checkpoints/llama_gqa");
  std::vector<std::string> warnings;
  read_quantized(config, "config.json", tensors, warnings);
  ASSERT_EQ(warnings.size(), 1U);
  EXPECT_TRUE(names(warnings[0], "config.json | quantization_config"));
}

}  // namespace
}  // namespace lariat::test
