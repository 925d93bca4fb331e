#pragma once
#include <filesystem>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "models/io/model_texts.h"
#include "models/tensors.h"

namespace lariat {

// What a model is made of, whoever stored it: all who read something of it are handed this, and no path.
struct ModelFiles {
  ModelFiles() : ModelFiles(std::filesystem::path()) {}
  ModelFiles(std::filesystem::path path) : texts(std::move(path)) {}  // NOLINT(google-explicit-constructor)

  ModelTexts texts;
  std::shared_ptr<const Tensors> tensors;  // open_tensors opens those of a folder; nothing: random weights
  std::vector<std::string> warnings{};     // of tensors that were opened, as ModelSpec::warnings
};

// Opens the tensors of a folder, where they are not open yet. Throws Error naming the file.
void open_tensors(ModelFiles& files);

// The files of a checkpoint's folder, or of a GGUF file. Throws Error saying what the path is where it is
// neither (models/gate.h).
ModelFiles open_files(const std::filesystem::path& path);
// The same for who needs no weights: a config file alone will do, and nothing is refused before it is read.
ModelFiles open_text_files(const std::filesystem::path& path);

}  // namespace lariat
