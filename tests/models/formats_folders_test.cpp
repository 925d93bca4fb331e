// Settings in config.json or a separate file, and non-finite scales.
#include <fmt/format.h>

#include "models/load/weights.h"
#include "models/quantization/quantized.h"
#include "tests/models/formats_util.h"

namespace lariat::test {
namespace {

TEST(Formats, WarnOfQuantizedActivations) {
  const json eight = {{"num_bits", 8}, {"type", "float"}};
  const ChangedForm changed(
      "pack_quantized",
      {{"config_groups", {{"group_0", {{"input_activations", eight}}}}}, {"kv_cache_scheme", eight}},
      json::object());
  std::vector<std::string> warnings;
  open_format(changed.dir(), &warnings);
  ASSERT_EQ(warnings.size(), 1U);
  for (const char* part : {"config.json", "input_activations", "kv_cache_scheme"})
    EXPECT_TRUE(holds(warnings[0], part));
}

TEST(Formats, SettingsComeFromTheConfigOrAFile) {
  const std::tuple<const char*, const char*, json> rows[] = {
      {"gptq", "quantize_config.json", {{"bits", 4}, {"group_size", 32}, {"desc_act", true}, {"sym", true}}},
      {"awq", "quant_config.json", {{"q_group_size", 32}, {"w_bit", 4}, {"version", "GEMM"}}},
      {"fbgemm_fp8", "hf_quant_config.json", {{"quant_algo", "FP8"}}}};
  for (const auto& [folder, file, settings] : rows) {
    SCOPED_TRACE(folder);
    const Tensors golden = open_safetensors_file(format_dir(folder) / "golden.safetensors");
    for (const bool beside : {true, false}) {
      const TempFolder dir;
      json config = read_json(format_dir(folder) / "config.json");
      config.erase("quantization_config");
      const bool nvidia = std::string_view(file).starts_with("hf");
      if (beside) dir.put(file, (nvidia ? json{{"quantization", settings}} : settings).dump());
      if (!beside) config["quantization_config"] = settings;
      dir.put("config.json", config.dump());
      std::filesystem::copy_file(format_dir(folder) / "model.safetensors", dir.path / "model.safetensors");
      const Tensors tensors = open_format(dir.path);
      EXPECT_EQ(format_floats(tensors.check(kAttention + "k_proj.weight", {32, 64})),
                format_floats(golden.get("k_proj", {32, 64})));
      EXPECT_EQ(quantization_method(dir.path), nvidia ? "modelopt" : folder);
    }
  }
  const TempFolder dir;
  dir.put("config.json", "{}");
  dir.put("hf_quant_config.json", R"({"quantization": {"quant_algo": "NVFP4"}})");
  std::filesystem::copy_file(format_dir("fp8") / "model.safetensors", dir.path / "model.safetensors");
  const std::string error = error_of([&] { open_format(dir.path); });
  EXPECT_TRUE(holds(error, "hf_quant_config.json: "));
  EXPECT_TRUE(holds(error, "quant_algo\" is \"NVFP4\""));
}

// Methods name their scales differently.
TEST(Formats, NonFiniteScalesAreFound) {
  for (const char* name : kFolders) {
    SCOPED_TRACE(name);
    json changes;
    const Tensors stored = open_safetensors(format_dir(name));
    for (const auto& [part, tensor] : stored.all()) {
      const bool scales =
          part.find("scale") != part.npos || part.ends_with("absmax") || part.ends_with("SCB");
      if (scales && part.starts_with(kAttention + "k_proj.") && !part.ends_with("input_scale"))
        changes[part] = {{"i32", {0, -1}}};
    }
    const auto found = find_not_finite(open_format(ChangedForm(name, json::object(), changes).dir()));
    ASSERT_TRUE(found);
    EXPECT_EQ(found->tensor, kAttention + "k_proj.weight");
    EXPECT_EQ(found->of, 32 * 64);
    EXPECT_FALSE(find_not_finite(open_format(format_dir(name))));
  }
}

// As from a GGUF (GgufBlocks.AnMxfp4ScaleOf255IsNan). Two groups of 32 values per row.
TEST(Formats, AnMxfp4ScaleOf255IsNan) {
  for (const auto& [folder, scales] : {std::pair("mlx_mxfp4", "scales"), {"mxfp4_packed", "weight_scale"}}) {
    SCOPED_TRACE(folder);
    const json change = {{kAttention + "k_proj." + scales, {{"i32", {0, -1}}}}};
    const ChangedForm changed(folder, json::object(), change);
    const std::vector<float> values =
        format_floats(open_format(changed.dir()).check(kAttention + "k_proj.weight", {32, 64}));
    for (size_t i = 0; i < values.size(); ++i) EXPECT_EQ(std::isnan(values[i]), i < 128) << i;
  }
  const uint8_t bytes[] = {0, 1, 127, 254, 255};
  StoredTensor tensor;
  tensor.dtype = "F8_E8M0", tensor.data = reinterpret_cast<const std::byte*>(bytes);
  const FloatView view(tensor);
  EXPECT_EQ((std::vector{view[0], view[1], view[2], view[3]}),
            (std::vector{0x1p-127F, 0x1p-126F, 1.0F, 0x1p127F}));
  EXPECT_TRUE(std::isnan(view[4]));
}

// MLX separates gate and up.
TEST(Formats, MlxStacksTheExpertsOfGptOss) {
  const std::filesystem::path from = format_dir(kGptOss);
  const Tensors stored = open_safetensors(from);
  std::vector<NamedShape> shapes;
  std::vector<std::string> data;
  const auto add = [&](const std::string& name, int64_t bytes_in_row, const char* dtype, size_t first,
                       size_t step) {  // one row in `step`
    const StoredTensor& tensor = *stored.find(name);
    const bool down = name.find("down") != name.npos;
    const std::string end = name.substr(name.rfind('_') + 1), mlx = end == "blocks" ? "weight" : end;
    const auto size = static_cast<size_t>(bytes_in_row);
    std::string& rows = data.emplace_back();
    for (size_t at = first * size; at < tensor.bytes; at += step * size)
      rows.append(reinterpret_cast<const char*>(tensor.data) + at, size);
    std::vector<int64_t> shape = {4, down ? 64 : 32, bytes_in_row / (end == "blocks" ? 4 : 1)};
    if (end == "bias") shape.pop_back();
    shapes.push_back({kMlp + "experts." +
                          (down         ? "down"
                           : first == 0 ? "gate"
                                        : "up") +
                          "_proj." + mlx,
                      shape, dtype});
  };
  for (const auto& [end, down, up, dtype] :
       {std::tuple("blocks", 16, 32, "U32"), {"scales", 1, 2, "U8"}, {"bias", 2, 2, "BF16"}}) {
    add(kMlp + "experts.down_proj_" + end, down, dtype, 0, 1);
    for (const size_t first : {0, 1}) add(kMlp + "experts.gate_up_proj_" + end, up, dtype, first, 2);
  }
  const TempFolder dir;
  dir.put("config.json", R"({"quantization": {"group_size": 32, "bits": 4, "mode": "mxfp4"}})");
  SafetensorsWriter writer(dir.path / "model.safetensors", shapes);
  for (const std::string& bytes : data) writer.append(std::as_bytes(std::span(bytes)));
  writer.finish();
  const Tensors mlx = open_format(dir.path), published = open_format(from);
  for (const char* name : {"gate_proj", "up_proj", "down_proj"}) {
    const StoredTensor& want = *published.find(fmt::format("{}experts.{}.weight", kMlp, name));
    EXPECT_EQ(format_floats(mlx.check(want.name, want.shape)), format_floats(want)) << name;
  }
  EXPECT_EQ(mlx.check(kMlp + "experts.up_proj.bias", {4, 32}).bytes, 4U * 32 * 2);
}

}  // namespace
}  // namespace lariat::test
