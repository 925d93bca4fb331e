#pragma once
#include <functional>
#include <limits>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "engine/eval/measure/perplexity.h"

// How far a model's predictions are from those of a reference (the same model before it was quantised), token
// by token over the windows of a text. Definitions are those of llama.cpp's
// `llama-perplexity --kl-divergence` (tools/perplexity/perplexity.cpp). Of n scored tokens, with the
// probabilities p(v) of the model and r(v) of the reference over the vocabulary:
//
//   KL divergence  D(r || p) = sum_v r(v) ln(r(v) / p(v)), in nats: mean, 99th percentile, largest
//   difference     p(token) - r(token) of the token that stands in the text: mean, root of the mean square,
//                  largest absolute value
//   same top       the share of tokens at which both have their largest logit at the same id, the first of
//                  equals
//   ratio          of the perplexities: exp(mean(-ln p(token) + ln r(token)))
//
// A mean of x has the standard error sqrt((mean(x^2) - mean(x)^2) / (n - 1)), f(mean) that times |f'(mean)|
// (perplexity and ratio: exp, root of the mean square: sqrt). A percentile interpolates between the two
// nearest of the ordered values: number 0.99 (n - 1), counted from 0.
//
// llama.cpp reads r from a file, ln r in 16 bits and without what lies below e^-16. Here both models' logits
// are at hand as floats, and everything is summed in double.
namespace lariat {

// At one position: two rows of logits of the same size, and the token that stands behind it. A logit of -inf
// counts as probability 0; NaN where a row holds a NaN or +inf.
struct TokenDivergence {
  double kl = 0, loss = 0, reference_loss = 0;  // the losses are -ln p(token) and -ln r(token)
  bool same_top = false;
  int64_t position = 0;  // in its window
};
TokenDivergence diverge(std::span<const float> logits, std::span<const float> reference, int32_t token);

// One of the numbers above: for a JSON object, for people, and its standard error where it has one (NaN for
// fewer than 2 tokens).
struct DivergenceFigure {
  const char *key, *label;
  double value = 0;
  std::optional<double> error{};
  double scale = 1;  // 100 where `label` says %: of value and error, which are shares
};

struct DivergenceResult {
  int64_t ctx = 0;
  std::vector<TokenDivergence> tokens;  // in the order of the text, some 32 bytes each
  bool complete = false;                // false: interrupted
};
// All the numbers that are defined above; the sums are in double. [from, to): of the tokens at these
// positions.
std::vector<DivergenceFigure> figures(const DivergenceResult& result, int64_t from = 0,
                                      int64_t to = std::numeric_limits<int64_t>::max());
// Whether both sessions turn every key alike in windows of these options: then only what else differs is
// measured.
bool same_frequencies(const Session& session, const Session& reference, const PerplexityOptions& options);

// Both models read the windows (PerplexityMethod) of options.ctx[0] side by side, one window at a time: what
// stands before the first scored token at once, the rest in pieces of prefill_chunk tokens, or fewer, so that
// no more than 64 MiB of each one's logits are kept. Pieces of a growing context end where either scale
// moves, too. threads: that compare them; 0: every core. progress(tokens of the text that are done). Throws
// Error, naming the text, as measure_perplexity does, and naming both config.json when the vocabularies have
// different sizes.
DivergenceResult measure_divergence(Session& session, Session& reference, const TokenSource& text,
                                    const PerplexityOptions& options, int threads = 0,
                                    const std::function<void(int64_t position)>& progress = {});

}  // namespace lariat
