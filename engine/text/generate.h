#pragma once
#include <atomic>
#include <functional>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "engine/runtime/session.h"
#include "engine/text/logprobs.h"
#include "engine/text/sampler.h"

namespace lariat {

struct GenerateOptions {
  int64_t max_new_tokens = 128;
  std::vector<int32_t> eos_ids;  // end the text; empty: none does (--ignore-eos)
  SamplerOptions sampler;
  std::span<const int32_t> cached;    // the tokens that the sequence holds before the prompt, for the penalty
  std::optional<int64_t> logprobs{};  // asks for Generation::logprobs, with so many of the likeliest
  bool whatever = false;              // goes on where no logit is a number, with some token: a measurement
  const std::atomic<bool>* interrupted = nullptr;  // looked at after every token (Ctrl-C)
};

enum class StopReason { kLength, kEos, kStop, kInterrupted };
std::string_view name_of(StopReason reason);  // "length", "eos", "stop", "interrupted"

struct Generation {
  std::vector<int32_t> tokens;       // the new ones; an ending eos is not among them
  std::vector<TokenScore> logprobs;  // of each where asked for, before penalty and sampling
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

// Behind several prompts in common steps, each with the random numbers that it has alone: its text is the one
// of generate() within the rounding of kernels/backend.h (linear, attention). The times are those of all.
std::vector<Generation> generate(Session& session, std::span<const Prompt> prompts,
                                 const GenerateOptions& options,
                                 const std::function<bool(size_t prompt, int32_t token)>& on_token,
                                 const Session::ProgressFn& progress = {});

}  // namespace lariat
