#include "models/io/atomic_file.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <string>
#include <utility>

#include "kernels/error.h"

namespace lariat {
namespace {

constexpr int kMaxLeftBehind = 1000;  // temporary files per name

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

AtomicFile::AtomicFile(std::filesystem::path file) : file_(std::move(file)), target_(file_) {
  std::error_code ec;
  const auto status = std::filesystem::status(file_, ec);
  if (std::filesystem::is_directory(status)) throw Error(file_.string() + ": is a folder; give a file name");
  if (std::filesystem::exists(status) && !std::filesystem::is_regular_file(status)) {
    fd_ = ::open(file_.c_str(), O_WRONLY | O_CLOEXEC);
  } else {
    const std::filesystem::path real = std::filesystem::weakly_canonical(file_, ec);
    if (!ec) target_ = real;
    open_temporary();
  }
  if (fd_ < 0) {
    const int error = errno;
    temporary_.clear();  // not created here
    fail("cannot be written", error);
  }
}

void AtomicFile::open_temporary() {
  struct stat old {};
  const bool replaces = ::stat(target_.c_str(), &old) == 0;
  const mode_t mode = replaces ? old.st_mode & 0777 : 0666;
  // In containers all runs may have one process number: another process may still write an existing file.
  for (int i = 0; i < kMaxLeftBehind; ++i) {
    temporary_ = target_;
    temporary_ += ".tmp" + std::to_string(::getpid()) + (i > 0 ? "." + std::to_string(i) : "");
    fd_ = ::open(temporary_.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, mode);
    if (fd_ >= 0 || errno != EEXIST) break;
  }
  // Restores the bits that the umask removed. Failure is harmless: open() gave no more than the old bits.
  if (fd_ >= 0 && replaces) static_cast<void>(::fchmod(fd_, mode));
}

AtomicFile::~AtomicFile() { close_and_remove(); }

void AtomicFile::close_and_remove() noexcept {
  if (fd_ >= 0) ::close(std::exchange(fd_, -1));
  if (!temporary_.empty()) ::unlink(temporary_.c_str());
  temporary_.clear();
}

void AtomicFile::fail(const char* what, int error) {
  close_and_remove();
  throw Error(file_.string() + ": " + what + " (" + std::strerror(error) +
              "); check the folder, its permissions and the space left");
}

void AtomicFile::write(std::string_view bytes) {
  if (const int error = write_all(fd_, bytes)) fail("cannot be written", error);
}

void AtomicFile::commit(bool durable) {
  // Pipes and devices cannot be flushed (EINVAL or EROFS).
  if (durable && !temporary_.empty() && ::fsync(fd_) != 0) fail("cannot be written", errno);
  // Some file systems report a full disk on closing.
  if (::close(std::exchange(fd_, -1)) != 0) fail("cannot be written", errno);
  if (temporary_.empty()) return;
  if (::rename(temporary_.c_str(), target_.c_str()) != 0) fail("cannot be replaced", errno);
  temporary_.clear();
  if (!durable) return;
  const auto folder = target_.has_parent_path() ? target_.parent_path() : std::filesystem::path(".");
  const int fd = ::open(folder.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  if (fd < 0) return;  // the file exists; the system writes its name to the disk later
  ::fsync(fd);
  ::close(fd);
}

void write_file_atomically(const std::filesystem::path& file, std::string_view content) {
  AtomicFile out(file);
  out.write(content);
  out.commit();
}

void check_writable(const std::filesystem::path& file) {
  std::error_code ec;
  if (file.empty() || std::filesystem::is_directory(file, ec)) {
    throw Error(file.string() + ": is a folder; give the name of a file to write");
  }
  const auto folder = file.has_parent_path() ? file.parent_path() : std::filesystem::path(".");
  if (!std::filesystem::is_directory(folder, ec)) {
    throw Error(file.string() + ": the folder " + folder.string() + " does not exist; create it");
  }
  const bool exists = std::filesystem::exists(file, ec);
  if (::access(exists ? file.c_str() : folder.c_str(), W_OK) != 0) {
    throw Error(file.string() + ": cannot write there: " + std::strerror(errno));
  }
}

}  // namespace lariat
