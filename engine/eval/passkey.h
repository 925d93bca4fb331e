#pragma once
#include <atomic>
#include <functional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "engine/session.h"
#include "models/text/tokenizer.h"

namespace lariat {

// --- prompts ---

// Text to the ids of a prompt (BOS included, where the tokenizer adds one), and back.
struct TextCodec {
  std::function<std::vector<int32_t>(std::string_view)> encode;
  std::function<std::string(std::span<const int32_t>)> decode;
};
TextCodec prompt_codec(const Tokenizer& tokenizer);

// Passkey prompts of exactly the wanted number of tokens. Their form is that of landmark-attention
// (arXiv 2305.16300) and of the YaRN repository: lines joined by "\n",
//
//   There is an important info hidden inside a lot of irrelevant text. Find it and memorize them. ...
//   The grass is green. The sky is blue. The sun is yellow. Here we go. There and back again. The grass ...
//   The pass key is 12345. Remember it. 12345 is the pass key.
//   The grass is green. ...
//   What is the pass key? The pass key is
//
// with an empty filler line left out. The ids are what the tokenizer gives for the whole text, never pieces
// put together: the two fillers are cut after a word or its full stop, the text is measured, and the cuts
// move until the count is right. Tokenizers that spend several ids on a word may have no such pair of cuts;
// the filler is then cut inside a word.
class PasskeyPrompts {
 public:
  explicit PasskeyPrompts(const TextCodec& codec);

  // depth: the share of the filler that stands before the key, 0 ... 1. Throws Error when `length` is less
  // than the prompt without filler needs (naming both), or cannot be met.
  std::vector<int32_t> build(int64_t length, double depth, int64_t key) const;

  // The prompt with the first `before` and `after` bytes of the endless filler.
  static std::string text(size_t before, size_t after, int64_t key);

  // The key of a trial: uniform in 1 ... 50000, the same for every scaling and whatever else is measured.
  static int64_t key_for(uint64_t seed, int64_t length, double depth, int64_t trial);

 private:
  struct Cuts {
    size_t before, after;  // numbers of places in the filler; see place()
  };
  int64_t measure(const Cuts& cuts, int64_t key) const;
  int64_t tokens_at(size_t cut) const;
  size_t cut_for(int64_t tokens) const;
  bool meet(int64_t length, int64_t key, bool move_before, Cuts& cuts) const;
  std::vector<int32_t> cut_inside_words(int64_t length, int64_t key, const Cuts& cuts) const;

  TextCodec codec_;
  std::vector<int64_t> first_period_;  // ids of the filler up to its i-th place, as measured
  int64_t period_tokens_ = 0;          // ids that another round of the filler adds
};

// The first maximal run of digits in what a model wrote; empty when there is none.
std::string_view first_integer(std::string_view text);
// Whether that integer is the key (leading zeros do not matter; a longer number that holds it is wrong).
bool answers_key(std::string_view text, int64_t key);

// --- measuring ---

struct PasskeyOptions {
  std::vector<double> depths = {0, 0.25, 0.5, 0.75, 1};
  int64_t trials = 5;  // per length and depth
  uint64_t seed = 0;
  int64_t max_new_tokens = 10;
  std::vector<int32_t> eos_ids;
  const std::atomic<bool>* interrupted = nullptr;
};

struct PasskeyTrial {
  int64_t key = 0;
  std::string answer;  // what the model wrote
  bool correct = false;
};

struct PasskeyCell {
  int64_t length = 0;
  double depth = 0;
  std::vector<PasskeyTrial> trials;
  int64_t correct() const;
};

// Called when the trials of one depth are done.
using PasskeyCellFn = std::function<void(const PasskeyCell&)>;
// done: the share of this length's work that is done, 0 ... 1.
using PasskeyProgressFn = std::function<void(double done)>;

// Passkey retrieval at one prompt length, every depth. False when it was interrupted (finished depths have
// been handed to on_cell).
//
// The prompts of a length begin alike: the task, and filler up to the key. That beginning is prefilled once,
// deepest last, and each prompt goes on from a copy of it. This is exact: how far two prompts agree is read
// off their ids, not off their texts; a token's keys and values depend on nothing after it but the RoPE
// frequencies, and Sequence::expect() gives the beginning those of the whole prompt, so that a dynamic
// scaling sees the length it would have seen at once. (Re-rotating the cache of a shorter length afterwards
// would not do: the layers above the first have already attended to it.) Copies start at whole pages of the
// cache, so the numbers do not depend on which depths are measured together.
//
// The trials of a depth are prefilled in one batch and answer together, as many as memory allows.
bool measure_passkey(Session& session, const TextCodec& codec, int64_t length, const PasskeyOptions& options,
                     const PasskeyCellFn& on_cell, const PasskeyProgressFn& progress = {});

}  // namespace lariat
