#include "models/io/mapped_file.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <csignal>
#include <cstdlib>
#include <cstring>
#include <mutex>
#include <string>
#include <utility>

#include "kernels/error.h"
#include "kernels/integers.h"

namespace lariat {
namespace {

// Read by a signal handler: plain memory, published by `begin`.
struct Mapping {
  std::atomic<const char*> begin{nullptr};
  size_t bytes = 0;
  char* message = nullptr;  // a line from strdup
};

Mapping g_mappings[1024];
std::mutex g_mutex;  // guards changes of g_mappings
std::string (*g_line)(const std::string& error) = nullptr;
static_assert(std::atomic<const char*>::is_always_lock_free, "a signal handler reads it");

void on_bus_error(int signal, siginfo_t* info, void* /*context*/) {
  const auto* address = static_cast<const char*>(info->si_addr);
  for (const Mapping& mapping : g_mappings) {
    const char* begin = mapping.begin.load(std::memory_order_acquire);
    if (begin == nullptr || address < begin || address >= begin + mapping.bytes) continue;
    const ssize_t written = ::write(STDERR_FILENO, mapping.message, std::strlen(mapping.message));
    static_cast<void>(written);
    ::_exit(1);
  }
  std::signal(signal, SIG_DFL);  // no mapping's address: the repeated read ends the program
}

void register_mapping(const void* data, size_t bytes, const std::filesystem::path& file) {
  if (g_line == nullptr) return;
  const std::string message = g_line(
      file.string() + ": could not be read: it was truncated while in use, or its disk fails; copy it again");
  const std::lock_guard lock(g_mutex);
  for (Mapping& mapping : g_mappings) {
    if (mapping.begin.load() != nullptr) continue;
    mapping.message = ::strdup(message.c_str());
    if (mapping.message == nullptr) return;
    mapping.bytes = bytes;
    mapping.begin.store(static_cast<const char*>(data), std::memory_order_release);
    return;
  }
}

void unregister_mapping(const void* data) {
  const std::lock_guard lock(g_mutex);
  for (Mapping& mapping : g_mappings) {
    if (mapping.begin.load() != data) continue;
    mapping.begin.store(nullptr);
    std::free(mapping.message);
    mapping.message = nullptr;
    return;
  }
}

size_t page_bytes() { return static_cast<size_t>(::sysconf(_SC_PAGESIZE)); }

}  // namespace

void install_mapping_fault_handler(std::string (*line)(const std::string& error)) {
  g_line = line;
  struct sigaction action {};
  action.sa_sigaction = on_bus_error;
  action.sa_flags = SA_SIGINFO;
  ::sigaction(SIGBUS, &action, nullptr);
}

MappedFile::MappedFile(const std::filesystem::path& file, Access access) {
  const auto fail = [&](const char* what) {
    return Error(fmt::format("{}: {} ({})", file.string(), what, std::strerror(errno)));
  };
  const int fd = ::open(file.c_str(), O_RDONLY | O_CLOEXEC);
  if (fd < 0) throw fail("cannot be opened");
  struct stat status {};
  if (::fstat(fd, &status) != 0 || !S_ISREG(status.st_mode)) {
    ::close(fd);
    throw Error(file.string() + ": is not a regular file; save it as a regular file");
  }
  size_ = static_cast<size_t>(status.st_size);
  if (size_ > 0) {
    // NORESERVE: a private mapping takes memory only for written pages.
    const bool own = access == Access::kPrivate;
    void* mapped = ::mmap(nullptr, size_, own ? PROT_READ | PROT_WRITE : PROT_READ,
                          own ? MAP_PRIVATE | MAP_NORESERVE : MAP_PRIVATE, fd, 0);
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

void MappedFile::prefetch() const {
  if (size_ > 0) ::madvise(const_cast<std::byte*>(data_), size_, MADV_WILLNEED);
}

void MappedFile::populate(size_t begin, size_t end, const std::function<void(size_t)>& progress) const {
  constexpr size_t kStep = size_t{64} << 20;
  const size_t page = page_bytes();
  for (size_t start = begin; start < end; start += kStep) {
    const size_t stop = std::min(end, start + kStep);
    // Requests the next step before waiting for this one.
    const size_t first = start / page * page;
    ::madvise(const_cast<std::byte*>(data_) + first, std::min(end - first, 2 * kStep), MADV_WILLNEED);
    for (size_t at = start; at < stop; at += page) {
      static_cast<void>(*static_cast<const volatile std::byte*>(data_ + at));
    }
    progress(stop - begin);
  }
}

void MappedFile::release_pages(size_t begin, size_t end) const {
  const size_t page = page_bytes();
  const size_t first = round_up(begin, page), last = end / page * page;
  if (first < last) ::madvise(const_cast<std::byte*>(data_) + first, last - first, MADV_DONTNEED);
}

}  // namespace lariat
