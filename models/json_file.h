#pragma once
#include <cstdint>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <string>

namespace lariat {

// Reads and parses a JSON file. Throws Error naming the file when it is missing, unreadable, larger than
// 256 MiB, nested deeper than 64 levels, or not JSON (with the byte where the parser stopped).
nlohmann::json read_json(const std::filesystem::path& file);

// The same for text already in memory; `name` stands for the file in errors.
nlohmann::json parse_json(std::string_view text, const std::string& name);

// Whole file as bytes, at most `max_bytes`. Throws Error naming the file.
std::string read_file(const std::filesystem::path& file, uint64_t max_bytes);

}  // namespace lariat
