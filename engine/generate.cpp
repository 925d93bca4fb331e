#include "engine/generate.h"

#include <algorithm>

#include "engine/stopwatch.h"

namespace lariat {
namespace {

bool contains(std::span<const int32_t> ids, int32_t id) {
  return std::find(ids.begin(), ids.end(), id) != ids.end();
}

}  // namespace

std::string_view name_of(StopReason reason) {
  switch (reason) {
    case StopReason::kLength:
      return "length";
    case StopReason::kEos:
      return "eos";
    case StopReason::kStop:
      return "stop";
    case StopReason::kInterrupted:
      return "interrupted";
  }
  return "?";
}

Generation generate(Session& session, Sequence& sequence, std::span<const int32_t> prompt,
                    const GenerateOptions& options, const std::function<bool(int32_t)>& on_token,
                    const Session::ProgressFn& progress) {
  Generation result;
  auto start = Stopwatch::now();
  Matrix logits = session.prefill_last(sequence, prompt, progress);
  session.backend().synchronize();
  result.prefill_seconds = seconds_since(start);

  Sampler sampler(options.sampler, session.backend());
  Sequence* const one = &sequence;
  std::vector<int32_t> history(prompt.begin(), prompt.end());
  const int64_t max_ctx = session.options().max_ctx;
  start = Stopwatch::now();
  while (static_cast<int64_t>(result.tokens.size()) < options.max_new_tokens) {
    const int32_t token = sampler.sample(logits, history);
    if (contains(options.eos_ids, token)) {
      result.stop_reason = StopReason::kEos;
      break;
    }
    result.tokens.push_back(token);
    history.push_back(token);
    if (!on_token(token)) {
      result.stop_reason = StopReason::kStop;
      break;
    }
    if (options.interrupted != nullptr && options.interrupted->load()) {
      result.stop_reason = StopReason::kInterrupted;
      break;
    }
    // The last token wanted needs no logits after it; nor does one that fills the context.
    if (static_cast<int64_t>(result.tokens.size()) == options.max_new_tokens) break;
    if (max_ctx > 0 && sequence.length() >= max_ctx) break;
    logits = session.decode({&one, 1}, {&token, 1});
    ++result.decode_steps;
  }
  result.decode_seconds = seconds_since(start);
  return result;
}

std::vector<std::vector<int32_t>> generate_greedy_batch(Session& session,
                                                        std::span<Sequence* const> sequences,
                                                        std::span<const int32_t> next, int64_t max_new_tokens,
                                                        std::span<const int32_t> eos_ids) {
  std::vector<std::vector<int32_t>> texts(sequences.size());
  std::vector<size_t> live;  // those that go on
  std::vector<int32_t> tokens(next.begin(), next.end());
  const auto accept = [&](size_t i) {
    if (contains(eos_ids, tokens[i])) return false;
    texts[i].push_back(tokens[i]);
    return static_cast<int64_t>(texts[i].size()) < max_new_tokens;
  };
  for (size_t i = 0; i < sequences.size(); ++i) {
    if (max_new_tokens > 0 && accept(i)) live.push_back(i);
  }
  while (!live.empty()) {
    std::vector<Sequence*> batch;
    std::vector<int32_t> fed, chosen(live.size());
    for (const size_t i : live) {
      batch.push_back(sequences[i]);
      fed.push_back(tokens[i]);
    }
    session.backend().argmax(session.decode(batch, fed), chosen);
    std::vector<size_t> still;
    for (size_t j = 0; j < live.size(); ++j) {
      tokens[live[j]] = chosen[j];
      if (accept(live[j])) still.push_back(live[j]);
    }
    live = std::move(still);
  }
  return texts;
}

}  // namespace lariat
