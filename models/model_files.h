#pragma once
#include <filesystem>
#include <memory>
#include <utility>

#include "models/io/model_texts.h"
#include "models/tensors.h"

namespace lariat {

// What a model is made of, whoever stored it: all who read something of it are handed this, and no path.
struct ModelFiles {
  ModelFiles() : ModelFiles(std::filesystem::path()) {}
  ModelFiles(std::filesystem::path path) : texts(std::move(path)) {}  // NOLINT(google-explicit-constructor)

  ModelTexts texts;
  std::shared_ptr<const Tensors> tensors;  // of a folder load_model opens them; nothing: random weights
};

// The files of a checkpoint's folder. Throws Error saying what the path is where it is none
// (models/families/gate.h).
ModelFiles open_files(const std::filesystem::path& path);

}  // namespace lariat
