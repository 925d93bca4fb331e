#pragma once
#include <map>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "models/families/tokenizer_class.h"
#include "models/io/json_fields.h"
#include "models/io/model_texts.h"
#include "models/text/added_tokens.h"

namespace lariat::tok {

// nullptr: unknown class.
const TokenizerClass* find_class(const ModelTexts& texts, std::string_view declared);

struct NamedToken {
  std::string where;  // file and key, for messages; "": from the tokenizer's class
  AddedToken token;
  bool is_role = false;  // bos_token and others, not one of a list
};

// tokenizer_config.json, special_tokens_map.json and added_tokens.json, as in transformers 5.24 (the last two
// only if the first has no added_tokens_decoder).
struct TokenizerSettings {
  std::string file;
  JsonFields::Wording wording = JsonFields::with_key;
  std::string tokenizer_class;
  const TokenizerClass* known = nullptr;
  std::optional<bool> add_bos, add_eos, add_prefix_space, legacy;
  bool split_special = false;
  std::vector<AddedToken> added;            // of added_tokens_decoder: override flags
  std::vector<AddedToken> added_with;       // of added_tokens.json: do not override
  std::map<std::string, NamedToken> named;  // by key, or "[…]" for an item of a list
  std::set<std::string> given;              // keys of `named` in a file, null included
  std::vector<std::string> warnings;

  bool rebuilds() const { return known != nullptr && known->pieces == Pieces::kRebuilt; }
  void warn(std::string_view key, const std::string& what);
};

TokenizerSettings read_tokenizer_settings(const ModelTexts& texts);

// Name in `texts` of the vocabulary that Tokenizer::load reads; "": none.
std::string vocabulary_name(const ModelTexts& texts, const TokenizerSettings& settings);

// Texts of a GGUF's vocabulary: its tokens and merges, and all its keys.
inline constexpr std::string_view kGgufVocabulary = "tokenizer.ggml", kGgufTokenizerKeys = "tokenizer keys";

inline constexpr std::string_view kRoles =
    "bos_token eos_token unk_token sep_token pad_token cls_token mask_token";

// Special tokens by name from AutoTokenizer's class in transformers 5.24. declared: class in
// tokenizer_config.json ("": none); byte_level: kind of tokenizer.json.
std::map<std::string, std::string> tokens_of_class(const ModelTexts& texts, std::string declared,
                                                   bool byte_level);

// Warns of each unread key that is_set outside `harmless` (spaces between).
void warn_of_unread(const JsonFields& fields, std::string_view harmless, std::vector<std::string>& warnings);

// Reads an AddedToken without its id. Throws Error.
AddedToken read_added_token(const JsonFields& fields, std::vector<std::string>& warnings);

// Limit that keeps tables indexed by id small.
constexpr int64_t kMaxId = int64_t{1} << 24;
constexpr size_t kMaxTokenBytes = 4096;

}  // namespace lariat::tok
