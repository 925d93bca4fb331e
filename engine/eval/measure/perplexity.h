#pragma once
#include <atomic>
#include <functional>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include <nlohmann/json.hpp>

#include "engine/eval/measure/token_source.h"
#include "engine/eval/measurement.h"
#include "engine/runtime/session.h"

namespace lariat {

class LossJournal;

// How a text is read. t[0], t[1], ... are its tokens without a BOS.
//
// sliding  A window of ctx tokens is the BOS (when the model has one; ctx counts it) and the tokens after
//          k * s, with s = min(stride, what a window holds but one). The first window scores all its tokens
//          that have something before them, each later one those that no earlier window held: every token is
//          scored once, with the most context it can have. The last window is the one that reaches the end of
//          the text, and may be shorter. (Press et al., arXiv 2012.15613; the curves of arXiv 2306.15595 and
//          of the YaRN repository.)
// chunks   BOS, t[0], t[1], ... is cut into disjoint chunks of ctx; a shorter rest is dropped. A chunk's
//          first token is replaced by the BOS, and its positions ctx/2 + 1 ... ctx - 1 are scored, as
//          llama.cpp does.
// growing  One context, as a conversation or a long generation lives it: a BOS and the text from its first
//          token on, `step` tokens at a time until the context holds the longest ctx. Each token is scored
//          once, from what the cache holds at that moment: nothing knows how long the text will become, so
//          the frequencies of a dynamic scale follow the length, and cached keys are rotated again (or left,
//          under SessionOptions::stale_cache). Windows are read on the frequencies of their whole length and
//          cannot see this.
//          A step ends early where a dynamic scale moves, so that every token is read on the frequencies of
//          its own length: any step gives the losses of step 1 within the rounding of prefill chunks
//          (Session::forward). With rope_steps 0 the scale moves at every token, and a step's tokens share
//          the frequencies of its end.
//          A text limited to n times what a context holds (TokenSource's max_tokens) is read in n such
//          stretches, each from an empty context, together as far as memory allows; a rest is dropped.
//          Without a limit it is one. The result of a shorter ctx is that of the positions below it.
// anchored Windows of step, 2 step, ... up to ctx tokens, all from the text's first token on. Each window is
//          read in one prefill, on the frequencies of its length, and scores its last `step` tokens.
//          (Jet-Long, arXiv 2607.07740, on PG-19.) Unlike in a growing context, no key or value is of a
//          shorter length.
// continuation  The whole text in one piece: see measure_continuation.
enum class PerplexityMethod { kSliding, kChunks, kGrowing, kAnchored, kContinuation };
std::string_view name_of(PerplexityMethod method);  // "sliding" and so on
// Reads the name of one of the first four. Throws UsageError on any other word.
PerplexityMethod parse_perplexity_method(std::string_view name);

struct PerplexityOptions {
  std::vector<int64_t> ctx;  // lengths of window or context to measure
  int64_t stride = 256;
  int64_t step = 512;  // of a growing context (default_step) and of anchored windows
  PerplexityMethod method = PerplexityMethod::kSliding;
  std::vector<int32_t> bos{};      // tokens that begin a text (text_bos); empty: none
  int buckets = 32;                // of positions in the window, for PerplexityResult::positions
  std::vector<int64_t> ends{};     // of the buckets, rising, instead of so many
  LossJournal* journal = nullptr;  // keeps the losses while they come, and knows those of an earlier run
  const std::atomic<bool>* interrupted = nullptr;
};

// The ends of the buckets of positions [from, ctx), which begin where the one before ends: options.ends, the
// steps of anchored windows, or buckets of (nearly) equal size.
std::vector<int64_t> bucket_ends(const PerplexityOptions& options, int64_t from, int64_t ctx);

struct PerplexityResult : LossSum {
  int64_t ctx = 0, stride = 0, step = 0;  // 0 where there is none; stride: s of PerplexityMethod
  PerplexityMethod method = PerplexityMethod::kSliding;
  std::vector<PositionBucket> positions;
  std::vector<float> losses;  // of each token of the text; NaN: not scored
  bool complete = false;      // false: interrupted

  void add(int64_t position, int64_t token, double loss);  // `token`: its index in the text
};

// The result as records hold it, without its positions.
Loss loss_of(const PerplexityResult& result, std::optional<int64_t> stride = {});
std::vector<PositionLoss> losses_of(const std::vector<PositionBucket>& positions);
// The losses of each token of a text, to 5 decimals; null where it was not scored.
nlohmann::ordered_json losses_json(const std::vector<float>& losses);

// The length that is measured where none was asked for, of a model trained for `original_ctx` tokens: those,
// at most 2048, or of a growing context and anchored windows twice those; and no more than the text's tokens
// and their BOS fill.
int64_t default_ctx(const PerplexityOptions& options, int64_t original_ctx, int64_t text_tokens);
// The step of a growing context where none was asked for: long, as it changes no loss, but for one whose
// scale moves at every token.
inline int64_t default_step(const SessionOptions& session) { return session.rope_steps == 0 ? 32 : 512; }

struct PerplexityProgress {
  int64_t done, of;  // tokens
  std::span<const PerplexityResult> results;
  double share() const { return static_cast<double>(done) / static_cast<double>(of); }
};
using PerplexityProgressFn = std::function<void(const PerplexityProgress&)>;

// Measures a text at every length of options.ctx in one pass over it.
//
// Few windows can share work: the state of a token is made of everything before it, so windows that begin at
// different tokens have nothing in common above the embeddings (each begins with its own BOS, and the same
// token sees another past) and no cache can serve two of them. Windows of different lengths that begin at
// the *same* token are prefixes of each other: under a scaling that does not depend on the length, one pass
// over the longest gives the losses of all, and the shorter lengths cost nothing. Under a dynamic scaling
// each length has its own frequencies and its own pass. Windows that share nothing run in one batch instead.
//
// Throws Error, naming the text, as check_windows does (engine/eval/measure/windows.h).
std::vector<PerplexityResult> measure_perplexity(Session& session, const TokenSource& text,
                                                 const PerplexityOptions& options,
                                                 const PerplexityProgressFn& progress = {});

// The whole text in one piece, as what follows the tokens of a sequence (none: a BOS, when the model has
// one). Every token that has something before it is scored, with all of it; the result's ctx is the length of
// the sequence, which ends up holding all tokens, and so does `tokens`. The last token that the sequence
// comes with is read again: what it predicts is not kept. Of the options ctx, stride, step and method do not
// count. Throws Error, naming the text, when there is nothing to score or not enough memory.
PerplexityResult measure_continuation(Session& session, Sequence& sequence, std::vector<int32_t>& tokens,
                                      const TokenSource& text, const PerplexityOptions& options,
                                      const PerplexityProgressFn& progress = {});

}  // namespace lariat
