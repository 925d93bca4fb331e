#pragma once
#include <functional>
#include <limits>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "engine/eval/measure/perplexity.h"

// Divergence of a model's predictions from a reference model (e.g. before quantization), token by token over
// the windows of a text. Definitions follow llama.cpp's `llama-perplexity --kl-divergence`
// (tools/perplexity/perplexity.cpp). For n scored tokens with probabilities p(v) of the model and r(v) of the
// reference:
//
//   KL divergence  D(r || p) = sum_v r(v) ln(r(v) / p(v)), in nats: mean, 99th percentile, maximum
//   difference     p(token) - r(token) of the text's token: mean, root mean square, maximum absolute value
//   same top       share of tokens with the same argmax; the first of equal logits counts
//   ratio          of the perplexities: exp(mean(-ln p(token) + ln r(token)))
//
// The mean of x has the standard error sqrt((mean(x^2) - mean(x)^2) / (n - 1)). f(mean) has |f'(mean)| times
// the mean's error: exp for perplexity and ratio, sqrt for the root mean square. A percentile interpolates
// linearly between the order statistics around index 0.99 (n - 1), counted from 0.
//
// llama.cpp reads ln r as 16-bit values from a file and drops values below e^-16. lariat uses the float
// logits of both models and sums in double.
namespace lariat {

// Comparison of two logit rows that predict `token`. A logit of -inf means probability 0; a row with a NaN or
// +inf yields NaN.
struct TokenDivergence {
  double kl = 0, loss = 0, reference_loss = 0;  // losses: -ln p(token), -ln r(token)
  bool same_top = false;
  int64_t position = 0;  // within its window
};
TokenDivergence diverge(std::span<const float> logits, std::span<const float> reference, int32_t token);

// One of the values above, with its names in JSON and in text, and its standard error (NaN for n < 2).
struct DivergenceFigure {
  const char *key, *label;
  double value = 0;
  std::optional<double> error{};
  double scale = 1;  // factor for printing; 100: %
};

struct DivergenceResult {
  int64_t ctx = 0;
  std::vector<TokenDivergence> tokens;  // in text order
  bool complete = false;                // false: interrupted
};
// Computes all values above over the tokens at positions [from, to).
std::vector<DivergenceFigure> figures(const DivergenceResult& result, int64_t from = 0,
                                      int64_t to = std::numeric_limits<int64_t>::max());
// Returns whether both sessions rotate all keys of these windows with the same frequencies.
bool same_frequencies(const Session& session, const Session& reference, const PerplexityOptions& options);

// Prefills the windows (PerplexityMethod) of options.ctx[0] with both models, one window at a time. The first
// forward pass includes all tokens before the first scored one. The rest is split into at most prefill_chunk
// tokens and 64 MiB of logits per model. Growing contexts are also split where either scale changes. threads:
// for comparing logits; 0: all cores. progress(finished text tokens). Throws Error naming the text, as
// measure_perplexity does, or both config.json if the vocabulary sizes differ.
DivergenceResult measure_divergence(Session& session, Session& reference, const TokenSource& text,
                                    const PerplexityOptions& options, int threads = 0,
                                    const std::function<void(int64_t position)>& progress = {});

}  // namespace lariat
