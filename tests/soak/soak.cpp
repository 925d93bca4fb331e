// Repeats generation rounds and watches memory:
//
//   soak MODEL_DIR SECONDS
//
// Every round uses all RoPE frequencies, caches and scratch sizes: prompts of many lengths on sequences that
// are reset, dropped and forked, under a dynamic scaling. After the first rounds, a round may change memory
// by at most 1 %.
#include <malloc.h>

#include <algorithm>
#include <cstdio>
#include <exception>
#include <string>

#include "engine/runtime/scheduler.h"
#include "engine/stopwatch.h"
#include "kernels/cpu/cpu_backend.h"
#include "models/load/config.h"
#include "models/load/model.h"

namespace lariat {
namespace {

constexpr int64_t kWarmUp = 5;  // rounds

// The allocator's overhead depends on block addresses: it varies by a page or two of the KV cache.
double allocated_mb() {
  const struct mallinfo2 info = mallinfo2();
  return static_cast<double>(info.uordblks + info.hblkhd) / 1e6;
}

std::vector<int32_t> prompt_of(int64_t length, int64_t vocab_size) {
  std::vector<int32_t> tokens;
  for (int64_t i = 0; i < length; ++i) tokens.push_back(static_cast<int32_t>(i * 31 % vocab_size));
  return tokens;
}

int64_t one_round(Session& session, Sequence& kept) {
  GenerateOptions options;
  options.max_new_tokens = 40;
  options.sampler.temperature = 0.8;
  int64_t tokens = 0;
  for (const int64_t length : {3, 400, 64, 1100, 700, 1, 300}) {
    kept.truncate(0);
    auto prompt = prompt_of(length, session.model().spec.vocab_size);
    Scheduler scheduler(session);
    scheduler.add({.tokens = prompt, .sequence = &kept, .options = options});
    scheduler.run();
    scheduler.add({.tokens = prompt, .options = options});
    prompt.push_back(prompt.front());
    const Sequence prefix = session.fork(kept, length);
    scheduler.add({.tokens = prompt, .prefix = &prefix, .options = options});
    scheduler.run();
    tokens += 2 * length + 1 + 3 * options.max_new_tokens;
  }
  return tokens;
}

int run(const std::filesystem::path& model_dir, double seconds) {
  CpuBackend backend(1);
  ModelSpec config = load_config(model_dir);
  config.rope().type = RopeType::kDynamic;
  config.rope().factor = 2;
  const Model model = load_model(model_dir, config, backend, std::nullopt);
  Session session(model, backend, {});
  Sequence kept = session.new_sequence();
  double lowest = 0, highest = 0;
  int64_t rounds = 0, tokens = 0;
  const auto start = Stopwatch::now();
  while (rounds <= kWarmUp || seconds_since(start) < seconds) {
    tokens += one_round(session, kept);
    const double now = allocated_mb();
    lowest = ++rounds <= kWarmUp ? now : std::min(lowest, now);
    highest = rounds <= kWarmUp ? now : std::max(highest, now);
  }
  const double moved = 100 * (highest - lowest) / lowest;
  std::printf("%lld rounds, %lld tokens, %.0f s: %.2f .. %.2f MB allocated after round %lld, %.2f %%\n",
              static_cast<long long>(rounds), static_cast<long long>(tokens), seconds_since(start), lowest,
              highest, static_cast<long long>(kWarmUp), moved);
  return moved <= 1 ? 0 : 1;
}

}  // namespace
}  // namespace lariat

int main(int argc, char** argv) {
  if (argc != 3) {
    std::fprintf(stderr, "usage: soak MODEL_DIR SECONDS\n");
    return 2;
  }
  try {
    return lariat::run(argv[1], std::stod(argv[2]));
  } catch (const std::exception& e) {
    std::fprintf(stderr, "soak: %s\n", e.what());
    return 1;
  }
}
