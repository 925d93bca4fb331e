#include <fmt/core.h>

#include <algorithm>
#include <cmath>
#include <numeric>

#include "engine/eval/measure/passkey.h"
#include "kernels/counted.h"
#include "kernels/error.h"

namespace lariat {
namespace {

constexpr int kSideSteps = 24;   // cuts tried in the second-largest piece
constexpr int kRefinements = 4;  // encodings per try
constexpr size_t kByteSteps = 64;
constexpr size_t kBlock = 64;           // places per counted block
constexpr size_t kSentencePlaces = 64;  // maximum distance to the previous sentence end
constexpr int64_t kGoodEstimate = 16;   // tolerated error in ids before all cuts are recomputed

// Indices of the two largest pieces, the later first if equal. The largest is cut to fit; if that fails, the
// other shifts.
std::pair<size_t, size_t> pieces_to_cut(const Needles& needles) {
  std::vector<double> shares;
  double before = 0;
  for (const auto& line : needles.lines) shares.push_back(line.depth - std::exchange(before, line.depth));
  shares.push_back(1 - before);
  std::vector<size_t> order(shares.size());
  std::iota(order.rbegin(), order.rend(), size_t{0});
  std::ranges::stable_sort(order, std::ranges::greater{}, [&](size_t i) { return shares[i]; });
  return {order[0], order[1]};
}

}  // namespace

TextCodec prompt_codec(const Tokenizer& tokenizer, const ChatTemplate* chat_template) {
  TextCodec codec;
  const bool bos = chat_template == nullptr && tokenizer.adds_bos();  // a chat template adds its own BOS
  codec.encode = [tokenizer, bos](std::string_view text) { return tokenizer.encode(text, bos); };
  codec.decode = [tokenizer](std::span<const int32_t> ids) { return tokenizer.decode(ids); };
  if (chat_template != nullptr) {
    codec.frame = [chat = *chat_template](const std::string& text, const std::string& answer) {
      nlohmann::ordered_json messages = nlohmann::ordered_json::array();
      messages.push_back({{"role", "user"}, {"content", text}});
      return chat.render(messages, true) + answer;
    };
  }
  return codec;
}

std::string PasskeyPrompts::text_of(const Hay& hay, const Needles& needles, const Pieces& bytes) {
  std::string text = needles.task;
  for (size_t i = 0; i < bytes.size(); ++i) {
    const std::string piece = hay.cut(bytes[i].begin, bytes[i].end);
    const size_t first = piece.find_first_not_of(" \t\r\n");
    if (first != std::string::npos) text.append("\n").append(piece, first);
    if (i < needles.lines.size()) text.append("\n").append(needles.lines[i].text);
  }
  return text.append("\n").append(needles.question);
}

PasskeyPrompts::PasskeyPrompts(const TextCodec& codec, std::shared_ptr<const Hay> hay)
    : codec_(codec), hay_(std::move(hay)), blocks_{0} {
  none_ = std::ssize(codec_.encode("\n"));
}

std::vector<int32_t> PasskeyPrompts::encode(const Needles& needles, const std::string& text) const {
  return codec_.encode(codec_.frame ? codec_.frame(text, needles.answer) : text + " " + needles.answer);
}

PasskeyPrompts::Pieces PasskeyPrompts::bytes_of(Pieces places) const {
  for (auto& [begin, end] : places) {
    begin = hay_->bytes(begin);
    end = hay_->bytes(end);
  }
  return places;
}

int64_t PasskeyPrompts::missing(int64_t length, const Needles& needles, const Pieces& places) const {
  return length - std::ssize(encode(needles, text_of(*hay_, needles, bytes_of(places))));
}

// --- estimated ids up to a place ---

int64_t PasskeyPrompts::count(size_t begin, size_t end) const {
  const std::string piece = "\n" + hay_->cut(hay_->bytes(begin), hay_->bytes(end));
  return std::ssize(codec_.encode(piece)) - none_;
}

int64_t PasskeyPrompts::measured(size_t block) const {
  while (blocks_.size() <= block) {
    const size_t begin = (blocks_.size() - 1) * kBlock;
    blocks_.push_back(blocks_.back() + count(begin, begin + kBlock));
  }
  return blocks_[block];
}

int64_t PasskeyPrompts::tokens_at(size_t cut) const {
  const size_t round = hay_->places.size();
  if (cut <= 2 * round) return measured(cut / kBlock) + count(cut / kBlock * kBlock, cut);
  // Rounds after the first cost the same: each word follows a space.
  const size_t rounds = (cut - round) / round;
  return tokens_at(cut - rounds * round) +
         static_cast<int64_t>(rounds) * (tokens_at(2 * round) - tokens_at(round));
}

// Last place with at most `tokens` haystack ids before it.
size_t PasskeyPrompts::cut_for(int64_t tokens) const {
  const size_t round = hay_->places.size();
  size_t block = 0, more = 0;
  while ((block + 1) * kBlock <= 2 * round && measured(block + 1) <= tokens) ++block;
  if ((block + 1) * kBlock > 2 * round && tokens >= tokens_at(2 * round)) {
    const int64_t all = tokens_at(2 * round), period = std::max<int64_t>(all - tokens_at(round), 1);
    const int64_t rounds = (tokens - all) / period + 1;
    more = static_cast<size_t>(rounds) * round;
    tokens -= rounds * period;
    for (block = 0; measured(block + 1) <= tokens;) ++block;
  }
  size_t low = block * kBlock, high = low + kBlock;
  while (low < high) {
    const size_t middle = (low + high + 1) / 2;
    if (tokens_at(middle) <= tokens) {
      low = middle;
    } else {
      high = middle - 1;
    }
  }
  return low + more;
}

bool PasskeyPrompts::repeats(int64_t length) const { return cut_for(length) > hay_->places.size(); }

// --- cutting ---

// Pieces of about `tokens` ids in total, with every needle at its depth.
PasskeyPrompts::Pieces PasskeyPrompts::pieces_for(int64_t tokens, const Needles& needles) const {
  Pieces pieces;
  int64_t before = 0;
  for (const auto& line : needles.lines) {
    const auto end = static_cast<int64_t>(std::llround(line.depth * static_cast<double>(tokens)));
    if (hay_->restarts) {
      pieces.push_back({0, cut_for(end - before)});
    } else {
      const size_t begin = pieces.empty() ? 0 : pieces.back().end, word = std::max(cut_for(end), begin);
      size_t cut = word;
      while (cut > begin && word - cut < kSentencePlaces && !hay_->ends_sentence(cut)) --cut;
      pieces.push_back({begin, hay_->ends_sentence(cut) && line.depth < 1 ? cut : word});
    }
    before = end;
  }
  const size_t begin = hay_->restarts || pieces.empty() ? 0 : pieces.back().end;
  pieces.push_back({begin, std::max(begin, cut_for(hay_->restarts ? tokens - before : tokens))});
  return pieces;
}

// Moves one cut until the prompt has `length` ids. Returns false on failure.
bool PasskeyPrompts::meet(int64_t length, const Needles& needles, size_t fitted, Pieces& places) const {
  auto& [begin, end] = places[fitted];
  for (int i = 0; i < kRefinements; ++i) {
    const int64_t more = missing(length, needles, places);
    if (more == 0) return true;
    const int64_t wanted = tokens_at(end) + more;
    if (wanted < 0) return false;
    const size_t next = cut_for(wanted);
    if (next == end || next < begin) return false;
    end = next;
  }
  return false;
}

std::vector<int32_t> PasskeyPrompts::build(int64_t length, const Needles& needles) const {
  return encode(needles, text(length, needles));
}

std::string PasskeyPrompts::text(int64_t length, const Needles& needles) const {
  const int64_t hay = missing(length, needles, Pieces(needles.lines.size() + 1));
  if (hay < 0) {
    throw Error(fmt::format(
        "`lengths`: a passkey prompt of {} is too short, without filler it has {}; use a larger length",
        counted(length, "token"), length - hay));
  }
  Pieces start = pieces_for(hay, needles);
  int64_t tokens = hay;
  for (int i = 0; i < kRefinements; ++i) {  // sums over blocks are approximate
    const int64_t more = missing(length, needles, start);
    if (std::abs(more) <= kGoodEstimate || tokens + more < 0) break;
    tokens += more;
    start = pieces_for(tokens, needles);
  }
  const auto [fitted, other] = pieces_to_cut(needles);
  for (int step = 0; step <= kSideSteps; ++step) {
    const int shift = step % 2 == 0 ? step / 2 : -(step + 1) / 2;  // 0, -1, 1, -2, 2, ...
    const auto side = static_cast<int64_t>(start[other].end) + shift;
    if (side < static_cast<int64_t>(start[other].begin)) continue;
    Pieces places = start;
    places[other].end = static_cast<size_t>(side);
    if (meet(length, needles, fitted, places)) return text_of(*hay_, needles, bytes_of(places));
  }
  return cut_inside_words(length, needles, start);
}

std::string PasskeyPrompts::cut_inside_words(int64_t length, const Needles& needles,
                                             const Pieces& places) const {
  const Pieces start = bytes_of(places);
  const size_t least_last = start.back().begin, least_first = start.front().begin;
  for (size_t step = 0; step < 4 * kByteSteps; ++step) {
    const size_t shift = step % kByteSteps, other = step / kByteSteps;
    // Lengthens or shortens both end pieces, one by a few bytes, the other by up to a word.
    for (const bool longer : {true, false}) {
      Pieces bytes = start;
      size_t &last = bytes.back().end, &first = bytes.front().end;
      if (!longer && (least_last + shift > last || least_first + other > first)) continue;
      last = longer ? last + shift : last - shift;
      first = longer ? first + other : first - other;
      std::string text = text_of(*hay_, needles, bytes);
      if (std::ssize(encode(needles, text)) == length) return text;
    }
  }
  throw Error(fmt::format(
      "`lengths`: no passkey prompt has exactly {} with this tokenizer; use a length a few tokens away",
      counted(length, "token")));
}

void check_passkey_length(const TextCodec& codec, const PasskeyOptions& options, int64_t length) {
  const bool passkey = options.needles.task == NeedleTask::kPasskey;
  PasskeyPrompts(codec, options.hay)
      .build(length, passkey ? passkey_needles(kLargestPasskey, 0.5) : needles_of(options, length, 0.5, 0));
}

int64_t answer_tokens(const TextCodec& codec, const NeedleOptions& needles) {
  if (needles.task == NeedleTask::kPasskey) return PasskeyOptions().max_new_tokens;
  const Needles sample = make_needles(needles, 0.5, NeedleRandom(0, 0, 0.5, 0));
  std::string answer = sample.answer;
  const bool named = needles.task == NeedleTask::kMultiquery;
  for (const auto& one : sample.expected) answer += (named ? " amber-anchor: " : " ") + one + ",";
  return std::ssize(codec.encode(answer));
}

}  // namespace lariat
