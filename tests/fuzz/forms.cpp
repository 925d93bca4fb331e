// Method settings, a zero byte, and a .safetensors file.
#include "models/quantization/quantization.h"

#include <algorithm>

#include "models/files/safetensors.h"
#include "models/io/json_file.h"
#include "tests/fuzz/fuzz.h"

namespace {

using namespace lariat;

void read_rows(const StoredTensor& tensor) {
  const Matrix& m = tensor.reader->m;
  int64_t values = 1;
  for (const int64_t size : tensor.shape) values *= size;
  fuzz::require(values == m.rows * m.cols && tensor.shape.back() == m.cols, "rows do not match the shape");
  std::vector<float> row(static_cast<size_t>(m.cols));
  for (const int64_t r : {int64_t{0}, m.rows / 2, m.rows - 1})
    read_floats(*tensor.reader, r, Matrix(row.data(), DType::kF32, 1, m.cols));
}

}  // namespace

FUZZ_TARGET(forms) {
  const std::filesystem::path folder = fuzz::fresh_folder();
  const size_t end = std::min(input.find('\0'), input.size());
  fuzz::write(folder / "model.safetensors", input.substr(std::min(end + 1, input.size())));
  fuzz::accepted([&] {
    const nlohmann::json config = parse_json(input.substr(0, end), "config.json");
    Tensors tensors = open_safetensors(folder);
    std::vector<std::string> warnings;
    read_quantized(config, "config.json", tensors, warnings);
    for (const auto& [name, tensor] : tensors.all()) {
      if (tensor.reader) read_rows(tensor);
    }
  });
}
