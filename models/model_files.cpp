#include "models/model_files.h"

#include "models/gate.h"
#include "models/gguf/gguf.h"
#include "models/gguf/gguf_file.h"
#include "models/quantization/quantization.h"
#include "models/safetensors.h"

namespace lariat {

void open_tensors(ModelFiles& files) {
  if (files.tensors) return;
  const auto tensors = std::make_shared<Tensors>(open_safetensors(files.texts.path()));
  if (files.texts.has("config.json")) {
    const auto [config, file] = quantization_config(files.texts);
    read_quantized(config, file, *tensors, files.warnings);
  }
  files.tensors = tensors;
}

ModelFiles open_files(const std::filesystem::path& path) {
  if (!is_gguf(path)) refuse_other_formats(path);
  return open_text_files(path);
}

ModelFiles open_text_files(const std::filesystem::path& path) {
  return is_gguf(path) ? open_gguf(path) : ModelFiles(path);
}

}  // namespace lariat
