#include "models/config.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <cstdlib>

#include "models/families/family.h"
#include "models/families/gate.h"
#include "models/families/wrapper.h"
#include "models/json_file.h"
#include "models/rope_config.h"

namespace lariat {
namespace {

// Of the text part of a model with images, transformers says "qwen2_vl_text".
bool is_type(const Family& family, const std::string& type) {
  return type == family.model_type || type == std::string(family.model_type) + "_text";
}

// The family that a config names; nullptr when it names none that runs.
const Family* named_family(const JsonFields& json) {
  std::string name, type;
  if (const auto names = json.strings("architectures"); names && !names->empty()) name = names->front();
  if (name.empty()) type = json.string("model_type").value_or("");
  for (const Family& family : families()) {
    if (family.name == name || is_type(family, type) || (!name.empty() && family.alias == name))
      return &family;
  }
  return nullptr;
}

const Family& find_family(const JsonFields& json) {
  const Family* family = named_family(json);
  if (family == nullptr) {
    std::string known;
    for (const Family& each : families()) known += (known.empty() ? "" : ", ") + std::string(each.name);
    json.fail(!json.has("architectures") && json.has("model_type") ? "model_type" : "architectures",
              "known architectures: " + known);
  }
  if (!is_type(*family, json.string("model_type").value_or(std::string(family->model_type)))) {
    json.fail("model_type", "\"architectures\" says " + std::string(family->name) + ", whose type is " +
                                std::string(family->model_type) + "; correct the one that is wrong");
  }
  return *family;
}

// Python writes NaN and Infinity, which JSON does not have, and numbers may exceed a double. They become
// texts: an error where a number is read, and nothing where nobody reads.
std::string with_quoted_infinities(std::string_view text) {
  std::string out;
  bool in_string = false;
  for (size_t i = 0; i < text.size(); ++i) {
    const char c = text[i];
    if (in_string || (std::isalnum(static_cast<unsigned char>(c)) == 0 && c != '-')) {
      if (c == '"') in_string = !in_string;
      out += c;
      if (in_string && c == '\\' && i + 1 < text.size()) out += text[++i];
      continue;
    }
    const size_t end = std::min(text.find_first_of(",]} \t\r\n:\"[{", i), text.size());
    const std::string word(text.substr(i, end - i));
    const bool no_json = word == "NaN" || word == "Infinity" || word == "-Infinity";
    char* rest = nullptr;
    const bool too_large = word.find_first_not_of("0123456789+-.eE") == std::string::npos &&
                           std::isinf(std::strtod(word.c_str(), &rest)) && *rest == '\0';
    out += no_json || too_large ? '"' + word + '"' : word;
    i = end - 1;
  }
  return out;
}

nlohmann::json parse(std::string_view text, const std::filesystem::path& file) {
  return parse_json_object(with_quoted_infinities(text), file.string());
}

std::filesystem::path config_file(const std::filesystem::path& dir) {
  std::error_code ec;
  return std::filesystem::is_directory(dir, ec) ? dir / "config.json" : dir;
}

// The keys of RoPE and of the head: what a family reads of it has its defaults and follows its rules.
nlohmann::json only_rope_keys(const nlohmann::json& config) {
  nlohmann::json rope = {
      {"num_key_value_heads", nullptr}, {"num_experts_per_tok", 1}, {"n_group", 1}, {"topk_group", 1}};
  for (const char* key : {"head_dim",
                          "hidden_size",
                          "num_attention_heads",
                          "max_position_embeddings",
                          "rope_theta",
                          "rope_scaling",
                          "rope_parameters",
                          "partial_rotary_factor",
                          "original_max_position_embeddings",
                          "rope_interleave",
                          "rope_interleaved",
                          "rope_local_base_freq",
                          "inference_rope_scaling",
                          "rotary",
                          "bias",
                          "rotary_pct",
                          "rotary_emb_base",
                          "qk_rope_head_dim",
                          "qk_nope_head_dim",
                          "kv_lora_rank",
                          "v_head_dim"}) {
    if (config.contains(key)) rope[key] = config[key];
  }
  return rope;
}

// Keys of RoPE, or of what else positions do, that this reader of foreign files did not ask for.
void warn_of_foreign_positions(const JsonFields& json, std::vector<std::string>& warnings) {
  constexpr std::array<std::string_view, 5> kParts{"rope", "rotary", "ntk", "logn", "alibi"};
  for (const std::string& key : json.unread_keys()) {
    const bool of_positions = std::any_of(kParts.begin(), kParts.end(), [&](std::string_view part) {
      return key.find(part) != std::string::npos;
    });
    const nlohmann::json* value = of_positions ? json.find(key) : nullptr;
    if (value != nullptr && *value != false && *value != 0)
      warnings.push_back(json.message(key.substr(0, 60), "not read: a Llama has no such key"));
  }
}

// Of a family that lariat does not run, and whose keys and defaults it does not know: read as a Llama's.
RopeScaling foreign_rope(const JsonFields& json, std::vector<std::string>& warnings) {
  const char* kind = json.has("architectures") || !json.has("model_type") ? "architectures" : "model_type";
  warnings.push_back(json.message(kind,
                                  "unknown to lariat; this is the RoPE that a Llama with these keys would "
                                  "have, and may not be the model's"));
  RopeContext context;
  // The part of a head that DeepSeek's attention rotates, else the whole of it.
  const char* dim = json.has("qk_rope_head_dim") ? "qk_rope_head_dim" : "head_dim";
  if (const auto head_dim = json.integer(dim, 2, kMaxHeadDim)) {
    context.head_dim = *head_dim;
  } else {
    const auto hidden = json.integer("hidden_size", 1, kMaxHidden);
    const auto heads = json.integer("num_attention_heads", 1, kMaxHeads);
    if (!hidden || !heads) json.fail("head_dim", "expected it, or hidden_size and num_attention_heads");
    context.head_dim = *hidden / *heads;
    if (context.head_dim > kMaxHeadDim)
      json.fail("hidden_size", "the size of a head would be above " + std::to_string(kMaxHeadDim));
  }
  if (!json.has("max_position_embeddings")) json.fail("max_position_embeddings", "expected an integer");
  context.rules.heeds = "llama_4_scaling_beta";  // of the scores, not of the rotation
  // Whether transformers' class heeds partial_rotary_factor and rope_interleave is not known either.
  context.rules.partial = true;
  context.rules.interleaved = false;
  context.warnings = &warnings;
  if (json.has("rope_local_base_freq"))
    warnings.push_back(
        json.message("rope_local_base_freq", "not shown; layers with a window have this base"));
  const RopeScaling rope = read_rope(json, context);
  warn_of_foreign_positions(json, warnings);
  return rope;
}

}  // namespace

ModelSpec parse_config(std::string_view text, const std::filesystem::path& file) {
  const TextPart part = text_part(parse(text, file), file.string());
  const JsonFields json(part.json, file.string(), part.prefix);
  const Family& family = find_family(json);
  ModelSpec spec = family.read(json);
  check_experts(json, spec);
  spec.file = file;
  spec.family = family.name;
  check_keys(json, family.heeds, spec);
  return spec;
}

ModelSpec load_config(const std::filesystem::path& dir) {
  std::error_code ec;
  const std::filesystem::path file = config_file(dir);
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

RopeScaling load_rope(const std::filesystem::path& dir, std::vector<std::string>& warnings) {
  const std::filesystem::path file = config_file(dir);
  const TextPart part = text_part(parse(read_file(file, kMaxConfigBytes), file), file.string());
  const JsonFields json(part.json, file.string(), part.prefix);
  const Family* family = named_family(json);
  if (family == nullptr) return foreign_rope(json, warnings);
  if (!family->has_rope) {
    json.fail(json.has("architectures") ? "architectures" : "model_type",
              "its positions are ALiBi, a bias by distance; there is no RoPE to show");
  }
  const nlohmann::json rope = only_rope_keys(part.json);
  ModelSpec spec = family->read(JsonFields(rope, file.string(), part.prefix));
  warnings = std::move(spec.warnings);
  if (spec.local_rope) {
    warnings.push_back(file.string() +
                       fmt::format(": layers with a window have a RoPE of their own, which is "
                                   "not shown: {}, theta {:.10g}",
                                   name_of(spec.local_rope->type), spec.local_rope->theta));
  }
  return spec.rope;
}

}  // namespace lariat
