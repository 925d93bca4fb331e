#pragma once
#include <cstdint>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <string>

#include "models/io/text_file.h"

namespace lariat {

inline constexpr uint64_t kMaxJsonBytes = uint64_t{64} << 20;

// Reads and parses a JSON file. Throws Error naming the file if it is missing, unreadable, larger than 64 MiB
// (twice the largest tokenizer.json known), nested deeper than 64 levels, longer than 8 million values, not
// JSON (with the parser's byte position), or has a repeated key, whose value RFC 8259 leaves undefined.
nlohmann::json read_json(const std::filesystem::path& file);

// Parses such a text in memory; errors name `name`. Ignores a byte order mark.
nlohmann::json parse_json(std::string_view text, const std::string& name);

// Parses likewise, with members in the file's order; at most 128 keys per object, since lookup is linear.
nlohmann::ordered_json parse_ordered_json(std::string_view text, const std::string& name);

}  // namespace lariat
