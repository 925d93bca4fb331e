#pragma once
#include <array>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "models/text/maps.h"

namespace lariat::tok {

struct BpeSpec {
  StringMap vocab;  // ids are unique and not negative
  std::vector<std::pair<std::string, std::string>> merges;
  std::optional<std::string> unk_token;
  bool fuse_unk = false, byte_fallback = false, ignore_merges = false;
  bool rank_is_id = false;  // merges are ordered by the resulting id, not by the list
  std::string_view vocab_key = "model.vocab", merges_key = "model.merges";  // names in errors
  bool byte_level = false;  // words are bytes; the vocabulary uses ByteLevel's alphabet
};

// Adds every split of a token into two tokens as a merge.
void add_splits(BpeSpec& spec, std::string_view token);
// Adds merge i of a list, "left right"; merge 0 may be a version. Returns false for other texts.
bool add_merge(BpeSpec& spec, size_t i, std::string_view text);

// Byte-level alphabet (GPT-2's bytes_to_unicode), and the inverse (-1: none).
char32_t byte_to_alphabet(uint8_t byte);
int alphabet_to_byte(char32_t c);

// Cached words, and workspace. One per encoder.
class BpeScratch {
 public:
  static constexpr size_t kMaxWords = size_t{1} << 17, kMaxWordBytes = 64;

 private:
  friend class Bpe;
  struct Range {
    uint32_t begin, count;
  };
  struct Symbol {
    int32_t id;  // -1: merged into the left symbol
    int32_t prev, next;
  };
  std::unordered_map<std::string, Range, StringHash, std::equal_to<>> words_;
  std::vector<int32_t> ids_;  // of all words
  std::vector<int32_t> units_;
  std::vector<Symbol> symbols_;
  std::vector<uint64_t> heap_;  // rank << 32 | position of the left symbol
};

// Byte-pair encoding as in HF tokenizers: the lowest-ranked pair merges first, the leftmost of equals.
class Bpe {
 public:
  // Throws Error for a merge with parts or result outside the vocabulary.
  Bpe(BpeSpec spec, const std::string& file);

  // Appends the ids of one word, in n log n time.
  void encode(std::string_view word, BpeScratch& scratch, std::vector<int32_t>& out) const;

  const StringMap& vocab() const { return spec_.vocab; }

 private:
  void add_merges(const std::string& file);
  void index_units(const std::string& file);
  void index_joints();
  void encode_piece(std::string_view piece, BpeScratch& scratch, std::vector<int32_t>& out) const;
  void to_units(std::string_view piece, std::vector<int32_t>& units) const;
  void merge(BpeScratch& scratch) const;
  uint64_t merge_of(int32_t left, int32_t right) const;

  BpeSpec spec_;
  FlatMap merges_;                    // left id << 32 | right id -> rank << 32 | merged id
  FlatMap chars_;                     // code point -> id, when not byte_level
  std::array<int32_t, 256> bytes_{};  // byte -> id of its letter or of its <0xNN>; -1: none
  StringMap raw_vocab_;               // byte_level with ignore_merges: bytes of a token -> id
  int32_t unk_id_ = -1;
  FlatMap joints_;         // left char << 32 | right char of all neighbours inside tokens
  bool cuttable_ = false;  // neighbours outside joints_ never share a token
};

}  // namespace lariat::tok
