#include <algorithm>
#include <fstream>

#include "kernels/error.h"
#include "models/io/json_fields.h"
#include "models/io/text_file.h"
#include "models/load/open_files.h"

namespace lariat {
namespace {

namespace fs = std::filesystem;

[[noreturn]] void refuse(const fs::path& path, const std::string& what) {
  throw Error(path.string() + ": " + what);
}

bool has_file(const fs::path& dir, const char* name) {
  std::error_code ec;
  return fs::exists(dir / name, ec);
}

std::vector<fs::path> entries(const fs::path& dir) {
  std::vector<fs::path> found;
  std::error_code ec;
  for (fs::directory_iterator it(dir, ec), end; !ec && it != end; it.increment(ec))
    found.push_back(it->path());
  std::sort(found.begin(), found.end());
  return found;
}

// Returns the first file with the extension, a vision projector last; empty: none.
fs::path first_file(const fs::path& dir, std::string_view extension) {
  fs::path projector;
  for (const fs::path& file : entries(dir)) {
    if (file.extension() != extension) continue;
    if (file.filename().string().find("mmproj") == std::string::npos) return file;
    projector = file;
  }
  return projector;
}

[[noreturn]] void refuse_adapter(const fs::path& dir) {
  const fs::path file = dir / "adapter_config.json";
  const nlohmann::json json = read_json_object(file);
  const auto base = JsonFields(json, file.string()).string("base_model_name_or_path");
  refuse(file, "a LoRA adapter" + (base ? " of " + base->substr(0, 200) : std::string()) +
                   "; merge it first, in Python: from peft import AutoPeftModelForCausalLM; "
                   "AutoPeftModelForCausalLM.from_pretrained('" +
                   dir.string() + "').merge_and_unload().save_pretrained('MERGED')");
}

[[noreturn]] void refuse_pickle(const fs::path& file) {
  const fs::path dir = file.parent_path();
  refuse(file,
         "pickled weights are not supported; convert them, in Python: import glob, torch; from "
         "safetensors.torch import save_file; save_file({k: v.clone() for f in glob.glob('" +
             (dir / ("*" + file.extension().string())).string() +
             "') for k, v in torch.load(f, map_location='cpu', weights_only=True).items()}, '" +
             (dir / "model.safetensors").string() + "')");
}

// Hub cache: NAME/refs/main names a folder of NAME/snapshots.
fs::path snapshot_in(const fs::path& dir) {
  std::string hash;
  std::ifstream(dir / "refs" / "main") >> hash;
  if (!hash.empty() && has_file(dir / "snapshots", hash.c_str())) return dir / "snapshots" / hash;
  const std::vector<fs::path> all = entries(dir / "snapshots");
  return all.empty() ? dir / "snapshots" / "HASH" : all.front();
}

// A path of two parts may be a model name on the hub.
[[noreturn]] void refuse_missing(const fs::path& path) {
  std::error_code ec;
  const std::string name = path.string();
  const auto parts = split(name, '/');
  if (parts.size() == 2 && !parts[0].empty() && !parts[1].empty() && !fs::exists(*path.begin(), ec)) {
    refuse(path, "no such folder; download a model of the hub first: hf download " + name + " --local-dir " +
                     path.filename().string() + "; then use that folder");
  }
  refuse(path, "no such folder; check the path");
}

[[noreturn]] void refuse_file(const fs::path& file) {
  const fs::path folder = file.has_parent_path() ? file.parent_path() : ".";
  refuse(file, "is a file; give its folder, " + folder.string() +
                   ", with config.json, *.safetensors and the tokenizer");
}

}  // namespace

void refuse_other_formats(const fs::path& path, bool config_file) {
  std::error_code ec;
  if (!fs::exists(path, ec)) refuse_missing(path);
  if (!fs::is_directory(path, ec)) {
    char head[kTextHead] = {};
    std::ifstream in(path, std::ios::binary);
    in.read(head, sizeof head);
    const std::string_view begin(head, static_cast<size_t>(in.gcount()));
    refuse_lfs_pointer(begin, path.string());
    for (const std::string_view magic : {"lmgg", "fmgg", "tjgg", "algg"}) {  // of llama.cpp until August 2023
      if (begin.starts_with(magic))
        refuse(path, "a GGML file, the format before GGUF; use a GGUF file of the model");
    }
    if (!config_file || path.extension() == ".safetensors") refuse_file(path);
    return;
  }
  if (has_file(path, "adapter_config.json")) refuse_adapter(path);
  if (!has_file(path, "config.json") && has_file(path, "snapshots"))
    refuse(path, "the folder above a snapshot; use `model` " + snapshot_in(path).string());
  for (const fs::path& file : entries(path)) {
    if (!fs::exists(file, ec) &&
        has_name(".safetensors .json .model .jinja .tiktoken", file.extension().string()))
      refuse(file,
             "a link to " + fs::read_symlink(file, ec).string() +
                 ", which does not exist; copy the linked files too (cp -rL), or download the model again");
  }
  if (has_file(path, "model.safetensors") || has_file(path, "model.safetensors.index.json")) return;
  if (const fs::path gguf = first_file(path, ".gguf"); !gguf.empty())
    refuse(path, "a folder with a GGUF file; use `model` " + gguf.string());
  for (const char* extension : {".bin", ".pth", ".pt"}) {
    if (const fs::path file = first_file(path, extension); !file.empty()) refuse_pickle(file);
  }
}

}  // namespace lariat
