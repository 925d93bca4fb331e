#pragma once
#include <string_view>

#include "models/io/model_texts.h"
#include "models/spec.h"

namespace lariat {

// A checkpoint's config.json, and its generation_config.json when there is one. Throws Error naming the file
// and the key.
ModelSpec load_config(const ModelTexts& texts);

// The RoPE of a config.json: as its family reads it, or of one that does not run by the usual keys:
// rope_theta, rope_scaling or rope_parameters, and the size of a head. Keys that nobody reads are not looked
// at.
struct ConfigRope {
  RopeScaling rope;
  QueryScale query_scale;
  PositionMethod position_method;  // as in ModelSpec
  std::vector<std::string> warnings;
};
ConfigRope load_rope(const ModelTexts& texts);

// load_config of a config.json's text alone; errors name `file`.
ModelSpec parse_config(std::string_view text, const std::filesystem::path& file);

}  // namespace lariat
