#include "engine/atomic_file.h"

#include <fcntl.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <string>

#include "kernels/error.h"

namespace lariat {
namespace {

[[noreturn]] void fail(const std::filesystem::path& file, const char* what, int error) {
  throw Error(file.string() + ": " + what + " (" + std::strerror(error) +
              "); check the folder, its permissions and the space left");
}

// 0, or errno. Closing is where some file systems report a full disk.
int write_all(const std::filesystem::path& file, int flags, std::string_view content) {
  const int fd = ::open(file.c_str(), flags | O_WRONLY | O_CLOEXEC, 0666);
  if (fd < 0) return errno;
  int error = 0;
  while (!content.empty() && error == 0) {
    const ssize_t n = ::write(fd, content.data(), content.size());
    if (n > 0) {
      content.remove_prefix(static_cast<size_t>(n));
    } else if (n < 0 && errno != EINTR) {
      error = errno;
    }
  }
  if (::close(fd) != 0 && error == 0) error = errno;
  return error;
}

}  // namespace

void write_file_atomically(const std::filesystem::path& file, std::string_view content) {
  std::error_code ec;
  const auto status = std::filesystem::status(file, ec);
  if (std::filesystem::is_directory(status)) throw Error(file.string() + ": is a folder; give a file name");
  if (std::filesystem::exists(status) && !std::filesystem::is_regular_file(status)) {
    if (const int error = write_all(file, 0, content)) fail(file, "cannot be written", error);
    return;
  }
  // A symbolic link stays one: its target is what gets replaced.
  const std::filesystem::path real = std::filesystem::weakly_canonical(file, ec);
  const std::filesystem::path target = ec ? file : real;
  std::filesystem::path temporary = target;
  temporary += ".tmp" + std::to_string(::getpid());
  const int error = write_all(temporary, O_CREAT | O_EXCL, content);
  if (error != 0) {
    if (error != EEXIST) std::filesystem::remove(temporary, ec);
    fail(file, "cannot be written", error);
  }
  std::filesystem::rename(temporary, target, ec);
  if (ec) {
    const int code = ec.value();
    std::filesystem::remove(temporary, ec);
    fail(file, "cannot be replaced", code);
  }
}

}  // namespace lariat
