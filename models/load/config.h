#pragma once
#include <string_view>

#include "models/io/model_texts.h"
#include "models/spec/spec.h"

namespace lariat {

// Loads config.json and, if present, generation_config.json. Throws Error.
ModelSpec load_config(const ModelTexts& texts);

// RoPE of a config.json; an unsupported family's is read as a Llama's. Other keys are ignored.
struct ConfigRope {
  RopeScaling rope;
  QueryScale query_scale;
  PositionMethod position_method;
  std::vector<std::string> warnings;
};
ConfigRope load_rope(const ModelTexts& texts);

// Parses the text of a config.json; `file` is for errors.
ModelSpec parse_config(std::string_view text, const std::filesystem::path& file);

}  // namespace lariat
