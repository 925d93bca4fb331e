#pragma once
#include <array>
#include <map>
#include <nlohmann/json.hpp>

#include "kernels/convert.h"
#include "models/io/json_file.h"
#include "tests/engine/engine_test_util.h"
#include "tests/test_util.h"

// 320 tokens (tests/golden/long.safetensors) reach every many-token kernel of any backend.
namespace lariat::test {

inline const std::vector<const char*> kLongNames = GoldenList::names(GoldenList::kLong);

struct LongCase {
  const char* name;
  DType weights;
};

inline void PrintTo(const LongCase& c, std::ostream* out) { *out << c.name << " " << name_of(c.weights); }

inline std::vector<LongCase> long_cases(std::span<const char* const> names,
                                        std::initializer_list<DType> dtypes) {
  std::vector<LongCase> cases;
  for (const char* name : names) {
    for (const DType dtype : dtypes) cases.push_back({name, dtype});
  }
  return cases;
}

inline std::string long_case_name(const testing::TestParamInfo<LongCase>& test) {
  return std::string(test.param.name) + "_" + std::string(name_of(test.param.weights));
}

inline double rms_difference(std::span<const float> a, std::span<const float> b) {
  double sum = 0;
  for (size_t i = 0; i < a.size(); ++i) sum += std::pow(static_cast<double>(a[i]) - b[i], 2);
  return std::sqrt(sum / static_cast<double>(a.size()));
}

// transformers' results; `exact`: float32 with the rounded weights.
struct LongGolden {
  std::vector<int32_t> tokens, positions;
  std::vector<float> exact;  // [positions, vocab]
  // Allowed logit error. f32: transformers is up to 3.1e-5 from float64. 16 bits: transformers in the
  // weights' dtype rounds every intermediate result; lariat rounds fewer (cached keys and values, with bf16
  // weights product inputs and, on a GPU, gate and up). So lariat's RMS error may not exceed transformers';
  // the largest of some 800 errors may exceed it by half, by chance.
  double tolerance, rms;

  explicit LongGolden(const LongCase& c) {
    const Tensors file = open_safetensors_file(golden_dir() / "long.safetensors");
    const std::string name = c.name, dtype(name_of(c.weights));
    tokens = int_tensor(file, name + ".tokens");
    positions = int_tensor(file, "positions");
    exact = float_tensor(file, name + "." + dtype);
    tolerance = rms = 1e-4;
    if (c.weights == DType::kF32) return;
    const std::vector<float> own = float_tensor(file, name + "." + dtype + ".own");
    tolerance = 1.5 * max_abs_difference(own, exact);
    rms = rms_difference(own, exact);
  }

  void expect(std::span<const float> logits) const {
    EXPECT_LE(max_abs_difference(kept(logits), exact), tolerance);
    EXPECT_LE(rms_difference(kept(logits), exact), rms);
  }

  std::vector<float> kept(std::span<const float> logits) const {
    const size_t vocab = exact.size() / positions.size();
    std::vector<float> rows;
    for (const int32_t position : positions) {
      const auto row = logits.subspan(static_cast<size_t>(position) * vocab, vocab);
      rows.insert(rows.end(), row.begin(), row.end());
    }
    return rows;
  }
};

// The checkpoint with every tensor rounded to its weights' dtype.
inline std::filesystem::path rounded_checkpoint(const LongCase& c) {
  const auto source = checkpoint_dir(c.name);
  if (c.weights == DType::kF32) return source;
  static const TempFolder of_this_process;  // runs work in parallel
  const auto folder = of_this_process.path / (c.name + ("_" + std::string(name_of(c.weights))));
  std::filesystem::create_directories(folder);
  std::ofstream(folder / "config.json") << read_json(source / "config.json");

  const Tensors stored = open_safetensors(source);
  std::vector<NamedShape> shapes;
  for (const auto& [name, tensor] : stored.all()) {
    if (tensor.dtype != "BOOL")  // unused mask of old GPT-NeoX files
      shapes.push_back({name, tensor.shape, c.weights == DType::kF16 ? "F16" : "BF16"});
  }
  SafetensorsWriter writer(folder / "model.safetensors", shapes);
  for (const NamedShape& shape : shapes) {
    const StoredTensor& tensor = *stored.find(shape.name);
    std::vector<uint16_t> values(tensor.bytes / size_of(tensor.float_dtype()));
    for (size_t i = 0; i < values.size(); ++i) {
      const float value = load_f32(tensor.data, tensor.float_dtype(), static_cast<int64_t>(i));
      values[i] = c.weights == DType::kF16 ? f32_to_f16(value) : f32_to_bf16(value);
    }
    writer.append(std::as_bytes(std::span(values)));
  }
  writer.finish();
  return folder;
}

// Opens the model like `lariat` without options; the f32 case uses f32 throughout.
inline Model open_long(const LongCase& c, Backend& backend) {
  const auto dir = rounded_checkpoint(c);
  const bool f32 = c.weights == DType::kF32;
  return load_model(dir, load_config(dir), backend, f32 ? std::optional(DType::kF32) : std::nullopt);
}

inline SessionOptions long_session(const LongCase& c) {
  SessionOptions options;
  options.v_dtype = c.weights;
  if (c.weights == DType::kF32) options.k_dtype = DType::kF32;
  return options;
}

}  // namespace lariat::test
