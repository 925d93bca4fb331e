#include <algorithm>
#include <cctype>
#include <fstream>

#include "kernels/error.h"
#include "models/families/gate.h"
#include "models/io/text_file.h"

// What a model's path leads to where it is no checkpoint's folder.
namespace lariat {
namespace {

namespace fs = std::filesystem;

bool has_file(const fs::path& dir, const char* name) {
  std::error_code ec;
  return fs::exists(dir / name, ec);
}

std::string first_file(const fs::path& dir, std::string_view extension) {
  std::set<std::string> found;
  std::error_code ec;
  for (fs::directory_iterator it(dir, ec), end; !ec && it != end; it.increment(ec)) {
    if (it->path().extension() == extension) found.insert(it->path().filename().string());
  }
  return found.empty() ? "" : *found.begin();
}

[[noreturn]] void refuse_gguf(const fs::path& file) {
  throw Error(file.string() +
              ": a GGUF file, which llama.cpp reads; `model` takes the Hugging Face folder (config.json and "
              "*.safetensors) that it was made from");
}

[[noreturn]] void refuse_adapter(const fs::path& dir) {
  const nlohmann::json json = read_json_object(dir / "adapter_config.json");
  const JsonFields fields(json, (dir / "adapter_config.json").string());
  const auto base = fields.string("base_model_name_or_path");
  throw Error(fields.file() + ": a LoRA adapter" + (base ? " of " + base->substr(0, 200) : std::string()) +
              "; merge it first, in Python: from peft import AutoPeftModelForCausalLM; "
              "AutoPeftModelForCausalLM.from_pretrained('" +
              dir.string() + "').merge_and_unload().save_pretrained('MERGED')");
}

[[noreturn]] void refuse_pickle(const fs::path& dir, const std::string& name) {
  throw Error(
      (dir / name).string() +
      ": pickled weights, which lariat does not open; convert them, in Python: from transformers import "
      "AutoModelForCausalLM; AutoModelForCausalLM.from_pretrained('" +
      dir.string() + "').save_pretrained('CONVERTED')");
}

// Architectures that transformers has no class of, so that it cannot convert them.
[[noreturn]] void refuse_state_dict(const fs::path& dir, const std::string& name,
                                    const std::string& extension) {
  throw Error(
      (dir / name).string() +
      ": pickled weights, which lariat does not open; convert them, in Python: import glob, torch; from "
      "safetensors.torch import save_file; save_file({k: v.clone() for f in glob.glob('" +
      (dir / ("*" + extension)).string() +
      "') for k, v in torch.load(f, map_location='cpu', weights_only=True).items()}, '" +
      (dir / "model.safetensors").string() + "')");
}

bool is_foreign_to_transformers(const fs::path& dir) {
  if (!has_file(dir, "config.json")) return false;
  const nlohmann::json json = read_json_object(dir / "config.json");
  const auto type = json.find("model_type");
  constexpr std::string_view kTypes[] = {"minimind", "internlm", "internlm2", "baichuan"};
  return type != json.end() && type->is_string() &&
         std::find(std::begin(kTypes), std::end(kTypes), type->get<std::string>()) != std::end(kTypes);
}

// The hub's cache: NAME/refs/main holds the name of a folder in NAME/snapshots.
fs::path snapshot_in(const fs::path& dir) {
  std::string hash;
  std::error_code ec;
  std::ifstream(dir / "refs" / "main") >> hash;
  if (hash.empty() || !fs::exists(dir / "snapshots" / hash, ec)) {
    const fs::directory_iterator it(dir / "snapshots", ec);
    hash = !ec && it != fs::directory_iterator() ? it->path().filename().string() : "HASH";
  }
  return dir / "snapshots" / hash;
}

// The checkpoints in the folders of `dir`, and in the hub's cache of models, which is one or holds one.
std::vector<fs::path> checkpoints_in(const fs::path& dir) {
  std::vector<fs::path> found;
  std::error_code ec;
  for (fs::directory_iterator it(dir, ec), end; !ec && it != end; it.increment(ec)) {
    const fs::path inner = it->path();
    if (has_file(inner, "config.json")) found.push_back(inner);
    if (has_file(inner, "snapshots")) found.push_back(snapshot_in(inner));
    if (inner.filename() != "hub") continue;
    for (const fs::path& cached : checkpoints_in(inner)) found.push_back(cached);
  }
  std::sort(found.begin(), found.end());
  return found;
}

// "org/name", as models are called on the hub.
bool is_hub_name(std::string_view name) {
  const size_t slash = name.find('/');
  const auto is_part = [](std::string_view part) {
    const auto plain = [](unsigned char c) { return std::isalnum(c) != 0; };
    return !part.empty() && plain(part.front()) &&
           std::ranges::all_of(part, [&](char c) { return plain(c) || c == '.' || c == '_' || c == '-'; });
  };
  return slash != std::string_view::npos && is_part(name.substr(0, slash)) && is_part(name.substr(slash + 1));
}

// With its scheme, or as people copy it: "some.host/org/name".
bool is_url(std::string_view name) {
  const size_t dot = name.find('.'), slash = name.find('/');
  return name.find("://") != std::string_view::npos ||
         (dot > 0 && dot < slash && std::ranges::count(name, '/') >= 2);
}

// A path that leads nowhere may be the name of something else.
[[noreturn]] void refuse_missing(const fs::path& path) {
  const std::string name = path.string();
  std::error_code ec;
  const bool nowhere = !fs::exists(*path.begin(), ec);
  if (nowhere && is_url(name)) {
    throw Error(name +
                ": is a URL, and lariat downloads nothing; download the model's files (config.json, "
                "*.safetensors, tokenizer*) into a folder and give that");
  }
  if (nowhere && is_hub_name(name)) {
    throw Error(
        name +
        ": no such folder; if it is a model on the hub, download it first, which lariat does not do: hf "
        "download " +
        name + " --local-dir " + path.filename().string() + "; then give that folder");
  }
  throw Error(name + ": no such folder; check the path");
}

[[noreturn]] void refuse_file(const fs::path& file) {
  fs::path folder = file.parent_path();
  if (folder.empty()) folder = ".";
  throw Error(file.string() + ": is a file; give its folder, " + folder.string() +
              ", which has to hold config.json, the weights as *.safetensors and the tokenizer");
}

// Nothing that any command could use.
void refuse_other_folders(const fs::path& dir) {
  for (const char* name : {"config.json", "tokenizer.json", "tokenizer.model", "model.safetensors"}) {
    if (has_file(dir, name)) return;
  }
  std::error_code ec;
  if (fs::is_empty(dir, ec)) {
    throw Error(dir.string() +
                ": the folder is empty; put the model into it: config.json, *.safetensors and the tokenizer");
  }
  const std::vector<fs::path> inner = checkpoints_in(dir);
  if (inner.empty()) return;
  const std::string more =
      inner.size() == 1 ? "" : " (or one of " + std::to_string(inner.size() - 1) + " more)";
  throw Error(dir.string() + ": a folder of models, and no model; use `model` " + inner.front().string() +
              more);
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
    if (begin.starts_with("GGUF")) refuse_gguf(path);
    if (!config_file || path.extension() == ".safetensors") refuse_file(path);
    return;
  }
  if (has_file(path, "adapter_config.json")) refuse_adapter(path);
  if (!has_file(path, "config.json") && has_file(path, "snapshots"))
    throw Error(path.string() + ": the folder above a snapshot; use `model` " + snapshot_in(path).string());
  if (has_file(path, "model.safetensors") || has_file(path, "model.safetensors.index.json")) return;
  if (const std::string gguf = first_file(path, ".gguf"); !gguf.empty()) refuse_gguf(path / gguf);
  for (const char* extension : {".bin", ".pth", ".pt"}) {
    const std::string name = first_file(path, extension);
    if (name.empty()) continue;
    if (is_foreign_to_transformers(path)) refuse_state_dict(path, name, extension);
    refuse_pickle(path, name);
  }
  refuse_other_folders(path);
}

}  // namespace lariat
