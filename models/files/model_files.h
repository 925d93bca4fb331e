#pragma once
#include <filesystem>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "models/files/tensors.h"
#include "models/io/model_texts.h"

namespace lariat {

struct ModelFiles {
  ModelFiles() : ModelFiles(std::filesystem::path()) {}
  ModelFiles(std::filesystem::path path) : texts(std::move(path)) {}  // NOLINT(google-explicit-constructor)

  ModelTexts texts;
  std::shared_ptr<const Tensors> tensors;  // nullptr: a folder before open_tensors, or random weights
  std::vector<std::string> warnings{};
};

}  // namespace lariat
