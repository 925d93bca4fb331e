#pragma once
#include <cstdint>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "models/families/family.h"
#include "models/gguf/gguf_file.h"
#include "models/io/model_texts.h"

namespace lariat {

// config.json, with the architecture's unread keys. Throws Error for an unsupported architecture or value.
nlohmann::json gguf_config(const GgufFile& file);

// Tensors under the family's Hugging Face names: split projections, stacked experts as
// X.experts.gate_proj.weight, no RoPE frequencies. Unknown names stay. Throws Error.
std::vector<StoredTensor> gguf_tensors(const GgufFile& file);

// Vocabulary (byte-level BPE or SentencePiece) as a tokenizer's parts, or as a text that identifies it;
// tokenizer_config.json. Throw Error.
void gguf_vocabulary(const GgufFile& file, tok::Pipeline& pipeline);
std::string gguf_vocabulary_text(const GgufFile& file);
// All tokenizer.* keys with their values except the chat template.
std::string gguf_tokenizer_keys(const GgufFile& file);
nlohmann::json gguf_tokenizer_config(const GgufFile& file);

// general.sampling.*, or an empty object.
nlohmann::json gguf_generation_config(const GgufFile& file);

// Errors name the GGUF's keys.
JsonFields::Wording gguf_wording(const GgufFile& file);

// --- shared ------------------------------------------------------------------------------------------------

// Architecture ("llama") and family. Throws Error if unsupported.
std::string gguf_architecture(const GgufFile& file);
const Family& gguf_family(const GgufFile& file);

// Latent attention: size of the rotated part.
int64_t gguf_head_dim(const GgufFile& file);
// A size, or an array with equal entries for all layers. Throws Error if missing.
int64_t gguf_size(const GgufFile& file, const std::string& key, std::optional<int64_t> missing = {});

std::optional<int64_t> gguf_token_id(const GgufFile& file, std::string_view role);
// True if llama.cpp takes this text for an end of generation, and so for a control token.
bool gguf_ends_text(std::string_view token);

// Adds the unread keys that begin with `prefix`, unless `known` matches the rest. A key without a Hugging
// Face name keeps its name if its value is set.
void gguf_add_unread(const GgufFile& file, std::string_view prefix, std::string_view known,
                     nlohmann::json& json);

}  // namespace lariat
