#include <fmt/core.h>

#include <algorithm>
#include <cmath>

#include "engine/eval/passkey.h"
#include "kernels/error.h"

namespace lariat {
namespace {

constexpr std::string_view kTask =
    "There is an important info hidden inside a lot of irrelevant text. Find it and memorize them. "
    "I will quiz you about the important information there.";
constexpr std::string_view kFiller =
    "The grass is green. The sky is blue. The sun is yellow. Here we go. There and back again.";
constexpr std::string_view kQuestion = "What is the pass key? The pass key is";
constexpr int64_t kLargestKey = 50000;
constexpr int kSideSteps = 24;   // cuts tried on the shorter side
constexpr int kRefinements = 4;  // measurements per such try
constexpr size_t kByteSteps = 64;

// Where the filler may be cut: after each word, and after its full stop. Byte offsets in kFiller.
const std::vector<size_t>& places() {
  static const std::vector<size_t> offsets = [] {
    std::vector<size_t> found;
    for (size_t i = 1; i <= kFiller.size(); ++i) {
      const bool end = i == kFiller.size();
      if (end || kFiller[i] == ' ' || kFiller[i] == '.') found.push_back(i);
    }
    return found;
  }();
  return offsets;
}

// Bytes of the endless filler up to its n-th place; 0: none of it.
size_t place(size_t n) {
  if (n == 0) return 0;
  const size_t per_round = places().size();
  return (n - 1) / per_round * (kFiller.size() + 1) + places()[(n - 1) % per_round];
}

std::string filler(size_t bytes) {
  std::string text;
  text.reserve(bytes + kFiller.size() + 1);
  while (text.size() < bytes) text.append(kFiller).append(" ");
  text.resize(bytes);
  return text;
}

}  // namespace

TextCodec prompt_codec(const Tokenizer& tokenizer) {
  return {[tokenizer](std::string_view text) { return tokenizer.encode(text, tokenizer.adds_bos()); },
          [tokenizer](std::span<const int32_t> ids) { return tokenizer.decode(ids); }};
}

std::string PasskeyPrompts::text(size_t before, size_t after, int64_t key) {
  std::string text(kTask);
  if (before > 0) text.append("\n").append(filler(before));
  text += fmt::format("\nThe pass key is {0}. Remember it. {0} is the pass key.", key);
  if (after > 0) text.append("\n").append(filler(after));
  text.append("\n").append(kQuestion);
  return text;
}

int64_t PasskeyPrompts::key_for(uint64_t seed, int64_t length, double depth, int64_t trial) {
  // splitmix64 (Steele, Lea, Flood 2014) over the trial's coordinates.
  uint64_t state = seed;
  const auto mix = [&](uint64_t value) {
    state += value + 0x9E3779B97F4A7C15U;
    uint64_t z = state;
    z = (z ^ (z >> 30)) * 0xBF58476D1CE4E5B9U;
    z = (z ^ (z >> 27)) * 0x94D049BB133111EBU;
    state = z ^ (z >> 31);
  };
  mix(static_cast<uint64_t>(length));
  mix(static_cast<uint64_t>(std::llround(depth * 1e6)));
  mix(static_cast<uint64_t>(trial));
  return 1 + static_cast<int64_t>(state % static_cast<uint64_t>(kLargestKey));
}

PasskeyPrompts::PasskeyPrompts(const TextCodec& codec) : codec_(codec) {
  const size_t per_round = places().size();
  const auto ids = [&](size_t n) {
    return static_cast<int64_t>(codec_.encode(std::string("\n").append(filler(place(n)))).size());
  };
  const int64_t none = static_cast<int64_t>(codec_.encode("\n").size());
  // From the second round on a word has a space before it and costs what it always will.
  for (size_t n = 0; n <= 2 * per_round; ++n) first_period_.push_back(n == 0 ? 0 : ids(n) - none);
  period_tokens_ = first_period_[2 * per_round] - first_period_[per_round];
}

int64_t PasskeyPrompts::tokens_at(size_t cut) const {
  if (cut < first_period_.size()) return first_period_[cut];
  const size_t per_round = places().size();
  const size_t rounds = (cut - per_round) / per_round;
  return first_period_[cut - rounds * per_round] + static_cast<int64_t>(rounds) * period_tokens_;
}

// The last place up to which the filler has at most `tokens` ids.
size_t PasskeyPrompts::cut_for(int64_t tokens) const {
  const auto per_round = static_cast<int64_t>(places().size());
  int64_t cut = std::max<int64_t>(0, tokens / std::max<int64_t>(period_tokens_, 1) * per_round);
  while (cut > 0 && tokens_at(static_cast<size_t>(cut)) > tokens) --cut;
  while (tokens_at(static_cast<size_t>(cut) + 1) <= tokens) ++cut;
  return static_cast<size_t>(cut);
}

int64_t PasskeyPrompts::measure(const Cuts& cuts, int64_t key) const {
  return static_cast<int64_t>(codec_.encode(text(place(cuts.before), place(cuts.after), key)).size());
}

// Moves one cut until the prompt has `length` ids; false when no place will do.
bool PasskeyPrompts::meet(int64_t length, int64_t key, bool move_before, Cuts& cuts) const {
  size_t& cut = move_before ? cuts.before : cuts.after;
  for (int i = 0; i < kRefinements; ++i) {
    const int64_t missing = length - measure(cuts, key);
    if (missing == 0) return true;
    const int64_t wanted = tokens_at(cut) + missing;
    if (wanted < 0) return false;
    const size_t next = cut_for(wanted);
    if (next == cut) return false;
    cut = next;
  }
  return false;
}

std::vector<int32_t> PasskeyPrompts::build(int64_t length, double depth, int64_t key) const {
  const int64_t bare = measure({0, 0}, key);
  if (length < bare) {
    throw Error(fmt::format(
        "a passkey prompt of {} tokens is too short: without filler it has {}; use a larger length", length,
        bare));
  }
  const int64_t filler_tokens = length - bare;
  const auto before = static_cast<int64_t>(std::llround(depth * static_cast<double>(filler_tokens)));
  const Cuts start{cut_for(before), cut_for(filler_tokens - before)};
  // The longer filler is cut to fit; where its places leave a gap, the other one moves a little.
  const bool move_before = depth > 0.5;
  Cuts cuts = start;
  for (int step = 0; step <= kSideSteps; ++step) {
    const int shift = step % 2 == 0 ? step / 2 : -(step + 1) / 2;  // 0, -1, 1, -2, 2, ...
    const auto side = static_cast<int64_t>(move_before ? start.after : start.before) + shift;
    if (side < 0) continue;
    cuts = start;
    (move_before ? cuts.after : cuts.before) = static_cast<size_t>(side);
    if (meet(length, key, move_before, cuts)) {
      return codec_.encode(text(place(cuts.before), place(cuts.after), key));
    }
  }
  return cut_inside_words(length, key, start);
}

std::vector<int32_t> PasskeyPrompts::cut_inside_words(int64_t length, int64_t key, const Cuts& cuts) const {
  const size_t before = place(cuts.before), after = place(cuts.after);
  for (size_t step = 0; step < 4 * kByteSteps; ++step) {
    const size_t shift = step % kByteSteps, other = step / kByteSteps;
    // Both fillers a little longer or shorter: a few bytes of one, up to a word of the other.
    for (const bool longer : {true, false}) {
      if (!longer && (shift > after || other > before)) continue;
      const size_t a = longer ? after + shift : after - shift, b = longer ? before + other : before - other;
      std::vector<int32_t> ids = codec_.encode(text(b, a, key));
      if (static_cast<int64_t>(ids.size()) == length) return ids;
    }
  }
  throw Error(fmt::format(
      "no passkey prompt of exactly {} tokens exists for this tokenizer; use a length a few tokens away",
      length));
}

std::string_view first_integer(std::string_view text) {
  const auto is_digit = [](char c) { return c >= '0' && c <= '9'; };
  const auto* begin = std::find_if(text.begin(), text.end(), is_digit);
  const auto* end = std::find_if_not(begin, text.end(), is_digit);
  return text.substr(static_cast<size_t>(begin - text.begin()), static_cast<size_t>(end - begin));
}

bool answers_key(std::string_view text, int64_t key) {
  std::string_view digits = first_integer(text);
  digits.remove_prefix(std::min(digits.find_first_not_of('0'), digits.size()));
  return digits == std::to_string(key);
}

}  // namespace lariat
