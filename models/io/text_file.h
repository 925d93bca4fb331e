#pragma once
#include <cstdint>
#include <filesystem>
#include <istream>
#include <string>
#include <string_view>

// Users' input files: texts with or without a byte order mark, standard input as "-", Git LFS pointers.
namespace lariat {

// Name of a file in errors: its path, or "standard input" for "-".
std::string input_name(const std::filesystem::path& file);

// Standard input, for one reader. Throws Error if closed or a folder, UsageError on a second call.
std::istream& standard_input();

// A whole file ("-": standard input) as bytes, at most `max_bytes`. Throws Error naming the file.
std::string read_file(const std::filesystem::path& file, uint64_t max_bytes);

// A text, or its beginning, without a UTF-8 byte order mark. Throws Error naming `name` for UTF-16.
std::string_view without_bom(std::string_view text, const std::string& name);

// Throws Error naming `name` if the bytes begin a Git LFS pointer.
void refuse_lfs_pointer(std::string_view bytes, const std::string& name);

// Bytes of a file that the last two functions need.
inline constexpr size_t kTextHead = 32;

}  // namespace lariat
