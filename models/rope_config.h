#pragma once
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "models/rope.h"

namespace lariat {

class JsonFields;

// RoPE defaults and key names of a family.
struct RopeDefaults {
  int64_t head_dim = 0;
  int64_t max_position_embeddings = 0;
  double theta = 10000.0;
  double partial_rotary_factor = 1.0;
  bool interleaved = false;
  // Overrides the file, unlike the other defaults, if its top level lacks this key. (A top-level key
  // overrides the object's: transformers, standardize_rope_params; Phi-3.)
  std::optional<int64_t> original_ctx{};
  bool partial_is_key = false;     // partial_rotary_factor is a key of this family in transformers
  bool interleave_is_key = false;  // likewise rope_interleave
  bool scales_queries = false;     // llama_4_scaling_beta is a key of this family
  std::string_view theta_key = "rope_theta", partial_key = "partial_rotary_factor";  // at the file's top
  const JsonFields* config = nullptr;            // the file's top level, for errors about its keys
  std::vector<std::string>* warnings = nullptr;  // receives warnings for the user; nullptr: dropped
};

// Parses a rope_scaling or rope_parameters object. As in transformers, accepts a yarn factor below 1 and an
// original length above max_position_embeddings (lowered to save memory). Throws Error naming file and key.
RopeScaling parse_rope_scaling(const JsonFields& object, const RopeDefaults& defaults);

// RoPE object of a config.json: rope_scaling if not empty, else rope_parameters, else an empty object.
JsonFields rope_object(const JsonFields& config);

// Reads the whole RoPE of a config.json: rope_theta, partial_rotary_factor, rope_interleaved, rope_scaling or
// rope_parameters, original_max_position_embeddings. `defaults` replace missing keys.
RopeScaling read_rope(const JsonFields& config, RopeDefaults defaults);

// Both RoPEs of a model with a second RoPE for layers with a window: "full_attention" and "sliding_attention"
// of rope_parameters, or older keys for the first. The second defaults to `local_theta` and is not dynamic.
std::vector<RopeScaling> read_layered_rope(const JsonFields& config, const RopeDefaults& defaults,
                                           double local_theta);

// The model's RoPE with another scaling type and the type's defaults: factor 1, the model's L0 (dynamic:
// max_position_embeddings, as in transformers), Llama 3.1's low and high for llama3, no lists for longrope.
RopeScaling rope_of_type(const RopeScaling& own, RopeType type);

}  // namespace lariat
