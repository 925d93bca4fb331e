#pragma once
#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "models/text/tokenizer_data.h"

namespace lariat::tok {

// A text on its way through the pipeline. Each stage keeps what it cannot decide yet and passes the rest on:
//
//   bytes -> valid UTF-8 -> [raw_] added tokens -> sections -> [section_] normalizer -> [normalized_] added
//   tokens
//   -> pieces -> [piece_] pre-tokenizer -> words -> BPE -> ids          (or sections -> [piece_]
//   SentencePiece -> ids)
struct EncoderState {
  EncoderState(std::shared_ptr<const TokenizerData> data, bool add_bos);

  void push(std::string_view text, std::vector<int32_t>& out);
  void finish(std::vector<int32_t>& out);

 private:
  void reset();
  void open_text(std::vector<int32_t>& out);
  void take_raw(bool final, std::vector<int32_t>& out);
  void take_section(std::string_view text, bool final, std::vector<int32_t>& out);
  void take_normalized(bool final, std::vector<int32_t>& out);
  void take_piece(std::string_view text, bool final, std::vector<int32_t>& out);
  size_t encode_piece(bool final, std::vector<int32_t>& out);
  void token(int32_t id, std::vector<int32_t>& out);

  std::shared_ptr<const TokenizerData> data_;
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

}  // namespace lariat::tok
