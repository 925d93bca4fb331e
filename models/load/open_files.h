#pragma once
#include <filesystem>
#include <vector>

#include "models/files/model_files.h"

namespace lariat {

// Opens a folder's tensors unless open. Throws Error.
void open_tensors(ModelFiles& files);

// Throws Error for anything but a checkpoint folder or, with `config_file`, a config file.
void refuse_other_formats(const std::filesystem::path& path, bool config_file = false);

// Opens a checkpoint folder or a GGUF file. Throws Error for other paths.
ModelFiles open_files(const std::filesystem::path& path);
// Opens no weights: a config file is enough. Refuses no path.
ModelFiles open_text_files(const std::filesystem::path& path);

// Existing files that a model's readers may open: the weights, settings and vocabularies of its folder, the
// shards of its index, all parts of a split GGUF. Empty for another path.
std::vector<std::filesystem::path> files_of_model(const std::filesystem::path& path);

}  // namespace lariat
