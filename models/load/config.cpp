#include "models/load/config.h"

#include <fmt/format.h>

#include <algorithm>

#include "models/families/family.h"
#include "models/io/nearest_name.h"
#include "models/load/generation_config.h"
#include "models/quantization/quantization.h"
#include "models/spec/gate.h"

namespace lariat {
namespace {

// transformers' name of a text_config: "qwen2_vl_text".
bool is_type(const Family& family, const std::string& type) {
  return type == family.model_type || type == std::string(family.model_type) + "_text";
}

// A text_config; transformers uses its model_type only.
bool is_inner(const JsonFields& json) { return !json.path("").empty(); }

struct FamilyName {
  const char* key;
  std::string name;

  bool is_type() const { return key == std::string_view("model_type"); }
};

FamilyName family_name(const JsonFields& json) {
  const auto names = json.strings("architectures");
  const std::string name = names && !names->empty() ? names->front() : "";
  const std::string type = json.string("model_type").value_or("");
  const bool by_type = is_inner(json) ? !type.empty() || name.empty() : !type.empty() && name.empty();
  return by_type ? FamilyName{"model_type", type} : FamilyName{"architectures", name};
}

const Family* named_family(const JsonFields& json) {
  const FamilyName given = family_name(json);
  for (const Family& family : families()) {
    const bool same = given.is_type() ? is_type(family, given.name)
                                      : family.name == given.name || family.alias == given.name;
    if (same && !given.name.empty()) return &family;
  }
  return nullptr;
}

// "Llama" for "LlamaForCausalLM".
std::string stem(std::string_view name) {
  return std::string(name.substr(0, std::min(name.find("For"), name.find("LMHead"))));
}

[[noreturn]] void refuse_unknown_family(const JsonFields& json) {
  const FamilyName given = family_name(json);
  const std::string kind = given.is_type() ? "model_type" : "architecture";
  if (given.name.empty()) json.fail(given.key, "expected the " + kind + " of a model in docs/models.md");
  std::vector<std::string> known;
  for (const Family& each : families())
    known.push_back(given.is_type() ? std::string(each.model_type) : stem(each.name));
  const std::string near = nearest_name(given.is_type() ? given.name : stem(given.name), known);
  const auto at = std::find(known.begin(), known.end(), near) - known.begin();
  std::string question = "; ";
  if (!near.empty()) {
    const std::string_view whole = given.is_type() ? near : families()[static_cast<size_t>(at)].name;
    question = "; did you mean " + std::string(whole) + "? ";
  }
  json.fail(given.key, "the " + kind + " is not supported" + question + "see docs/models.md");
}

const Family& find_family(const JsonFields& json) {
  const Family* family = named_family(json);
  if (family == nullptr) refuse_unknown_family(json);
  const std::string type = json.string("model_type").value_or(std::string(family->model_type));
  for (const Family& each : families()) {  // several types can share an architecture (Kimi K2)
    if (each.name == family->name && is_type(each, type)) return each;
  }
  const auto other =
      std::ranges::find_if(families(), [&](const Family& each) { return is_type(each, type); });
  const std::string expected(family->model_type);
  json.fail("model_type",
            "\"architectures\" says " + std::string(family->name) + ", of type " + expected +
                (other == families().end()
                     ? ": another kind of model, with custom code; to run it as that architecture, write \"" +
                           expected + "\""
                     : "; transformers goes by model_type: write " + std::string(other->name) +
                           " there, or \"" + expected + "\" here"));
}

ModelSpec read_spec(const Family& family, const JsonFields& json) {
  check_quantization(json);
  return family.read(json);
}

ModelSpec spec_of(const nlohmann::json& config, const std::filesystem::path& file,
                  const JsonFields::Wording& wording) {
  const TextPart part = text_part(config, file.string());
  const JsonFields json(part.json, file.string(), part.prefix, wording);
  const Family& family = find_family(json);
  ModelSpec spec = read_spec(family, json);
  check_experts(json, spec);
  read_generation_keys(json, spec);
  spec.file = file;
  spec.family = family.name;
  if (!family.in_transformers) json.mark_read("auto_map");
  check_unread(json, spec, &spec.warnings);
  return spec;
}

}  // namespace

ModelSpec parse_config(std::string_view text, const std::filesystem::path& file) {
  return spec_of(parse_json_object(text, file.string()), file, JsonFields::with_value);
}

ModelSpec load_config(const ModelTexts& texts) {
  ModelSpec spec =
      spec_of(texts.object("config.json"), texts.file("config.json"), texts.wording(JsonFields::with_value));
  if (texts.has("generation_config.json")) read_generation_config(texts, spec);
  return spec;
}

ConfigRope load_rope(const ModelTexts& texts) {
  const std::filesystem::path file = texts.file("config.json");
  const TextPart part = text_part(texts.object("config.json"), file.string());
  const JsonFields json(part.json, file.string(), part.prefix, texts.wording(JsonFields::with_value));
  const Family* family = named_family(json);
  ConfigRope result;
  if (family == nullptr) {
    result.rope = read_foreign_rope(json, family_name(json).key, result.warnings);
    return result;
  }
  if (!family->has_rope) {
    json.fail(json.has("architectures") ? "architectures" : "model_type",
              "the model has no RoPE to show; use another model");
  }
  ModelSpec spec = read_spec(*family, json);
  result = {spec.rope(), spec.query_scale, spec.position_method, std::move(spec.warnings)};
  if (spec.ropes.size() > 1) {
    result.warnings.push_back(file.string() +
                              fmt::format(": layers with a window have a RoPE of their own, which is "
                                          "not shown: {}, theta {:.10g}",
                                          name_of(spec.ropes[1].type), spec.ropes[1].theta));
  }
  return result;
}

}  // namespace lariat
