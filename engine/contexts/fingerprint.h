#pragma once
#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <span>
#include <string>
#include <string_view>

#include "models/model.h"

// Sums of 64 bits that tell files apart and find damage and mistakes. They are no defence against someone who
// wants two files to look the same.
namespace lariat {

// Words of 64 bits, each multiplied into one of eight interleaved sums: as fast as memory is read. Any change
// within one word changes it.
uint64_t checksum(std::span<const std::byte> bytes);
// Adds a piece to the sum of those before it.
void add_to_checksum(uint64_t& sum, std::span<const std::byte> bytes);
inline void add_to_checksum(uint64_t& sum, std::string_view text) {
  add_to_checksum(sum, std::as_bytes(std::span(text)));
}

// 16 hex digits of all that a model's cached keys and values depend on but for its RoPE scaling and the dtype
// that its weights are run in: the shape of every layer, and every tensor's name, dtype, shape and 256 bytes
// from its beginning, middle and end. Takes milliseconds. Of random weights: of the shape alone.
std::string model_fingerprint(const Model& model);

// 16 hex digits of the text that Tokenizer::load reads the vocabulary from; "none" where there is none.
std::string tokenizer_fingerprint(const ModelTexts& texts);
// The same of all texts that ids, prompts and the shape depend on, as they stand there.
std::string texts_fingerprint(const ModelTexts& texts);
// The same of a whole file. Throws Error naming it.
std::string file_fingerprint(const std::filesystem::path& file);

}  // namespace lariat
