#include <fcntl.h>
#include <fmt/format.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <nlohmann/json.hpp>

#include "kernels/error.h"
#include "kernels/integers.h"
#include "models/atomic_file.h"
#include "models/safetensors.h"

namespace lariat {

SafetensorsWriter::SafetensorsWriter(std::filesystem::path file, const std::vector<NamedShape>& tensors)
    : file_(std::move(file)), temporary_(file_.string() + ".part") {
  nlohmann::json header = nlohmann::json::object();
  for (const NamedShape& tensor : tensors) {
    const size_t begin = expected_;
    size_t count = 1;
    for (const int64_t size : tensor.shape) count *= static_cast<size_t>(size);
    expected_ += count;
    header[tensor.name] = {{"dtype", "F32"},
                           {"shape", tensor.shape},
                           {"data_offsets", {begin * sizeof(float), expected_ * sizeof(float)}}};
  }
  std::string text = header.dump();
  text.resize(round_up<size_t>(text.size(), 8), ' ');  // data starts on 8 bytes
  fd_ = ::open(temporary_.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0666);
  if (fd_ < 0)
    throw Error(fmt::format("{}: cannot be written ({})", temporary_.string(), std::strerror(errno)));
  const uint64_t header_bytes = text.size();
  write({reinterpret_cast<const char*>(&header_bytes), sizeof header_bytes});
  write(text);
}

SafetensorsWriter::~SafetensorsWriter() {
  if (fd_ < 0) return;
  ::close(fd_);
  ::unlink(temporary_.c_str());
}

void SafetensorsWriter::write(std::string_view bytes) {
  if (const int error = write_all(fd_, bytes)) {
    throw Error(
        fmt::format("{}: writing failed ({}); nothing was kept", file_.string(), std::strerror(error)));
  }
}

void SafetensorsWriter::append(std::span<const float> values) {
  write({reinterpret_cast<const char*>(values.data()), values.size_bytes()});
  written_ += values.size();
}

void SafetensorsWriter::finish() {
  if (written_ != expected_) throw Error(file_.string() + ": tensor incomplete; nothing was kept");
  const int closed = ::close(std::exchange(fd_, -1));
  if (closed != 0 || ::rename(temporary_.c_str(), file_.c_str()) != 0) {
    const int error = errno;
    ::unlink(temporary_.c_str());
    throw Error(fmt::format("{}: cannot be written ({})", file_.string(), std::strerror(error)));
  }
}

}  // namespace lariat
