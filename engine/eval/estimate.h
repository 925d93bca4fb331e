#pragma once
#include <cstdint>
#include <string>
#include <vector>

#include "engine/eval/passkey.h"
#include "engine/eval/perplexity.h"
#include "engine/session.h"

namespace lariat {

// How fast a machine runs a model, in seconds. A forward pass reads all weights, whatever it is for; each of
// its tokens computes; a token attends to every position before it; a scored token has logits.
struct WorkRate {
  double pass = 0, token = 0, position = 0, logits = 0;
};

// By a short trial: two passes of at most 256 tokens at the beginning of a context, some of one, and one
// as far behind others (zeros) as contexts of `longest` tokens ask for, at most 4096.
WorkRate measure_rate(Session& session, int64_t longest);

// What such a trial took, in seconds: passes of `tokens` tokens with the logits of one, of all, and behind
// `depth` others, and a pass of one token.
struct Trial {
  int64_t tokens = 1, depth = 0;
  double first = 0, scored = 0, deep = 0, one = 0;
};
// Never free: a trial that takes time has a rate that does.
WorkRate rate_of(const Trial& trial);

// Reading the positions [from, to) of one context in passes of `step` tokens (0: in one), with the logits of
// `scored` of them. n contexts that read together, `each` tokens of a pass, are n times this with
// step = n * each.
double seconds_for(const WorkRate& rate, int64_t from, int64_t to, int64_t step, int64_t scored = 0);

// Rounds of the same work: `times` contexts that read the positions [from, to), `step` tokens to a pass.
struct Work {
  int64_t from = 0, to = 0, step = 0, scored = 0;
  int64_t times = 1;
};
double seconds_for(const WorkRate& rate, const std::vector<Work>& work);
double tokens_in(const std::vector<Work>& work);  // through the model

// The windows (PerplexityMethod) of ctx tokens over a text of so many.
std::vector<Work> window_work(const PerplexityOptions& options, int64_t ctx, int64_t text_tokens,
                              int64_t prefill_chunk);
// So many contexts that grow together.
std::vector<Work> growing_work(int64_t ctx, int64_t step, int64_t contexts);
// What the prompts of a length begin with, once; the rest of each; the answers of a depth's trials together.
std::vector<Work> passkey_work(const PasskeyOptions& options, int64_t length, int64_t prefill_chunk);

// "40 s", "12 min", "3 h 20 min".
std::string spoken_duration(double seconds);
// "65 536 tokens through the model: about 12 min, up to 310 MiB of KV cache"
std::string spoken_work(double tokens, double seconds, double cache_bytes);

}  // namespace lariat
