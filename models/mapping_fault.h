#pragma once
#include <cstddef>
#include <filesystem>

// A mapped file that becomes shorter while it is used, or whose disk fails, raises SIGBUS where it is read.
// That is an error of the file, not of the program, and is to be said as one.
namespace lariat {

// From now on SIGBUS inside a registered mapping ends the program with one line that names the file, and exit
// code 1. Nothing that was written is lost by that: files are written as a whole or line by line. Any other
// SIGBUS ends the program as before.
void install_mapping_fault_handler();

// MappedFile calls these. There is room for some thousand mappings; those beyond are not known to the
// handler.
void register_mapping(const void* data, size_t bytes, const std::filesystem::path& file);
void unregister_mapping(const void* data);

}  // namespace lariat
