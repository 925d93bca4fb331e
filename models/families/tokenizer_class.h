#pragma once
#include <cstdint>
#include <string>
#include <string_view>

#include "models/io/json_fields.h"

namespace lariat::tok {

// A class runs a tokenizer.model not at all, by libsentencepiece, or by transformers' rebuilt pipeline.
enum class Pieces : uint8_t { kNone, kPlain, kRebuilt };

// Rules in the code of a tokenizer's class.
struct TokenizerClass {
  std::string_view names;     // in tokenizer_config.json, without a final "Fast"
  std::string_view tokens{};  // default special tokens, each after its role
  Pieces pieces = Pieces::kPlain;
  // Older release under the same name, by config.json: transformers_version, or a part of _name_or_path.
  std::string_view version{}, path{};
  // Tokens after the vocabulary's ids ({}: 0 to `numbered` - 1), and those among them that begin every text.
  std::string_view added{}, prefix{};
  int numbered = 0;
  const char* tiktoken = "";      // vocabulary file; "": possibly tokenizer.model
  const char* pattern = nullptr;  // pre-tokenizer pattern of a tiktoken vocabulary
  bool nfc = false;
  const char* chat_template = nullptr;  // for models without a template
  const char* chat_format = nullptr;    // required in generation_config.json
};

inline bool has_version(const JsonFields& config, const TokenizerClass& known) {
  return config.string("transformers_version").value_or("") == known.version ||
         config.string("_name_or_path").value_or("").find(known.path) != std::string::npos;
}

}  // namespace lariat::tok
