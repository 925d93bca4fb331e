#pragma once
#include <functional>
#include <limits>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "engine/eval/measure/perplexity.h"

// Divergence of a model's predictions from a reference model, token by token over the windows of a text, as
// in llama.cpp's `llama-perplexity --kl-divergence` (tools/perplexity/perplexity.cpp). For n scored tokens
// with probabilities p(v) of the model and r(v) of the reference:
//
//   KL divergence  D(r || p) = sum_v r(v) ln(r(v) / p(v)), in nats: mean, 99th percentile, maximum
//   difference     p(token) - r(token) of the text's token: mean, root mean square, maximum absolute value
//   same top       share of tokens with the same argmax; the first of equal logits counts
//   ratio          of the perplexities: exp(mean(-ln p(token) + ln r(token)))
//
// The standard error of the mean of x is sqrt((mean(x^2) - mean(x)^2) / (n - 1)), and f(mean) has |f'(mean)|
// times this error. A percentile interpolates linearly around index 0.99 (n - 1) of the sorted values,
// counted from 0. llama.cpp rounds ln r to 16 bits and drops values below e^-16; lariat compares float
// logits.
namespace lariat {

// Compares two logit rows that predict `token`. A logit of -inf is probability 0; NaN or +inf yields NaN.
struct TokenDivergence {
  double kl = 0, loss = 0, reference_loss = 0;  // -ln p(token), -ln r(token)
  bool same_top = false;
  int64_t position = 0;  // within its window
};
TokenDivergence diverge(std::span<const float> logits, std::span<const float> reference, int32_t token);

struct DivergenceResult {
  int64_t ctx = 0;
  std::vector<TokenDivergence> tokens;
  bool complete = false;
};
// The values above over all tokens, and between the ends of position buckets; errors are NaN for n < 2.
Divergence divergence_of(const DivergenceResult& result, const std::vector<int64_t>& ends = {});
// Whether both sessions rotate all keys of these windows with the same frequencies.
bool same_frequencies(const Session& session, const Session& reference, const PerplexityOptions& options);

// Prefills the windows of options.ctx[0] with both models, one at a time. The first pass includes all tokens
// before the first scored one. The rest is split into at most prefill_chunk tokens and 64 MiB of logits per
// model, and growing contexts also where either scale changes. threads: to compare logits; 0: all cores.
// progress: finished text tokens. Throws Error as measure_perplexity does, or naming both config.json if the
// vocabulary sizes differ.
DivergenceResult measure_divergence(Session& session, Session& reference, const TokenSource& text,
                                    const PerplexityOptions& options, int threads = 0,
                                    const std::function<void(int64_t position)>& progress = {});

}  // namespace lariat
