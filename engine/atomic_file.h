#pragma once
#include <filesystem>
#include <string_view>

namespace lariat {

// Writes a whole file or leaves what was there: into a temporary file beside it, then renamed. Something that
// is not a regular file (a pipe, a device) is written to directly. Throws Error naming the file.
void write_file_atomically(const std::filesystem::path& file, std::string_view content);

}  // namespace lariat
