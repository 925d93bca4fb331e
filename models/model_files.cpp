#include "models/model_files.h"

#include "models/families/gate.h"
#include "models/safetensors.h"

namespace lariat {

void open_tensors(ModelFiles& files) {
  if (!files.tensors) files.tensors = std::make_shared<Tensors>(open_safetensors(files.texts.path()));
}

ModelFiles open_files(const std::filesystem::path& path) {
  refuse_other_formats(path);
  return path;
}

}  // namespace lariat
