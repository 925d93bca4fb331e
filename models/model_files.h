#pragma once
#include <filesystem>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "models/io/model_texts.h"
#include "models/tensors.h"

namespace lariat {

struct ModelFiles {
  ModelFiles() : ModelFiles(std::filesystem::path()) {}
  ModelFiles(std::filesystem::path path) : texts(std::move(path)) {}  // NOLINT(google-explicit-constructor)

  ModelTexts texts;
  std::shared_ptr<const Tensors> tensors;  // nullptr: a folder before open_tensors, or random weights
  std::vector<std::string> warnings{};
};

// Opens a folder's tensors unless open. Throws Error.
void open_tensors(ModelFiles& files);

// Opens a checkpoint folder or a GGUF file. Throws Error for other paths (models/gate.h).
ModelFiles open_files(const std::filesystem::path& path);
// Opens no weights: a config file is enough, and no path is refused in advance.
ModelFiles open_text_files(const std::filesystem::path& path);

// Existing files that a model's readers may open: the weights, settings and vocabularies of its folder, the
// shards of its index, all parts of a split GGUF. Empty for another path.
std::vector<std::filesystem::path> files_of_model(const std::filesystem::path& path);

}  // namespace lariat
