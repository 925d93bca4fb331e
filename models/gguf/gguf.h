#pragma once
#include <filesystem>

#include "models/model_files.h"

namespace lariat {

// Opens a GGUF file, or the first file of a split model: its tensors, and its metadata as the texts of a
// Hugging Face folder. Throws Error naming file and key or tensor.
ModelFiles open_gguf(const std::filesystem::path& path);

}  // namespace lariat
