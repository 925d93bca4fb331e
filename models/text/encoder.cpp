#include "models/text/pipeline.h"
#include "models/text/tokenizer.h"

namespace lariat {
namespace {

// Cuts added tokens out of a text, normalises the rest, cuts out added tokens in normalised form, and encodes
// the remaining sections by pre-tokenizer and BPE, or by SentencePiece.
class Encoding {
 public:
  Encoding(const tok::Pipeline& pipeline, size_t text_bytes, std::vector<int32_t>& out)
      : pipeline_(pipeline), regex_(text_bytes), out_(out) {}

  void text(std::string_view text) {
    cut(pipeline_.raw_added, text, [&](std::string_view part) { section(part); });
  }

 private:
  template <class Encode>
  void cut(const tok::AddedTokens& tokens, std::string_view text, const Encode& encode) {
    tokens.split(text, [&](std::string_view part, int32_t id) {
      if (id < 0) return encode(part);
      out_.push_back(id);
      first_ = false;
    });
  }

  void section(std::string_view text) {
    if (pipeline_.sentencepiece) return pipeline_.sentencepiece->encode(text, sentencepiece_, out_);
    const auto encode = [&](std::string_view part) { piece(part); };
    if (pipeline_.normalizer.empty()) return cut(pipeline_.normalized_added, text, encode);
    cut(pipeline_.normalized_added, tok::normalize(pipeline_.normalizer, text), encode);
  }

  void piece(std::string_view text) {
    const bool first = std::exchange(first_, false);
    const auto encode = [&](std::string_view word) { pipeline_.bpe->encode(word, bpe_, out_); };
    tok::pre_tokenize(pipeline_.pre_tokenizer, text, first, regex_, encode);
  }

  const tok::Pipeline& pipeline_;
  tok::BpeScratch bpe_;
  tok::RegexScratch regex_;
  tok::SentencePiece::Scratch sentencepiece_;
  std::vector<int32_t>& out_;
  bool first_ = true;  // no text is encoded yet
};

}  // namespace

std::vector<int32_t> Tokenizer::encode(std::string_view text, bool add_bos) const {
  std::vector<int32_t> ids;
  if (add_bos) ids = pipeline_->prefix;
  Encoding encoding(*pipeline_, text.size(), ids);
  is_utf8(text) ? encoding.text(text) : encoding.text(valid_utf8(text));
  return ids;
}

}  // namespace lariat
