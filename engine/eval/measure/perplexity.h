#pragma once
#include <atomic>
#include <functional>
#include <map>
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

// Contexts by their window's first text token, prefilled under one scaling up to the tail's chunk. Copies
// continue under others (Session::set_rope). Then layer 0's keys are exact; values and other layers' keys are
// approximate, since they were computed under the first scaling.
struct Prefixes {
  int64_t ctx = 0;  // of the windows
  std::map<int64_t, Sequence> by_begin{};
};

// How a text is split; docs/measuring.md explains the methods. t[0], t[1], ... are its tokens without BOS.
//
// sliding  Windows of ctx tokens: the BOS, if the model has one, and tokens from t[k * s] on, with s =
//          min(stride, ctx - max(BOS tokens, 1)). A window scores the tokens that no earlier window held, the
//          first one all tokens with a predecessor. The last window may be shorter. (Press et al., arXiv
//          2012.15613; curves of arXiv 2306.15595 and YaRN's repository.)
// chunks   BOS, t[0], t[1], ... is cut into disjoint chunks of ctx; a shorter rest is dropped. The BOS
//          replaces a chunk's first token, and positions ctx/2 + 1 ... ctx - 1 are scored, as in llama.cpp.
// growing  One context that grows by `step` tokens up to the largest ctx; a shorter ctx reports the positions
//          below it. Each token is scored once, from the cache of that moment; windows use the frequencies of
//          their final length. A step ends early where a dynamic scale changes, so losses equal step 1 within
//          the rounding of prefill chunks (Session::forward). With rope_steps 0 a step uses the frequencies
//          of its end. With TokenSource's max_tokens = n contexts, the text is split into n stretches, each
//          in an empty context; the rest is dropped.
// anchored Windows of step, 2 * step, ... up to ctx tokens, all from the text's first token. Each is one
//          prefill with the frequencies of its length and scores its last `step` tokens. (Jet-Long, arXiv
//          2607.07740, on PG-19.)
// continuation  See measure_continuation.
// tail     Disjoint windows of ctx tokens; each is one prefill and scores its last `step` tokens.
enum class PerplexityMethod { kSliding, kChunks, kGrowing, kAnchored, kContinuation, kTail };
std::string_view name_of(PerplexityMethod method);
bool uses_step(PerplexityMethod method);
// Parses the names of windows and of growing contexts. Throws UsageError.
PerplexityMethod parse_perplexity_method(std::string_view name);

struct PerplexityOptions {
  std::vector<int64_t> ctx;
  int64_t stride = 256;
  int64_t step = 512;  // growing context (see default_step), anchored windows and tails
  PerplexityMethod method = PerplexityMethod::kSliding;
  std::vector<int32_t> bos{};         // text_bos
  int buckets = 32;                   // position buckets of PerplexityResult::positions
  std::vector<int64_t> ends{};        // ascending bucket ends, in place of `buckets`
  LossJournal* journal = nullptr;     // saves losses and restores earlier ones
  Prefixes* prefixes = nullptr;       // tail windows: continue copies of these
  std::optional<RopeScaling> rope{};  // of these copies
  const std::atomic<bool>* interrupted = nullptr;
};

// options.ends, the steps of anchored windows, or (nearly) equal buckets.
std::vector<int64_t> bucket_ends(const PerplexityOptions& options, int64_t from, int64_t ctx);

struct PerplexityResult : LossSum {
  int64_t ctx = 0, stride = 0, step = 0;  // 0: not used; stride: s of PerplexityMethod
  PerplexityMethod method = PerplexityMethod::kSliding;
  std::vector<PositionBucket> positions;
  std::vector<float> losses;  // per text token; NaN: not scored
  bool complete = false;

  void add(int64_t position, int64_t token, double loss);  // token: index in the text
};

Loss loss_of(const PerplexityResult& result, std::optional<int64_t> stride = {});
std::vector<PositionLoss> losses_of(const std::vector<PositionBucket>& positions);
// Rounded to 5 decimals; null: not scored.
nlohmann::ordered_json losses_json(const std::vector<float>& losses);

// original_ctx, at most 2048; for a growing context and anchored windows 2 * original_ctx. The text's tokens
// and BOS limit both.
int64_t default_ctx(const PerplexityOptions& options, int64_t original_ctx, int64_t text_tokens);
// Longer steps change losses only with rope_steps 0.
int64_t default_step(const SessionOptions& session, PerplexityMethod method = PerplexityMethod::kGrowing);
Plan::Perplexity perplexity_plan(const PerplexityOptions& options, int64_t max_tokens);

struct PerplexityProgress {
  int64_t done, of;  // tokens
  std::span<const PerplexityResult> results;
  double share() const { return static_cast<double>(done) / static_cast<double>(of); }
};
using PerplexityProgressFn = std::function<void(const PerplexityProgress&)>;

// Measures a text at every length of options.ctx in one pass over the text. Windows that start at the same
// token share a forward pass if the scaling does not depend on the length; other windows run in batches.
// Throws Error, naming the text, as check_windows does.
std::vector<PerplexityResult> measure_perplexity(Session& session, const TokenSource& text,
                                                 const PerplexityOptions& options,
                                                 const PerplexityProgressFn& progress = {});

// Prefills the prefixes of all tail windows of `ctx` tokens.
void fill_prefixes(Session& session, const TokenSource& text, const PerplexityOptions& options, int64_t ctx,
                   Prefixes& prefixes, const Session::ProgressFn& progress = {});

// Scores the whole text in one piece after the tokens of a sequence; if empty, after a BOS if the model has
// one. Every token with a predecessor is scored. Afterwards `sequence` and `tokens` hold all tokens, and ctx
// is their number. The sequence's last token is recomputed for its logits. Ignores ctx, stride, step and
// method. Throws Error, naming the text, if nothing can be scored or memory is insufficient.
PerplexityResult measure_continuation(Session& session, Sequence& sequence, std::vector<int32_t>& tokens,
                                      const TokenSource& text, const PerplexityOptions& options,
                                      const PerplexityProgressFn& progress = {});

}  // namespace lariat
