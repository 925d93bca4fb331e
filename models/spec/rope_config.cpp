#include "models/spec/rope_config.h"

#include "kernels/counted.h"
#include "models/io/json_fields.h"
#include "models/spec/gate.h"

// transformers 5.23, modeling_rope_utils.py: RotaryEmbeddingConfigMixin, _compute_*_parameters.

namespace lariat {
namespace {

constexpr double kMinFactor = 1e-6, kMaxFactor = 1e6, kMaxTheta = 1e15;
constexpr int64_t kMaxPositions = INT32_MAX;

void warn(const JsonFields& object, const RopeDefaults& defaults, std::string_view key,
          const std::string& what) {
  if (defaults.warnings != nullptr) defaults.warnings->push_back(object.message(key, what));
}

// null is an error, as in transformers.
double read_theta(const JsonFields& object, double missing, std::string_view key = "rope_theta") {
  if (object.present(key) && !object.has(key))
    object.fail(key, "expected a number above 1; remove the key for the default of 10000");
  return object.number(key, 0.0, kMaxTheta).value_or(missing);
}

// M-RoPE divides pairs among time, row and column, which are equal for text.
void check_sections(const JsonFields& object, const RopeDefaults& defaults) {
  int64_t pairs = 0;
  for (const int64_t section :
       object.integers("mrope_section", 0, kMaxPositions).value_or(std::vector<int64_t>{}))
    pairs += section;
  if (pairs != 0 && 2 * pairs != defaults.head_dim)
    object.fail("mrope_section", "the sections have " + counted(pairs, "pair") + "; expected " +
                                     std::to_string(defaults.head_dim / 2));
}

// "type" is the older name (standardize_rope_params).
RopeType parse_type(const JsonFields& object, const RopeDefaults& defaults) {
  const char* key = object.has("rope_type") ? "rope_type" : "type";
  const auto name = object.string(key);
  if (name) {
    if (*name == "mrope") {
      check_sections(object, defaults);
      warn(object, defaults, key, "no scaling for text; only images have separate row and column angles");
      return RopeType::kDefault;
    }
    // Phi-3's first files name longrope "su", and earlier "yarn" (configuration_phi3.py).
    if (*name == "su" || (*name == "yarn" && object.has("short_factor"))) return RopeType::kLongRope;
    if (const auto type = find_rope_type(*name)) return *type;
    object.fail(key, "expected one of " + known_rope_types());
  }
  // transformers would silently take an object without a type for "default".
  for (const char* hint : {"factor", "short_factor", "long_factor", "low_freq_factor"}) {
    if (object.has(hint)) object.fail("rope_type", "expected one of " + known_rope_types());
  }
  return RopeType::kDefault;
}

// Null means max_position_embeddings / L0 for yarn and longrope; longrope may omit the key. transformers
// warns of a factor below 1.
double parse_factor(const JsonFields& object, const RopeDefaults& defaults, const RopeScaling& rope) {
  const bool shrinks = rope.type == RopeType::kYarn || rope.type == RopeType::kLongRope;
  const double least = shrinks ? kMinFactor : 1.0;
  if (const auto factor = object.number("factor", least, kMaxFactor)) {
    if (*factor < 1.0) warn(object, defaults, "factor", "a factor below 1 compresses positions");
    return *factor;
  }
  const double implied =
      static_cast<double>(rope.max_position_embeddings) / static_cast<double>(rope.original_ctx);
  if (rope.type == RopeType::kLongRope) return implied;
  const bool yarn = is_yarn(rope.type);
  if (rope.type == RopeType::kProportional || (yarn && rope.grows())) return 1.0;
  if (yarn && object.present("factor")) return implied;
  object.fail("factor", "expected a number from 1 to 1000000");
}

// yarn, llama3, longrope, ntk and types unknown to transformers: the top-level value, then the object's, then
// max_position_embeddings (standardize_rope_params). dynamic always starts at max_position_embeddings
// (_compute_dynamic_ntk_parameters). Other types ignore the length.
int64_t parse_original_ctx(const JsonFields& object, const RopeDefaults& defaults, RopeType type) {
  const char* key = "original_max_position_embeddings";
  const auto own = object.integer(key, 1, kMaxPositions);
  if (type == RopeType::kDynamic) {
    const int64_t max = defaults.max_position_embeddings;
    if (own.value_or(max) != max || defaults.original_ctx.value_or(max) != max) {
      warn(own || defaults.config == nullptr ? object : *defaults.config, defaults, key,
           "dynamic scaling starts only at max_position_embeddings, " + std::to_string(max) +
               ", as in transformers; `rope_original_ctx` sets where");
    }
    return max;
  }
  if (defaults.original_ctx) return *defaults.original_ctx;
  return own.value_or(defaults.max_position_embeddings);
}

void parse_yarn(const JsonFields& object, RopeScaling& rope) {
  // A beta of 0 means the default, as in transformers.
  const auto beta = [&](const char* key, double fallback) {
    const double given = object.number(key, 0.0, 1e9).value_or(0.0);
    return given > 0.0 ? given : fallback;
  };
  rope.beta_fast = beta("beta_fast", 32.0);
  rope.beta_slow = beta("beta_slow", 1.0);
  if (rope.beta_fast < rope.beta_slow) object.fail("beta_fast", "expected at least beta_slow");
  rope.mscale = object.number("mscale", 0.0, 1e3).value_or(0.0);
  rope.mscale_all_dim = object.number("mscale_all_dim", 0.0, 1e3).value_or(0.0);
  rope.truncate = object.boolean("truncate").value_or(true);
  // The YaRN repository's "finetuned" starts the scale at max_position_embeddings / L0: another formula.
  if (rope.grows() && object.boolean("finetuned").value_or(false))
    object.fail("finetuned", std::string(name_of(rope.type)) +
                                 " starts from an unscaled model; use yarn for a fine-tuned one");
}

// One object per layer type; all must agree, as all layers share one RoPE. The top-level original length does
// not apply (standardize_rope_params).
std::optional<RopeScaling> parse_per_layer(const JsonFields& object, const RopeDefaults& defaults) {
  std::optional<RopeScaling> first;
  std::string first_name;
  RopeDefaults nested = defaults;
  nested.original_ctx.reset();
  for (const std::string& name : object.keys()) {
    if (!object.holds_object(name)) continue;
    const RopeScaling rope = parse_rope_scaling(*object.object(name), nested);
    if (!first) {
      first = rope;
      first_name = name;
    } else if (*first != rope) {
      object.fail(name, "differs from \"" + first_name +
                            "\", and only one RoPE for all layers is supported; use another model");
    }
  }
  if (!first) return std::nullopt;
  for (const std::string& name : object.keys()) {
    if (!object.holds_object(name)) object.fail(name, "expected an object, like \"" + first_name + "\"");
  }
  return first;
}

// Ignores keys of other scaling types.
void check_rope_keys(const JsonFields& object, const RopeDefaults& defaults, const RopeScaling& rope) {
  for (const char* key : {"rope_type", "type", "factor", "beta_fast", "beta_slow", "mscale", "mscale_all_dim",
                          "truncate", "finetuned", "short_factor", "long_factor", "attention_factor",
                          "low_freq_factor", "high_freq_factor", "mrope_section", "mrope_interleaved"})
    object.has(key);
  if (defaults.scales_queries)
    for (const char* key : {"llama_4_scaling_beta", "max_position_embeddings"}) object.mark_read(key);
  const KeyValues known = {{"head_dim", rope.head_dim},
                           {"rope_theta", rope.theta},
                           {"partial_rotary_factor", rope.partial_rotary_factor}};
  check_unread(object, known, defaults.warnings);
}

std::string key_at_top(const std::string& key, const RopeDefaults& defaults) {
  if (key == "rope_theta") return std::string(defaults.theta_key);
  return key == "partial_rotary_factor" ? std::string(defaults.partial_key) : key;
}

}  // namespace

RopeScaling rope_of_type(const RopeScaling& own, RopeType type) {
  RopeScaling rope;
  rope.type = type;
  rope.head_dim = own.head_dim;
  rope.partial_rotary_factor = own.partial_rotary_factor;
  set_rotary_dim(rope);
  rope.theta = own.theta;
  rope.interleaved = own.interleaved;
  rope.max_position_embeddings = own.max_position_embeddings;
  rope.original_ctx = type == RopeType::kDynamic ? own.max_position_embeddings : own.original_ctx;
  if (type == RopeType::kLlama3) {  // _compute_llama3_parameters
    rope.low_freq_factor = 1.0;
    rope.high_freq_factor = 4.0;
  }
  return rope;
}

RopeScaling parse_rope_scaling(const JsonFields& object, const RopeDefaults& defaults) {
  if (const auto rope = parse_per_layer(object, defaults)) return *rope;
  RopeScaling rope;
  rope.type = parse_type(object, defaults);
  const bool alpha = rope.type == RopeType::kDynamic && defaults.alpha_is_key && object.has("alpha");
  if (alpha) rope.type = RopeType::kDefault;
  rope.head_dim = defaults.head_dim;
  rope.max_position_embeddings = defaults.max_position_embeddings;
  rope.theta = read_theta(object, defaults.theta);
  rope.interleaved = defaults.interleaved;
  rope.partial_rotary_factor =
      object.number("partial_rotary_factor", 0.0, 1.0).value_or(defaults.partial_rotary_factor);
  set_rotary_dim(rope);
  if (alpha) rope.theta = ntk_theta(rope, *object.number("alpha", 1.0, kMaxFactor));
  rope.original_ctx = parse_original_ctx(object, defaults, rope.type);
  if (rope.type != RopeType::kDefault) rope.factor = parse_factor(object, defaults, rope);
  if (is_yarn(rope.type)) parse_yarn(object, rope);
  if (is_yarn(rope.type) || rope.type == RopeType::kLongRope) {
    rope.attention_factor = object.number("attention_factor", 1e-6, 1e6);
  }
  const auto need = [&](const char* key) {
    if (!object.has(key))
      object.fail(key, std::string(name_of(rope.type)) + " scaling needs it; add the key");
    return key;
  };
  if (rope.type == RopeType::kLlama3) {
    rope.low_freq_factor = *object.number(need("low_freq_factor"), 0.0, 1e6);
    rope.high_freq_factor = *object.number(need("high_freq_factor"), 0.0, 1e6);
  }
  if (rope.type == RopeType::kLongRope) {
    rope.short_factor = *object.numbers(need("short_factor"), 1e-6, 1e6);
    rope.long_factor = *object.numbers(need("long_factor"), 1e-6, 1e6);
  }
  check_rope_keys(object, defaults, rope);
  if (const auto problem = find_rope_problem(rope)) {
    if (defaults.config == nullptr || object.has(problem->key)) object.fail(problem->key, problem->what);
    defaults.config->fail(key_at_top(problem->key, defaults), problem->what);
  }
  return rope;
}

JsonFields rope_object(const JsonFields& config) {
  static const nlohmann::json kEmpty = nlohmann::json::object();
  JsonFields object(kEmpty, config.file());
  for (const char* key : {"rope_parameters", "rope_scaling"}) {
    const auto given = config.object(key);
    if (given && !given->keys().empty()) object = *given;
  }
  return object;
}

RopeScaling read_rope(const JsonFields& config, RopeDefaults defaults) {
  defaults.config = &config;
  const JsonFields object = rope_object(config);
  const std::string_view theta_key = defaults.theta_key, partial_key = defaults.partial_key;
  if (!object.has("rope_theta") || config.has(theta_key))
    defaults.theta = read_theta(config, defaults.theta, theta_key);
  defaults.partial_rotary_factor =
      config.number(partial_key, 0.0, 1.0).value_or(defaults.partial_rotary_factor);
  // transformers' DeepSeek has "rope_interleave"; "rope_interleaved" marks checkpoints in Meta's pairing.
  for (const char* key : {"rope_interleave", "rope_interleaved"}) {
    defaults.interleaved = config.boolean(key).value_or(defaults.interleaved);
    if (config.boolean(key).value_or(false) && !defaults.interleave_is_key)
      warn(config, defaults, key, "used: pairs are (2i, 2i + 1); transformers ignores the key here");
  }
  const auto l0 = config.integer("original_max_position_embeddings", 1, kMaxPositions);
  if (!defaults.original_ctx) defaults.original_ctx = l0;
  if (const auto max = config.integer("max_position_embeddings", 1, kMaxPositions))
    defaults.max_position_embeddings = *max;
  RopeScaling rope = parse_rope_scaling(object, defaults);
  if (rope.partial_rotary_factor < 1.0 && rope.type != RopeType::kProportional && !defaults.partial_is_key) {
    const char* key = "partial_rotary_factor";
    warn(object.has(key) ? object : config, defaults, key,
         "used: " + std::to_string(rope.rotary_dim) + " of " + std::to_string(rope.head_dim) +
             " dimensions rotate; transformers ignores the key here, or fails with a scaling");
  }
  return rope;
}

std::vector<RopeScaling> read_layered_rope(const JsonFields& config, const RopeDefaults& defaults,
                                           double local_theta) {
  nlohmann::json full = nlohmann::json::object(), sliding = full;
  if (const auto given = config.object("rope_parameters")) {
    for (const std::string& key : given->keys()) {
      if (key != "full_attention" && key != "sliding_attention")
        given->fail(key, "expected only the objects full_attention and sliding_attention");
    }
    if (given->has("full_attention")) full = *given->find("full_attention");
    if (given->has("sliding_attention")) sliding = *given->find("sliding_attention");
  }
  if (config.object("rope_scaling")) full.update(*config.find("rope_scaling"));
  const auto read = [&](const nlohmann::json& object, const char* name, double theta) {
    const JsonFields fields(object, config.file(), std::string("rope_parameters.") + name + ".");
    RopeDefaults own = defaults;
    own.theta = theta;
    return parse_rope_scaling(fields, own);
  };
  std::vector<RopeScaling> ropes{read(full, "full_attention", read_theta(config, defaults.theta)),
                                 read(sliding, "sliding_attention", local_theta)};
  if (ropes.back().depends_on_length())
    config.fail("rope_parameters",
                "a length-dependent RoPE for sliding_attention is not supported; use another model");
  return ropes;
}

}  // namespace lariat
