#pragma once
#include <atomic>
#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "engine/eval/divergence.h"
#include "engine/eval/passkey.h"
#include "engine/eval/token_source.h"
#include "engine/session.h"

// What it costs to join contexts that were read apart (engine/join_contexts.h), beside reading their text at
// once; docs/measuring.md.
namespace lariat {

struct JoinCostOptions {
  std::vector<int64_t> parts = {2, 8};           // how many of them
  int64_t part_tokens = 256, next_tokens = 256;  // of each without its BOS, and of what follows
  std::vector<std::string> joins = {"rotate", "recompute=1", "recompute=16"};  // beside kAnew and kLastPart
  std::vector<int32_t> bos{};  // tokens that each part begins with; empty: none
  bool find = true;            // whether passkeys are looked for
  PasskeyOptions passkeys{};   // each in the middle of the part that its depth lies in
  const std::atomic<bool>* interrupted = nullptr;
};

// What the others are measured against, and what a join has to beat: what follows, behind the last part
// alone.
inline constexpr const char* kAnew = "anew";
inline constexpr const char* kLastPart = "last part";

// One way to join one number of parts.
struct JoinCost {
  int64_t parts = 0;
  std::string join;
  DivergenceResult next{};  // of what follows, from kAnew
  PasskeyCell passkeys{};   // of all depths
  std::vector<double>
      seconds{};  // from parts in memory to the logits of what follows' first token, each time
  double median_seconds() const;
};

// The text begins with as many parts as are asked for at most, and what follows them is scored; fewer parts
// are the last of these. Adds the costs of each number of parts once they are all known; false: it was
// interrupted. progress(share of the work that is done). Throws UsageError as parse_join and check_join do,
// and Error when the text, a part for its passkey, max_ctx or the memory is too small, before anything is
// read.
bool measure_join_cost(Session& session, const TextCodec& codec, const TokenSource& text,
                       const JoinCostOptions& options, std::vector<JoinCost>& costs,
                       const std::function<void(double done)>& progress = {});

}  // namespace lariat
