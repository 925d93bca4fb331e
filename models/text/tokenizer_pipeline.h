#pragma once
#include <filesystem>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "models/text/tokenizer_added.h"
#include "models/text/tokenizer_bpe.h"
#include "models/text/tokenizer_decoder.h"
#include "models/text/tokenizer_normalizer.h"
#include "models/text/tokenizer_pretok.h"
#include "models/text/tokenizer_sentencepiece.h"

namespace lariat::tok {

// Ids are below this, so that tables indexed by id stay small whatever a file says.
constexpr int64_t kMaxId = int64_t{1} << 24;

// A tokenizer's parts, in the order a text passes through them: added tokens, normalizer, added tokens in
// normalised form, then either pre-tokenizer and BPE or SentencePiece; and the way back.
struct Pipeline {
  struct Token {
    std::string text;  // as in the vocabulary file
    bool known = false;
    bool special = false;
  };

  std::string file;  // for error messages
  std::vector<AddedToken> added;
  StringMap added_index;  // content -> place in `added`
  Normalizer normalizer;
  PreTokenizer pre_tokenizer;
  std::optional<Bpe> bpe;  // or
  std::optional<SentencePiece> sentencepiece;
  std::vector<DecodeStep> decode_steps;
  std::vector<int32_t> prefix;  // what the post-processor puts in front of a text
  bool has_post_processor = false;
  bool split_special = false;  // special tokens in a text are text

  // Made from the above by index_tokens().
  std::vector<Token> tokens;  // by id
  StringMap ids;
  AddedTokens raw_added, normalized_added;
};

// Fills `pipeline` from a tokenizer.json. Throws Error naming the file and the key.
void load_tokenizer_json(const std::filesystem::path& file, Pipeline& pipeline);

// The same from a SentencePiece tokenizer.model.
void load_sentencepiece(const std::filesystem::path& file, Pipeline& pipeline);

// Adds a token, or replaces the flags of the one of the same content (which keeps its id).
void add_token(Pipeline& pipeline, AddedToken token);

// Checks that the added tokens do not contradict the vocabulary and builds the tables.
void index_tokens(Pipeline& pipeline);

}  // namespace lariat::tok
