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

// How a tokenizer's class uses a SentencePiece tokenizer.model: not at all, as libsentencepiece does, or with
// a pipeline that transformers builds from the pieces.
enum class Pieces : uint8_t { kNone, kPlain, kRebuilt };

// Rules that a tokenizer's class has in code, in transformers or next to the published files
// (models/families/tokenizers.h).
struct TokenizerClass {
  std::string_view names;     // in tokenizer_config.json, without "Fast" at the end
  std::string_view tokens{};  // special tokens that no file needs to name, each after its role
  Pieces pieces = Pieces::kPlain;
  // config.json of an older release under the same name: transformers_version, or a part of _name_or_path.
  std::string_view version{}, path{};
  // Tokens that continue the vocabulary's ids ({}: each of the numbers 0 to `numbered` - 1), and those of
  // them that every text begins with.
  std::string_view added{}, prefix{};
  int numbered = 0;
  const char* tiktoken = "";      // the file of its vocabulary; "": a tokenizer.model may be one
  const char* pattern = nullptr;  // how texts are cut into words, with a tiktoken vocabulary
  bool nfc = false;
  const char* chat_template = nullptr;  // for models without one
  const char* chat_format = nullptr;    // generation_config.json must have this format
};

// Whether config.json is of the class's version.
bool has_version(const JsonFields& config, const TokenizerClass& known);
// The class of a folder that declares this name; nullptr: no such class is known.
const TokenizerClass* find_class(const ModelTexts& texts, std::string_view declared);

// A special token that a settings file names, without an id.
struct NamedToken {
  std::string where;  // file and key, for messages; "": no file names it, the tokenizer's class does
  AddedToken token;
  bool is_role = false;  // bos_token and its like, not one of a list
};

// The settings beside a vocabulary: tokenizer_config.json, special_tokens_map.json and added_tokens.json,
// read as transformers 5.24 reads them (the last two only where the first has no added_tokens_decoder).
struct TokenizerSettings {
  std::string file;  // tokenizer_config.json
  JsonFields::Wording wording = JsonFields::with_key;
  std::string tokenizer_class;
  const TokenizerClass* known = nullptr;  // the class with its rules
  std::optional<bool> add_bos, add_eos, add_prefix_space, legacy;
  bool split_special = false;
  std::vector<AddedToken> added;            // of added_tokens_decoder: these replace the flags of others
  std::vector<AddedToken> added_beside;     // of added_tokens.json: these do not
  std::map<std::string, NamedToken> named;  // by key, or "[…]" for a place in a list
  std::set<std::string> given;              // the keys of `named` that a file has, null included
  std::vector<std::string> warnings;

  // Whether transformers builds a pipeline of its own for a tokenizer.model.
  bool rebuilds() const { return known != nullptr && known->pieces == Pieces::kRebuilt; }
  // A warning about a key of tokenizer_config.json.
  void warn(std::string_view key, const std::string& what);
};

TokenizerSettings read_tokenizer_settings(const ModelTexts& texts);

// The special tokens of every tokenizer, by their names in the files.
inline constexpr std::string_view kRoles =
    "bos_token eos_token unk_token sep_token pad_token cls_token mask_token";

// Special tokens by their names that the class has which AutoTokenizer of transformers 5.24 makes of a
// folder, `declared` in tokenizer_config.json ("": none), over a tokenizer.json that is `byte_level`.
std::map<std::string, std::string> tokens_of_class(const ModelTexts& texts, std::string declared,
                                                   bool byte_level);

// Warns of each key that was not asked for and says something (is not null, false, 0 or empty), but for those
// in `harmless`, words with spaces between them.
void warn_of_unread(const JsonFields& fields, std::string_view harmless, std::vector<std::string>& warnings);

// An AddedToken as JSON writes it, without its id. Throws Error naming the file and the key.
AddedToken read_added_token(const JsonFields& fields, std::vector<std::string>& warnings);

// Ids are below this, so that tables indexed by id stay small whatever a file says.
constexpr int64_t kMaxId = int64_t{1} << 24;
constexpr size_t kMaxTokenBytes = 4096;

}  // namespace lariat::tok
