// Metadata, tensors, and texts encoded with the file's tokenizer.
#include "models/gguf/gguf.h"

#include <span>

#include "models/gguf/gguf_file.h"
#include "models/gguf/gguf_model.h"
#include "models/load/config.h"
#include "models/quantization/gguf_blocks.h"
#include "tests/fuzz/fuzz.h"

namespace {

using namespace lariat;

void check_stored(const StoredTensor& tensor, std::string_view input) {
  const auto* begin = reinterpret_cast<const std::byte*>(input.data());
  const size_t room = input.size();
  fuzz::require(tensor.data >= begin && tensor.bytes <= room &&
                    static_cast<size_t>(tensor.data - begin) <= room - tensor.bytes,
                "a tensor outside its file");
  uint64_t values = 1;
  for (const int64_t size : tensor.shape) {
    fuzz::require(size > 0, "the size is not positive");
    values *= static_cast<uint64_t>(size);
  }
  const GgufType* type = find_gguf_type(tensor.dtype);
  fuzz::require(
      type != nullptr && values % static_cast<uint64_t>(type->elements) == 0 &&
          values / static_cast<uint64_t>(type->elements) * static_cast<uint64_t>(type->bytes) == tensor.bytes,
      "bytes that do not fit the shape");
  if (!tensor.reader) return;
  const Matrix& m = tensor.reader->m;
  std::vector<float> row(static_cast<size_t>(m.cols));
  for (const int64_t r : {int64_t{0}, m.rows / 2, m.rows - 1})
    read_floats(*tensor.reader, r, Matrix(row.data(), DType::kF32, 1, m.cols));
}

}  // namespace

FUZZ_TARGET(gguf) {
  fuzz::accepted([&] {
    const GgufFile file = parse_gguf(std::as_bytes(std::span(input)), "m.gguf");
    for (const StoredTensor& tensor : file.tensors) check_stored(tensor, input);
    fuzz::accepted([&] {
      for (const StoredTensor& tensor : gguf_tensors(file)) check_stored(tensor, input);
    });
    fuzz::accepted([&] { parse_config(gguf_config(file).dump(), "m.gguf"); });
  });
  const auto path = fuzz::fresh_folder() / "m.gguf";
  fuzz::write(path, input);
  fuzz::accepted([&] {
    const ModelFiles files = open_gguf(path);
    fuzz::round_trip(Tokenizer::load(files.texts), "The river  <s> 12\n\t\xE6\xB2\xB3 don't \xFF aaaa");
  });
}
