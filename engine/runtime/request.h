#pragma once
#include <algorithm>
#include <atomic>
#include <functional>
#include <optional>
#include <span>
#include <vector>

#include "engine/runtime/logprobs.h"
#include "engine/runtime/sampler.h"
#include "engine/runtime/session.h"

namespace lariat {

// How new tokens are chosen, and where they end.
struct GenerateOptions {
  int64_t max_new_tokens = 128;    // 0: only the prompt's logits are wanted
  std::vector<int32_t> eos_ids{};  // end the text; empty: no token does (--ignore-eos)
  SamplerOptions sampler{};
  std::optional<int64_t> logprobs{};  // asks for Generation::logprobs, with the top N tokens
  int64_t lookup = 0;  // most tokens that prompt lookup guesses per step, up to Lookup::kMostGuesses; 0: off
  bool allow_non_finite = false;  // continues with some token where no logit is finite: a measurement
  const std::atomic<bool>* interrupted = nullptr;  // checked after every chunk and token (Ctrl-C)
};

enum class StopReason { kLength, kEos, kStop, kInterrupted };
inline const char* name_of(StopReason reason) {
  constexpr const char* kNames[] = {"length", "eos", "stop", "interrupted"};
  return kNames[static_cast<size_t>(reason)];
}

struct Generation {
  std::vector<int32_t> tokens;       // the new ones, without an ending eos
  std::vector<TokenScore> logprobs;  // of each if requested, before penalty and sampling
  StopReason stop_reason = StopReason::kLength;
  double prefill_seconds = 0, decode_seconds = 0;
  int64_t decode_steps = 0;            // tokens drawn after the first, an ending eos included
  int64_t proposed = 0, accepted = 0;  // guesses of GenerateOptions::lookup
};

// One text to continue. Callbacks may add further requests.
struct Request {
  std::vector<int32_t> tokens{};       // of the whole text; tokens that its sequence lacks are prefilled
  Sequence* sequence = nullptr;        // holds the first tokens, and the others afterwards
  const Sequence* prefix = nullptr;    // else: the text's sequence is a fork of this one, or a new one
  SequenceOptions sequence_options{};  // of a new one
  GenerateOptions options{};
  std::function<bool(int32_t token)> on_token{};  // each new token; false ends the text (stop strings)
  std::function<void(Generation result)> on_end{};
  int64_t logits_from = Prompt::kLastToken;  // index of the first prompt token whose logits are wanted
  // Called with slices of these logits: rows [first, first + logits.rows) of the text (Session::LogitsFn).
  std::function<void(int64_t first, const Matrix& logits)> on_logits{};

  int64_t held() const { return sequence ? sequence->length() : prefix ? prefix->length() : 0; }
};

// The number of tokens that both begin with.
inline int64_t common_prefix(std::span<const int32_t> a, std::span<const int32_t> b) {
  return std::ranges::mismatch(a, b).in1 - a.begin();
}

}  // namespace lariat
