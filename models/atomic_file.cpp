#include "models/atomic_file.h"

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
int write_file(const std::filesystem::path& file, int flags, std::string_view content) {
  const int fd = ::open(file.c_str(), flags | O_WRONLY | O_CLOEXEC, 0666);
  if (fd < 0) return errno;
  const int error = write_all(fd, content);
  return ::close(fd) != 0 && error == 0 ? errno : error;
}

}  // namespace

int write_all(int fd, std::string_view content) {
  while (!content.empty()) {
    const ssize_t n = ::write(fd, content.data(), content.size());
    if (n < 0 && errno == EINTR) continue;
    if (n <= 0) return n < 0 ? errno : EIO;
    content.remove_prefix(static_cast<size_t>(n));
  }
  return 0;
}

void write_file_atomically(const std::filesystem::path& file, std::string_view content) {
  std::error_code ec;
  const auto status = std::filesystem::status(file, ec);
  if (std::filesystem::is_directory(status)) throw Error(file.string() + ": is a folder; give a file name");
  if (std::filesystem::exists(status) && !std::filesystem::is_regular_file(status)) {
    if (const int error = write_file(file, 0, content)) fail(file, "cannot be written", error);
    return;
  }
  // A symbolic link stays one: its target is what gets replaced.
  const std::filesystem::path real = std::filesystem::weakly_canonical(file, ec);
  const std::filesystem::path target = ec ? file : real;
  std::filesystem::path temporary = target;
  temporary += ".tmp" + std::to_string(::getpid());
  const int error = write_file(temporary, O_CREAT | O_EXCL, content);
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

void check_writable(const std::filesystem::path& file) {
  std::error_code ec;
  if (file.empty() || std::filesystem::is_directory(file, ec)) {
    throw Error(file.string() + ": is a folder; give the name of a file to write");
  }
  const auto folder = file.has_parent_path() ? file.parent_path() : std::filesystem::path(".");
  if (!std::filesystem::is_directory(folder, ec)) {
    throw Error(file.string() + ": there is no folder " + folder.string() + "; make it first");
  }
  const bool exists = std::filesystem::exists(file, ec);
  if (::access(exists ? file.c_str() : folder.c_str(), W_OK) != 0) {
    throw Error(file.string() + ": cannot write there: " + std::strerror(errno));
  }
}

}  // namespace lariat
