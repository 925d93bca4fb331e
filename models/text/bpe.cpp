#include "models/text/bpe.h"

#include <fmt/format.h>

#include <algorithm>
#include <functional>
#include <limits>

#include "kernels/error.h"
#include "models/text/unicode.h"

namespace lariat::tok {
namespace {

uint64_t pair_key(uint64_t left, uint64_t right) { return (left << 32) | right; }

std::string byte_token(unsigned byte) { return fmt::format("<0x{:02X}>", byte); }

struct Alphabet {
  std::array<char32_t, 256> letter{};
  std::array<int, 512> byte{};
  Alphabet() {
    byte.fill(-1);
    char32_t next = 256;  // unprintable bytes get the code points from 256 on, in order
    for (int b = 0; b < 256; ++b) {
      const bool prints = (b >= '!' && b <= '~') || (b >= 0xA1 && b <= 0xAC) || b >= 0xAE;
      letter[static_cast<size_t>(b)] = prints ? static_cast<char32_t>(b) : next++;
      byte[letter[static_cast<size_t>(b)]] = b;
    }
  }
};

const Alphabet& alphabet() {
  static const Alphabet instance;
  return instance;
}

}  // namespace

void add_splits(BpeSpec& spec, std::string_view token) {
  for (size_t at = utf8_step(token, 0).length; at < token.size(); at += utf8_step(token, at).length) {
    const std::string_view left = token.substr(0, at), right = token.substr(at);
    if (spec.vocab.contains(left) && spec.vocab.contains(right)) spec.merges.emplace_back(left, right);
  }
}

bool add_merge(BpeSpec& spec, size_t i, std::string_view text) {
  const size_t space = text.find(' ');
  if (i == 0 && text.starts_with("#version")) return true;
  if (space == std::string_view::npos || text.find(' ', space + 1) != std::string_view::npos) return false;
  spec.merges.emplace_back(text.substr(0, space), text.substr(space + 1));
  return true;
}

char32_t byte_to_alphabet(uint8_t byte) { return alphabet().letter[byte]; }
int alphabet_to_byte(char32_t c) { return c < 512 ? alphabet().byte[c] : -1; }

Bpe::Bpe(BpeSpec spec, const std::string& file) : spec_(std::move(spec)) {
  if (spec_.unk_token) {
    const auto it = spec_.vocab.find(*spec_.unk_token);
    if (it == spec_.vocab.end()) {
      throw Error(fmt::format("{}: key 'model.unk_token': '{}' is not in model.vocab; add it or set null",
                              file, *spec_.unk_token));
    }
    unk_id_ = it->second;
  }
  add_merges(file);
  index_units(file);
  if (!spec_.byte_level) index_joints();
  spec_.merges = {};
}

void Bpe::add_merges(const std::string& file) {
  uint64_t rank = 0;
  for (const auto& [left, right] : spec_.merges) {
    const auto l = spec_.vocab.find(left), r = spec_.vocab.find(right), both = spec_.vocab.find(left + right);
    if (l == spec_.vocab.end() || r == spec_.vocab.end() || both == spec_.vocab.end()) {
      const std::string& lost = l == spec_.vocab.end() ? left : r == spec_.vocab.end() ? right : left + right;
      throw Error(
          fmt::format("{}: key '{}[{}]': '{:.100}' is not in {}; the file is damaged, download it again",
                      file, spec_.merges_key, rank, lost, spec_.vocab_key));
    }
    merges_.set(pair_key(static_cast<uint64_t>(l->second), static_cast<uint64_t>(r->second)),
                ((spec_.rank_is_id ? static_cast<uint64_t>(both->second) : rank) << 32) |
                    static_cast<uint64_t>(both->second));
    ++rank;
  }
}

void Bpe::index_units(const std::string& file) {
  bytes_.fill(-1);
  for (unsigned b = 0; b < 256; ++b) {
    std::string name = byte_token(b);
    if (spec_.byte_level) {
      name.clear();
      append_utf8(name, byte_to_alphabet(static_cast<uint8_t>(b)));
    }
    if (const auto it = spec_.vocab.find(name); it != spec_.vocab.end()) bytes_[b] = it->second;
  }
  for (const auto& [token, id] : spec_.vocab) {
    if (token.empty())
      throw Error(fmt::format("{}: key '{}': an empty token; the file is damaged, download it again", file,
                              spec_.vocab_key));
    const Utf8Step first = utf8_step(token, 0);
    if (!spec_.byte_level && first.length == token.size()) chars_.set(first.value, static_cast<uint64_t>(id));
    if (!spec_.byte_level || !spec_.ignore_merges) continue;
    std::string raw;
    size_t at = 0;
    for (; at < token.size(); at += utf8_step(token, at).length) {
      const int byte = alphabet_to_byte(utf8_step(token, at).value);
      if (byte < 0) break;
      raw += static_cast<char>(byte);
    }
    if (at == token.size()) raw_vocab_.emplace(std::move(raw), id);
  }
}

// A text without a pre-tokenizer (Llama 2) is one long word. It may be cut between two characters that are
// adjacent in no token: no merge crosses the cut.
void Bpe::index_joints() {
  const bool all_bytes = std::all_of(bytes_.begin(), bytes_.end(), [](int32_t id) { return id >= 0; });
  if (!spec_.byte_fallback || !all_bytes || spec_.ignore_merges) return;
  std::vector<int32_t> units(bytes_.begin(), bytes_.end());
  units.push_back(unk_id_);
  std::sort(units.begin(), units.end());
  const auto is_unit = [&](const std::string& token) {
    return std::binary_search(units.begin(), units.end(), spec_.vocab.find(token)->second);
  };
  for (const auto& [left, right] : spec_.merges) {
    if (is_unit(left) || is_unit(right)) return;  // a token's characters differ from the text's
  }
  for (const auto& [token, id] : spec_.vocab) {
    Utf8Step left = utf8_step(token, 0);
    for (size_t at = left.length; at < token.size(); at += left.length) {
      const Utf8Step right = utf8_step(token, at);
      joints_.set(pair_key(left.value, right.value), 1);
      left = right;
    }
  }
  cuttable_ = true;
}

uint64_t Bpe::merge_of(int32_t left, int32_t right) const {
  return merges_.find(pair_key(static_cast<uint64_t>(left), static_cast<uint64_t>(right)));
}

void Bpe::encode(std::string_view word, BpeScratch& scratch, std::vector<int32_t>& out) const {
  size_t done = 0;
  if (cuttable_ && !word.empty()) {
    Utf8Step left = utf8_step(word, 0);
    for (size_t at = left.length; at < word.size(); at += left.length) {
      const Utf8Step right = utf8_step(word, at);
      if (!joints_.contains(pair_key(left.value, right.value))) {
        encode_piece(word.substr(done, at - done), scratch, out);
        done = at;
      }
      left = right;
    }
  }
  encode_piece(word.substr(done), scratch, out);
}

void Bpe::encode_piece(std::string_view piece, BpeScratch& s, std::vector<int32_t>& out) const {
  if (piece.empty()) return;
  const bool cached = piece.size() <= BpeScratch::kMaxWordBytes;
  if (cached) {
    if (const auto it = s.words_.find(piece); it != s.words_.end()) {
      const auto begin = s.ids_.begin() + it->second.begin;
      out.insert(out.end(), begin, begin + it->second.count);
      return;
    }
  }
  if (spec_.ignore_merges) {
    const StringMap& whole = spec_.byte_level ? raw_vocab_ : spec_.vocab;
    if (const auto it = whole.find(piece); it != whole.end()) {
      out.push_back(it->second);
      return;
    }
  }
  to_units(piece, s.units_);
  merge(s);
  out.insert(out.end(), s.units_.begin(), s.units_.end());
  if (!cached) return;
  if (s.words_.size() >= BpeScratch::kMaxWords) {
    s.words_.clear();
    s.ids_.clear();
  }
  s.words_.emplace(std::string(piece), BpeScratch::Range{static_cast<uint32_t>(s.ids_.size()),
                                                         static_cast<uint32_t>(s.units_.size())});
  s.ids_.insert(s.ids_.end(), s.units_.begin(), s.units_.end());
}

// A unit (byte or character) without id becomes <0xNN>s, the unknown token or nothing.
void Bpe::to_units(std::string_view piece, std::vector<int32_t>& units) const {
  units.clear();
  bool unknown_open = false;
  const auto close_unknown = [&] {
    if (unknown_open) units.push_back(unk_id_);
    unknown_open = false;
  };
  for (size_t at = 0; at < piece.size();) {
    const uint32_t length = spec_.byte_level ? 1 : utf8_step(piece, at).length;
    const std::string_view unit = piece.substr(at, length);
    const auto byte_id = [&](char c) { return bytes_[static_cast<uint8_t>(c)]; };
    int32_t id = -1;
    if (spec_.byte_level) {
      id = byte_id(unit[0]);
    } else if (const uint64_t found = chars_.find(utf8_step(piece, at).value); found != FlatMap::kNone) {
      id = static_cast<int32_t>(found);
    }
    at += length;
    if (id >= 0) {
      close_unknown();
      units.push_back(id);
    } else if (spec_.byte_fallback && !spec_.byte_level &&
               std::all_of(unit.begin(), unit.end(), [&](char c) { return byte_id(c) >= 0; })) {
      for (char c : unit) units.push_back(byte_id(c));  // keeps a pending unknown, as HF tokenizers do
    } else if (unk_id_ >= 0) {
      if (!spec_.fuse_unk) close_unknown();
      unknown_open = true;
    }
  }
  close_unknown();
}

// Merges the best pair repeatedly: a linked list and a heap of candidates; outdated ones are skipped.
void Bpe::merge(BpeScratch& s) const {
  const size_t n = s.units_.size();
  if (n < 2) return;
  if (n >= static_cast<size_t>(std::numeric_limits<int32_t>::max())) {
    throw Error(fmt::format("a word of {} characters is too long; split the text", n));
  }
  s.symbols_.resize(n);
  for (size_t i = 0; i < n; ++i) {
    s.symbols_[i] = {s.units_[i], static_cast<int32_t>(i) - 1, i + 1 < n ? static_cast<int32_t>(i) + 1 : -1};
  }
  const auto symbol = [&](int32_t i) -> BpeScratch::Symbol& { return s.symbols_[static_cast<size_t>(i)]; };
  const auto candidate = [&](int32_t left) {  // kNone or rank << 32 | left
    if (left < 0 || symbol(left).next < 0) return FlatMap::kNone;
    const uint64_t merge = merge_of(symbol(left).id, symbol(symbol(left).next).id);
    return merge == FlatMap::kNone ? merge : ((merge >> 32) << 32) | static_cast<uint32_t>(left);
  };
  s.heap_.clear();
  for (int32_t i = 0; i + 1 < static_cast<int32_t>(n); ++i) {
    if (const uint64_t c = candidate(i); c != FlatMap::kNone) s.heap_.push_back(c);
  }
  std::make_heap(s.heap_.begin(), s.heap_.end(), std::greater<>());
  const auto push = [&](uint64_t c) {
    if (c == FlatMap::kNone) return;
    s.heap_.push_back(c);
    std::push_heap(s.heap_.begin(), s.heap_.end(), std::greater<>());
  };
  while (!s.heap_.empty()) {
    std::pop_heap(s.heap_.begin(), s.heap_.end(), std::greater<>());
    const uint64_t top = s.heap_.back();
    s.heap_.pop_back();
    const auto left = static_cast<int32_t>(top & 0xFFFFFFFFu);
    if (symbol(left).id < 0 || candidate(left) != top) continue;
    BpeScratch::Symbol& l = symbol(left);
    BpeScratch::Symbol& r = symbol(l.next);
    l.id = static_cast<int32_t>(merge_of(l.id, r.id) & 0xFFFFFFFFu);
    l.next = r.next;
    r.id = -1;
    if (l.next >= 0) symbol(l.next).prev = left;
    push(candidate(l.prev));
    push(candidate(left));
  }
  s.units_.clear();
  for (int32_t i = 0; i >= 0; i = symbol(i).next) s.units_.push_back(symbol(i).id);
}

}  // namespace lariat::tok
