#include "models/forms/gguf_blocks.h"

#include <cmath>
#include <fstream>
#include <set>
#include <sstream>

#include "kernels/quant.h"
#include "models/safetensors.h"
#include "tests/test_util.h"

namespace lariat::test {
namespace {

const char* const kGolden = LARIAT_SOURCE_DIR "/tests/golden/gguf/blocks.safetensors";

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

// Bit by bit, but for the sign of a zero: a minimum of 0 is subtracted by who wrote the values, and added
// here.
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

// What kernels read, as floats.
std::vector<float> laid_out(const HostWeight& codes) {
  Matrix m(nullptr, codes.m.form(), codes.m.rows, codes.m.cols);
  std::vector<std::byte> bytes(stored_bytes(m));
  m.data = bytes.data();
  lay_out(codes, m);
  std::vector<float> values;
  for (int64_t r = 0; r < m.rows; ++r) {
    for (int64_t c = 0; c < m.cols; ++c) values.push_back(dequantized(m, r, c));
  }
  return values;
}

TEST(GgufBlocks, AreWhatTheGgufPackageMakesOfThem) {
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

// Blocks of 256 have scales of scales, and bytes with codes of at most 6 bits are narrow.
TEST(GgufBlocks, OfARowFillItAndNothingAfterIt) {
  const std::set<std::string> nested{"Q2_K", "Q3_K", "Q4_K", "Q5_K", "Q6_K", "IQ4_XS"},
      narrow{"Q5_0", "Q5_1", "Q5_K", "Q6_K"};
  const Tensors golden = open_safetensors_file(kGolden);
  for (const auto& [name, blocks] : golden.all()) {
    if (name.ends_with(".values")) continue;
    const int64_t cols = find_gguf_type(name)->elements;
    const auto weight = gguf_codes(tensor_of(name, blocks.data, 1, cols));
    const Grouping& grouping = weight->m.form().grouping;
    EXPECT_EQ(grouping.block, nested.contains(name) ? 256 : 64) << name;
    EXPECT_EQ(grouping.narrow, narrow.contains(name)) << name;
    std::vector<uint8_t> codes(static_cast<size_t>(cols) + 64, 0xAB);
    std::vector<float> floats(400, 777);
    float* const at = floats.data();
    weight->read_codes(0, {codes.data(), at, at + 100, at + 200, at + 300});
    const auto groups = static_cast<size_t>(cols / grouping.size);
    EXPECT_EQ(codes[static_cast<size_t>(cols)], 0xAB) << name;
    for (const size_t after : {groups, 100 + (grouping.minimum ? groups : 0), size_t{201}, size_t{301}})
      EXPECT_EQ(floats[after], 777) << name << " " << after;
  }
}

// The package, as ggml, makes 2^128 of it; the OCP's specification of MX says NaN (5.2).
TEST(GgufBlocks, AScaleOfMxfp4ThatIsNoNumberIsNan) {
  std::byte block[17] = {std::byte{255}};
  for (const float value : floats_of(*gguf_codes(tensor_of("MXFP4", block, 1, 32))))
    EXPECT_TRUE(std::isnan(value));
}

TEST(GgufBlocks, FloatsHaveNoCodes) {
  for (const char* type : {"F32", "F16", "BF16"})
    EXPECT_EQ(gguf_codes(tensor_of(type, nullptr, 3, 5)), nullptr) << type;
}

TEST(GgufBlocks, ATypeThatLariatDoesNotRunIsNamed) {
  EXPECT_EQ(
      error_of([] { gguf_codes(tensor_of("IQ2_XS", nullptr, 2, 256)); }),
      "model.gguf: tensor 'w' is IQ2_XS; lariat runs Q8_0, Q4_0, Q4_1, Q5_0, Q5_1, Q2_K, Q3_K, Q4_K, Q5_K, "
      "Q6_K, IQ4_NL, IQ4_XS, MXFP4, F32, F16 and BF16");
  EXPECT_EQ(error_of([] { gguf_codes(tensor_of("Q4_K", nullptr, 2, 288)); }),
            "model.gguf: tensor 'w' has rows of 288; those of Q4_K are a multiple of 256");
  StoredTensor scalar = tensor_of("Q8_0", nullptr, 1, 32);
  scalar.shape.clear();
  EXPECT_TRUE(holds(error_of([&] { gguf_codes(scalar); }), "rows of 1;"));
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

// The table of docs/models.md, which is to have all of them: bits of a weight in the file and in memory.
TEST(GgufTypes, TakeTheMemoryThatThePageSays) {
  std::ifstream page(LARIAT_SOURCE_DIR "/docs/models.md");
  std::set<std::string> seen;
  for (std::string line; std::getline(page, line);) {
    std::istringstream row(line);
    std::string bar, type;
    double file = 0, memory = 0;
    if (!(row >> bar >> type >> bar >> file >> bar >> memory) || find_gguf_type(type) == nullptr) continue;
    seen.insert(type);
    constexpr int64_t kRows = 16, kCols = 4096;
    const std::vector<std::byte> none;
    const StoredTensor tensor = tensor_of(type, none.data(), kRows, kCols);
    const auto codes = gguf_codes(tensor);
    EXPECT_EQ(8.0 * static_cast<double>(tensor.bytes) / (kRows * kCols), file) << type;
    EXPECT_EQ(8.0 * static_cast<double>(stored_bytes(codes->m)) / (kRows * kCols), memory) << type;
  }
  EXPECT_EQ(seen.size(), 13U);
}

}  // namespace
}  // namespace lariat::test
