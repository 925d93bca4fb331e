#pragma once
#include <filesystem>

#include "models/files/model_files.h"

namespace lariat {

// Opens a GGUF file, or the first file of a split model, as a Hugging Face folder. Throws Error.
ModelFiles open_gguf(const std::filesystem::path& path);

}  // namespace lariat
