#include <fmt/format.h>

#include <algorithm>
#include <charconv>

#include "kernels/error.h"
#include "models/text/pipeline.h"
#include "models/text/unicode.h"

// Lines of "base64 rank". A token's rank is its id; neighbours with the lowest-ranked merged token merge
// first (tiktoken 0.14, src/lib.rs, byte_pair_merge). The tokenizer's class holds pattern and special tokens.
namespace lariat::tok {
namespace {

constexpr std::string_view kBase64 = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
constexpr size_t kMaxBytes = 256;  // per token

// Decodes base64 to the byte alphabet; "": not base64.
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
          "{}: line {} is not a base64 token of at most {} bytes with its rank; download it again", file,
          number, kMaxBytes));
    }
    single += utf8_step(token, 0).length == token.size() ? 1 : 0;
    if (!spec.vocab.emplace(std::move(token), rank).second)
      throw Error(fmt::format("{}: line {} repeats a token; download it again", file, number));
  }
  if (single != 256)
    throw Error(fmt::format("{}: has {} of the 256 bytes as tokens; download it again", file, single));
  for (const auto& [token, id] : spec.vocab) add_splits(spec, token);
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
  if (settings.known == nullptr || settings.known->pattern == nullptr) {
    throw Error(pipeline.file +
                ": a tiktoken vocabulary (lines of base64 and rank), not a SentencePiece model; put the " +
                "model's tokenizer.json next to it");
  }
  BpeSpec spec = read_vocabulary(texts.read(name, kMaxTiktokenBytes), pipeline.file);
  const auto next = static_cast<int32_t>(spec.vocab.size());
  pipeline.bpe.emplace(std::move(spec), pipeline.file);
  add_class_tokens(*settings.known, next, pipeline);
  pipeline.own_roles["eos_token"] = "<|endoftext|>";
  if (settings.known->nfc) pipeline.normalizer.push_back({.kind = NormalizeStep::Kind::kForm});
  pipeline.pre_tokenizer.push_back({.regex = Regex(settings.known->pattern, pipeline.file)});
  pipeline.decode_steps.push_back({.kind = DecodeStep::Kind::kByteLevel});
}

}  // namespace lariat::tok
