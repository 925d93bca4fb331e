#pragma once
#include <memory>
#include <span>

#include "tests/engine/generations.h"

// Compares several sequences in one step with each sequence alone.
namespace lariat::test {

// Lengths within one page of the cache, at its edge, and over several pages.
constexpr int64_t kBatchLengths[] = {1, 2, 7, 30, 255, 256, 257, 300};
// Lengths for slow backends: decoding fills and begins pages.
constexpr int64_t kShortBatchLengths[] = {1, 2, 3, 7, 17, 30, 253, 256};

inline std::vector<std::vector<int32_t>> batch_prompts(int64_t vocab_size,
                                                       std::span<const int64_t> lengths = kBatchLengths) {
  std::vector<std::vector<int32_t>> prompts;
  for (const int64_t length : lengths) {
    std::vector<int32_t>& prompt = prompts.emplace_back();
    for (int64_t i = 0; i < length; ++i)
      prompt.push_back(static_cast<int32_t>((i * 37 + length) % vocab_size));
  }
  return prompts;
}

// Greedy continuations of n tokens, decoding `together` prompts at a time.
inline std::vector<std::vector<int32_t>> greedy_texts(Session& session,
                                                      const std::vector<std::vector<int32_t>>& prompts,
                                                      int64_t together, int64_t n) {
  std::vector<std::vector<int32_t>> texts(prompts.size());
  Scheduler scheduler(session, together);
  for (size_t i = 0; i < prompts.size(); ++i)
    scheduler.add({.tokens = prompts[i],
                   .options = {.max_new_tokens = n},
                   .on_end = [&texts, i](Generation text) { texts[i] = std::move(text.tokens); }});
  scheduler.run();
  return texts;
}

inline void check_batch_equals_separate_runs(Backend& backend, const SessionOptions& options,
                                             std::span<const int64_t> lengths = kBatchLengths,
                                             int64_t n = 12) {
  const Model model = open_f32(checkpoint_dir("llama_gqa"), backend);
  Session session(model, backend, options);
  const auto prompts = batch_prompts(model.spec.vocab_size, lengths);
  const auto alone = greedy_texts(session, prompts, 1, n), together = greedy_texts(session, prompts, 8, n);
  EXPECT_EQ(together, alone);
  EXPECT_NE(alone[3], alone[7]) << "identical texts prove nothing";
}

}  // namespace lariat::test
