#pragma once
#include "models/io/json_fields.h"
#include "models/io/model_texts.h"
#include "models/spec.h"

namespace lariat {

// The keys of transformers' GenerationConfig, of a generation_config.json or, where there is none, of a
// config.json: fills spec.generation. What changes the text there and is not done here becomes a warning; a
// value that transformers refuses is an Error to who asks for it (Setting).
void read_generation_keys(const JsonFields& json, ModelSpec& spec);

// A generation_config.json, in place of what config.json says of generating: the same, the ids that end a
// text, and a warning of keys that nobody knows.
void read_generation_config(const ModelTexts& texts, ModelSpec& spec);

}  // namespace lariat
