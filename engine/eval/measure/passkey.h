#pragma once
#include <algorithm>
#include <atomic>
#include <functional>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "engine/eval/measure/passkey_hay.h"
#include "engine/eval/needles.h"
#include "engine/runtime/session.h"
#include "models/text/chat_template.h"
#include "models/text/tokenizer.h"

namespace lariat {

// --- prompts ---

// Text to the ids of a prompt (BOS included, where the tokenizer adds one), and back.
struct TextCodec {
  std::function<std::vector<int32_t>(std::string_view)> encode;
  std::function<std::string(std::span<const int32_t>)> decode;
  // The whole prompt of a text with its question, and of how the answer begins; unset: a space between.
  std::function<std::string(const std::string& text, const std::string& answer)> frame = {};
};
// With a chat template the text is the user's message, behind which the assistant's answer begins.
TextCodec prompt_codec(const Tokenizer& tokenizer, const ChatTemplate* chat_template = nullptr);

// Prompts of exactly the wanted number of tokens: lines joined by "\n", of which the passkey's are those of
// landmark-attention (arXiv 2305.16300) and of the YaRN repository:
//
//   There is an important info hidden inside a lot of irrelevant text. Find it and memorize them. ...
//   The grass is green. The sky is blue. The sun is yellow. Here we go. There and back again. The grass ...
//   The pass key is 12345. Remember it. 12345 is the pass key.
//   The grass is green. ...
//   What is the pass key? The pass key is
//
// with an empty line of hay left out. The ids are what the tokenizer gives for the whole text, never pieces
// put together: the hay between the needles is cut after a word or its full stop, the text is measured, and
// the cuts move until the count is right. Tokenizers that spend several ids on a word may have no such cuts;
// the hay is then cut inside a word. A text of the user's own goes on behind a needle, which stands where a
// sentence ends if one does within some 64 words; the one or two cuts that make the count right leave a few
// words out, or repeat them.
class PasskeyPrompts {
 public:
  explicit PasskeyPrompts(const TextCodec& codec, std::shared_ptr<const Hay> hay = noise_hay());

  // Throws Error when `length` is less than the prompt without hay needs (naming both), or cannot be met.
  std::vector<int32_t> build(int64_t length, const Needles& needles) const;

  // True when prompts of `length` tokens need more than one round of the hay.
  bool repeats(int64_t length) const;

 private:
  // A piece of hay before, between or behind the needles: places, or bytes, of the endless text.
  struct Piece {
    size_t begin = 0, end = 0;
  };
  using Pieces = std::vector<Piece>;
  static std::string text_of(const Hay& hay, const Needles& needles, const Pieces& bytes);
  std::vector<int32_t> encode(const Needles& needles, const Pieces& bytes) const;
  Pieces bytes_of(Pieces places) const;
  int64_t missing(int64_t length, const Needles& needles, const Pieces& places) const;
  int64_t count(size_t begin, size_t end) const;
  int64_t measured(size_t block) const;
  int64_t tokens_at(size_t cut) const;
  size_t cut_for(int64_t tokens) const;
  Pieces pieces_for(int64_t tokens, const Needles& needles) const;
  bool meet(int64_t length, const Needles& needles, size_t fitted, Pieces& places) const;
  std::vector<int32_t> cut_inside_words(int64_t length, const Needles& needles, const Pieces& places) const;

  TextCodec codec_;
  std::shared_ptr<const Hay> hay_;
  int64_t none_ = 0;                     // the number of ids of a text without hay
  mutable std::vector<int64_t> blocks_;  // ids of the hay up to the i-th block, as far as they were asked for
};

// --- measuring ---

struct PasskeyCell;

struct PasskeyOptions {
  std::vector<double> depths = {0, 0.25, 0.5, 0.75, 1};  // rising: what the prompts share only grows
  int64_t trials = 5;                                    // per length and depth
  uint64_t seed = 0;
  NeedleOptions needles{};
  std::shared_ptr<const Hay> hay = noise_hay();
  int64_t max_new_tokens = 10;  // see answer_tokens()
  std::vector<int32_t> eos_ids{};
  // The answer that an earlier run had from a trial, which then is not run again; unset, or nothing: it is
  // run.
  std::function<std::optional<std::string>(double depth, int64_t trial)> known{};
  // Is told of each trial that was run. Set, prompts run one by one, so that a run that is killed loses one.
  std::function<void(const PasskeyCell& cell, int64_t trial)> on_trial{};
  const std::atomic<bool>* interrupted = nullptr;
};

// The lengths that are measured where none was asked for: half, once and twice the original one.
inline std::vector<int64_t> default_passkey_lengths(int64_t original_ctx) {
  return {std::max<int64_t>(original_ctx / 2, 1), original_ctx, 2 * original_ctx};
}

// The tokens that an answer may have: ten for a passkey, and what a full one to any other task takes with
// each number beside its name.
int64_t answer_tokens(const TextCodec& codec, const NeedleOptions& needles);

struct PasskeyTrial {
  std::string answer = {};  // what the model wrote
  std::vector<std::string> expected = {}, found = {};
  bool correct() const { return found.size() == expected.size(); }
  double recall() const;  // the share of what was expected that was found
};

struct PasskeyCell {
  int64_t length = 0;
  double depth = 0;
  std::vector<PasskeyTrial> trials;
  int64_t correct() const;
  double recall() const;  // of all trials, added up
};

// The needles of a trial: the same for every scaling and whatever else is measured.
Needles needles_of(const PasskeyOptions& options, int64_t length, double depth, int64_t trial);

// Throws Error when prompts of `length` tokens have no room for the needles.
void check_passkey_length(const TextCodec& codec, const PasskeyOptions& options, int64_t length);

// Is called when the trials of one depth are done.
using PasskeyCellFn = std::function<void(const PasskeyCell&)>;
// done: the share of this length's work that is done, 0 ... 1.
using PasskeyProgressFn = std::function<void(double done)>;

// Passkey retrieval at one prompt length, every depth. False when it was interrupted (finished depths have
// been handed to on_cell).
//
// The prompts of a length begin alike: the task, and hay up to the first needle. That beginning is prefilled
// once, deepest last, and each prompt goes on from a copy of it. This is exact: how far two prompts agree is
// read off their ids, not off their texts; a token's keys and values depend on nothing after it but the RoPE
// frequencies, and Sequence::expect() gives the beginning those of the whole prompt, so that a dynamic
// scaling sees the length it would have seen at once. (Re-rotating the cache of a shorter length afterwards
// would not do: the layers above the first have already attended to it.) Copies start at whole pages of the
// cache, so the numbers do not depend on which depths are measured together.
//
// The trials of a depth are prefilled in one batch and answer together, as many as memory allows.
// Prompts of other tasks share less: the needles that are not asked for, or stand elsewhere, are each trial's
// own.
bool measure_passkey(Session& session, const TextCodec& codec, int64_t length, const PasskeyOptions& options,
                     const PasskeyCellFn& on_cell, const PasskeyProgressFn& progress = {});

}  // namespace lariat
