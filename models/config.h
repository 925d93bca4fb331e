#pragma once
#include <string_view>

#include "models/spec.h"

namespace lariat {

// A checkpoint's config.json, and the token ids of its generation_config.json when there is one. `dir` holds
// the two, or `dir` is a config file itself (then the latter is looked for only beside one called
// config.json). Throws Error naming the file and the key.
ModelSpec load_config(const std::filesystem::path& dir);

// The same of a config.json's text alone; `file` is what errors name.
ModelSpec parse_config(std::string_view text, const std::filesystem::path& file);

}  // namespace lariat
