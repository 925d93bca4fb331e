#pragma once
#include <cstdint>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <string>

#include "models/io/text_file.h"

namespace lariat {

inline constexpr uint64_t kMaxJsonBytes = uint64_t{64} << 20;

// Reads a JSON file. Throws Error for invalid JSON, beyond 64 MiB (twice the largest tokenizer.json known),
// 64 levels or 8 million values, and for a repeated key, whose value RFC 8259 leaves undefined.
nlohmann::json read_json(const std::filesystem::path& file);

// Parses the text of a file `name`. Ignores a byte order mark.
nlohmann::json parse_json(std::string_view text, const std::string& name);

// Keeps members in order; at most 128 keys per object, since lookup is linear.
nlohmann::ordered_json parse_ordered_json(std::string_view text, const std::string& name);

}  // namespace lariat
