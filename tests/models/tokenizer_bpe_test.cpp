#include "models/text/bpe.h"

#include <map>
#include <random>

#include "models/text/unicode.h"
#include "tests/models/tokenizer_test_util.h"

namespace lariat::test {
namespace {

using tok::Bpe;
using tok::BpeScratch;
using tok::BpeSpec;

// Merges the lowest-ranked pair, leftmost first, by scanning all pairs.
std::vector<std::string> merge_slowly(std::vector<std::string> parts,
                                      const std::vector<std::pair<std::string, std::string>>& merges) {
  std::map<std::pair<std::string, std::string>, size_t> rank;
  for (size_t i = 0; i < merges.size(); ++i) rank[merges[i]] = i;
  while (true) {
    size_t best = merges.size(), at = 0;
    for (size_t i = 0; i + 1 < parts.size(); ++i) {
      const auto it = rank.find({parts[i], parts[i + 1]});
      if (it != rank.end() && it->second < best) {
        best = it->second;
        at = i;
      }
    }
    if (best == merges.size()) return parts;
    parts[at] += parts[at + 1];
    parts.erase(parts.begin() + static_cast<std::ptrdiff_t>(at) + 1);
  }
}

// Letters a, b, c and a three-byte character.
BpeSpec random_spec(std::mt19937& random, bool byte_fallback) {
  BpeSpec spec;
  std::vector<std::string> tokens = {"a", "b", "c", "\u2581"};
  while (tokens.size() < 40) {
    const std::string left = tokens[random() % tokens.size()], right = tokens[random() % tokens.size()];
    if (std::find(tokens.begin(), tokens.end(), left + right) != tokens.end()) continue;
    tokens.push_back(left + right);
    spec.merges.emplace_back(left, right);
  }
  std::shuffle(spec.merges.begin(), spec.merges.end(), random);
  for (const std::string& token : tokens) spec.vocab.emplace(token, static_cast<int32_t>(spec.vocab.size()));
  for (int b = 0; byte_fallback && b < 256; ++b) {
    char name[8];
    std::snprintf(name, sizeof name, "<0x%02X>", b);
    spec.vocab.emplace(name, static_cast<int32_t>(spec.vocab.size()));
  }
  spec.byte_fallback = byte_fallback;
  return spec;
}

TEST(TokenizerBpe, MergesLikeTheNaiveWay) {
  std::mt19937 random(3);
  for (int round = 0; round < 60; ++round) {
    const BpeSpec spec = random_spec(random, round % 2 == 0);
    const Bpe bpe(spec, "test");
    BpeScratch scratch;
    for (int word = 0; word < 20; ++word) {
      std::vector<std::string> parts(1 + random() % 120);
      for (std::string& part : parts) part = std::array{"a", "b", "c", "\u2581"}[random() % 4];
      std::string text;
      for (const std::string& part : parts) text += part;
      std::vector<int32_t> want, got;
      for (const std::string& token : merge_slowly(parts, spec.merges)) want.push_back(spec.vocab.at(token));
      bpe.encode(text, scratch, got);
      EXPECT_EQ(got, want) << text;
    }
  }
}

TEST(TokenizerBpe, UnknownCharacters) {
  BpeSpec spec;
  spec.vocab = {{"<unk>", 0}, {"a", 1}, {"<0xC3>", 2}, {"<0xA9>", 3}};
  const auto encode = [&](std::string_view text) {
    std::vector<int32_t> ids;
    BpeScratch scratch;
    Bpe(spec, "test").encode(text, scratch, ids);
    return ids;
  };
  EXPECT_EQ(encode("aza"), (std::vector<int32_t>{1, 1})) << "no token for z";
  EXPECT_EQ(encode("z"), std::vector<int32_t>{});
  spec.unk_token = "<unk>";
  EXPECT_EQ(encode("zz\u00e9a"), (std::vector<int32_t>{0, 0, 0, 1}));
  spec.fuse_unk = true;
  EXPECT_EQ(encode("zz\u00e9a"), (std::vector<int32_t>{0, 1}));
  spec.byte_fallback = true;
  EXPECT_EQ(encode("\u00e9az"), (std::vector<int32_t>{2, 3, 1, 0})) << "bytes for e acute, but none for z";
}

TEST(TokenizerBpe, TheByteAlphabetIsInvertible) {
  for (int b = 0; b < 256; ++b) {
    EXPECT_EQ(tok::alphabet_to_byte(tok::byte_to_alphabet(static_cast<uint8_t>(b))), b);
  }
  EXPECT_EQ(tok::byte_to_alphabet(' '), 0x120u);
  EXPECT_EQ(tok::byte_to_alphabet('\n'), 0x10Au);
  EXPECT_EQ(tok::byte_to_alphabet('!'), static_cast<char32_t>('!'));
  EXPECT_EQ(tok::alphabet_to_byte(' '), -1);
  EXPECT_EQ(tok::alphabet_to_byte(0x4E2D), -1);
}

}  // namespace
}  // namespace lariat::test
