#pragma once
#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <span>
#include <string>
#include <string_view>

#include "models/model.h"

// 64-bit checksums and fingerprints, which detect damage and mistakes but not deliberate collisions.
namespace lariat {

// Multiplies 64-bit words into eight interleaved sums, at memory bandwidth. Detects any change within one
// word.
uint64_t checksum(std::span<const std::byte> bytes);
// Adds a piece to the sum of the pieces before.
void add_to_checksum(uint64_t& sum, std::span<const std::byte> bytes);
inline void add_to_checksum(uint64_t& sum, std::string_view text) {
  add_to_checksum(sum, std::as_bytes(std::span(text)));
}

// 16 hex digits over the shape of every layer and each tensor's name, dtype, shape and 3 x 256 bytes. RoPE
// scaling and run-time dtype are excluded. Takes milliseconds. Random weights: the shape alone.
std::string model_fingerprint(const Model& model);

// 16 hex digits of the text that Tokenizer::load reads the vocabulary from; "none" without such a text.
std::string tokenizer_fingerprint(const ModelTexts& texts);
// Same for all texts that ids, prompts and the shape depend on.
std::string texts_fingerprint(const ModelTexts& texts);
// Same for a whole file. Throws Error with the file.
std::string file_fingerprint(const std::filesystem::path& file);

}  // namespace lariat
