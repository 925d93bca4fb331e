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

struct CheckedSentencePiece {
  std::string bytes;  // only the needed parts
  bool bpe = false;   // false: unigram model
  bool plain_normalizer = true;
  bool dummy_prefix = true, removes_spaces = true, escapes_spaces = true;  // of the normalizer
  std::vector<std::string> user_defined;
};

// Parses a model and checks everything that libsentencepiece 0.1.97 trusts; drops other parts (self tests run
// at load and print). Throws Error. libsentencepiece reads out of bounds, aborts or never ends unless:
// - pieces hold no NUL (its tries use C strings), are short, and none is a prefix of many others (its matcher
//   keeps 64 results);
// - scores are finite (they order a priority queue);
// - a normalizer's charsmap has a double array within bounds, terminated replacements, and no rule longer
//   than the 32 prefixes that normalizing keeps.
CheckedSentencePiece checked_sentencepiece(std::string_view bytes, const std::string& file);

class SentencePiece {
 public:
  // Throws Error.
  SentencePiece(const std::string& bytes, const std::string& file);

  // Cached words. One per encoder.
  struct Scratch {
    std::unordered_map<std::string, std::vector<int32_t>, StringHash, std::equal_to<>> words;
  };

  void encode(std::string_view text, Scratch& scratch, std::vector<int32_t>& out) const;

  int32_t size() const;
  std::string piece(int32_t id) const;
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
  CheckedSentencePiece spec_;
  bool cuttable_ = false;                      // words that begin with a space are encoded separately
  std::unordered_set<char32_t> before_space_;  // characters right before a space inside a piece
  int32_t space_id_ = -1;
};

}  // namespace lariat::tok
