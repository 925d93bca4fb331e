#include "models/load/open_files.h"

#include <regex>

#include "kernels/error.h"
#include "models/files/safetensors.h"
#include "models/gguf/gguf.h"
#include "models/gguf/gguf_file.h"
#include "models/io/json_fields.h"
#include "models/quantization/quantization.h"

namespace lariat {
namespace {

namespace fs = std::filesystem;

// A part's name without its number; "": not a part of a split GGUF.
std::string name_of_all_parts(std::string name) {
  static const std::regex pattern(R"(.*-[0-9]{5}-of-[0-9]{5}\.gguf)");
  return std::regex_match(name, pattern) ? name.erase(name.size() - 19, 5) : "";
}

}  // namespace

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

std::vector<fs::path> files_of_model(const fs::path& path) {
  constexpr std::string_view kRead = ".safetensors .json .jinja .model .txt .tiktoken .gguf";
  std::error_code ec;
  const std::string name = path.filename().string(), split = name_of_all_parts(name);
  const bool folder = fs::is_directory(path, ec);
  std::vector<fs::path> files;
  if (!folder && split.empty() && name != "config.json") return files;
  const fs::path parent = folder ? path : path.has_parent_path() ? path.parent_path() : ".";
  for (fs::directory_iterator it(parent, ec), end; !ec && it != end; it.increment(ec)) {
    const fs::path& file = it->path();
    if (split.empty() ? has_name(kRead, file.extension().string())
                      : name_of_all_parts(file.filename().string()) == split)
      files.push_back(file);
  }
  try {
    const fs::path index = parent / "model.safetensors.index.json";
    if (split.empty() && fs::exists(index, ec))
      for (const std::string& shard : read_safetensors_index(index)) files.push_back(parent / shard);
  } catch (const Error&) {  // a damaged index names no files
  }
  return files;
}

}  // namespace lariat
