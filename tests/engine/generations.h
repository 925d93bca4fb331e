#pragma once
#include "engine/runtime/scheduler.h"
#include "tests/engine/engine_test_util.h"

namespace lariat::test {

inline std::vector<Generation> generate(Session& session, std::span<const Prompt> prompts,
                                        const GenerateOptions& options,
                                        const std::function<bool(size_t prompt, int32_t token)>& on_token) {
  std::vector<Generation> results(prompts.size());
  Scheduler scheduler(session);
  for (size_t i = 0; i < prompts.size(); ++i) {
    Request request{.tokens = std::vector<int32_t>(static_cast<size_t>(prompts[i].sequence->length())),
                    .sequence = prompts[i].sequence,
                    .options = options,
                    .on_token = [&on_token, i](int32_t token) { return on_token(i, token); },
                    .on_end = [&results, i](Generation result) { results[i] = std::move(result); }};
    request.tokens.insert(request.tokens.end(), prompts[i].tokens.begin(), prompts[i].tokens.end());
    scheduler.add(std::move(request));
  }
  scheduler.run();
  return results;
}
inline Generation generate(
    Session& session, Sequence& sequence, std::span<const int32_t> prompt, const GenerateOptions& options,
    const std::function<bool(int32_t)>& on_token = [](int32_t) { return true; }) {
  const Prompt one{&sequence, prompt};
  return generate(session, {&one, 1}, options, [&](size_t, int32_t token) { return on_token(token); })[0];
}

}  // namespace lariat::test
