#pragma once
#include <filesystem>
#include <string_view>

namespace lariat {

// Returns 0, or the errno of a failure (EIO without a reason).
int write_all(int fd, std::string_view content);

// A file that appears whole or not at all: commit() renames a temporary file (NAME.tmp<process>). Without
// commit() the old file stays; after a signal, so does the temporary file. A replaced file keeps its
// permissions; a new file follows the umask. A symbolic link to a file stays, a dangling one is replaced.
// Pipes and devices are written directly. Throws Error.
class AtomicFile {
 public:
  explicit AtomicFile(std::filesystem::path file);
  AtomicFile(const AtomicFile&) = delete;
  AtomicFile& operator=(const AtomicFile&) = delete;
  ~AtomicFile();  // without commit(): removes the written data

  void write(std::string_view bytes);
  // durable: waits for the disk: a power failure cannot leave an empty file.
  void commit(bool durable = false);

 private:
  void open_temporary();  // on failure sets errno, and fd_ stays -1
  void close_and_remove() noexcept;
  [[noreturn]] void fail(const char* what, int error);

  std::filesystem::path file_, target_, temporary_;  // as given; links resolved; empty: direct
  int fd_ = -1;
};

void write_file_atomically(const std::filesystem::path& file, std::string_view content);

// Throws Error if the file cannot be written; called before long work.
void check_writable(const std::filesystem::path& file);

}  // namespace lariat
