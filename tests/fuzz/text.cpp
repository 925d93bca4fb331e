// The first byte selects a tokenizer; the rest is the text.
#include <array>

#include "models/text/unicode.h"
#include "tests/fuzz/fuzz.h"

namespace {

using namespace lariat;

// Expected decode(encode(text)) for UTF-8 without added tokens.
enum class Promise { kNothing, kSame, kNfc, kSpaces };

struct Case {
  const char* name;
  Promise promise;
};
// kSpaces: SentencePiece maps U+2581 to a space. metaspace-mini has no byte fallback; sp-unigram-mini
// normalises.
constexpr std::array<Case, 7> kCases{{{"byte-mini", Promise::kSame},
                                      {"llama3-mini", Promise::kSame},
                                      {"qwen-mini", Promise::kNfc},
                                      {"llama-mini", Promise::kSpaces},
                                      {"metaspace-mini", Promise::kNothing},
                                      {"sp-mini", Promise::kSpaces},
                                      {"sp-unigram-mini", Promise::kNothing}}};

const Tokenizer& tokenizer_of(size_t index) {
  static const std::vector<Tokenizer> all = [] {
    std::vector<Tokenizer> loaded;
    const std::filesystem::path golden = LARIAT_SOURCE_DIR "/tests/golden/tokenizers";
    for (const Case& c : kCases) loaded.push_back(Tokenizer::load(golden / c.name));
    return loaded;
  }();
  return all[index];
}

// An added token strips adjacent spaces or adds one.
bool holds_added_token(const Tokenizer& tokenizer, std::string_view text) {
  if (text.find_first_of("<[") == std::string_view::npos) return false;
  for (const int32_t id : tokenizer.encode(text, false)) {
    const std::string token = tokenizer.id_to_token(id);
    if (token.size() > 1 && (token[0] == '<' || token[0] == '[') &&
        text.find(token) != std::string_view::npos)
      return true;
  }
  return false;
}

std::string with_spaces(std::string_view text) {
  std::string out;
  for (size_t at = 0; at < text.size();) {
    const bool symbol = text.substr(at, 3) == "\xE2\x96\x81";
    out += symbol ? ' ' : text[at];
    at += symbol ? 3 : 1;
  }
  return out;
}

}  // namespace

FUZZ_TARGET(text) {
  if (input.empty()) return;
  const auto choice = static_cast<uint8_t>(input[0]);
  const Case& c = kCases[choice % kCases.size()];
  const Tokenizer& tokenizer = tokenizer_of(choice % kCases.size());
  const std::string_view text = input.substr(1);
  fuzz::round_trip(tokenizer, text);
  if (c.promise == Promise::kNothing || !is_utf8(text) || holds_added_token(tokenizer, text)) return;
  const std::string back = tokenizer.decode(tokenizer.encode(text, false), false);
  const std::string wanted = c.promise == Promise::kSame  ? std::string(text)
                             : c.promise == Promise::kNfc ? normalize(text, NormalForm::kNfc)
                                                          : with_spaces(text);
  fuzz::require(back == wanted, std::string(c.name) + " does not restore the text");
}
