#include "engine/eval/sweep_cost.h"

#include <algorithm>

#include "engine/eval/sweep.h"
#include "engine/eval/windows.h"
#include "engine/stopwatch.h"

namespace lariat {

Work& Work::operator+=(const Work& other) {
  tokens += other.tokens;
  pairs += other.pairs;
  steps += other.steps;
  return *this;
}

Work reading(double from, double to) { return {to - from, (to * to - from * from) / 2, 0}; }

std::vector<int32_t> some_tokens(int64_t n, int64_t vocab) {
  std::vector<int32_t> tokens;
  for (int64_t i = 0; i < n; ++i) tokens.push_back(static_cast<int32_t>(i * 7919 % vocab));
  return tokens;
}

Pace measure_pace(Session& session, int64_t longest) {
  constexpr double kSeconds = 2,
                   kSlow = 0.5;  // kSlow: for the first tokens of a model whose next would take long
  const int64_t most = std::min<int64_t>(longest, 4096), room = session.options().prefill_chunk;
  const std::vector<int32_t> tokens = some_tokens(most, session.model().spec.vocab_size);
  Sequence sequence = session.new_sequence();
  const auto read = [&](int64_t n) {
    const auto start = Stopwatch::now();
    session.prefill(sequence, std::span(tokens).first(static_cast<size_t>(n)), 0,
                    [](int64_t, const Matrix&) {});
    return seconds_since(start);
  };
  int64_t chunk = std::min<int64_t>(most, 64);
  double first = read(chunk), n = 1;  // with what is slow only once
  session.decode(sequence, tokens[0]);
  const auto start = Stopwatch::now();
  session.decode(sequence, tokens[0]);
  Pace pace{.step = seconds_since(start)};
  double total = first;
  if (first < kSlow) {
    chunk = room > 0 ? std::min(room, most) : most;
    for (int i = 0; i < 2; ++i) {  // the second time is the one that counts
      sequence.truncate(0);
      total = first = read(chunk);
    }
    for (; total < kSeconds && sequence.length() + chunk <= most; ++n) total += read(chunk);
  }
  // Chunk i takes c * token + (i + 1/2) * c^2 * pair.
  const auto c = static_cast<double>(chunk);
  if (n > 1) pace.pair = std::max(0.0, 2 * (total - n * first) / (c * c * n * (n - 1)));
  pace.token = std::max(first / c - pace.pair * c / 2, first / c / 2);
  return pace;
}

const Pace& Sweep::pace() {
  if (!pace_) {
    Session session(engine_.model, *engine_.backend, session_);
    pace_ = measure_pace(session, options_.lengths.back());
  }
  return *pace_;
}

Work Sweep::work_of(const SweepUnit& unit) const {
  const auto length = static_cast<double>(unit.length);
  Work work;
  if (unit.kind == "passkey") {
    const PasskeyOptions& options = options_.passkeys;
    const bool alike = options.needles.task == NeedleTask::kPasskey;  // up to the one needle
    for (const double depth : options.depths) {
      const Work trial = reading(alike ? depth * length : 0, length);
      for (int64_t i = 0; i < options.trials; ++i) work += trial;
    }
    if (alike) work += reading(0, options.depths.back() * length);
    work.steps = static_cast<double>(options.max_new_tokens) * static_cast<double>(options.depths.size());
  } else if (unit.kind == "speed") {
    work = reading(0, length);
    work.steps = kSpeedSteps;
  } else {
    for (const Window& window : windows_of(perplexity_options(unit), unit.length, *text_))
      work += reading(0, static_cast<double>(window.end - window.begin));
  }
  work.pairs += work.steps * length;
  return work;
}

std::vector<double> Sweep::seconds_for(const std::vector<SweepUnit>& left, const SweepRecords& log) const {
  const Pace pace = pace_.value_or(Pace{});
  std::vector<double> seconds;
  for (auto unit = left.begin(); unit != left.end(); ++unit) {
    const bool taken_over = std::ranges::any_of(equals_of(*unit), [&](const SweepUnit& equal) {
      return std::find(left.begin(), unit, equal) != unit || missing_units(log, {equal}).empty();
    });
    seconds.push_back(taken_over ? 0 : pace.seconds(work_of(*unit)));
  }
  return seconds;
}

std::map<std::string, double> Sweep::seconds_left(const SweepRecords& log) const {
  const auto left = missing_units(log, units());
  const std::vector<double> seconds = seconds_for(left, log);
  std::map<std::string, double> kinds;
  for (size_t i = 0; i < left.size(); ++i) kinds[left[i].kind] += seconds[i];
  return kinds;
}

}  // namespace lariat
