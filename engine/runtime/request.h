#pragma once
#include <algorithm>
#include <atomic>
#include <exception>
#include <functional>
#include <optional>
#include <span>
#include <vector>

#include "engine/runtime/logprobs.h"
#include "engine/runtime/sampler.h"
#include "engine/runtime/session.h"

namespace lariat {

struct GenerateOptions {
  int64_t max_new_tokens = 128;    // 0: prefill only, for the prompt's logits
  std::vector<int32_t> eos_ids{};  // empty: none (--ignore-eos)
  SamplerOptions sampler{};
  std::optional<int64_t> logprobs{};  // number of top tokens; unset: no logprobs
  int64_t lookup = 0;                 // most guesses per step, up to Lookup::kMostGuesses; 0: off
  Session* draft = nullptr;           // of a smaller model, which guesses up to `lookup` tokens; null: none
  bool allow_non_finite = false;      // sample some token even if no logit is finite
  const std::atomic<bool>* interrupted = nullptr;  // checked after every chunk and token (Ctrl-C)
};

enum class StopReason { kLength, kEos, kStop, kInterrupted };
inline const char* name_of(StopReason reason) {
  constexpr const char* kNames[] = {"length", "eos", "stop", "interrupted"};
  return kNames[static_cast<size_t>(reason)];
}

struct Generation {
  std::vector<int32_t> tokens;       // new tokens, without the final EOS
  std::vector<TokenScore> logprobs;  // one per new token, before penalty and sampling
  StopReason stop_reason = StopReason::kLength;
  double prefill_seconds = 0, decode_seconds = 0;
  int64_t decode_steps = 0;            // tokens drawn after the first, including an EOS
  int64_t proposed = 0, accepted = 0;  // guesses of GenerateOptions::lookup
  int64_t shared = 0;                  // prompt tokens that were cached
  int64_t restarts = 0;                // times that the request's pages were taken and computed again
  std::exception_ptr error{};          // of this request alone: ended it, after `tokens`; null: none
};

// One text to continue. Callbacks may add and cancel requests. An exception of on_token or on_logits ends the
// request (Generation::error).
struct Request {
  std::vector<int32_t> tokens{};       // the whole text; missing tokens are prefilled
  Sequence* sequence = nullptr;        // caches a prefix of `tokens`; at the end all but the last
  const Sequence* prefix = nullptr;    // without a sequence: fork this one, else create one
  SequenceOptions sequence_options{};  // for a created sequence
  GenerateOptions options{};
  std::function<bool(int32_t token)> on_token{};  // called per new token; false ends the text
  // Called before on_token.
  std::function<void(const Sequence& sequence, const Generation& so_far)> on_progress{};
  std::function<void(Generation result)> on_end{};
  int64_t logits_from = Prompt::kLastToken;  // first prompt token with requested logits
  // Receives slices of the requested logits: rows [first, first + logits.rows) of the text.
  std::function<void(int64_t first, const Matrix& logits)> on_logits{};

  int64_t held() const { return sequence ? sequence->length() : prefix ? prefix->length() : 0; }
};

inline int64_t common_prefix(std::span<const int32_t> a, std::span<const int32_t> b) {
  return std::ranges::mismatch(a, b).in1 - a.begin();
}

}  // namespace lariat
