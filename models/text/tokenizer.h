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

// The checkpoint's tokenizer. Cheap to copy, thread-safe. Ids equal HF `tokenizers` on the same
// tokenizer.json; transformers 5 rebuilds some pipelines instead. A tokenizer.model is read as by
// transformers 5's LlamaTokenizer or, if the settings name no class or say "legacy", as by transformers 4's
// slow LlamaTokenizer (docs/checkpoints.md).
class Tokenizer {
 public:
  // Loads the first of tokenizer.json, qwen.tiktoken and tokenizer.model, and the settings next to it. Throws
  // Error; ignored settings are in warnings().
  static Tokenizer load(const ModelTexts& texts);

  // add_bos: adds the leading tokens of the post-processor or the configuration, else the BOS token if any.
  // Invalid UTF-8 counts as U+FFFD. Time and memory are linear in the text (n log n in its longest word).
  // Throws Error if a pattern exceeds its backtracking budget.
  std::vector<int32_t> encode(std::string_view text, bool add_bos) const;

  // Ids without a token (a padded vocabulary) yield no text, as in HF. Invalid bytes become U+FFFD. Ignores
  // clean_up_tokenization_spaces, as transformers 5 does for BPE.
  std::string decode(std::span<const int32_t> ids, bool skip_special = true) const;

  const std::vector<std::string>& warnings() const;

  // Largest id plus one. The model's embedding may have more rows.
  int64_t vocab_size() const;
  std::optional<int32_t> bos_id() const;
  // Tokens of add_bos: the BOS, or several ([gMASK]<sop>).
  const std::vector<int32_t>& prefix() const;
  // End-of-text token, if any: used if neither generation_config.json nor config.json has one.
  std::vector<int32_t> eos_ids() const;
  bool has_pieces() const;  // from a SentencePiece model
  // Default of encode()'s add_bos in HF.
  bool adds_bos() const;

  // Special tokens by name ("bos_token"), as in special_tokens_map of transformers 5.24. A token may be
  // missing in the vocabulary.
  const std::map<std::string, std::string>& special_tokens() const;

  // Takes the vocabulary's spelling (an added token: its text).
  std::optional<int32_t> token_to_id(std::string_view token) const;
  // "": no token has this id.
  std::string id_to_token(int32_t id) const;
  // Bytes of a token after other text; special tokens too.
  std::string bytes_of(int32_t id) const;
  bool is_special(int32_t id) const;
  // True for tokens that are matched verbatim in a text, special or not.
  bool is_added(int32_t id) const;

 private:
  friend class StreamDecoder;
  explicit Tokenizer(std::shared_ptr<const tok::Pipeline> pipeline) : pipeline_(std::move(pipeline)) {}
  std::shared_ptr<const tok::Pipeline> pipeline_;
};

// Decodes token by token. The results together equal decode() of all ids; each is valid UTF-8.
class StreamDecoder {
 public:
  explicit StreamDecoder(const Tokenizer& tokenizer, bool skip_special = true);

  // Text that is certain so far, possibly empty.
  std::string push(int32_t id);
  // Remaining text; the decoder then starts a new text.
  std::string flush();

 private:
  std::shared_ptr<const tok::Pipeline> pipeline_;
  bool skip_special_;
  std::unique_ptr<tok::DecodeChain, void (*)(tok::DecodeChain*)> chain_;
};

}  // namespace lariat
