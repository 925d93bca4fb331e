#pragma once
#include <filesystem>
#include <string_view>

// Writing files.
namespace lariat {

// Writes all of it to a descriptor, or returns the errno of what failed; 0: done. A write that takes nothing
// and gives no reason counts as EIO.
int write_all(int fd, std::string_view content);

// A file that appears whole or not at all: what is written goes into a temporary file beside it, which
// commit() puts in its place. Whatever ends the program before that leaves what was there; if it is a signal,
// the temporary file (NAME.tmp<process>) stays too. A file that is replaced keeps its permissions, a new one
// has those that the umask leaves. A symbolic link to a file stays one, and the file is replaced; one that
// leads nowhere is replaced itself. Something that is not a regular file (a pipe, a device) is written to
// directly. Everything throws Error naming the file.
class AtomicFile {
 public:
  explicit AtomicFile(std::filesystem::path file);
  AtomicFile(const AtomicFile&) = delete;
  AtomicFile& operator=(const AtomicFile&) = delete;
  ~AtomicFile();  // without commit(): removes what was written

  void write(std::string_view bytes);
  // durable: returns when all of it is on the disk, so that not even a power failure right after it leaves a
  // file without its content.
  void commit(bool durable = false);

 private:
  void open_temporary();  // leaves errno where fd_ stays -1
  void close_and_remove() noexcept;
  [[noreturn]] void fail(const char* what, int error);

  std::filesystem::path file_, target_, temporary_;  // as given; behind links; empty: written to directly
  int fd_ = -1;
};

// Writes a whole file or leaves what was there.
void write_file_atomically(const std::filesystem::path& file, std::string_view content);

// Throws Error when a file of this name could not be written (it is a folder, there is no such folder, no
// permission), so that hours of work are not done for nothing.
void check_writable(const std::filesystem::path& file);

}  // namespace lariat
