#pragma once
#include <filesystem>
#include <string>

namespace lariat {

// 16 hex digits that tell files apart (FNV-1a, 64 bits); not a defence against someone who wants a collision.
// Of a whole file. Throws Error naming it when it cannot be read.
std::string file_fingerprint(const std::filesystem::path& file);
// Of a checkpoint folder: config and tokenizer files whole; of the weights names, sizes and both ends.
std::string model_fingerprint(const std::filesystem::path& dir);

}  // namespace lariat
