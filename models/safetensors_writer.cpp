#include <fcntl.h>
#include <fmt/format.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>

#include "kernels/error.h"
#include "kernels/integers.h"
#include "models/json_file.h"
#include "models/safetensors.h"

namespace lariat {

SafetensorsWriter::SafetensorsWriter(std::filesystem::path file, const std::string& name,
                                     std::vector<int64_t> shape)
    : file_(std::move(file)), temporary_(file_.string() + ".part") {
  expected_ = 1;
  for (const int64_t size : shape) expected_ *= static_cast<size_t>(size);
  const nlohmann::json header = {
      {name, {{"dtype", "F32"}, {"shape", shape}, {"data_offsets", {0, expected_ * 4}}}}};
  std::string text = header.dump();
  text.resize(round_up<size_t>(text.size(), 8), ' ');  // data starts on 8 bytes
  fd_ = ::open(temporary_.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0666);
  if (fd_ < 0)
    throw Error(fmt::format("{}: cannot be written ({})", temporary_.string(), std::strerror(errno)));
  const uint64_t header_bytes = text.size();
  write(&header_bytes, sizeof header_bytes);
  write(text.data(), text.size());
}

SafetensorsWriter::~SafetensorsWriter() {
  if (fd_ < 0) return;
  ::close(fd_);
  ::unlink(temporary_.c_str());
}

void SafetensorsWriter::write(const void* data, size_t bytes) {
  const char* at = static_cast<const char*>(data);
  while (bytes > 0) {
    const ssize_t n = ::write(fd_, at, bytes);
    if (n < 0 && errno == EINTR) continue;
    if (n <= 0) {
      throw Error(
          fmt::format("{}: writing failed ({}); nothing was kept", file_.string(), std::strerror(errno)));
    }
    at += n;
    bytes -= static_cast<size_t>(n);
  }
}

void SafetensorsWriter::append(const float* values, size_t count) {
  write(values, count * sizeof(float));
  written_ += count;
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
