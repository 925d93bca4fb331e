#pragma once
#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <span>
#include <string>
#include <string_view>

#include "models/load/model.h"

// 64-bit checksums and fingerprints detect damage and mistakes, not deliberate collisions.
namespace lariat {

// Detects any change within one 64-bit word, at memory bandwidth.
uint64_t checksum(std::span<const std::byte> bytes);
void add_to_checksum(uint64_t& sum, std::span<const std::byte> bytes);
inline void add_to_checksum(uint64_t& sum, std::string_view text) {
  add_to_checksum(sum, std::as_bytes(std::span(text)));
}

// 16 hex digits over each layer's shape and each tensor's name, dtype, shape and 3 x 256 bytes; RoPE scaling
// and run-time dtype do not matter. Random weights: the shape alone.
std::string model_fingerprint(const Model& model);

// Two fingerprints with a space between them: of the vocabulary's text; of the tokenizer's class and added
// tokens, and of a GGUF's scores, types and settings. "none" without a vocabulary that Tokenizer::load reads.
std::string tokenizer_fingerprint(const ModelTexts& texts);
// Earlier versions saved only the first fingerprint: it is then compared alone.
bool is_same_tokenizer(std::string_view saved, std::string_view own);
// Same for all texts that ids, prompts and the shape depend on.
std::string texts_fingerprint(const ModelTexts& texts);
// Same for a whole file. Throws Error.
std::string file_fingerprint(const std::filesystem::path& file);

}  // namespace lariat
