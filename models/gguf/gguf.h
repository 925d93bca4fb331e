#pragma once
#include <filesystem>

#include "models/model_files.h"

namespace lariat {

// A GGUF file, or the first of those that a model was split into, as the files of a checkpoint: its tensors,
// and its metadata as the texts of a Hugging Face folder. Throws Error naming file and key or tensor.
ModelFiles open_gguf(const std::filesystem::path& path);

}  // namespace lariat
