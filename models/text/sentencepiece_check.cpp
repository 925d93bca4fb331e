#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <vector>

#include "kernels/error.h"
#include "models/text/sentencepiece.h"

// Fields: sentencepiece_model.proto. Buffer sizes: libsentencepiece 0.1.97, normalizer.h, normalizer.cc.

namespace lariat::tok {
namespace {

constexpr size_t kMaxPieces = size_t{1} << 20;
constexpr size_t kMaxPieceBytes = 512;  // looked up at every position of a text, and split recursively
constexpr size_t kMaxUserDepth = 60;    // user-defined pieces that prefix each other: kResultSize = 64
constexpr size_t kMaxRuleBytes = 32;    // Normalizer::kMaxTrieResultsSize
constexpr size_t kMaxTrieUnits = size_t{1} << 17;  // twice the largest known, nmt_nfkc_cf
constexpr size_t kMaxReplacement = 256;
constexpr float kMaxScore = 1e9F;  // sums over a text stay finite
constexpr uint64_t kUserDefined = 4;

// Fields of a protobuf message (protobuf.dev/programming-guides/encoding). Groups are damage: no message here
// has groups.
class ProtoReader {
 public:
  explicit ProtoReader(std::string_view bytes) : bytes_(bytes) {}

  bool next() {
    const std::string_view start = bytes_;
    uint64_t key = 0;
    if (damaged_ || bytes_.empty()) return false;
    damaged_ = !varint(key) || key > UINT32_MAX || !value(key & 7);
    field = key >> 3;
    wire = static_cast<int>(key & 7);
    whole = start.substr(0, start.size() - bytes_.size());
    return !damaged_;
  }
  bool damaged() const { return damaged_; }

  uint64_t field = 0;
  int wire = 0;  // 0: number; 1, 5: 8 or 4 bytes in text; 2: text
  uint64_t number = 0;
  std::string_view text;
  std::string_view whole;

 private:
  bool value(uint64_t type) {
    uint64_t size = 0;
    if (type == 0) return varint(number);
    if (type == 1) return take(8);
    if (type == 2) return varint(size) && take(size);
    return type == 5 && take(4);
  }
  bool varint(uint64_t& value) {
    value = 0;
    for (int shift = 0; shift < 64 && !bytes_.empty(); shift += 7) {
      const auto b = static_cast<uint8_t>(bytes_[0]);
      bytes_.remove_prefix(1);
      value |= static_cast<uint64_t>(b & 0x7F) << shift;
      if (b < 0x80) return true;
    }
    return false;
  }
  bool take(uint64_t size) {
    if (size > bytes_.size()) return false;
    text = bytes_.substr(0, size);
    bytes_.remove_prefix(size);
    return true;
  }

  std::string_view bytes_;
  bool damaged_ = false;
};

class Checker {
 public:
  explicit Checker(const std::string& file) : file_(file) {}

  CheckedSentencePiece run(std::string_view bytes) {
    model_.bytes.reserve(bytes.size());
    ProtoReader model(bytes);
    while (model.next()) {
      if (model.wire != 2) continue;
      if (model.field == 1) {
        piece(model.text);
      } else if (model.field == 2) {
        trainer(model.text);
      } else if (model.field == 3) {
        normalizer(model.text);
      } else {
        continue;
      }
      model_.bytes += model.whole;
    }
    if (model.damaged()) fail("it ends inside a field, or holds an invalid field");
    check_nesting();
    model_.user_defined.assign(user_defined_.begin(), user_defined_.end());
    return std::move(model_);
  }

 private:
  [[noreturn]] void fail(const std::string& what) const {
    throw Error(fmt::format("{}: not a usable SentencePiece model ({}); download it again", file_, what));
  }

  template <class F>
  void each_field(std::string_view bytes, const std::string& name, const F& visit) const {
    ProtoReader message(bytes);
    while (message.next()) visit(message);
    if (message.damaged()) fail(name + " is damaged");
  }

  // TrainerSpec: model_type = 3, where 2 is BPE.
  void trainer(std::string_view bytes) {
    each_field(bytes, "trainer_spec", [&](const ProtoReader& message) {
      if (message.field == 3 && message.wire == 0) model_.bpe = message.number == 2;
    });
  }

  // SentencePiece: piece = 1, score = 2, type = 3.
  void piece(std::string_view bytes) {
    const std::string name = fmt::format("piece {}", pieces_);
    if (++pieces_ > kMaxPieces) fail(fmt::format("more than {} pieces", kMaxPieces));
    if (bytes.size() > 2 * kMaxPieceBytes) fail(name + " is too long");
    std::string_view text;
    uint64_t type = 1;
    each_field(bytes, name, [&](const ProtoReader& message) {
      if (message.field == 1 && message.wire == 2) text = message.text;
      if (message.field == 2 && message.wire == 5) {
        float score = 0;
        std::memcpy(&score, message.text.data(), sizeof score);
        if (!(std::abs(score) <= kMaxScore)) fail("the score of " + name + " is not finite, or beyond 1e9");
      }
      if (message.field == 3 && message.wire == 0) type = message.number;
    });
    if (text.empty()) fail(name + " is empty");
    if (text.size() > kMaxPieceBytes) fail(fmt::format("{} is longer than {} bytes", name, kMaxPieceBytes));
    if (text.find('\0') != std::string_view::npos) fail(name + " holds a NUL");
    if (type == kUserDefined) user_defined_.emplace_back(text);
  }

  // NormalizerSpec: precompiled_charsmap = 2, add_dummy_prefix = 3, remove_extra_whitespaces = 4,
  // escape_whitespaces = 5.
  void normalizer(std::string_view bytes) {
    each_field(bytes, "normalizer_spec", [&](const ProtoReader& message) {
      if (message.field == 2 && message.wire == 2) {
        model_.plain_normalizer = message.text.empty();
        if (!message.text.empty()) charsmap(message.text);
      }
      if (message.wire != 0) return;
      if (message.field == 3) model_.dummy_prefix = message.number != 0;
      if (message.field == 4) model_.removes_spaces = message.number != 0;
      if (message.field == 5) model_.escapes_spaces = message.number != 0;
    });
  }

  void check_nesting() {
    std::sort(user_defined_.begin(), user_defined_.end());
    std::vector<std::string_view> open;  // each begins with the previous one
    for (const std::string_view text : user_defined_) {
      while (!open.empty() && !text.starts_with(open.back())) open.pop_back();
      open.push_back(text);
      if (open.size() > kMaxUserDepth) fail("more than 60 user-defined pieces begin with each other");
    }
  }

  // Bytes of the double array (4), the array, and replacements, each terminated by a NUL. A key's value is
  // its replacement's position. Units: darts-clone, darts.h, DoubleArrayUnit.
  void charsmap(std::string_view blob) const {
    uint32_t trie_bytes = 0;
    if (blob.size() > 4) std::memcpy(&trie_bytes, blob.data(), 4);
    const size_t units = trie_bytes / 4;
    if (blob.size() <= 4 || trie_bytes % 1024 != 0 || units == 0 || units > kMaxTrieUnits ||
        trie_bytes >= blob.size() - 4) {
      fail("the size of its charsmap is damaged");
    }
    std::vector<uint32_t> array(units);
    std::memcpy(array.data(), blob.data() + 4, trie_bytes);
    const std::string_view replacements = blob.substr(4 + trie_bytes);
    if (replacements.back() != '\0') fail("the last replacement of its charsmap does not end");
    for (size_t at = 0; at < replacements.size();) {
      const size_t end = replacements.find('\0', at);
      if (end - at > kMaxReplacement) fail("a replacement of its charsmap is too long");
      at = end + 1;
    }
    check_trie(array, replacements.size());
  }

  // Walks the trie by depth: units reachable by a key of `depth` bytes.
  void check_trie(const std::vector<uint32_t>& array, size_t replacement_bytes) const {
    std::vector<uint32_t> level = {0}, next;
    for (size_t depth = 0; !level.empty(); ++depth) {
      std::vector<bool> seen(array.size());
      next.clear();
      for (const uint32_t at : level) {
        const uint32_t unit = array[at];
        const size_t base = at ^ ((unit >> 10) << ((unit & (1U << 9)) >> 6));
        if ((base | 0xFF) >= array.size()) fail("its charsmap points outside itself");
        const bool has_leaf = ((unit >> 8) & 1) == 1;
        if (has_leaf && (array[base] & 0x7FFFFFFFU) >= replacement_bytes)
          fail("its charsmap points outside its replacements");
        for (uint32_t label = 0; label < 256; ++label) {
          const size_t child = base ^ label;
          if ((array[child] & 0x800000FFU) != label || seen[child]) continue;
          seen[child] = true;
          next.push_back(static_cast<uint32_t>(child));
        }
      }
      if (depth == kMaxRuleBytes && !next.empty()) fail("its charsmap has rules of more than 32 bytes");
      level.swap(next);
    }
  }

  const std::string& file_;
  CheckedSentencePiece model_;
  size_t pieces_ = 0;
  std::vector<std::string_view> user_defined_;
};

}  // namespace

CheckedSentencePiece checked_sentencepiece(std::string_view bytes, const std::string& file) {
  return Checker(file).run(bytes);
}

}  // namespace lariat::tok
