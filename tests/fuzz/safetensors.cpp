// A .safetensors header, and model.safetensors.index.json.
#include "models/files/safetensors.h"

#include "tests/fuzz/fuzz.h"

namespace {

using namespace lariat;

void check_tensor(const StoredTensor& tensor, std::string_view input) {
  const auto* begin = reinterpret_cast<const std::byte*>(input.data());
  fuzz::require(tensor.data >= begin + 8 && tensor.data + tensor.bytes <= begin + input.size(),
                "a tensor outside its file");
  uint64_t values = 1;
  for (const int64_t size : tensor.shape) {
    fuzz::require(size >= 0, "a negative size");
    values *= static_cast<uint64_t>(size);
  }
  fuzz::require(values == 0 || tensor.bytes % values == 0, "the bytes do not match the shape");
  fuzz::accepted([&] { tensor.float_dtype(); });
}

}  // namespace

FUZZ_TARGET(safetensors) {
  fuzz::accepted([&] {
    const auto bytes = std::as_bytes(std::span(input));
    for (const StoredTensor& tensor : parse_safetensors(bytes, "model.safetensors"))
      check_tensor(tensor, input);
  });
  fuzz::accepted([&] {
    for (const auto& name : parse_safetensors_index(input, "index.json")) {
      const auto path = ("folder" / std::filesystem::path(name)).lexically_normal();
      fuzz::require(path.has_filename() && path.begin()->string() == "folder" && path != "folder",
                    "a shard outside the folder");
    }
  });
}
