// Estimates the duration of a sweep.
#include <algorithm>

#include "engine/eval/measure/sweep.h"
#include "engine/eval/measure/windows.h"
#include "engine/stopwatch.h"

namespace lariat {

std::vector<int32_t> some_tokens(int64_t n, int64_t vocab) {
  std::vector<int32_t> tokens;
  uint64_t state = 12345;
  for (int64_t i = 0; i < n; ++i) {
    state = state * 6364136223846793005ULL + 1442695040888963407ULL;
    tokens.push_back(static_cast<int32_t>((state >> 33) % static_cast<uint64_t>(vocab)));
  }
  return tokens;
}

namespace {

// Attention multiply-adds per (query, key) pair, relative to a token's with all weights.
double share_of_pair(const Model& model) {
  double pair = 0;
  for (const LayerSpec& layer : model.spec.layers) {
    const AttentionSpec& a = layer.attention;
    if (a.sliding_window == 0) pair += 2.0 * static_cast<double>(a.n_heads * a.head_dim);
  }
  return pair / static_cast<double>(model.weights.values);
}

// Fraction of visible keys for a query halfway through `length`.
double share_seen(const PositionMethod& method, int64_t length) {
  const int64_t p = length / 2;
  int64_t keys = method.ranges.empty() ? p + 1 : 0;
  for (const VisibleRange& range : method.ranges)
    keys += std::max<int64_t>(range.end.at(p) - range.begin.at(p), 0);
  return static_cast<double>(keys) / static_cast<double>(p + 1);
}

}  // namespace

Pace measure_pace(Session& session, int64_t longest) {
  constexpr double kSeconds = 2,
                   kSlow = 0.5;  // kSlow: limit for the first chunk
  constexpr size_t kEnough = 5;  // chunks needed to measure attention
  const int64_t most = std::min<int64_t>(longest, 4096), room = session.options().prefill_chunk;
  const std::vector<int32_t> tokens = some_tokens(most, session.model().spec.vocab_size);
  Sequence sequence = session.new_sequence();
  const auto read = [&](int64_t n) {
    const auto start = Stopwatch::now();
    forward(session, {&sequence, std::span(tokens).first(static_cast<size_t>(n)), 0});
    return seconds_since(start);
  };
  const auto decode = [&] {
    to_host(session.backend(), forward(session, {&sequence, std::span(tokens).first(1)}));
  };
  int64_t chunk = std::min<int64_t>(most, 64);
  std::vector<double> times = {read(chunk)};  // includes warm-up
  decode();
  const auto start = Stopwatch::now();
  decode();
  Pace pace{.step = seconds_since(start)};
  if (times[0] < kSlow) {
    chunk = room > 0 ? std::min(room, most) : most;
    for (int i = 0; i < 2; ++i) {  // the first is warm-up
      sequence.truncate(0);
      times = {read(chunk)};
    }
    while (seconds_since(start) < kSeconds && sequence.length() + chunk <= most) times.push_back(read(chunk));
  }
  // Chunk i takes c * token + (i + 1/2) * c^2 * pair. The minimum over later chunks is the least disturbed.
  const auto c = static_cast<double>(chunk);
  for (size_t i = times.size() / 2 + 1; i < times.size(); ++i) {
    const double pair = std::max(0.0, (times[i] - times[0]) / (c * c * static_cast<double>(i)));
    pace.pair = i == times.size() / 2 + 1 ? pair : std::min(pace.pair, pair);
  }
  if (times.size() < kEnough) pace.pair = times[0] / c * share_of_pair(session.model());
  pace.token = std::max(times[0] / c - pace.pair * c / 2, times[0] / c / 2);
  return pace;
}

Pace Schedule::pace() const {
  Session session(engine_.model, *engine_.backend, session_);
  return measure_pace(session, options_.lengths.back());
}

double Schedule::seconds_of(const Unit& unit, Pace pace) const {
  pace.pair *= share_seen(method_for(unit.column), unit.length);
  const auto length = static_cast<double>(unit.length);
  const double step = pace.step + pace.pair * length;
  if (unit.kind == Kind::kSpeed) return pace.reading(0, length) + kSpeedSteps * step;
  double seconds = 0;
  if (unit.kind != Kind::kPasskey) {
    for (const Window& window : windows_of(perplexity_options(unit), unit.length, *text_)) {
      const int64_t known = unit.column.reused ? window.score_from - window.begin : 0;
      seconds += pace.reading(static_cast<double>(known), static_cast<double>(window.end - window.begin));
    }
    return seconds;
  }
  const PasskeyOptions& options = options_.passkeys;
  const bool alike = options.needles.task == NeedleTask::kPasskey;  // shared prefix
  for (const double depth : options.depths) {
    seconds += static_cast<double>(options.trials) * pace.reading(alike ? depth * length : 0, length);
    seconds += static_cast<double>(options.max_new_tokens) * step;
  }
  return seconds + (alike ? pace.reading(0, options.depths.back() * length) : 0);
}

std::vector<double> Schedule::seconds_for(const std::vector<Unit>& left, const Measurements& log,
                                          const Pace& pace) const {
  std::vector<double> seconds;
  for (auto unit = left.begin(); unit != left.end(); ++unit) {
    const bool taken_over = std::ranges::any_of(equals_of(*unit), [&](const Unit& equal) {
      return std::find(left.begin(), unit, equal) != unit || log.missing({equal}).empty();
    });
    seconds.push_back(taken_over ? 0 : seconds_of(*unit, pace));
  }
  return seconds;
}

std::map<Kind, double> Schedule::seconds_left(const Measurements& log, const Pace& pace) const {
  const auto left = log.missing(units());
  const std::vector<double> seconds = seconds_for(left, log, pace);
  std::map<Kind, double> kinds;
  for (size_t i = 0; i < left.size(); ++i) kinds[left[i].kind] += seconds[i];
  return kinds;
}

}  // namespace lariat
