#pragma once
#include <array>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "models/text/maps.h"

namespace lariat::tok {

// The model part of a tokenizer.json, as read.
struct BpeSpec {
  StringMap vocab;  // ids are unique and not negative
  std::vector<std::pair<std::string, std::string>> merges;
  std::optional<std::string> unk_token;
  bool fuse_unk = false, byte_fallback = false, ignore_merges = false;
  bool rank_is_id = false;  // a merge comes in the order of the id that it makes, not of the list
  std::string_view vocab_key = "model.vocab", merges_key = "model.merges";  // what errors call them
  bool byte_level = false;  // words are bytes, and the vocabulary is written in ByteLevel's alphabet
};

// Adds every way to make the token of two tokens as a merge.
void add_splits(BpeSpec& spec, std::string_view token);
// Adds merge number i of a list, "left right"; a list may begin with its version. Returns false for other
// texts.
bool add_merge(BpeSpec& spec, size_t i, std::string_view text);

// The character that stands for a byte in the vocabulary of a byte-level BPE (GPT-2's bytes_to_unicode), and
// the way back (-1: the character stands for none).
char32_t byte_to_alphabet(uint8_t byte);
int alphabet_to_byte(char32_t c);

// Ids of words met before, and the workspace of the merge loop. One per encoder.
class BpeScratch {
 public:
  static constexpr size_t kMaxWords = size_t{1} << 17, kMaxWordBytes = 64;

 private:
  friend class Bpe;
  struct Range {
    uint32_t begin, count;
  };
  struct Symbol {
    int32_t id;  // -1: merged into the one on its left
    int32_t prev, next;
  };
  std::unordered_map<std::string, Range, StringHash, std::equal_to<>> words_;
  std::vector<int32_t> ids_;  // of all words, one after the other
  std::vector<int32_t> units_;
  std::vector<Symbol> symbols_;
  std::vector<uint64_t> heap_;  // rank << 32 | position of the left symbol
};

// Byte-pair encoding as HF tokenizers do it: the pair of the lowest rank is merged first, the leftmost of
// equals.
class Bpe {
 public:
  // Throws Error, naming `file`, on a merge whose parts or result are not in the vocabulary.
  Bpe(BpeSpec spec, const std::string& file);

  // Appends the ids of one word (a piece the pre-tokenizer made). Time n log n in its bytes.
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
  StringMap raw_vocab_;               // byte_level with ignore_merges: the bytes of a token -> id
  int32_t unk_id_ = -1;
  FlatMap joints_;         // left char << 32 | right char for every two neighbours inside a token
  bool cuttable_ = false;  // two neighbours that are not in joints_ never end up in one token
};

}  // namespace lariat::tok
