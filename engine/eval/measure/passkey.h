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

// encode: prompt ids, with BOS if the tokenizer adds one.
struct TextCodec {
  std::function<std::vector<int32_t>(std::string_view)> encode;
  std::function<std::string(std::span<const int32_t>)> decode;
  // Joins text and start of the answer; unset: with a space.
  std::function<std::string(const std::string& text, const std::string& answer)> frame = {};
};
// A chat template makes the text the user's message, and the answer starts the assistant's message.
TextCodec prompt_codec(const Tokenizer& tokenizer, const ChatTemplate* chat_template = nullptr);

// Builds prompts of an exact length in tokens: lines joined by "\n". Passkey prompts have the wording of
// landmark-attention (arXiv 2305.16300) and YaRN's repository:
//
//   There is an important info hidden inside a lot of irrelevant text. ...
//   The grass is green. The sky is blue. ...
//   The pass key is 12345. Remember it. 12345 is the pass key.
//   The grass is green. ...
//   What is the pass key? The pass key is
//
// Empty haystack lines are omitted. The haystack between needles is cut after a word or a full stop, the
// whole text is encoded, and the cuts move until the count is exact. If no such cuts exist (several ids per
// word), the haystack is cut inside a word. A user's text continues after each needle; needles follow the end
// of a sentence within 64 words if possible. The cuts that fix the count skip or repeat a few words.
class PasskeyPrompts {
 public:
  explicit PasskeyPrompts(const TextCodec& codec, std::shared_ptr<const Hay> hay = noise_hay());

  // Throws Error if the prompt does not fit `length` (naming both lengths), or `length` cannot be matched.
  std::vector<int32_t> build(int64_t length, const Needles& needles) const;
  // Its text, without the start of the answer.
  std::string text(int64_t length, const Needles& needles) const;

  // Whether prompts of `length` tokens need more than one round of the haystack.
  bool repeats(int64_t length) const;

 private:
  // Places, or bytes, of the endless text between needles.
  struct Piece {
    size_t begin = 0, end = 0;
  };
  using Pieces = std::vector<Piece>;
  static std::string text_of(const Hay& hay, const Needles& needles, const Pieces& bytes);
  std::vector<int32_t> encode(const Needles& needles, const std::string& text) const;
  Pieces bytes_of(Pieces places) const;
  int64_t missing(int64_t length, const Needles& needles, const Pieces& places) const;
  int64_t count(size_t begin, size_t end) const;
  int64_t measured(size_t block) const;
  int64_t tokens_at(size_t cut) const;
  size_t cut_for(int64_t tokens) const;
  Pieces pieces_for(int64_t tokens, const Needles& needles) const;
  bool meet(int64_t length, const Needles& needles, size_t fitted, Pieces& places) const;
  std::string cut_inside_words(int64_t length, const Needles& needles, const Pieces& places) const;

  TextCodec codec_;
  std::shared_ptr<const Hay> hay_;
  int64_t none_ = 0;                     // ids of a text without haystack
  mutable std::vector<int64_t> blocks_;  // haystack ids up to the i-th block
};

// --- measuring ---

struct PasskeyCell;

struct PasskeyOptions {
  std::vector<double> depths = {0, 0.25, 0.5, 0.75, 1};  // ascending: the common prefix only grows
  int64_t trials = 5;                                    // per length and depth
  uint64_t seed = 0;
  NeedleOptions needles{};
  std::shared_ptr<const Hay> hay = noise_hay();
  int64_t max_new_tokens = 10;  // see answer_tokens()
  std::vector<int32_t> eos_ids{};
  // A trial's answer from an earlier run; unset: the trial runs.
  std::function<std::optional<std::string>(double depth, int64_t trial)> known{};
  // Called after each trial. If set, trials run one at a time: a killed run loses only one.
  std::function<void(const PasskeyCell& cell, int64_t trial)> on_trial{};
  const std::atomic<bool>* interrupted = nullptr;
};

inline std::vector<int64_t> default_passkey_lengths(int64_t original_ctx) {
  return {std::max<int64_t>(original_ctx / 2, 1), original_ctx, 2 * original_ctx};
}

// Ten for a passkey, otherwise the size of a complete answer with names.
int64_t answer_tokens(const TextCodec& codec, const NeedleOptions& needles);

struct PasskeyTrial {
  std::string answer = {};
  std::vector<std::string> expected = {}, found = {};
  bool correct() const { return found.size() == expected.size(); }
  double recall() const;
};

struct PasskeyCell {
  int64_t length = 0;
  double depth = 0;
  std::vector<PasskeyTrial> trials;
  int64_t correct() const;
  double recall() const;  // sum over the trials
};

// Needles of a trial depend on no scaling and no other trial.
Needles needles_of(const PasskeyOptions& options, int64_t length, double depth, int64_t trial);

// Throws Error if a prompt cannot hold the needles.
void check_passkey_length(const TextCodec& codec, const PasskeyOptions& options, int64_t length);

using PasskeyCellFn = std::function<void(const PasskeyCell&)>;
// done: finished fraction.
using PasskeyProgressFn = std::function<void(double done)>;

// Measures retrieval at one prompt length and all depths. on_cell receives each finished depth. Returns false
// if interrupted.
//
// Prompts of one length share the task and the haystack before the first needle. This prefix is prefilled
// once, in order of depth, and each prompt forks it. Forks are exact: keys and values depend on later tokens
// only through the RoPE frequencies, and Sequence::expect() sets the frequencies of the whole prompt.
// (Re-rotating keys of a shorter length would not be exact: layers above the first have already attended.)
// Forks start at whole cache pages, so results do not depend on which depths are measured together.
//
// The trials of a depth run in batches, limited by memory. In other tasks every trial has its own needles and
// shares less.
bool measure_passkey(Session& session, const TextCodec& codec, int64_t length, const PasskeyOptions& options,
                     const PasskeyCellFn& on_cell, const PasskeyProgressFn& progress = {});

}  // namespace lariat
