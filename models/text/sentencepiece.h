#pragma once
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <unordered_set>
#include <vector>

#include "models/text/maps.h"

namespace sentencepiece {
class SentencePieceProcessor;
}

namespace lariat::tok {

// The part of a serialized SentencePiece model that encoding needs.
struct CheckedSentencePiece {
  std::string bytes;  // a model without the parts that are not needed
  bool bpe = false;   // not a unigram model
  bool plain_normalizer = true;
  bool dummy_prefix = true, removes_spaces = true, escapes_spaces = true;  // of the normalizer
  std::vector<std::string> user_defined;                                   // pieces
};

// Reads a model and checks everything in it that libsentencepiece 0.1.97 takes on trust; what is left out is
// never given to it. Throws Error naming `file`.
//
// It trusts, and reads out of bounds, aborts or runs on without end where they do not hold:
// - pieces hold no NUL (its tries are built of C strings), are short, and none is a prefix of many others
//   (its matcher keeps 64 results);
// - scores are finite (they order a priority queue);
// - the double array of a normalizer's charsmap stays within itself, its replacements end, and no rule is
//   longer than the 32 prefixes that normalizing keeps.
// Left out are the self tests, which run at load and print, and the denormalizer, which lariat does not use.
CheckedSentencePiece checked_sentencepiece(std::string_view bytes, const std::string& file);

// A SentencePiece model behind libsentencepiece.
class SentencePiece {
 public:
  // `bytes`: a serialized model. Throws Error naming `file`.
  SentencePiece(const std::string& bytes, const std::string& file);

  // Ids of words met before. One per encoder.
  struct Scratch {
    std::unordered_map<std::string, std::vector<int32_t>, StringHash, std::equal_to<>> words;
  };

  // Appends the ids of a text.
  void encode(std::string_view text, Scratch& scratch, std::vector<int32_t>& out) const;

  int32_t size() const;
  std::string piece(int32_t id) const;  // valid UTF-8
  std::optional<int32_t> find(const std::string& piece) const;
  bool is_control(int32_t id) const;  // includes the unknown piece
  int32_t bos() const;                // -1: none
  int32_t eos() const;
  int32_t unk() const;
  const std::vector<std::string>& user_defined() const { return spec_.user_defined; }
  bool strips_leading_space() const { return spec_.dummy_prefix; }
  bool strips_all_leading_space() const { return spec_.removes_spaces; }

 private:
  void find_joints();
  void encode_word(std::string_view word, bool at_start, Scratch& scratch, std::vector<int32_t>& out) const;

  std::shared_ptr<const sentencepiece::SentencePieceProcessor> processor_;
  std::string file_;
  CheckedSentencePiece spec_;                  // its bytes are gone
  bool cuttable_ = false;                      // words that begin with a space are encoded on their own
  std::unordered_set<char32_t> before_space_;  // characters that a piece holds right before a space
  int32_t space_id_ = -1;
};

}  // namespace lariat::tok
