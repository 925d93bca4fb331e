#pragma once
#include <cstdint>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <string>

#include "models/io/text_file.h"

namespace lariat {

inline constexpr uint64_t kMaxJsonBytes = uint64_t{64} << 20;

// Reads and parses a JSON file. Throws Error naming the file when it is missing, unreadable, larger than
// 64 MiB (twice the largest tokenizer.json known), nested deeper than 64 levels, of more than 8 million
// values, not JSON (with the byte where the parser stopped), or when an object names a key twice: RFC 8259
// leaves open which of the two counts, so that two programs may read two different files.
nlohmann::json read_json(const std::filesystem::path& file);

// Parses such a text in memory; `name` stands for the file in errors. A byte order mark is passed
// over.
nlohmann::json parse_json(std::string_view text, const std::string& name);

// Parses likewise, with the members of objects in the file's order; at most 128 keys in one object, since
// looking one up is linear.
nlohmann::ordered_json parse_ordered_json(std::string_view text, const std::string& name);

}  // namespace lariat
