#pragma once
#include <functional>
#include <span>
#include <string>
#include <vector>

#include "engine/eval/perplexity.h"

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

struct Estimate {
  double value = 0, error = 0;  // its standard error; NaN for fewer than 2 tokens
};

// The sums that a mean and its standard error are made of.
struct MeanOf {
  double sum = 0, squares = 0;
  void add(double x) {
    sum += x;
    squares += x * x;
  }
  Estimate over(int64_t n) const;
};

// At one position: two rows of logits of the same size, and the token that stands behind it. A logit of -inf
// counts as probability 0; NaN where a row holds a NaN or +inf.
struct TokenDivergence {
  double kl = 0, loss = 0, reference_loss = 0;  // the losses are -ln p(token) and -ln r(token)
  bool same_top = false;
};
TokenDivergence diverge(std::span<const float> logits, std::span<const float> reference, int32_t token);

struct DivergenceResult {
  int64_t ctx = 0, stride = 0;  // as in PerplexityResult
  PerplexityMethod method = PerplexityMethod::kSliding;
  int64_t tokens = 0, same_tops = 0;
  MeanOf loss, reference_loss, log_ratio, kl, difference, squared_difference;
  double largest_difference = 0;
  std::vector<double> kls;  // of every token
  bool complete = false;    // false: interrupted

  void add(const TokenDivergence& token);
  Estimate ppl() const;
  Estimate reference_ppl() const;
  Estimate ppl_ratio() const;
  Estimate rms_difference() const;
  Estimate same_top() const;         // a share, 0 ... 1
  double kl_at(double share) const;  // 0.99: the 99th percentile; 1: the largest
};

// Both models read the windows (PerplexityMethod) of options.ctx[0] side by side, and no more than some 64
// MiB of each one's logits are kept at a time. Windows run one by one: a window's tokens before the first
// that is scored at once, the others in pieces of as many rows of logits. threads: for comparing rows; 0:
// every core. progress(tokens of the text whose windows are done, result so far). Throws Error, naming
// `text_name`, as measure_perplexity, and naming both config.json when the models' vocabularies have
// different sizes.
DivergenceResult measure_divergence(
    Session& session, Session& reference, TokenSource& text, const std::string& text_name,
    const PerplexityOptions& options, int threads = 0,
    const std::function<void(int64_t position, const DivergenceResult&)>& progress = {});

}  // namespace lariat
