#include <fmt/format.h>

#include <nlohmann/json.hpp>

#include "kernels/error.h"
#include "kernels/integers.h"
#include "models/files/safetensors.h"

namespace lariat {

SafetensorsWriter::SafetensorsWriter(const std::filesystem::path& file,
                                     const std::vector<NamedShape>& tensors, const SafetensorsLayout& layout)
    : name_(file.string()), file_(file) {
  nlohmann::json header = nlohmann::json::object();
  if (!layout.metadata.empty()) header["__metadata__"] = layout.metadata;
  for (const NamedShape& tensor : tensors) {
    const size_t begin = expected_;
    size_t bytes = safetensors_element_bytes(tensor.dtype);
    for (const int64_t size : tensor.shape) bytes *= static_cast<size_t>(size);
    expected_ += bytes;
    header[tensor.name] = {
        {"dtype", tensor.dtype}, {"shape", tensor.shape}, {"data_offsets", {begin, expected_}}};
  }
  std::string text = header.dump();
  text.resize(round_up<size_t>(text.size() + sizeof(uint64_t), layout.alignment) - sizeof(uint64_t), ' ');
  if (text.size() > kMaxSafetensorsHeader)
    throw Error(fmt::format("{}: {} tensors exceed the limit of a safetensors file", name_, tensors.size()));
  const uint64_t header_bytes = text.size();
  file_.write({reinterpret_cast<const char*>(&header_bytes), sizeof header_bytes});
  file_.write(text);
}

void SafetensorsWriter::append(std::span<const std::byte> bytes) {
  file_.write({reinterpret_cast<const char*>(bytes.data()), bytes.size()});
  written_ += bytes.size();
}

void SafetensorsWriter::finish(bool durable) {
  if (written_ != expected_) throw Error(name_ + ": tensor incomplete; nothing was kept");
  file_.commit(durable);
}

}  // namespace lariat
