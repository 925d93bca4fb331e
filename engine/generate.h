#pragma once
#include <atomic>
#include <functional>
#include <span>
#include <string>
#include <vector>

#include "engine/sampler.h"
#include "engine/session.h"

namespace lariat {

struct GenerateOptions {
  int64_t max_new_tokens = 128;
  std::vector<int32_t> eos_ids;  // end the text; empty: none does (--ignore-eos)
  SamplerOptions sampler;
  std::span<const int32_t> cached;  // the tokens that the sequence holds before the prompt, for the penalty
  const std::atomic<bool>* interrupted = nullptr;  // looked at after every token (Ctrl-C)
};

enum class StopReason { kLength, kEos, kStop, kInterrupted };
std::string_view name_of(StopReason reason);  // "length", "eos", "stop", "interrupted"

struct Generation {
  std::vector<int32_t> tokens;  // the new ones; an ending eos is not among them
  StopReason stop_reason = StopReason::kLength;
  double prefill_seconds = 0, decode_seconds = 0;
  int64_t decode_steps = 0;  // forward passes of one token
};

// Prefills `prompt` onto `sequence`, then samples and decodes. `on_token` sees each new token as it comes and
// returns false to stop (stop strings); the sequence may then have read it already. `progress` is called
// during the prefill.
Generation generate(Session& session, Sequence& sequence, std::span<const int32_t> prompt,
                    const GenerateOptions& options, const std::function<bool(int32_t)>& on_token,
                    const Session::ProgressFn& progress = {});

// Greedy continuation of several sequences together, whose prompts are already prefilled: `next` holds the
// first new token of each. Returns max_new_tokens tokens per sequence (fewer after one of eos_ids). Throws
// Interrupted between two tokens (engine/interrupt.h).
std::vector<std::vector<int32_t>> generate_greedy_batch(Session& session,
                                                        std::span<Sequence* const> sequences,
                                                        std::span<const int32_t> next, int64_t max_new_tokens,
                                                        std::span<const int32_t> eos_ids,
                                                        const std::atomic<bool>* interrupted = nullptr);

}  // namespace lariat
