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

// What a GGUF says of its model, in the words of a Hugging Face folder.
namespace lariat {

// Its config.json, with the keys of its architecture that no reader asks for. Throws Error naming file and
// key for an architecture that lariat does not run, and for what such a config cannot say.
nlohmann::json gguf_config(const GgufFile& file);

// Its tensors by the names that Hugging Face's checkpoints of the same family have, with readers of their
// rows: fused projections one by one, stacked experts as X.experts.gate_proj.weight, frequencies of RoPE left
// out. An unknown tensor keeps its name. Throws Error naming file and tensor.
std::vector<StoredTensor> gguf_tensors(const GgufFile& file);

// Its vocabulary, byte-level BPE or SentencePiece, as the parts of a tokenizer, or as one text that tells
// files apart; its tokenizer_config.json. Throws Error naming file and key.
void gguf_vocabulary(const GgufFile& file, tok::Pipeline& pipeline);
std::string gguf_vocabulary_text(const GgufFile& file);
nlohmann::json gguf_tokenizer_config(const GgufFile& file);

// Its generation_config.json: general.sampling.*, or an empty object.
nlohmann::json gguf_generation_config(const GgufFile& file);

// Words errors about these files, with the GGUF's key in place of theirs.
JsonFields::Wording gguf_wording(const GgufFile& file);

// --- what these share --------------------------------------------------------------------------------------

// The architecture in words of the metadata ("llama"), and its family. Throws Error for one that does not
// run.
std::string gguf_architecture(const GgufFile& file);
const Family& gguf_family(const GgufFile& file);

// The size of a head, rotated or not.
int64_t gguf_head_dim(const GgufFile& file);
// A size that may be an array with an entry for each layer, all alike. Throws Error where it is missing.
int64_t gguf_size(const GgufFile& file, const std::string& key, std::optional<int64_t> missing = {});

// The id of a special token ("bos"), if the file has one that is a token.
std::optional<int64_t> gguf_token_id(const GgufFile& file, std::string_view role);
// Whether llama.cpp takes a token of this text for an end of generation, and so for a control token.
bool gguf_ends_text(std::string_view token);

// Adds the keys that begin with `prefix`, were not asked for, and whose rest `known` does not match. A key is
// added under Hugging Face's name or, if Hugging Face has none and the value is set, under its own name.
void gguf_add_unread(const GgufFile& file, std::string_view prefix, std::string_view known,
                     nlohmann::json& json);

}  // namespace lariat
