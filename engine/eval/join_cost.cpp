#include "engine/eval/join_cost.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <iterator>
#include <span>
#include <utility>

#include "engine/generate.h"
#include "engine/interrupt.h"
#include "engine/join_contexts.h"
#include "engine/memory_check.h"
#include "engine/saved_context.h"
#include "engine/stopwatch.h"
#include "kernels/counted.h"
#include "kernels/error.h"
#include "kernels/integers.h"
#include "kernels/step.h"

namespace lariat {
namespace {

// One number of parts.
class JoinRun {
 public:
  JoinRun(Session& session, const TextCodec& codec, const JoinCostOptions& options, int64_t n_parts)
      : session_(session), codec_(codec), options_(options), n_parts_(n_parts) {
    costs.push_back({n_parts, kAnew});
    for (const std::string& join : options.joins) {
      if (join != kAnew) costs.push_back({n_parts, join});
    }
    costs.push_back({n_parts, kLastPart});
  }

  int64_t tokens() const { return n_parts_ * options_.part_tokens; }

  void read(std::span<const int32_t> text, std::span<const int32_t> next) {
    const std::vector<OpenedContext> parts = read_apart(text);
    std::optional<Sequence> anew;
    for (JoinCost& cost : costs) {
      Sequence sequence = join(cost, parts, next);
      if (!anew) anew = session_.fork(sequence, sequence.length());
      compare_continuations(session_, std::move(sequence), session_.fork(*anew, anew->length()), next,
                            options_.interrupted, cost.next);
    }
  }

  // The ids of the parts' text, and the question behind it.
  std::vector<int32_t> prompt(const PasskeyPrompts& prompts, const Needles& needles) const {
    const auto question = codec_.encode("\n" + needles.question + " " + needles.answer);
    auto ids = prompts.build(tokens() + std::ssize(question), needles);
    ids.erase(ids.begin(), ids.begin() + std::ssize(options_.bos));
    return ids;
  }

  Needles hidden(double depth, int64_t trial) const {
    const auto n = static_cast<double>(n_parts_), part = std::min(std::floor(depth * n), n - 1);
    return needles_of(options_.passkeys, tokens(), (part + 0.5) / n, trial);
  }

  void find(const PasskeyPrompts& prompts, double depth, int64_t trial) {
    const Needles needles = hidden(depth, trial);
    const std::vector<int32_t> ids = prompt(prompts, needles);
    const auto question = std::span(ids).subspan(static_cast<size_t>(tokens()));
    const std::vector<OpenedContext> parts = read_apart(std::span(ids).first(ids.size() - question.size()));
    GenerateOptions greedy;
    greedy.max_new_tokens = options_.passkeys.max_new_tokens;
    greedy.eos_ids = options_.passkeys.eos_ids;
    greedy.whatever = true;
    for (JoinCost& cost : costs) {
      Sequence sequence = join(cost, parts, question);
      const Generation answer = generate(session_, sequence, question, greedy, [&](int32_t) {
        stop_if(options_.interrupted);
        return true;
      });
      PasskeyTrial trial_done{.answer = codec_.decode(answer.tokens), .expected = needles.expected};
      trial_done.found = found_in(options_.passkeys.needles.task, trial_done.answer, needles.expected);
      cost.passkeys.trials.push_back(std::move(trial_done));
    }
  }

  std::vector<JoinCost> costs;

 private:
  std::vector<OpenedContext> read_apart(std::span<const int32_t> text) {
    std::vector<OpenedContext> parts;
    for (const auto n = static_cast<size_t>(options_.part_tokens); !text.empty(); text = text.subspan(n)) {
      std::vector<int32_t> part = options_.bos;
      part.insert(part.end(), text.begin(), text.begin() + options_.part_tokens);
      Sequence sequence = session_.new_sequence();
      forward(session_, {&sequence, part, std::ssize(part)}, {}, stop_);
      parts.push_back(keep_context(session_, sequence, part));
    }
    return parts;
  }

  // Reads next's first token, too, and forgets it.
  Sequence join(JoinCost& cost, std::span<const OpenedContext> parts, std::span<const int32_t> next) {
    const bool alone = cost.join == kLastPart;
    const auto start = Stopwatch::now();
    SavedContext joined = join_contexts(session_, alone ? parts.last(1) : parts,
                                        alone ? JoinOptions() : parse_join(cost.join), options_.bos, stop_);
    const int64_t length = joined.sequence.length();
    joined.sequence.expect(length + std::ssize(next));  // a dynamic scale is that of all that will be read
    forward(session_, {&joined.sequence, next.first(1)});
    cost.seconds.push_back(seconds_since(start));
    joined.sequence.rewind(length);
    return std::move(joined.sequence);
  }

  Session& session_;
  const TextCodec& codec_;
  const JoinCostOptions& options_;
  int64_t n_parts_;
  Session::ProgressFn stop_ = [this](int64_t) { stop_if(options_.interrupted); };
};

void check_join_cost(Session& session, const TextCodec& codec, const TokenSource& text,
                     const JoinCostOptions& options) {
  for (const std::string& join : options.joins)
    check_join(session.options().positions, session.options().stale_cache, parse_join(join));
  const auto [least, most] = std::ranges::minmax(options.parts);
  const int64_t all = most * options.part_tokens + options.next_tokens;
  const std::string parts = fmt::format("{} of {} and {} behind them", counted(most, "part"),
                                        counted(options.part_tokens, "token"), options.next_tokens);
  if (text.size() < all)
    throw Error(fmt::format("{}, and {} take {}; use a longer text, or fewer or shorter parts",
                            text.size_in_words(), parts, all));
  check_length(session.options(), all + std::ssize(options.bos));
  const int64_t in_pages =
      most * round_up(options.part_tokens + std::ssize(options.bos), kKvPage) + options.next_tokens;
  check_memory(session, in_pages, 3, parts);  // apart, joined and anew
  if (!options.find) return;
  const JoinRun shortest(session, codec, options, least);
  shortest.prompt(PasskeyPrompts(codec, options.passkeys.hay), shortest.hidden(0.5, 0));
}

}  // namespace

double JoinCost::median_seconds() const {
  std::vector<double> sorted = seconds;
  std::ranges::sort(sorted);
  return sorted[sorted.size() / 2];
}

bool measure_join_cost(Session& session, const TextCodec& codec, const TokenSource& text,
                       const JoinCostOptions& options, std::vector<JoinCost>& costs,
                       const std::function<void(double done)>& progress) {
  check_join_cost(session, codec, text, options);
  const PasskeyPrompts prompts(codec, options.passkeys.hay);
  const std::vector<double> depths = options.find ? options.passkeys.depths : std::vector<double>();
  const int64_t before = std::ranges::max(options.parts) * options.part_tokens;
  double total = 0, done = 0;
  for (const int64_t n : options.parts)
    total += static_cast<double>(n) * static_cast<double>(1 + std::ssize(depths) * options.passkeys.trials);
  return uninterrupted([&] {
    for (const int64_t n : options.parts) {
      JoinRun run(session, codec, options, n);
      const auto advance = [&] {
        done += static_cast<double>(n);
        if (progress) progress(done / total);
      };
      run.read(text.range(before - run.tokens(), before), text.range(before, before + options.next_tokens));
      advance();
      for (const double depth : depths) {
        for (int64_t trial = 0; trial < options.passkeys.trials; ++trial) {
          run.find(prompts, depth, trial);
          advance();
        }
      }
      std::ranges::move(run.costs, std::back_inserter(costs));
    }
  });
}

}  // namespace lariat
