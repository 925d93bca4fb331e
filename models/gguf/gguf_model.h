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

// A GGUF's description of its model in the terms of a Hugging Face folder.
namespace lariat {

// config.json, with the architecture's unread keys. Throws Error naming file and key for an unsupported
// architecture or an unsupported value.
nlohmann::json gguf_config(const GgufFile& file);

// Tensors under the family's Hugging Face names, with row readers: split projections, stacked experts as
// X.experts.gate_proj.weight, no RoPE frequencies. Unknown names stay. Throws Error naming file and tensor.
std::vector<StoredTensor> gguf_tensors(const GgufFile& file);

// Vocabulary (byte-level BPE or SentencePiece) as parts of a tokenizer, or as a text that identifies it;
// tokenizer_config.json. Throws Error naming file and key.
void gguf_vocabulary(const GgufFile& file, tok::Pipeline& pipeline);
std::string gguf_vocabulary_text(const GgufFile& file);
nlohmann::json gguf_tokenizer_config(const GgufFile& file);

// generation_config.json: general.sampling.*, or an empty object.
nlohmann::json gguf_generation_config(const GgufFile& file);

// Wording of errors about these files, with the GGUF's keys.
JsonFields::Wording gguf_wording(const GgufFile& file);

// --- shared ------------------------------------------------------------------------------------------------

// Architecture in the metadata ("llama"), and its family. Throws Error if unsupported.
std::string gguf_architecture(const GgufFile& file);
const Family& gguf_family(const GgufFile& file);

// Size of a head; with latent attention, of its rotated part.
int64_t gguf_head_dim(const GgufFile& file);
// A size, or an array with equal entries for all layers. Throws Error if missing.
int64_t gguf_size(const GgufFile& file, const std::string& key, std::optional<int64_t> missing = {});

// Id of a special token ("bos"), if valid.
std::optional<int64_t> gguf_token_id(const GgufFile& file, std::string_view role);
// True if llama.cpp takes a token of this text for an end of generation, and so for a control token.
bool gguf_ends_text(std::string_view token);

// Adds the unread keys that begin with `prefix`, unless `known` matches the rest. A key gets Hugging Face's
// name or, if Hugging Face has none and the value is set, keeps its name.
void gguf_add_unread(const GgufFile& file, std::string_view prefix, std::string_view known,
                     nlohmann::json& json);

}  // namespace lariat
