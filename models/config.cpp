#include "models/config.h"

#include "models/families/family.h"
#include "models/json_file.h"

namespace lariat {
namespace {

const Family& find_family(const JsonFields& json) {
  std::string known;
  for (const Family& family : families()) known += (known.empty() ? "" : ", ") + std::string(family.name);
  if (const auto names = json.strings("architectures"); names && !names->empty()) {
    for (const Family& family : families()) {
      if (names->front() == family.name) return family;
    }
    json.fail("architectures", "known architectures: " + known);
  }
  const auto type = json.string("model_type");
  for (const Family& family : families()) {
    if (type == family.model_type) return family;
  }
  json.fail(type ? "model_type" : "architectures", "known architectures: " + known);
}

}  // namespace

ModelSpec parse_config(std::string_view text, const std::filesystem::path& file) {
  const nlohmann::json parsed = parse_json_object(text, file.string());
  const JsonFields json(parsed, file.string());
  const Family& family = find_family(json);
  ModelSpec spec = family.read(json);
  spec.file = file;
  spec.family = family.name;
  return spec;
}

ModelSpec load_config(const std::filesystem::path& dir) {
  std::error_code ec;
  const std::filesystem::path file = std::filesystem::is_directory(dir, ec) ? dir / "config.json" : dir;
  ModelSpec spec = parse_config(read_file(file, kMaxConfigBytes), file);
  const std::filesystem::path generation = file.parent_path() / "generation_config.json";
  if (file.filename() == "config.json" && std::filesystem::exists(generation, ec)) {
    const nlohmann::json json = read_json_object(generation);
    const JsonFields fields(json, generation.string());
    // What a checkpoint says about generating beats what it says about the model, as in transformers'
    // generate().
    if (fields.has("eos_token_id")) spec.eos_token_ids.clear();
    add_eos_tokens(fields, spec);
  }
  return spec;
}

}  // namespace lariat
