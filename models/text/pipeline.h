#pragma once
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "models/io/model_texts.h"
#include "models/text/added_tokens.h"
#include "models/text/bpe.h"
#include "models/text/detokenizer.h"
#include "models/text/pretokenizer.h"
#include "models/text/sentencepiece.h"
#include "models/text/tokenizer_settings.h"

namespace lariat::tok {

struct NormalizeStep {
  enum class Kind { kForm, kPrepend, kReplace };
  Kind kind;
  NormalForm form = NormalForm::kNfc;  // kForm
  std::string pattern{};               // kReplace: literal, not empty
  std::string content{};               // kPrepend, kReplace
};

std::string normalize(const std::vector<NormalizeStep>& steps, std::string_view text);

// Parts of a Tokenizer, in the order of encoding (encoder.cpp) and of decoding.
struct Pipeline {
  struct Token {
    std::string text;
    bool known = false;
    bool special = false;
  };

  std::string file;
  std::vector<AddedToken> added;
  StringMap added_index;  // content -> index in `added`
  std::vector<NormalizeStep> normalizer;
  std::vector<PreTokenizeStep> pre_tokenizer;
  std::optional<Bpe> bpe;  // or `sentencepiece`
  std::optional<SentencePiece> sentencepiece;
  bool has_pieces = false;  // from a SentencePiece model, run by either
  std::vector<DecodeStep> decode_steps;
  // Ids that the post-processor adds before and after a text.
  std::vector<int32_t> template_prefix, template_suffix;
  bool split_special = false;  // special tokens in a text are plain text
  // Texts that get a leading space: none, the first, or all between added tokens.
  PreTokenizeStep::Prepend space_in_front = PreTokenizeStep::Prepend::kNever;
  // Special tokens of the vocabulary's file by name ("bos_token").
  std::map<std::string, std::string> own_roles;
  std::vector<std::string> warnings;

  // Members built by index_tokens().
  std::vector<Token> tokens;
  StringMap ids;
  AddedTokens raw_added, normalized_added;

  // Settings of tokenizer.model or of the files next to the vocabulary.
  std::map<std::string, std::string> roles;  // name of a special token -> the token
  std::optional<int32_t> bos, eos;
  bool adds_bos = false;
  std::vector<int32_t> prefix;

  const Token* token(int32_t id) const {  // nullptr: no token
    const auto at = static_cast<size_t>(id);
    return id >= 0 && at < tokens.size() && tokens[at].known ? &tokens[at] : nullptr;
  }
};

// Throws Error.
void load_tokenizer_json(const ModelTexts& texts, Pipeline& pipeline);

// A tokenizer.model is a SentencePiece model or a tiktoken vocabulary.
void load_model(const ModelTexts& texts, const TokenizerSettings& settings, Pipeline& pipeline);
// Runs libsentencepiece or, for a LlamaTokenizer that is not "legacy", transformers 5's pipeline built from
// the pieces. pipeline.file names the model.
void load_sentencepiece(const std::string& bytes, const TokenizerSettings& settings, Pipeline& pipeline);

inline constexpr uint64_t kMaxTiktokenBytes = uint64_t{16} << 20;
bool looks_like_tiktoken(std::string_view bytes);
void load_tiktoken(const ModelTexts& texts, std::string_view name, const TokenizerSettings& settings,
                   Pipeline& pipeline);

// Adds the tokens of a class, with ids from `next` on, and the prefix of every text.
void add_class_tokens(const TokenizerClass& known, int32_t next, Pipeline& pipeline);

// Adds a token, or replaces the flags of a token with this content (keeping id and special).
void add_token(Pipeline& pipeline, AddedToken token);

// Searches the vocabulary without added tokens.
std::optional<int32_t> vocabulary_id(const Pipeline& pipeline, const std::string& token);

// Throws Error if added tokens contradict the vocabulary.
void index_tokens(Pipeline& pipeline);

}  // namespace lariat::tok
