#include <fmt/format.h>

#include <algorithm>
#include <charconv>

#include "kernels/error.h"
#include "models/text/pipeline.h"
#include "models/text/unicode.h"

// Vocabularies of the tiktoken package: lines of "base64 rank". A token's rank is its id, and of two
// neighbours those are merged first that make the token of the lowest rank (tiktoken 0.14, src/lib.rs,
// byte_pair_merge). What else a tokenizer is, its pattern and its special tokens, stands in code beside the
// published files.
namespace lariat::tok {
namespace {

constexpr std::string_view kBase64 = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
constexpr size_t kMaxBytes = 256;  // of a token

// Special tokens count on from the vocabulary's lines; {} stands for the numbers 0 to `numbered` - 1.
struct Tokenizing {
  bool nfc;
  const char* pattern;
  std::string_view specials, prefix, eos;
  int numbered = 0;
};

// tokenization_qwen.py of Qwen/Qwen-7B.
constexpr Tokenizing kQwen{
    true,
    R"((?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+)",
    "<|endoftext|> <|im_start|> <|im_end|> <|extra_{}|>",
    "",
    "<|endoftext|>",
    205};
// tokenization_chatglm.py and tokenizer_config.json of THUDM/glm-4-9b.
constexpr Tokenizing kGlm4{
    false,
    R"((?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+)",
    "<|endoftext|> [MASK] [gMASK] [sMASK] <sop> <eop> <|system|> <|user|> <|assistant|> <|observation|> "
    "<|begin_of_image|> <|end_of_image|> <|begin_of_video|> <|end_of_video|>",
    "[gMASK] <sop>", "<|endoftext|>"};

// The letters of the bytes that a word of base64 spells; "" where it is none.
std::string letters_of(std::string_view word) {
  std::string letters;
  uint32_t bits = 0;
  int held = 0;
  while (word.ends_with('=')) word.remove_suffix(1);
  for (const char c : word) {
    const size_t value = kBase64.find(c);
    if (value == std::string_view::npos) return "";
    bits = (bits << 6) | static_cast<uint32_t>(value);
    held += 6;
    if (held < 8) continue;
    held -= 8;
    append_utf8(letters, byte_to_alphabet(static_cast<uint8_t>((bits >> held) & 0xFF)));
  }
  return letters;
}

// Every way to make a token of two tokens is a merge.
void add_merges(BpeSpec& spec) {
  for (const auto& [token, id] : spec.vocab) {
    const std::string_view whole = token;
    for (size_t at = utf8_step(whole, 0).length; at < whole.size(); at += utf8_step(whole, at).length) {
      if (spec.vocab.contains(whole.substr(0, at)) && spec.vocab.contains(whole.substr(at)))
        spec.merges.emplace_back(whole.substr(0, at), whole.substr(at));
    }
  }
}

BpeSpec read_vocabulary(std::string_view bytes, const std::string& file) {
  BpeSpec spec;
  spec.byte_level = spec.ignore_merges = spec.rank_is_id = true;
  size_t number = 1, single = 0;
  for (size_t at = 0, end = 0; at < bytes.size(); at = end + 1, ++number) {
    end = std::min(bytes.find('\n', at), bytes.size());
    std::string_view line = bytes.substr(at, end - at);
    if (line.ends_with('\r')) line.remove_suffix(1);
    if (line.empty()) continue;
    const size_t space = std::min(line.find(' '), line.size());
    std::string token = space <= kMaxBytes * 4 / 3 + 4 ? letters_of(line.substr(0, space)) : "";
    const std::string_view digits = line.substr(std::min(space + 1, line.size()));
    int32_t rank = -1;
    const auto read = std::from_chars(digits.data(), digits.data() + digits.size(), rank);
    if (token.empty() || rank < 0 || rank >= kMaxId || read.ptr != digits.data() + digits.size()) {
      throw Error(fmt::format(
          "{}: line {} is no token in base64, of at most {} bytes, and its rank; download it again", file,
          number, kMaxBytes));
    }
    single += utf8_step(token, 0).length == token.size() ? 1 : 0;
    if (!spec.vocab.emplace(std::move(token), rank).second)
      throw Error(fmt::format("{}: line {} has the token of another line; download it again", file, number));
  }
  if (single != 256)
    throw Error(fmt::format("{}: has {} of the 256 bytes as tokens; download it again", file, single));
  add_merges(spec);
  return spec;
}

}  // namespace

bool looks_like_tiktoken(std::string_view bytes) {
  const std::string_view line = bytes.substr(0, bytes.find('\n'));
  const size_t space = line.find(' ');
  if (space == 0 || space == std::string_view::npos || space + 1 == line.size()) return false;
  const auto is_base64 = [](char c) { return c == '=' || kBase64.find(c) != std::string_view::npos; };
  const auto is_digit = [](char c) { return (c >= '0' && c <= '9') || c == '\r'; };
  return std::ranges::all_of(line.substr(0, space), is_base64) &&
         std::ranges::all_of(line.substr(space + 1), is_digit);
}

void load_tiktoken(const ModelTexts& texts, std::string_view name, const TokenizerSettings& settings,
                   Pipeline& pipeline) {
  pipeline.file = texts.file(name).string();
  const bool qwen = name == kQwenTiktoken;
  if (!qwen && settings.tokenizer_class != "ChatGLM4Tokenizer") {
    throw Error(pipeline.file +
                ": a tiktoken vocabulary (lines of base64 and rank), not a SentencePiece model; put the " +
                "model's tokenizer.json next to it");
  }
  const Tokenizing& rules = qwen ? kQwen : kGlm4;
  BpeSpec spec = read_vocabulary(texts.read(name, kMaxTiktokenBytes), pipeline.file);
  auto next = static_cast<int32_t>(spec.vocab.size());
  pipeline.bpe.emplace(std::move(spec), pipeline.file);
  for (const std::string_view special : split(rules.specials, ' ')) {
    const bool many = special.find("{}") != std::string_view::npos;
    for (int i = 0; i < (many ? rules.numbered : 1); ++i) {
      const std::string content = many ? fmt::format(fmt::runtime(special), i) : std::string(special);
      if (has_name(rules.prefix, content)) pipeline.template_prefix.push_back(next);
      add_token(pipeline, {.content = content, .id = next++, .normalized = false, .special = true});
    }
  }
  pipeline.own_roles["eos_token"] = rules.eos;
  if (rules.nfc) pipeline.normalizer.push_back({.kind = NormalizeStep::Kind::kForm});
  pipeline.pre_tokenizer.push_back({.regex = Regex(rules.pattern, pipeline.file)});
  pipeline.decode_steps.push_back({.kind = DecodeStep::Kind::kByteLevel});
}

}  // namespace lariat::tok
