#pragma once
#include <string_view>

#include "models/io/model_texts.h"
#include "models/spec.h"

namespace lariat {

// Loads config.json and an optional generation_config.json. Throws Error naming the file and the key.
ModelSpec load_config(const ModelTexts& texts);

// RoPE of a config.json, read by the model's family. For an unsupported model: from rope_theta, rope_scaling
// or rope_parameters, and the head size. Unread keys are not checked.
struct ConfigRope {
  RopeScaling rope;
  QueryScale query_scale;
  PositionMethod position_method;  // as in ModelSpec
  std::vector<std::string> warnings;
};
ConfigRope load_rope(const ModelTexts& texts);

// load_config for config.json's text alone; errors name `file`.
ModelSpec parse_config(std::string_view text, const std::filesystem::path& file);

}  // namespace lariat
