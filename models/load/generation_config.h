#pragma once
#include "models/io/json_fields.h"
#include "models/io/model_texts.h"
#include "models/spec/spec.h"

namespace lariat {

// Fills spec.generation from a generation_config.json or config.json. Unsupported keys add a warning; a value
// that transformers refuses throws Error on use (Setting).
void read_generation_keys(const JsonFields& json, ModelSpec& spec);

// Replaces config.json's generation keys and end-of-text ids; warns of unknown keys.
void read_generation_config(const ModelTexts& texts, ModelSpec& spec);

}  // namespace lariat
