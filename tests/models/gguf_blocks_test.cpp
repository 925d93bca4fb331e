#include "models/quantization/gguf_blocks.h"

#include <cmath>
#include <fstream>
#include <map>

#include "kernels/quant.h"
#include "models/files/safetensors.h"
#include "tests/test_util.h"

namespace lariat::test {
namespace {

const std::filesystem::path kGolden = source_dir() / "tests/golden/gguf/blocks.safetensors";

StoredTensor tensor_of(std::string_view type, const std::byte* data, int64_t rows, int64_t cols) {
  const GgufType& blocks = *find_gguf_type(type);
  StoredTensor tensor;
  tensor.name = "w";
  tensor.dtype = type;
  tensor.shape = {rows, cols};
  tensor.data = data;
  tensor.bytes = static_cast<size_t>(rows * cols / blocks.elements * blocks.bytes);
  tensor.file = "model.gguf";
  return tensor;
}

// Values are equal but for the sign of zero: the references subtract a minimum of 0, lariat adds it.
void expect_same(const std::vector<float>& values, const float* expected, const std::string& what) {
  for (size_t i = 0; i < values.size(); ++i) {
    EXPECT_TRUE(values[i] == expected[i] || (std::isnan(values[i]) && std::isnan(expected[i])))
        << what << " " << i << ": " << values[i] << " for " << expected[i];
  }
}

std::vector<float> floats_of(const HostWeight& codes) {
  std::vector<float> values(static_cast<size_t>(codes.m.rows * codes.m.cols));
  lay_out(codes, Matrix(values.data(), DType::kF32, codes.m.rows, codes.m.cols));
  return values;
}

std::vector<float> laid_out(const HostWeight& codes) {
  Matrix m(nullptr, codes.m.format(), codes.m.rows, codes.m.cols);
  std::vector<std::byte> bytes(stored_bytes(m));
  m.data = bytes.data();
  lay_out(codes, m);
  std::vector<float> values;
  for (int64_t r = 0; r < m.rows; ++r) {
    for (int64_t c = 0; c < m.cols; ++c) values.push_back(dequantized(m, r, c));
  }
  return values;
}

TEST(GgufBlocks, EqualTheGgufPackage) {
  const Tensors golden = open_safetensors_file(kGolden);
  int types = 0;
  for (const auto& [name, blocks] : golden.all()) {
    if (name.ends_with(".values")) continue;
    ++types;
    const StoredTensor& values = *golden.find(name + ".values");
    const auto* const expected = reinterpret_cast<const float*>(values.data);
    const int64_t count = values.shape[0] * values.shape[1];
    ASSERT_EQ(blocks.shape[1], find_gguf_type(name)->bytes) << name;
    ASSERT_EQ(values.shape[1], find_gguf_type(name)->elements) << name;
    for (const int64_t rows : {int64_t{1}, int64_t{2}, values.shape[0]}) {
      const auto codes = gguf_codes(tensor_of(name, blocks.data, rows, count / rows));
      ASSERT_TRUE(codes) << name;
      EXPECT_EQ(codes->m.rows, rows);
      expect_same(floats_of(*codes), expected, name);
      expect_same(laid_out(*codes), expected, name + " laid out");
    }
  }
  EXPECT_EQ(types, 13);
}

// Blocks of 256 have nested scales; values of other sizes than 4 and 8 bits are in planes.
TEST(GgufBlocks, FillTheirRowAndNothingElse) {
  const std::set<std::string> nested{"Q2_K", "Q3_K", "Q4_K", "Q5_K", "Q6_K", "IQ4_XS"};
  const std::map<std::string, int> bits{{"Q5_0", 5}, {"Q5_1", 5}, {"Q2_K", 2},
                                        {"Q3_K", 3}, {"Q5_K", 5}, {"Q6_K", 6}};
  const Tensors golden = open_safetensors_file(kGolden);
  for (const auto& [name, blocks] : golden.all()) {
    if (name.ends_with(".values")) continue;
    const int64_t cols = find_gguf_type(name)->elements;
    const auto weight = gguf_codes(tensor_of(name, blocks.data, 1, cols));
    const Grouping& grouping = weight->m.format().grouping;
    EXPECT_EQ(grouping.block, nested.contains(name) ? 256 : 64) << name;
    EXPECT_EQ(grouping.bits, bits.contains(name) ? bits.at(name) : 0) << name;
    std::vector<uint8_t> codes(static_cast<size_t>(cols) + 64, 0xAB);
    std::vector<float> floats(400, 777);
    float* const at = floats.data();
    weight->read_row(0, {codes.data(), at, at + 100, at + 200, at + 300});
    const auto groups = static_cast<size_t>(cols / grouping.size);
    EXPECT_EQ(codes[static_cast<size_t>(cols)], 0xAB) << name;
    for (const size_t after : {groups, 100 + (grouping.minimum ? groups : 0), size_t{201}, size_t{301}})
      EXPECT_EQ(floats[after], 777) << name << " " << after;
  }
}

// The package and ggml give 2^128, the OCP's MX specification NaN (e8m0_to_f32).
TEST(GgufBlocks, AnMxfp4ScaleOf255IsNan) {
  std::byte block[17] = {std::byte{255}};
  for (const float value : floats_of(*gguf_codes(tensor_of("MXFP4", block, 1, 32))))
    EXPECT_TRUE(std::isnan(value));
}

TEST(GgufBlocks, FloatTypesHaveNoBlocks) {
  for (const char* type : {"F32", "F16", "BF16"})
    EXPECT_EQ(gguf_codes(tensor_of(type, nullptr, 3, 5)), nullptr) << type;
}

TEST(GgufBlocks, UnsupportedTypesAreNamed) {
  EXPECT_TRUE(
      names(error_of([] { gguf_codes(tensor_of("IQ2_XS", nullptr, 2, 256)); }),
            "model.gguf | w | IQ2_XS | Q8_0 | Q4_0 | Q4_1 | Q5_0 | Q5_1 | Q2_K | Q3_K | Q4_K | Q5_K | Q6_K | "
            "IQ4_NL | IQ4_XS | MXFP4 | F32 | F16 | BF16"));
  EXPECT_TRUE(names(error_of([] { gguf_codes(tensor_of("Q4_K", nullptr, 2, 288)); }),
                    "model.gguf | w | 288 | Q4_K | 256"));
  StoredTensor scalar = tensor_of("Q8_0", nullptr, 1, 32);
  scalar.shape.clear();
  EXPECT_TRUE(names(error_of([&] { gguf_codes(scalar); }), "w | 1"));
  StoredTensor stacked = tensor_of("Q8_0", nullptr, 6, 32);
  stacked.shape = {2, 3, 32};
  EXPECT_EQ(gguf_codes(stacked)->m.rows, 6);
}

TEST(GgufTypes, AreFoundByNumberAndByName) {
  for (const GgufType& type : gguf_types()) {
    EXPECT_EQ(find_gguf_type(type.id), &type) << type.name;
    EXPECT_EQ(find_gguf_type(type.name), &type);
  }
  EXPECT_EQ(find_gguf_type(4), nullptr);  // removed
  EXPECT_EQ(find_gguf_type("Q4_2"), nullptr);
}

TEST(GgufTypes, TakeTheMemoryOfTheirForm) {
  constexpr struct {
    const char* type;
    double file, memory;
  } kTypes[] = {{"Q8_0", 8.5, 8.5},      {"Q4_0", 4.5, 4.5},   {"Q4_1", 5, 5},
                {"Q5_0", 5.5, 5.5},      {"Q5_1", 6, 6},       {"Q2_K", 2.625, 2.625},
                {"Q3_K", 3.4375, 3.625}, {"Q4_K", 4.5, 4.625}, {"Q5_K", 5.5, 5.625},
                {"Q6_K", 6.5625, 6.625}, {"IQ4_NL", 4.5, 4.5}, {"IQ4_XS", 4.25, 4.375},
                {"MXFP4", 4.25, 4.5}};
  for (const auto& [type, file, memory] : kTypes) {
    constexpr int64_t kRows = 16, kCols = 4096;
    const StoredTensor tensor = tensor_of(type, nullptr, kRows, kCols);
    EXPECT_EQ(8.0 * static_cast<double>(tensor.bytes) / (kRows * kCols), file) << type;
    EXPECT_EQ(8.0 * static_cast<double>(stored_bytes(gguf_codes(tensor)->m)) / (kRows * kCols), memory)
        << type;
  }
}

}  // namespace
}  // namespace lariat::test
