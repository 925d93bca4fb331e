#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <utility>

#include "kernels/error.h"
#include "models/mapping_fault.h"
#include "models/safetensors.h"

namespace lariat {

MappedFile::MappedFile(const std::filesystem::path& file) {
  const auto fail = [&](const char* what) {
    return Error(file.string() + ": " + what + " (" + std::strerror(errno) + ")");
  };
  const int fd = ::open(file.c_str(), O_RDONLY | O_CLOEXEC);
  if (fd < 0) throw fail("cannot be opened");
  struct stat status {};
  if (::fstat(fd, &status) != 0 || !S_ISREG(status.st_mode)) {
    ::close(fd);
    throw Error(file.string() + ": is not a regular file");
  }
  size_ = static_cast<size_t>(status.st_size);
  if (size_ > 0) {
    void* mapped = ::mmap(nullptr, size_, PROT_READ, MAP_PRIVATE, fd, 0);
    if (mapped == MAP_FAILED) {
      const int error = errno;
      ::close(fd);
      errno = error;
      throw fail(error == ENOMEM
                     ? "cannot be mapped into memory; raise the limit on memory, or use a smaller model"
                     : "cannot be mapped into memory");
    }
    data_ = static_cast<const std::byte*>(mapped);
    register_mapping(data_, size_, file);
  }
  ::close(fd);
}

MappedFile::MappedFile(MappedFile&& other) noexcept
    : data_(std::exchange(other.data_, nullptr)), size_(std::exchange(other.size_, 0)) {}

MappedFile::~MappedFile() {
  if (data_ == nullptr) return;
  unregister_mapping(data_);
  ::munmap(const_cast<std::byte*>(data_), size_);
}

void MappedFile::populate(size_t begin, size_t end, const std::function<void(size_t)>& progress) const {
  constexpr size_t kStep = size_t{64} << 20, kPage = 4096;
  for (size_t start = begin; start < end; start += kStep) {
    const size_t stop = std::min(end, start + kStep);
    // Ask for the step after this one before waiting for this one, so that the disk never idles.
    const size_t page = start / kPage * kPage;
    ::madvise(const_cast<std::byte*>(data_) + page, std::min(end - page, 2 * kStep), MADV_WILLNEED);
    for (size_t at = start; at < stop; at += kPage) {
      static_cast<void>(*static_cast<const volatile std::byte*>(data_ + at));
    }
    progress(stop - begin);
  }
}

}  // namespace lariat
