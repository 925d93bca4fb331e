#pragma once
#include <atomic>
#include <functional>
#include <string>
#include <vector>

#include "engine/eval/passkey_prompt.h"
#include "engine/session.h"

namespace lariat {

struct PasskeyOptions {
  std::vector<double> depths = {0, 0.25, 0.5, 0.75, 1};
  int64_t trials = 5;  // per length and depth
  uint64_t seed = 0;
  int64_t max_new_tokens = 10;
  std::vector<int32_t> eos_ids;
  const std::atomic<bool>* interrupted = nullptr;
};

struct PasskeyTrial {
  int64_t key = 0;
  std::string answer;  // what the model wrote
  bool correct = false;
};

struct PasskeyCell {
  int64_t length = 0;
  double depth = 0;
  std::vector<PasskeyTrial> trials;
  int64_t correct() const;
};

// Called when the trials of one depth are done.
using PasskeyCellFn = std::function<void(const PasskeyCell&)>;
// done: the share of this length's work that is done, 0 ... 1.
using PasskeyProgressFn = std::function<void(double done)>;

// Passkey retrieval at one prompt length, every depth. False when it was interrupted (finished depths have
// been handed to on_cell).
//
// The prompts of a length begin alike: the task, and filler up to the key. That beginning is prefilled once,
// deepest last, and each prompt goes on from a copy of it. This is exact: how far two prompts agree is read
// off their ids, not off their texts; a token's keys and values depend on nothing after it but the clock,
// and Sequence::expect() puts the beginning on the clock of the whole prompt, so that a dynamic scaling sees
// the length it would have seen at once. (Turning the cache of a shorter clock afterwards would not do: the
// layers above the first have already attended on it.) Copies start at whole blocks of kShared positions, so
// the numbers do not depend on which depths are measured together.
//
// The trials of a depth are prefilled in one batch and answer together, as many as memory allows.
bool measure_passkey(Session& session, const TextCodec& codec, int64_t length, const PasskeyOptions& options,
                     const PasskeyCellFn& on_cell, const PasskeyProgressFn& progress = {});

}  // namespace lariat
