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

// Converts text to token ids and back with the checkpoint's tokenizer files. Cheap to copy (copies share the
// tables); every method is thread-safe.
//
// tokenizer.json is applied exactly: ids equal HF `tokenizers` (and transformers 4) with the same file.
// transformers 5 rebuilds LlamaTokenizer's pipeline from the vocabulary instead, with other ids for leading
// spaces, text after special tokens and special tokens marked "normalized". A tokenizer.model alone is read
// as in transformers 5's LlamaTokenizer. If the settings name no class or say "legacy", libsentencepiece runs
// it, with special tokens as in transformers 4's slow LlamaTokenizer. docs/checkpoints.md lists the keys of
// all other files.
class Tokenizer {
 public:
  // Loads the first of tokenizer.json, qwen.tiktoken and tokenizer.model and, if present,
  // tokenizer_config.json, special_tokens_map.json, added_tokens.json and config.json (for the tokenizer's
  // class). No weights are needed. Throws Error naming file and key; ignored settings are in warnings().
  static Tokenizer load(const ModelTexts& texts);

  // Ids of `text`. `add_bos` adds the leading tokens of the post-processor or the configuration, else the BOS
  // token if any. Invalid UTF-8 counts as U+FFFD. Time and memory are linear in the text (n log n in its
  // longest word). Throws Error if a pattern of the file exceeds its backtracking budget.
  std::vector<int32_t> encode(std::string_view text, bool add_bos) const;

  // Text of `ids`. Ids without a token (a padded vocabulary) yield no text, as in HF. Invalid bytes become
  // U+FFFD. Ignores clean_up_tokenization_spaces, as transformers 5 does for BPE.
  std::string decode(std::span<const int32_t> ids, bool skip_special = true) const;

  // Warnings for the user: ignored settings, each with the reason.
  const std::vector<std::string>& warnings() const;

  // Largest id plus one, added tokens included. The model's embedding may have more rows.
  int64_t vocab_size() const;
  std::optional<int32_t> bos_id() const;
  // Tokens that add_bos adds before a text: the BOS, or several ([gMASK]<sop>).
  const std::vector<int32_t>& prefix() const;
  // The tokenizer's end-of-text token, if any: the default if neither generation_config.json nor config.json
  // has one (ModelSpec::eos_token_ids).
  std::vector<int32_t> eos_ids() const;
  bool has_pieces() const;  // from a SentencePiece model
  // True if the tokenizer adds a BOS by default: pass it to encode() for HF's behaviour.
  bool adds_bos() const;

  // Special tokens by name ("bos_token"), as in special_tokens_map of transformers 5.24: from the files, else
  // from the tokenizer's class. A token may be missing in the vocabulary.
  const std::map<std::string, std::string>& special_tokens() const;

  // Id of a token in the vocabulary's spelling (an added token: its text).
  std::optional<int32_t> token_to_id(std::string_view token) const;
  // A token in the vocabulary's spelling; empty: no token has this id.
  std::string id_to_token(int32_t id) const;
  // Bytes of a token after other text, also for special tokens and parts of a character.
  std::string bytes_of(int32_t id) const;
  bool is_special(int32_t id) const;
  // True for an added token, special or not: matched verbatim in a text.
  bool is_added(int32_t id) const;

 private:
  friend class StreamDecoder;
  explicit Tokenizer(std::shared_ptr<const tok::Pipeline> pipeline) : pipeline_(std::move(pipeline)) {}
  std::shared_ptr<const tok::Pipeline> pipeline_;
};

// Decodes token by token. The results of all calls together equal decode() of all ids; each is valid UTF-8.
class StreamDecoder {
 public:
  explicit StreamDecoder(const Tokenizer& tokenizer, bool skip_special = true);

  // Text that is certain so far; may be empty (half a character; with byte fallback, a run of byte tokens).
  std::string push(int32_t id);
  // The remaining text. The decoder then starts a new text.
  std::string flush();

 private:
  std::shared_ptr<const tok::Pipeline> pipeline_;
  bool skip_special_;
  std::unique_ptr<tok::DecodeChain, void (*)(tok::DecodeChain*)> chain_;
};

}  // namespace lariat
