#pragma once
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "models/spec/rope.h"

namespace lariat {

class JsonFields;

struct RopeDefaults {
  int64_t head_dim = 0;
  int64_t max_position_embeddings = 0;
  double theta = 10000.0;
  double partial_rotary_factor = 1.0;
  bool interleaved = false;
  // Overrides the object's length if the file's top level lacks this key (standardize_rope_params; Phi-3).
  std::optional<int64_t> original_ctx{};
  bool partial_is_key = false;     // the family has this key in transformers
  bool interleave_is_key = false;  // likewise rope_interleave
  bool scales_queries = false;     // likewise llama_4_scaling_beta
  bool alpha_is_key = false;       // likewise alpha: "dynamic" with it only stretches theta
  std::string_view theta_key = "rope_theta", partial_key = "partial_rotary_factor";  // at the file's top
  const JsonFields* config = nullptr;            // the file's top level, for errors
  std::vector<std::string>* warnings = nullptr;  // may be nullptr
};

// Parses a rope_scaling or rope_parameters object. As transformers, accepts a yarn factor below 1 and an
// original length above max_position_embeddings. Throws Error.
RopeScaling parse_rope_scaling(const JsonFields& object, const RopeDefaults& defaults);

// Returns rope_scaling if not empty, else rope_parameters, else an empty object.
JsonFields rope_object(const JsonFields& config);

// Reads rope_theta, partial_rotary_factor, rope_interleaved, rope_scaling or rope_parameters,
// original_max_position_embeddings.
RopeScaling read_rope(const JsonFields& config, RopeDefaults defaults);

// Reads "full_attention" and "sliding_attention" of rope_parameters. Keys of rope_scaling replace keys of the
// first. Its theta defaults to rope_theta, the second's to `local_theta`. Throws Error if the second depends
// on the length.
std::vector<RopeScaling> read_layered_rope(const JsonFields& config, const RopeDefaults& defaults,
                                           double local_theta);

// RoPE with another scaling type and the type's defaults, without lists for longrope.
RopeScaling rope_of_type(const RopeScaling& own, RopeType type);

}  // namespace lariat
