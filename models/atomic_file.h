#pragma once
#include <filesystem>
#include <string_view>

// Writing files.
namespace lariat {

// Writes all of it to a descriptor, or returns the errno of what failed; 0: done. A write that takes nothing
// and gives no reason counts as EIO.
int write_all(int fd, std::string_view content);

// Writes a whole file or leaves what was there: into a temporary file beside it, then renamed. Something that
// is not a regular file (a pipe, a device) is written to directly. Throws Error naming the file.
void write_file_atomically(const std::filesystem::path& file, std::string_view content);

// Throws Error when a file of this name could not be written (it is a folder, there is no such folder, no
// permission), so that hours of work are not done for nothing.
void check_writable(const std::filesystem::path& file);

}  // namespace lariat
