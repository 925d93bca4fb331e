#pragma once
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "models/text/unicode.h"

namespace lariat::tok {

struct DecodeStep {
  enum class Kind {
    kReplace,       // in every token: pattern -> content, or nothing in the first when `drop_first`
    kByteFallback,  // runs of <0xNN> tokens -> the text they spell
    kFuse,          // later steps see one token
    kStrip,         // removes up to `start` and `stop` times `content` (one character) from a token's ends
    kByteLevel,     // letters of the byte alphabet -> bytes
    kJoin,          // content between tokens
  };
  Kind kind;
  std::string pattern{}, content{};
  size_t start = 0, stop = 0;
  bool drop_first = false;
  Utf8Assembler::Replace bad_bytes = Utf8Assembler::Replace::kPerPrefix;
};

// Converts token strings to text as soon as the text is certain; each step may hold text back.
class DecodeChain {
 public:
  // `steps` must outlive the chain.
  explicit DecodeChain(const std::vector<DecodeStep>& steps);

  // Both append to `out`. finish() ends the text and the chain.
  void push(std::string_view token, std::string& out) { feed(0, token, out); }
  void finish(std::string& out);

 private:
  struct State {
    const DecodeStep* step;
    bool fused;  // an earlier step fused all tokens
    size_t seen = 0;
    size_t strip_left;  // characters left to strip from the front
    size_t held = 0;    // times `content` at a possible end
    Utf8Assembler utf8;
  };

  void feed(size_t index, std::string_view token, std::string& out);
  void push_bytes(size_t index, std::string_view bytes, std::string& out);
  void end_bytes(size_t index, std::string& out);
  void byte_fallback(size_t index, std::string_view token, std::string& out);
  void strip_token(size_t index, std::string_view token, std::string& out);
  void strip_stream(size_t index, std::string_view text, std::string& out);

  std::vector<State> states_;
};

// Bytes of a token after another token: a byte token's byte, the bytes of letters of the byte alphabet, else
// the steps' output (transformers' StopStringCriteria.clean_tokenizer_vocab).
std::string token_bytes(const std::vector<DecodeStep>& steps, std::string_view token);

}  // namespace lariat::tok
