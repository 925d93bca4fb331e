#pragma once
#include <filesystem>
#include <optional>
#include <string>
#include <vector>

#include "models/text/tokenizer_pipeline.h"

namespace lariat::tok {

// What a Tokenizer holds.
struct TokenizerData {
  Pipeline pipeline;
  std::optional<int32_t> bos;
  std::vector<int32_t> eos;
  bool adds_bos = false;
  std::vector<int32_t> prefix;  // what add_bos puts in front
};

// What tokenizer_config.json (or, without one, special_tokens_map.json) says.
struct TokenizerSettings {
  std::optional<std::string> bos_token, eos_token;
  std::optional<bool> add_bos, add_eos;
  bool split_special = false;
  std::vector<AddedToken> added;
};

// Throws Error naming file and key. Without either file, everything is unset.
TokenizerSettings read_settings(const std::filesystem::path& dir);

// eos_token_id of generation_config.json, else of config.json: a number or a list. Empty when there is none.
std::vector<int32_t> read_eos_ids(const std::filesystem::path& dir);

// added_tokens.json, which accompanies a tokenizer.model: {"token": id}.
std::vector<AddedToken> read_added_tokens(const std::filesystem::path& dir);

}  // namespace lariat::tok
