#pragma once
#include <cstring>
#include <filesystem>
#include <string>
#include <vector>

#include "kernels/convert.h"
#include "kernels/quant.h"
#include "models/files/safetensors.h"
#include "models/quantization/quantization.h"
#include "tests/models/tokenizer_test_util.h"

namespace lariat::test {

using nlohmann::json;

inline constexpr const char* kFolders[] = {
    "awq",     "bitsandbytes", "compressed_tensors", "fbgemm_fp8",   "fp8",           "gptq",
    "gptq_v2", "mlx",          "mlx_mxfp4",          "mxfp4_packed", "pack_quantized"};
inline constexpr const char* kGptOss = "../checkpoints/gpt_oss_mxfp4";
inline const std::string kAttention = "model.layers.0.self_attn.", kMlp = "model.layers.0.mlp.";

inline std::filesystem::path format_dir(const std::string& name) {
  return source_dir() / "tests/golden/forms" / name;
}

inline Tensors open_format(const std::filesystem::path& dir, std::vector<std::string>* warnings = nullptr) {
  Tensors tensors = open_safetensors(dir);
  std::vector<std::string> unread;
  const auto [config, file] = quantization_config(ModelTexts(dir));
  read_quantized(config, file, tensors, warnings ? *warnings : unread);
  return tensors;
}

inline std::vector<float> format_floats(const StoredTensor& tensor) {
  const HostWeight rows = tensor.rows();
  std::vector<float> values(static_cast<size_t>(rows.m.rows * rows.m.cols));
  read_floats(rows, 0, {values.data(), DType::kF32, rows.m.rows, rows.m.cols});
  return values;
}

// A changed folder of tests/golden/forms. A change is "absent" or an object with any of "name", "dtype",
// "shape", "bytes" (a text), "i32" [index, value]. Data are truncated or zero-padded.
class ChangedForm {
 public:
  ChangedForm(const std::string& folder, const json& settings, const json& changes) {
    json config = read_json(format_dir(folder) / "config.json");
    config[config.contains("quantization") ? "quantization" : "quantization_config"].merge_patch(settings);
    folder_.put("config.json", config.dump());
    const Tensors stored = open_safetensors(format_dir(folder));
    std::vector<NamedShape> shapes;
    std::vector<std::string> data;
    for (const auto& [name, tensor] : stored.all()) {
      const json change = changes.value(name, json::object());
      if (change == "absent") continue;
      const std::string bytes(reinterpret_cast<const char*>(tensor.data), tensor.bytes);
      const std::string text = data.emplace_back(change.value("bytes", bytes));
      std::vector<int64_t> shape = change.value("shape", tensor.shape);
      if (change.contains("bytes")) shape = {static_cast<int64_t>(text.size())};
      shapes.push_back({change.value("name", name), shape, change.value("dtype", tensor.dtype)});
      size_t size = safetensors_element_bytes(shapes.back().dtype);
      for (const int64_t n : shape) size *= static_cast<size_t>(n);
      data.back().resize(size);
      if (!change.contains("i32")) continue;
      const auto value = change["i32"][1].get<int32_t>();
      std::memcpy(data.back().data() + change["i32"][0].get<size_t>() * sizeof value, &value, sizeof value);
    }
    SafetensorsWriter writer(folder_.path / "model.safetensors", shapes);
    for (const std::string& bytes : data) writer.append(std::as_bytes(std::span(bytes)));
    writer.finish();
  }
  const std::filesystem::path& dir() const { return folder_.path; }

 private:
  TempFolder folder_;
};

}  // namespace lariat::test
