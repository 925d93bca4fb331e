#include "engine/runtime/draft.h"

#include <algorithm>
#include <cmath>

#include "engine/runtime/logprobs.h"
#include "engine/runtime/request.h"

namespace lariat {

std::vector<int32_t> Draft::guess(std::span<const int32_t> text, int64_t most, double row_cost,
                                  const Model& model) {
  const double least = row_cost + static_cast<double>(session_.model().weights.token_bytes) /
                                      static_cast<double>(model.weights.token_bytes);
  std::vector<int32_t> guesses;
  int64_t held = std::min(common_prefix(tokens_, text), std::ssize(text) - 1);
  tokens_.assign(text.begin(), text.end());
  sequence_.truncate(held);
  double likelihood = 1;
  // The draft cannot read ids outside its own vocabulary.
  const auto known = [&](int32_t token) { return token < session_.model().spec.vocab_size; };
  const bool reads = least <= 1 && std::ranges::all_of(text.subspan(static_cast<size_t>(held)), known);
  while (reads && std::ssize(guesses) < most) {  // else no guess is worth its cost
    const auto unread = std::span(tokens_).subspan(static_cast<size_t>(held));
    const Matrix logits = forward(session_, {&sequence_, unread});
    held = std::ssize(tokens_);
    const TokenLogprob next =
        Logprobs(session_.backend(), logits.row_range(logits.rows - 1, 1), 0).likeliest();
    likelihood *= std::exp(next.logprob);
    if (!(likelihood >= least) || next.token >= model.spec.vocab_size) break;
    guesses.push_back(next.token);
    tokens_.push_back(next.token);
  }
  tokens_.resize(static_cast<size_t>(held));
  return guesses;
}

}  // namespace lariat
