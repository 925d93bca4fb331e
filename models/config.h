#pragma once
#include <string_view>

#include "models/spec.h"

namespace lariat {

// A checkpoint's config.json, and its generation_config.json when there is one. `dir` holds
// the two, or `dir` is a config file itself (then the latter is looked for only beside one called
// config.json). Throws Error naming the file and the key.
ModelSpec load_config(const std::filesystem::path& dir);

// The RoPE of a config.json of any family that writes the usual keys: rope_theta, rope_scaling or
// rope_parameters, and the size of a head. What lariat would not run is not looked at.
RopeScaling load_rope(const std::filesystem::path& dir, std::vector<std::string>& warnings);

// load_config of a config.json's text alone; `file` is what errors name.
ModelSpec parse_config(std::string_view text, const std::filesystem::path& file);

}  // namespace lariat
