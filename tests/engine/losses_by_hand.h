#pragma once
#include <algorithm>
#include <random>

#include "engine/eval/measure/perplexity.h"
#include "tests/engine/engine_test_util.h"

// Reference losses in double; windows share nothing.
namespace lariat::test {

inline std::vector<int32_t> random_text(int64_t n, int64_t vocab, uint32_t seed) {
  std::mt19937 random(seed);
  std::vector<int32_t> tokens(static_cast<size_t>(n));
  for (auto& token : tokens) token = static_cast<int32_t>(random() % static_cast<uint32_t>(vocab));
  return tokens;
}

inline std::vector<double> log_softmax(std::span<const float> row) {
  double sum = 0;
  for (const float x : row) sum += std::exp(static_cast<double>(x));
  std::vector<double> logs;
  for (const float x : row) logs.push_back(static_cast<double>(x) - std::log(sum));
  return logs;
}
inline double loss_by_hand(std::span<const float> row, int32_t token) {
  return -log_softmax(row)[static_cast<size_t>(token)];
}

// Ids with BOS, scored from `first` on.
struct HandWindow {
  std::vector<int32_t> tokens;
  size_t first;
  // One row over the vocabulary per scored token, from a new session.
  std::vector<std::vector<double>> log_probabilities(const Model& model, Backend& backend,
                                                     const SessionOptions& options) const {
    Session session(model, backend, options);
    const std::vector<float> logits = all_logits(session, tokens, tokens.size());
    const auto vocab = static_cast<size_t>(model.spec.vocab_size);
    std::vector<std::vector<double>> rows;
    for (size_t i = first; i < tokens.size(); ++i)
      rows.push_back(log_softmax(std::span(logits).subspan((i - 1) * vocab, vocab)));
    return rows;
  }
};

inline std::vector<HandWindow> windows_by_hand(const std::vector<int32_t>& text,
                                               const PerplexityOptions& options, int64_t ctx) {
  const bool sliding = options.method == PerplexityMethod::kSliding;
  const int64_t n = std::ssize(text), bos = std::ssize(options.bos), holds = ctx - bos;
  std::vector<HandWindow> windows;
  for (int64_t k = 1; options.method == PerplexityMethod::kAnchored && k * options.step <= ctx; ++k) {
    HandWindow window{options.bos, static_cast<size_t>(
                                       std::max(k * options.step - options.step, std::max<int64_t>(bos, 1)))};
    window.tokens.insert(window.tokens.end(), text.begin(), text.begin() + k * options.step - bos);
    windows.push_back(std::move(window));
  }
  if (!windows.empty()) return windows;
  for (int64_t begin = 0, scored = bos > 0 ? 0 : 1; sliding ? scored < n : begin + holds <= n;) {
    const int64_t end = std::min(begin + holds, n);
    HandWindow window{options.bos, 0};
    window.tokens.insert(window.tokens.end(), text.begin() + begin, text.begin() + end);
    window.first = static_cast<size_t>(sliding ? scored - begin + bos : ctx / 2 + 1);
    windows.push_back(std::move(window));
    scored = end;
    begin += sliding ? std::min(options.stride, ctx - std::max<int64_t>(bos, 1)) : ctx;
  }
  return windows;
}

}  // namespace lariat::test
