#pragma once
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "models/text/unicode.h"

namespace lariat::tok {

// One component of a "decoder", in the order of the file.
struct DecodeStep {
  enum class Kind {
    kReplace,       // in every token: pattern -> content
    kByteFallback,  // runs of <0xNN> tokens -> the text they spell
    kFuse,          // what follows sees one token
    kStrip,         // up to `start` and `stop` times `content` (one character) off a token's ends
    kMetaspace,     // pattern -> space; dropped in the first token when `drop_first`
    kByteLevel,     // letters of the byte alphabet -> bytes
    kJoin,          // content between tokens
  };
  Kind kind;
  std::string pattern{}, content{};
  size_t start = 0, stop = 0;
  bool drop_first = false;
  // kByteFallback: bad bytes of a run become U+FFFD one by one (SentencePiece); else the whole run does (HF).
  bool keep_good_bytes = false;
};

// Token strings in, text out, as soon as it is certain. The steps form a chain; each may hold something back.
class DecodeChain {
 public:
  // `steps` must outlive the chain.
  explicit DecodeChain(const std::vector<DecodeStep>& steps);

  // Both append to `out`. finish() ends the text; a chain is not used after it.
  void push(std::string_view token, std::string& out) { feed(0, token, out); }
  void finish(std::string& out);

 private:
  struct State {
    const DecodeStep* step;
    bool fused;         // an earlier step made one token of all
    size_t seen = 0;    // tokens so far
    size_t strip_left;  // characters that may still be stripped off the front
    size_t held = 0;    // times `content` that may be the end of the text
    std::string run;    // bytes of an unfinished run
    Utf8Assembler utf8;
  };

  void feed(size_t index, std::string_view token, std::string& out);
  void end_run(size_t index, std::string& out);
  void byte_fallback(size_t index, std::string_view token, std::string& out);
  void byte_level(size_t index, std::string_view token, std::string& out);
  void strip_token(size_t index, std::string_view token, std::string& out);
  void strip_stream(size_t index, std::string_view text, std::string& out);
  void metaspace(size_t index, std::string_view token, std::string& out);

  std::vector<State> states_;
};

}  // namespace lariat::tok
