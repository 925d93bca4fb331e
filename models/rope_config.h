#pragma once
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "models/rope.h"

namespace lariat {

class JsonFields;

// A model's RoPE where its file says nothing, and how its family calls the keys.
struct RopeDefaults {
  int64_t head_dim = 0;
  int64_t max_position_embeddings = 0;
  double theta = 10000.0;
  double partial_rotary_factor = 1.0;
  bool interleaved = false;
  // Unlike the others it beats what the file says: a family sets it where the file has no such key at its
  // top. (A top-level original_max_position_embeddings beats the one inside the object: transformers,
  // standardize_rope_params; Phi-3 writes it there.)
  std::optional<int64_t> original_ctx{};
  bool partial_is_key = false;     // partial_rotary_factor is a key of this family, in transformers too
  bool interleave_is_key = false;  // so is rope_interleave
  bool scales_queries = false;     // llama_4_scaling_beta is a key of this family
  std::string_view theta_key = "rope_theta", partial_key = "partial_rotary_factor";  // at the file's top
  const JsonFields* config = nullptr;            // the file's top level, to blame for a key that stands there
  std::vector<std::string>* warnings = nullptr;  // where lines go that a user should know; null: nowhere
};

// The members of a rope_scaling / rope_parameters object. A yarn factor below 1 and an original length
// above max_position_embeddings are taken, as transformers takes them (people lower the latter to save
// memory).
// Throws Error naming file and key.
RopeScaling parse_rope_scaling(const JsonFields& object, const RopeDefaults& defaults);

// The object of a config.json that describes its RoPE: rope_scaling, unless it is empty, before
// rope_parameters; without members where there is neither.
JsonFields rope_object(const JsonFields& config);

// The whole of a config.json's RoPE: rope_theta, partial_rotary_factor, original_max_position_embeddings,
// rope_interleaved and rope_scaling or rope_parameters. `defaults` holds what the file may leave open.
RopeScaling read_rope(const JsonFields& config, RopeDefaults defaults);

// The two of a model whose layers with a window have a RoPE of their own: rope_parameters holds an object for
// each ("full_attention", "sliding_attention"), or the older keys speak of the first. The second has
// `local_theta` where nothing else is said, and may not depend on the length.
std::vector<RopeScaling> read_layered_rope(const JsonFields& config, const RopeDefaults& defaults,
                                           double local_theta);

// The model's RoPE with a scaling of another type and that type's defaults: factor 1, the model's L0
// (dynamic: max_position_embeddings, as in transformers), Llama 3.1's low and high for llama3, no lists for
// longrope.
RopeScaling rope_of_type(const RopeScaling& own, RopeType type);

}  // namespace lariat
