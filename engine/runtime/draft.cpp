#include "engine/runtime/draft.h"

#include <algorithm>
#include <cmath>

#include "engine/runtime/request.h"
#include "models/trace.h"

namespace lariat {
namespace {

struct Guess {
  int32_t token = 0;
  double probability = 0;
};

Guess likeliest(std::span<const float> logits) {
  const auto largest = std::ranges::max_element(logits);
  double sum = 0;
  for (const float logit : logits)
    sum += std::exp(static_cast<double>(logit) - static_cast<double>(*largest));
  return {static_cast<int32_t>(largest - logits.begin()), 1 / sum};
}

}  // namespace

std::vector<int32_t> Draft::guess(std::span<const int32_t> text, int64_t most, double row_cost, int64_t vocab,
                                  size_t model_bytes) {
  const double guess_cost =
      static_cast<double>(session_.model().weights.token_bytes) / static_cast<double>(model_bytes);
  std::vector<int32_t> guesses;
  int64_t held = std::min(common_prefix(tokens_, text), std::ssize(text) - 1);
  tokens_.assign(text.begin(), text.end());
  sequence_.truncate(held);
  double likelihood = 1;
  while (std::ssize(guesses) < most) {
    const auto unread = std::span(tokens_).subspan(static_cast<size_t>(held));
    const Matrix logits = forward(session_, {&sequence_, unread});
    held = std::ssize(tokens_);
    const Guess next = likeliest(to_host(session_.backend(), logits.row_range(logits.rows - 1, 1)));
    likelihood *= next.probability;
    if (!(likelihood >= row_cost + guess_cost) || next.token >= vocab) break;
    guesses.push_back(next.token);
    tokens_.push_back(next.token);
  }
  tokens_.resize(static_cast<size_t>(held));
  return guesses;
}

}  // namespace lariat
