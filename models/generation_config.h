#pragma once
#include "models/io/json_fields.h"
#include "models/io/model_texts.h"
#include "models/spec.h"

namespace lariat {

// Fills spec.generation from the keys of a generation_config.json or, without one, a config.json. Unsupported
// keys add a warning; a value that transformers refuses throws Error on use (Setting).
void read_generation_keys(const JsonFields& json, ModelSpec& spec);

// Replaces config.json's generation keys; also reads the ids that end a text and warns of unknown keys.
void read_generation_config(const ModelTexts& texts, ModelSpec& spec);

}  // namespace lariat
