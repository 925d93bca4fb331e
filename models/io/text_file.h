#pragma once
#include <cstdint>
#include <filesystem>
#include <istream>
#include <string>
#include <string_view>

// Users' input files; standard input is "-".
namespace lariat {

// Name for errors: the path, or "standard input".
std::string input_name(const std::filesystem::path& file);

// Throws Error if closed or a folder, UsageError on a second call.
std::istream& standard_input();

// Reads a file ("-": standard input) of at most `max_bytes`. Throws Error.
std::string read_file(const std::filesystem::path& file, uint64_t max_bytes);

// Takes a text, or its beginning. Throws Error for UTF-16.
std::string_view without_bom(std::string_view text, const std::string& name);

// Throws Error if the bytes begin a Git LFS pointer.
void refuse_lfs_pointer(std::string_view bytes, const std::string& name);

// Bytes that the last two functions need.
inline constexpr size_t kTextHead = 32;

}  // namespace lariat
