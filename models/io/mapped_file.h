#pragma once
#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <functional>
#include <string>

namespace lariat {

// A memory mapping of a whole file, to be read or, with kPrivate, to be written as well: what is written is
// this mapping's own, page by page, and never reaches the file. Throws Error naming the file when it cannot
// be had.
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
  std::byte* writable_data() const { return const_cast<std::byte*>(data_); }  // of kPrivate
  size_t size() const { return size_; }

  // Brings bytes [begin, end) into memory, calling progress(bytes so far) now and then.
  void populate(size_t begin, size_t end, const std::function<void(size_t)>& progress) const;
  // Asks the system to begin reading it, and returns. Of a large file Linux takes only the beginning, as much
  // as the disk's read-ahead allows; the rest is read as it is used.
  void prefetch() const;
  // The process no longer holds the memory of bytes [begin, end), but for pages that lie in them only in
  // part. What is read there again comes from the file, and what was written there is lost.
  void give_back(size_t begin, size_t end) const;

 private:
  const std::byte* data_ = nullptr;
  size_t size_ = 0;
};

// A mapped file that becomes shorter while it is used, or whose disk fails, raises SIGBUS where it is read.
// From this call on, SIGBUS inside a MappedFile that was made since ends the program with one line on stderr,
// which `line` makes of an error that names the file, and exit code 1. Nothing that was written is lost by
// that: files are written as a whole or line by line. Any other SIGBUS ends the program as before. (The
// handler knows the first thousand mappings; more than that are not named.)
void install_mapping_fault_handler(std::string (*line)(const std::string& error));

}  // namespace lariat
