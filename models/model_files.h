#pragma once
#include <filesystem>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "models/io/model_texts.h"
#include "models/tensors.h"

namespace lariat {

// Files of a model in any storage format; readers take ModelFiles, not a path.
struct ModelFiles {
  ModelFiles() : ModelFiles(std::filesystem::path()) {}
  ModelFiles(std::filesystem::path path) : texts(std::move(path)) {}  // NOLINT(google-explicit-constructor)

  ModelTexts texts;
  std::shared_ptr<const Tensors> tensors;  // set by open_tensors for a folder; nullptr: random weights
  std::vector<std::string> warnings{};     // from opening the tensors, like ModelSpec::warnings
};

// Opens a folder's tensors unless they are open. Throws Error naming the file.
void open_tensors(ModelFiles& files);

// Files of a checkpoint folder or a GGUF file. Throws Error for other paths (models/gate.h).
ModelFiles open_files(const std::filesystem::path& path);
// The same without weights: a config file is enough, and no path is refused in advance.
ModelFiles open_text_files(const std::filesystem::path& path);

}  // namespace lariat
