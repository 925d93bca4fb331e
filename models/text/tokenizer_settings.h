#pragma once
#include <map>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "models/io/json_fields.h"
#include "models/io/model_texts.h"
#include "models/text/added_tokens.h"

namespace lariat::tok {

// How a class runs a tokenizer.model: not at all, by libsentencepiece, or by transformers' rebuilt pipeline.
enum class Pieces : uint8_t { kNone, kPlain, kRebuilt };

// Rules in the code of a tokenizer's class, in transformers or next to published files
// (models/families/tokenizers.h).
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

// True if config.json is of the class's version.
bool has_version(const JsonFields& config, const TokenizerClass& known);
// Class of a folder that declares this name; nullptr: unknown class.
const TokenizerClass* find_class(const ModelTexts& texts, std::string_view declared);

// A special token in a settings file, without id.
struct NamedToken {
  std::string where;  // file and key, for messages; "": from the tokenizer's class
  AddedToken token;
  bool is_role = false;  // bos_token and others, not one of a list
};

// Settings next to a vocabulary: tokenizer_config.json, special_tokens_map.json and added_tokens.json, as in
// transformers 5.24 (the last two only if the first has no added_tokens_decoder).
struct TokenizerSettings {
  std::string file;  // tokenizer_config.json
  JsonFields::Wording wording = JsonFields::with_key;
  std::string tokenizer_class;
  const TokenizerClass* known = nullptr;  // the class's rules
  std::optional<bool> add_bos, add_eos, add_prefix_space, legacy;
  bool split_special = false;
  std::vector<AddedToken> added;            // of added_tokens_decoder: override flags
  std::vector<AddedToken> added_beside;     // of added_tokens.json: do not override
  std::map<std::string, NamedToken> named;  // by key, or "[…]" for an item of a list
  std::set<std::string> given;              // keys of `named` in a file, null included
  std::vector<std::string> warnings;

  // True if transformers builds a pipeline from a tokenizer.model's pieces.
  bool rebuilds() const { return known != nullptr && known->pieces == Pieces::kRebuilt; }
  // Adds a warning about a key of tokenizer_config.json.
  void warn(std::string_view key, const std::string& what);
};

TokenizerSettings read_tokenizer_settings(const ModelTexts& texts);

// Special tokens of every tokenizer, by their names in files.
inline constexpr std::string_view kRoles =
    "bos_token eos_token unk_token sep_token pad_token cls_token mask_token";

// Special tokens by name from the class of AutoTokenizer in transformers 5.24 for a folder. `declared`: class
// in tokenizer_config.json ("": none); byte_level: kind of tokenizer.json.
std::map<std::string, std::string> tokens_of_class(const ModelTexts& texts, std::string declared,
                                                   bool byte_level);

// Warns of each unread key with a value (not null, false, 0 or empty) outside `harmless` (spaces between).
void warn_of_unread(const JsonFields& fields, std::string_view harmless, std::vector<std::string>& warnings);

// Reads a JSON AddedToken, without its id. Throws Error naming the file and the key.
AddedToken read_added_token(const JsonFields& fields, std::vector<std::string>& warnings);

// Upper limit of ids: tables indexed by id stay small for any file.
constexpr int64_t kMaxId = int64_t{1} << 24;
constexpr size_t kMaxTokenBytes = 4096;

}  // namespace lariat::tok
