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

// One component of a "normalizer", in the order of the file.
struct NormalizeStep {
  enum class Kind { kForm, kPrepend, kReplace };
  Kind kind;
  NormalForm form = NormalForm::kNfc;  // kForm
  std::string pattern{};               // kReplace: literal, not empty
  std::string content{};               // kPrepend, kReplace
};

// A text as the components of a "normalizer" make it, one after the other.
std::string normalize(const std::vector<NormalizeStep>& steps, std::string_view text);

// The parts of a Tokenizer in the order a text passes through them (added tokens, normalizer, added
// tokens in normalised form, then either pre-tokenizer and BPE or SentencePiece), and the way back.
struct Pipeline {
  struct Token {
    std::string text;  // as in the vocabulary file
    bool known = false;
    bool special = false;
  };

  std::string file;  // for error messages
  std::vector<AddedToken> added;
  StringMap added_index;  // content -> place in `added`
  std::vector<NormalizeStep> normalizer;
  std::vector<PreTokenizeStep> pre_tokenizer;
  std::optional<Bpe> bpe;  // or
  std::optional<SentencePiece> sentencepiece;
  bool has_pieces = false;  // of a SentencePiece model, which either of them may run
  std::vector<DecodeStep> decode_steps;
  // The ids that the post-processor puts in front of a text and behind it.
  std::vector<int32_t> template_prefix, template_suffix;
  bool split_special = false;  // special tokens in a text are text
  // Before which texts the files put a space: none, the first, or all between added tokens.
  PreTokenizeStep::Prepend space_in_front = PreTokenizeStep::Prepend::kNever;
  // Special tokens by their names ("bos_token"): those that the vocabulary's file itself names.
  std::map<std::string, std::string> own_roles;
  std::vector<std::string> warnings;

  // Made from the above by index_tokens().
  std::vector<Token> tokens;  // by id
  StringMap ids;
  AddedTokens raw_added, normalized_added;

  // From the tokenizer.model, or the settings beside the vocabulary.
  std::map<std::string, std::string> roles;  // name of a special token -> the token
  std::optional<int32_t> bos, eos;
  bool adds_bos = false;
  std::vector<int32_t> prefix;  // what add_bos puts in front

  const Token* token(int32_t id) const {  // nullptr: an id without one
    const auto at = static_cast<size_t>(id);
    return id >= 0 && at < tokens.size() && tokens[at].known ? &tokens[at] : nullptr;
  }
};

// Fills `pipeline` from a tokenizer.json. Throws Error naming the file and the key.
void load_tokenizer_json(const ModelTexts& texts, Pipeline& pipeline);

// Fills it from a tokenizer.model: a SentencePiece model, or a tiktoken vocabulary under that name.
void load_model(const ModelTexts& texts, const TokenizerSettings& settings, Pipeline& pipeline);
// Fills it from the bytes of a SentencePiece model: libsentencepiece, or where transformers 5 builds a
// pipeline of its own from the pieces (LlamaTokenizer that is not "legacy"), that one. pipeline.file names
// the model.
void load_sentencepiece(const std::string& bytes, const TokenizerSettings& settings, Pipeline& pipeline);

// Fills it from a tiktoken vocabulary, which may have the name of a SentencePiece model.
inline constexpr uint64_t kMaxTiktokenBytes = uint64_t{16} << 20;
bool looks_like_tiktoken(std::string_view bytes);
void load_tiktoken(const ModelTexts& texts, std::string_view name, const TokenizerSettings& settings,
                   Pipeline& pipeline);

// Adds the tokens of a class, whose ids begin with `next`, and the prefix of every text.
void add_class_tokens(const TokenizerClass& known, int32_t next, Pipeline& pipeline);

// Adds a token, or replaces the flags of the one of the same content (which keeps its id, and stays special).
void add_token(Pipeline& pipeline, AddedToken token);

// The id of a token of the vocabulary, added tokens left out.
std::optional<int32_t> vocabulary_id(const Pipeline& pipeline, const std::string& token);

// Checks that the added tokens do not contradict the vocabulary and builds the tables. Throws Error.
void index_tokens(Pipeline& pipeline);

}  // namespace lariat::tok
