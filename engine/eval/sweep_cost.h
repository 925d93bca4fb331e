#pragma once
#include <cstdint>

#include "engine/session.h"

// How long a measurement takes, found before it begins.
namespace lariat {

// Tokens to be read, the pairs of one of them and one before it (attention), and steps of decoding.
struct Work {
  double tokens = 0, pairs = 0, steps = 0;
  Work& operator+=(const Work& other);
};
// Reading the tokens at positions [from, to).
Work reading(double from, double to);

// Seconds for each of these.
struct Pace {
  double token = 1, pair = 0, step = 0;
  double seconds(const Work& work) const {
    return work.tokens * token + work.pairs * pair + work.steps * step;
  }
};
// Reads some tokens, up to `longest`, for about two seconds: a model that is too slow for more tells of its
// attention little, so that long texts take longer than this says.
Pace measure_pace(Session& session, int64_t longest);
// Any tokens, the same every time.
std::vector<int32_t> some_tokens(int64_t n, int64_t vocab);

}  // namespace lariat
