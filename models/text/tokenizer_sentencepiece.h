#pragma once
#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <unordered_set>
#include <vector>

#include "models/text/tokenizer_bpe.h"

namespace sentencepiece {
class SentencePieceProcessor;
}

namespace lariat::tok {

// A SentencePiece model behind libsentencepiece.
class SentencePiece {
 public:
  // `bytes`: a serialized model. Throws Error naming `file`.
  SentencePiece(const std::string& bytes, const std::string& file);
  ~SentencePiece();
  SentencePiece(SentencePiece&&) noexcept;
  SentencePiece& operator=(SentencePiece&&) noexcept;

  // Ids of words met before. One per encoder.
  struct Scratch {
    std::unordered_map<std::string, std::vector<int32_t>, StringHash, std::equal_to<>> words;
  };

  // Encodes text[0, n) and returns n: all of it when `final`, else what does not depend on what follows.
  // `at_start`: the text opens its section, where SentencePiece puts a space in front.
  size_t encode_prefix(std::string_view text, bool at_start, bool final, Scratch& scratch,
                       std::vector<int32_t>& out) const;

  int32_t size() const;
  std::string piece(int32_t id) const;  // valid UTF-8
  bool is_control(int32_t id) const;    // includes the unknown piece
  int32_t bos() const;                  // -1: none
  int32_t eos() const;
  bool strips_leading_space() const { return dummy_prefix_; }
  bool strips_all_leading_space() const { return removes_spaces_; }

 private:
  void read_spec(const std::string& bytes);
  void find_joints();
  void encode_word(std::string_view word, bool at_start, Scratch& scratch, std::vector<int32_t>& out) const;

  std::unique_ptr<sentencepiece::SentencePieceProcessor> processor_;
  std::string file_;
  bool dummy_prefix_ = true, removes_spaces_ = true, escapes_spaces_ = true;
  bool bpe_ = false, plain_normalizer_ = false;
  bool cuttable_ = false;                      // words that begin with a space are encoded on their own
  std::unordered_set<char32_t> before_space_;  // characters that a piece holds right before a space
  int32_t space_id_ = -1;
};

}  // namespace lariat::tok
