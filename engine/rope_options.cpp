#include "engine/rope_options.h"

#include "kernels/error.h"
#include "models/io/json_fields.h"
#include "models/spec/rope_config.h"

namespace lariat {
namespace {

// Maps a key of find_rope_problem to its setting.
std::string setting_of(const std::string& key) {
  if (key == "factor") return "`rope_factor`";
  if (key == "original_max_position_embeddings") return "`rope_original_ctx`";
  if (key == "rope_theta") return "`rope_theta`";
  return "`rope_scaling`";
}

std::string longer_than_trained(const RopeScaling& rope) {
  return "the original length " + std::to_string(rope.original_ctx) +
         " is larger than max_position_embeddings; use at most " +
         std::to_string(rope.max_position_embeddings);
}

RopeScaling with_scaling(const RopeScaling& base, const RopeOptions& options) {
  if (!options.scaling) {
    if (options.factor && base.type == RopeType::kDefault) {
      throw UsageError("`rope_factor`: the model has no RoPE scaling; choose one with `rope_scaling` (" +
                       known_scalings(", ") + ")");
    }
    return base;
  }
  RopeType type;
  try {
    type = parse_rope_type(*options.scaling);
  } catch (const UsageError& e) {
    throw UsageError(std::string("`rope_scaling`: ") + e.what());
  }
  if (options.config && base.type != type) {
    throw UsageError("`rope_scaling` " + *options.scaling + ": contradicts `rope_config` " +
                     options.config->string() + ", which holds " + std::string(name_of(base.type)) +
                     "; give one of them");
  }
  if (type == RopeType::kDefault && options.factor)
    throw UsageError("`rope_factor`: needs a scaling; remove it, or change `rope_scaling` " +
                     *options.scaling);
  if (base.type == type) return base;
  if (type == RopeType::kLongRope) {
    throw UsageError(
        "`rope_scaling` longrope: needs its lists of factors; give them with `rope_config` FILE.json");
  }
  if (needs_factor(type) && !options.factor)
    throw UsageError("`rope_scaling` " + *options.scaling + ": the factor is missing; add `rope_factor` F");
  return rope_of_type(base, type);
}

}  // namespace

bool needs_factor(RopeType type) {
  return type == RopeType::kLinear || type == RopeType::kNtk || type == RopeType::kYarn ||
         type == RopeType::kLlama3 || type == RopeType::kProportional || type == RopeType::kYarnRadix;
}

std::string plain_scaling_name(std::string_view name) {
  std::string plain(name);
  for (char& c : plain) c = c >= 'A' && c <= 'Z' ? static_cast<char>(c - 'A' + 'a') : c;
  return plain == "su" ? "longrope" : plain == "default" ? "none" : plain;
}

std::string known_scalings(std::string_view separator) {
  return "none" + known_rope_types(separator).substr(name_of(RopeType::kDefault).size());
}

RopeType parse_rope_type(std::string_view name) {
  const std::string plain = plain_scaling_name(name);
  if (plain == "none") return RopeType::kDefault;
  if (const auto type = find_rope_type(plain)) return *type;
  throw UsageError("unknown RoPE scaling \"" + std::string(name) + "\"; known: " + known_scalings(", "));
}

RopeScaling rope_from_json(const nlohmann::json& object, const std::string& file, const RopeScaling& own,
                           std::optional<int64_t> original_ctx) {
  const JsonFields fields(object, file);
  RopeDefaults defaults;
  defaults.head_dim = own.head_dim;
  defaults.max_position_embeddings = own.max_position_embeddings;
  defaults.theta = own.theta;
  defaults.partial_rotary_factor = own.partial_rotary_factor;
  defaults.interleaved = own.interleaved;
  defaults.original_ctx = original_ctx;
  const bool is_config = fields.has("rope_scaling") || fields.has("rope_parameters");
  if (!is_config && !fields.has("rope_type") && !fields.has("type"))
    fields.fail("rope_type", "expected a rope_scaling or rope_parameters object, or a config with one");
  RopeScaling rope = is_config ? read_rope(fields, defaults) : parse_rope_scaling(fields, defaults);
  // Unlike a model's own scaling, a preset for a longer trained length does not fit.
  if (rope.original_ctx > rope.max_position_embeddings)
    throw Error(file + ": \"original_max_position_embeddings\": " + longer_than_trained(rope));
  return rope;
}

RopeScaling resolve_rope(const RopeScaling& own, const RopeOptions& options) {
  const RopeScaling base = options.config
                               ? rope_from_json(read_json_object(*options.config), options.config->string(),
                                                own, options.original_ctx)
                               : own;
  RopeScaling rope = with_scaling(base, options);
  if (options.factor) rope.factor = *options.factor;
  if (options.original_ctx) rope.original_ctx = *options.original_ctx;
  if (options.theta) rope.theta = *options.theta;
  // A checkpoint may have such values; an option with them is a mistake.
  if (options.factor && *options.factor < 1.0)
    throw UsageError("`rope_factor`: out of range; use a number from 1 to 1000000");
  if (options.original_ctx && *options.original_ctx > rope.max_position_embeddings)
    throw UsageError("`rope_original_ctx`: " + longer_than_trained(rope));
  if (const auto problem = find_rope_problem(rope))
    throw UsageError(setting_of(problem->key) + ": " + problem->what);
  return rope;
}

std::optional<int64_t> reach_of(const RopeScaling& rope) {
  const bool grows = rope.grows() && (rope.type == RopeType::kDynamic || rope.factor <= 1.0);
  if (grows) return std::nullopt;
  if (rope.type == RopeType::kDefault) return rope.max_position_embeddings;
  return std::max(rope.max_position_embeddings,
                  static_cast<int64_t>(rope.factor * static_cast<double>(rope.original_ctx)));
}

}  // namespace lariat
