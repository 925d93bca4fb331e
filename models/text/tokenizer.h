#pragma once
#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "models/io/model_texts.h"

namespace lariat {

namespace tok {
struct Pipeline;
class DecodeChain;
}  // namespace tok

// Text to token ids and back, as the checkpoint's own tokenizer files say. Cheap to copy (copies share the
// tables); every method is safe to call from several threads at once.
//
// tokenizer.json is followed to the letter, so ids equal those of HF `tokenizers` reading the same file (and
// of transformers 4). transformers 5 rebuilds the pipeline of LlamaTokenizer from the vocabulary instead:
// there, a text that opens with spaces, text behind special tokens, and special tokens whose file says
// "normalized", come out differently. A tokenizer.model alone is read as transformers 5's LlamaTokenizer
// reads it; where the settings name no class, or say "legacy", it goes through libsentencepiece, special
// tokens as in transformers 4's slow LlamaTokenizer. docs/checkpoints.md has the keys of all files beside
// them.
class Tokenizer {
 public:
  // The texts hold tokenizer.json, qwen.tiktoken or tokenizer.model (the first of them counts), and, where
  // the model has them, tokenizer_config.json, special_tokens_map.json, added_tokens.json and config.json
  // (for the tokenizer's class). No weights are needed. Throws Error naming file and key: nothing is skipped
  // silently (warnings()).
  static Tokenizer load(const ModelTexts& texts);

  // Ids of `text`. `add_bos` puts in front what the tokenizer's post-processor or configuration puts there
  // or, where neither does, the BOS token if there is one. Bytes that are not UTF-8 count as U+FFFD. Time and
  // memory linear in the text (n log n in its longest word). Throws Error when a pattern of the file
  // backtracks without measure.
  std::vector<int32_t> encode(std::string_view text, bool add_bos) const;

  // Text of `ids`. Ids without a token (a padded vocabulary) give nothing, as in HF. Invalid bytes become
  // U+FFFD. clean_up_tokenization_spaces is ignored, as transformers 5 does for BPE.
  std::string decode(std::span<const int32_t> ids, bool skip_special = true) const;

  // A line for each thing in the files that a user should know: what was not heeded, and why.
  const std::vector<std::string>& warnings() const;

  // One more than the largest id, added tokens included. The model's embedding may have more rows.
  int64_t vocab_size() const;
  std::optional<int32_t> bos_id() const;
  // The tokens that encode() puts in front of a text with add_bos: the BOS, or several ([gMASK]<sop>).
  const std::vector<int32_t>& prefix() const;
  // The tokenizer's own end-of-text token, or nothing: where a generation ends when neither
  // generation_config.json nor config.json says it (ModelSpec::eos_token_ids).
  std::vector<int32_t> eos_ids() const;
  bool has_pieces() const;  // of a SentencePiece model
  // Whether the tokenizer by itself puts a BOS in front of a text: pass it to encode() to do as HF does.
  bool adds_bos() const;

  // The special tokens by their names ("bos_token"), as the special_tokens_map of transformers 5.24 has them:
  // of the files, or where these say nothing of the tokenizer's class. Not all need be in the vocabulary.
  const std::map<std::string, std::string>& special_tokens() const;

  // The id of a token as it stands in the vocabulary (an added token: its text).
  std::optional<int32_t> token_to_id(std::string_view token) const;
  // A token as it stands in the vocabulary; empty for an id without one.
  std::string id_to_token(int32_t id) const;
  // The bytes that a token spells behind other text, be it special or a part of a character.
  std::string bytes_of(int32_t id) const;
  bool is_special(int32_t id) const;
  // Whether it was added to the vocabulary, to be found in a text as it is: a marker, special or not.
  bool is_added(int32_t id) const;

 private:
  friend class StreamDecoder;
  explicit Tokenizer(std::shared_ptr<const tok::Pipeline> pipeline) : pipeline_(std::move(pipeline)) {}
  std::shared_ptr<const tok::Pipeline> pipeline_;
};

// Decodes token by token. The texts of all calls together equal decode() of all the ids; each is valid UTF-8.
class StreamDecoder {
 public:
  explicit StreamDecoder(const Tokenizer& tokenizer, bool skip_special = true);

  // The text that is certain now; may be empty (half a character; with byte fallback, a run of byte tokens).
  std::string push(int32_t id);
  // The rest. The decoder is then at the start of a new text.
  std::string flush();

 private:
  std::shared_ptr<const tok::Pipeline> pipeline_;
  bool skip_special_;
  std::unique_ptr<tok::DecodeChain, void (*)(tok::DecodeChain*)> chain_;
};

}  // namespace lariat
