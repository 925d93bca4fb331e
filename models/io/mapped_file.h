#pragma once
#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <functional>
#include <string>

namespace lariat {

// Maps a whole file, read-only or, with kPrivate, copy-on-write: written pages stay in this mapping and
// never reach the file, so that several runs may continue one saved context. Throws Error.
class MappedFile {
 public:
  enum class Access : uint8_t { kRead, kPrivate };
  explicit MappedFile(const std::filesystem::path& file, Access access = Access::kRead);
  MappedFile(MappedFile&& other) noexcept;
  MappedFile(const MappedFile&) = delete;
  MappedFile& operator=(const MappedFile&) = delete;
  MappedFile& operator=(MappedFile&&) = delete;
  ~MappedFile();

  const std::byte* data() const { return data_; }
  std::byte* writable_data() const { return const_cast<std::byte*>(data_); }  // kPrivate only
  size_t size() const { return size_; }

  // Loads bytes [begin, end) into memory; calls progress(bytes so far).
  void populate(size_t begin, size_t end, const std::function<void(size_t)>& progress) const;
  // Asks the system to start reading. Of a large file Linux reads only the disk's read-ahead.
  void prefetch() const;
  // Releases whole pages in [begin, end): later reads read the file, written bytes are lost.
  void release_pages(size_t begin, size_t end) const;

 private:
  const std::byte* data_ = nullptr;
  size_t size_ = 0;
};

// After this call, SIGBUS in a MappedFile created since (at most 1,024; the file was truncated, or its disk
// failed) ends the program with exit code 1 and one line on stderr, which `line` makes from an error naming
// the file. Another SIGBUS ends the program as before.
void install_mapping_fault_handler(std::string (*line)(const std::string& error));

}  // namespace lariat
