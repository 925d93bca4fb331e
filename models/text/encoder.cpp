#include "kernels/error.h"
#include "models/text/pipeline.h"
#include "models/text/tokenizer.h"

namespace lariat::tok {

// A whole text is fed in windows of this size: small enough to stay in the cache through all stages.
static constexpr size_t kBytesAtATime = size_t{256} << 10;

// A text on its way through the pipeline. Each stage keeps what it cannot decide yet and passes the rest on:
//
//   bytes -> valid UTF-8 -> [raw_] added tokens -> sections
//   sections -> [section_] normalizer -> [normalized_] added tokens -> pieces
//   pieces -> [piece_] pre-tokenizer -> words -> BPE -> ids
// or sections -> [piece_] SentencePiece -> ids
struct EncoderState {
  EncoderState(std::shared_ptr<const Pipeline> pipeline, bool add_bos)
      : shared_(std::move(pipeline)), pipeline_(*shared_), add_bos_(add_bos) {}

  void push(std::string_view text, std::vector<int32_t>& out);
  void finish(std::vector<int32_t>& out);

 private:
  void reset();
  void open_text(std::vector<int32_t>& out);
  void take_raw(bool final, std::vector<int32_t>& out);
  // Cuts the added tokens out of `text`, and passes what lies between them on: next(text, whether it ends).
  template <class Next>
  void cut_tokens(const AddedTokens& tokens, std::string& text, bool final, std::vector<int32_t>& out,
                  const Next& next);
  void take_section(std::string_view text, bool final, std::vector<int32_t>& out);
  void take_piece(std::string_view text, bool final, std::vector<int32_t>& out);
  size_t encode_piece(bool final, std::vector<int32_t>& out);

  std::shared_ptr<const Pipeline> shared_;
  const Pipeline& pipeline_;
  bool add_bos_;
  BpeScratch bpe_;
  RegexScratch regex_;
  SentencePiece::Scratch sentencepiece_;

  Utf8Assembler utf8_;
  std::string raw_, section_, normalized_, piece_;
  bool text_open_ = false;     // the BOS is out
  bool first_ = true;          // no token or piece of this text has ended yet
  bool section_open_ = false;  // some of the section has been normalised
  bool piece_open_ = false;    // some of the piece has been encoded
  PreTokenizer::Progress progress_;
  size_t piece_retry_ = 0;  // size from which looking for a cut again is worth it
};

void EncoderState::reset() {
  utf8_ = Utf8Assembler();
  raw_.clear();
  section_.clear();
  normalized_.clear();
  piece_.clear();
  text_open_ = section_open_ = piece_open_ = false;
  first_ = true;
  progress_ = {};
  piece_retry_ = 0;
}

void EncoderState::open_text(std::vector<int32_t>& out) {
  if (text_open_) return;
  text_open_ = true;
  if (add_bos_) out.insert(out.end(), pipeline_.prefix.begin(), pipeline_.prefix.end());
}

void EncoderState::push(std::string_view text, std::vector<int32_t>& out) {
  open_text(out);
  for (size_t at = 0; at < text.size(); at += kBytesAtATime) {
    utf8_.push(text.substr(at, kBytesAtATime), raw_);
    take_raw(false, out);
  }
}

void EncoderState::finish(std::vector<int32_t>& out) {
  open_text(out);
  utf8_.finish(raw_);
  take_raw(true, out);
  reset();
}

template <class Next>
void EncoderState::cut_tokens(const AddedTokens& tokens, std::string& text, bool final,
                              std::vector<int32_t>& out, const Next& next) {
  size_t consumed = 0;
  for (const AddedTokens::Span& span : tokens.split(text, final, consumed)) {
    if (span.id < 0) {
      next(std::string_view(text).substr(span.begin, span.end - span.begin), false);
      continue;
    }
    next({}, true);
    out.push_back(span.id);
    first_ = false;
  }
  text.erase(0, consumed);
  if (final) next({}, true);
}

void EncoderState::take_raw(bool final, std::vector<int32_t>& out) {
  cut_tokens(pipeline_.raw_added, raw_, final, out,
             [&](std::string_view text, bool ends) { take_section(text, ends, out); });
}

void EncoderState::take_section(std::string_view text, bool final, std::vector<int32_t>& out) {
  if (pipeline_.sentencepiece) return take_piece(text, final, out);
  section_ += text;
  const size_t certain = final ? section_.size() : pipeline_.normalizer.certain_prefix(section_);
  if (certain > 0) {
    normalized_ += pipeline_.normalizer.apply(std::string_view(section_).substr(0, certain), !section_open_);
    section_.erase(0, certain);
    section_open_ = true;
  }
  cut_tokens(pipeline_.normalized_added, normalized_, final, out,
             [&](std::string_view piece, bool ends) { take_piece(piece, ends, out); });
  if (final) section_open_ = false;
}

void EncoderState::take_piece(std::string_view text, bool final, std::vector<int32_t>& out) {
  const bool opens = piece_.empty() && !piece_open_;
  if (opens && !text.empty() && pipeline_.pre_tokenizer.wants_prefix_space(text)) piece_.assign(1, ' ');
  piece_ += text;
  if (!piece_.empty()) {
    const size_t done = encode_piece(final, out);
    piece_.erase(0, done);
    piece_open_ |= done > 0;
  }
  if (!final) return;
  if (piece_open_) first_ = false;
  piece_open_ = false;
  progress_ = {};
  piece_retry_ = 0;
}

size_t EncoderState::encode_piece(bool final, std::vector<int32_t>& out) {
  if (!pipeline_.sentencepiece && !pipeline_.pre_tokenizer.empty()) {
    return pipeline_.pre_tokenizer.consume(
        piece_, first_ && !piece_open_, final, progress_, regex_,
        [&](std::string_view word) { pipeline_.bpe->encode_word(word, bpe_, out); });
  }
  // A text without a place to cut is looked at again when it has doubled.
  if (!final && piece_.size() < piece_retry_) return 0;
  const size_t done = pipeline_.sentencepiece ? pipeline_.sentencepiece->encode_prefix(
                                                    piece_, !piece_open_, final, sentencepiece_, out)
                                              : pipeline_.bpe->encode_prefix(piece_, final, bpe_, out);
  piece_retry_ = done > 0 ? 0 : 2 * piece_.size();
  return done;
}

}  // namespace lariat::tok

namespace lariat {

StreamEncoder::StreamEncoder(const Tokenizer& tokenizer, bool add_bos)
    : state_(new tok::EncoderState(tokenizer.pipeline_, add_bos),
             [](tok::EncoderState* state) { delete state; }) {}
void StreamEncoder::push(std::string_view text, std::vector<int32_t>& out) { state_->push(text, out); }
void StreamEncoder::finish(std::vector<int32_t>& out) { state_->finish(out); }

std::vector<int32_t> Tokenizer::encode(std::string_view text, bool add_bos) const {
  std::vector<int32_t> ids;
  StreamEncoder encoder(*this, add_bos);
  encoder.push(text, ids);
  encoder.finish(ids);
  return ids;
}

}  // namespace lariat
