#pragma once
#include <cstdint>
#include <string>

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

// Reading the positions [from, to) of one context in passes of `step` tokens (0: in one), with the logits of
// `scored` of them. n contexts that read together, `each` tokens of a pass, are n times this with
// step = n * each.
double seconds_for(const WorkRate& rate, int64_t from, int64_t to, int64_t step, int64_t scored = 0);

// "40 s", "12 min", "3 h 20 min".
std::string spoken_duration(double seconds);
// "65 536 tokens through the model: about 12 min, up to 310 MiB of KV cache"
std::string spoken_work(double tokens, double seconds, double cache_bytes);

}  // namespace lariat
