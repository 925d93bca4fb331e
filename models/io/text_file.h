#pragma once
#include <cstdint>
#include <filesystem>
#include <istream>
#include <string>
#include <string_view>

// Files as people hand them over: texts with or without a byte order mark, standard input as "-", and the
// pointers that Git LFS leaves in the place of files.
namespace lariat {

// The name of a file in errors: its path, or "standard input" for "-".
std::string input_name(const std::filesystem::path& file);

// Standard input, to be read once. Throws Error when it is closed or a folder, and UsageError when it was
// asked for before: whoever comes second would find it empty.
std::istream& standard_input();

// A whole file ("-": standard input) as bytes, at most `max_bytes`. Throws Error naming it.
std::string read_file(const std::filesystem::path& file, uint64_t max_bytes);

// A text, or its beginning, without the byte order mark of UTF-8. Throws Error naming `name` when it is
// UTF-16.
std::string_view without_bom(std::string_view text, const std::string& name);

// Throws Error naming `name` where a file that begins with these bytes is a pointer of Git LFS.
void refuse_lfs_pointer(std::string_view bytes, const std::string& name);

// How many bytes of a file the last two have to see.
inline constexpr size_t kTextHead = 32;

}  // namespace lariat
