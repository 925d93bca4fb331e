#include <fmt/format.h>

#include <algorithm>
#include <numeric>

#include "kernels/counted.h"
#include "tools/measuring.h"

namespace lariat {
namespace {

constexpr double kLong = 60;  // seconds; longer sweeps print alternatives

double total(const std::map<Kind, double>& kinds) {
  return std::accumulate(kinds.begin(), kinds.end(), 0.0,
                         [](double sum, const auto& kind) { return sum + kind.second; });
}

// Duration of another sweep of the same model.
std::string other(const Schedule& schedule, SweepOptions options, const Pace& pace, const Measurements& log) {
  options.tokens = schedule.text();
  return duration(total(Schedule(schedule.engine(), options).seconds_left({log.plan}, pace)));
}

}  // namespace

void say_plan(const Schedule& schedule, const SweepOptions& asked, const Pace& pace,
              const Measurements& log) {
  for (const auto& note : schedule.notes()) say(note);
  const std::vector<int64_t>& lengths = schedule.options().lengths;
  if (const TokenSource* text = schedule.text()) {
    std::vector<int64_t> overlaps(lengths.size());
    std::ranges::transform(lengths, overlaps.begin(), [&](int64_t length) {
      return std::max(length - schedule.stride_of(length), int64_t{0});
    });
    const bool sliding =
        asked.perplexity && schedule.plan().perplexity.method == name_of(PerplexityMethod::kSliding);
    say(fmt::format("lengths {}; {} of {}{}", fmt::join(lengths, ", "), counted(text->size(), "token"),
                    text->name(),
                    sliding ? fmt::format("; windows overlap by {} tokens", fmt::join(overlaps, ", ")) : ""));
  }
  const auto kinds = schedule.seconds_left(log, pace);
  std::string parts;
  for (const auto& [kind, seconds] : kinds)
    parts += fmt::format("{}{} {}", parts.empty() ? "" : ", ", name_of(kind), duration(seconds));
  say(fmt::format("about {} ({})", duration(total(kinds)), parts));
  if (total(kinds) < kLong || !log.records.empty()) return;
  std::vector<std::string> ways;
  const auto add = [&](const SweepOptions& options, const std::string& name, const std::string& note) {
    const std::string time = other(schedule, options, pace, log);
    if (time != duration(total(kinds))) ways.push_back(fmt::format("{}, about {}{}", name, time, note));
  };
  SweepOptions less = asked;
  less.quick = true;
  if (!asked.quick)
    add(less, "--quick", ": no passkeys, no throughput, one context of text, windows overlap by half");
  less = asked;
  less.lengths.assign(lengths.begin(), lengths.end() - 1);
  if (!less.lengths.empty()) add(less, fmt::format("without the length {}", lengths.back()), "");
  if (!ways.empty()) say(fmt::format("cheaper: {}", fmt::join(ways, "; ")));
}

}  // namespace lariat
