// Time to the first token of prompts that arrive together, next to one prompt alone:
//
//   ninja -C build scheduler_bench && build/scheduler_bench configs/demo 8 2000
//
// The last number: with a chunk of all prompts, which then share one pass. Medians of 5 rounds.
#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cstdlib>
#include <utility>
#include <vector>

#include "engine/lariat.h"
#include "engine/runtime/scheduler.h"
#include "engine/stopwatch.h"
#include "kernels/error.h"

namespace {

using namespace lariat;

// Seconds to the first token of the first prompt and of the last.
std::array<double, 2> first_tokens(Session& session, int64_t prompts, int64_t length) {
  Scheduler scheduler(session);
  const int64_t vocabulary = session.model().spec.vocab_size;
  std::array<double, 2> seconds{};
  const auto start = Stopwatch::now();
  for (int64_t i = 0; i < prompts; ++i) {
    Request request{.options = {.max_new_tokens = 8}};
    for (int64_t t = 0; t < length; ++t)
      request.tokens.push_back(static_cast<int32_t>((t * 7919 + i) % vocabulary));
    request.on_token = [&, i, first = true](int32_t) mutable {
      if (std::exchange(first, false) && i == 0) seconds[0] = seconds_since(start);
      if (seconds[1] == 0 && i + 1 == prompts) seconds[1] = seconds_since(start);
      return true;
    };
    scheduler.add(std::move(request));
  }
  scheduler.run();
  return seconds;
}

void run(const std::string& folder, int64_t prompts, int64_t length) {
  Engine engine = Engine::open(folder, {});
  std::array<std::vector<double>, 4> rounds;
  for (int round = 0; round < 5; ++round) {
    engine.session_options.prefill_chunk = 512;
    Session session = engine.session();
    rounds[0].push_back(first_tokens(session, 1, length)[0]);
    const auto [first, last] = first_tokens(session, prompts, length);
    rounds[1].push_back(first);
    rounds[2].push_back(last);
    engine.session_options.prefill_chunk = prompts * length;
    Session whole = engine.session();
    rounds[3].push_back(first_tokens(whole, prompts, length)[0]);
  }
  for (auto& values : rounds) std::ranges::nth_element(values, values.begin() + 2);
  fmt::print(
      "first token, one prompt of {} tokens: {:.3f} s; first of {}: {:.3f} s (last: {:.3f} s); in one pass: "
      "{:.3f} s\n",
      length, rounds[0][2], prompts, rounds[1][2], rounds[2][2], rounds[3][2]);
}

}  // namespace

int main(int argc, char** argv) {
  if (argc != 4) {
    fmt::print(stderr, "usage: scheduler_bench MODEL PROMPTS LENGTH\n");
    return 2;
  }
  try {
    run(argv[1], std::atoll(argv[2]), std::atoll(argv[3]));
  } catch (const lariat::Error& e) {
    fmt::print(stderr, "scheduler_bench: {}\n", e.what());
    return 1;
  }
}
