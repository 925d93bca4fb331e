#include "engine/eval/measure/passkey.h"

#include <fmt/core.h>

#include <algorithm>
#include <utility>

#include "engine/contexts/memory_check.h"
#include "engine/eval/measure/rows.h"
#include "engine/interrupt.h"
#include "engine/runtime/request.h"
#include "kernels/error.h"

namespace lariat {
namespace {

// Estimated cost of one decoded token, in prefilled tokens.
constexpr int64_t kAnswerToken = 8;

// Prompts of one depth.
struct Group {
  PasskeyCell cell;
  std::vector<int32_t> first{};      // prompt of the first trial
  std::vector<BenchmarkRow> rows{};  // trials to run; the line is the trial
  int64_t shared = 0;                // common prefix of all prompts, in whole pages
};

void take_answer(PasskeyTrial& trial, NeedleTask task, std::string answer) {
  trial.answer = std::move(answer);
  trial.found = found_in(task, trial.answer, trial.expected);
}

Group make_group(const PasskeyPrompts& maker, int64_t length, double depth, const PasskeyOptions& options) {
  Group group{{length, depth, {}}};
  int64_t shared = length - 1;  // the last token is never shared: its logits start the answer
  for (int64_t trial = 0; trial < options.trials; ++trial) {
    Needles needles = needles_of(options, length, depth, trial);
    std::vector<int32_t> prompt = maker.build(length, needles);
    if (trial == 0) group.first = prompt;
    shared = std::min(shared, common_prefix(group.first, prompt));
    PasskeyTrial& made = group.cell.trials.emplace_back(PasskeyTrial{.expected = needles.expected});
    if (auto answer = options.known ? options.known(depth, trial) : std::nullopt) {
      take_answer(made, options.needles.task, std::move(*answer));
    } else {
      group.rows.push_back({.id = {.line = trial},
                            .prompt = std::move(prompt),
                            .references = std::move(needles.expected),
                            .max_new_tokens = options.max_new_tokens});
    }
  }
  group.shared = shared / kKvPage * kKvPage;
  return group;
}

class LengthRun {
 public:
  LengthRun(Session& session, const TextCodec& codec, int64_t length, const PasskeyOptions& options,
            const PasskeyProgressFn& progress)
      : session_(session),
        codec_(codec),
        length_(length),
        options_(options),
        progress_(progress),
        base_(session.new_sequence()) {
    base_.expect(length);
    const PasskeyPrompts maker(codec, options.hay);
    for (const double depth : options.depths) groups_.push_back(make_group(maker, length, depth, options));
    for (const auto& group : groups_) {
      total_ += cost(group) * static_cast<int64_t>(group.rows.size());
      if (!group.rows.empty()) deepest_ = group.shared;
    }
    total_ += deepest_;
  }

  void run(const PasskeyCellFn& on_cell) {
    for (auto& group : groups_) {
      if (!group.rows.empty()) answer(group);
      on_cell(group.cell);
    }
    if (progress_) progress_(1);
  }

 private:
  int64_t cost(const Group& group) const {  // per trial, in prefilled tokens
    return length_ - group.shared + kAnswerToken * options_.max_new_tokens;
  }

  void advance(int64_t tokens) {
    stop_if(options_.interrupted);
    done_ += tokens;
    if (progress_) progress_(std::min(0.999, static_cast<double>(done_) / static_cast<double>(total_)));
  }

  void extend_base(const Group& group) {
    const std::span<const int32_t> wanted = std::span(group.first).first(static_cast<size_t>(group.shared));
    base_.truncate(common_prefix(base_tokens_, wanted) / kKvPage * kKvPage);
    while (base_.length() < group.shared) {
      forward(session_, {&base_, wanted.subspan(static_cast<size_t>(base_.length()), kKvPage), kKvPage});
      advance(kKvPage);
    }
    base_tokens_.assign(wanted.begin(), wanted.end());
  }

  void answer(Group& group) {
    extend_base(group);
    const NeedleTask task = options_.needles.task;
    int64_t before = 0;
    const RowOptions options{
        .metric = metric_of(task),
        .eos_ids = options_.eos_ids,
        .interrupted = options_.interrupted,
        .common = &base_,
        .on_prefill = [&](int64_t tokens) { advance(tokens - std::exchange(before, tokens)); }};
    const auto take = [&](const RowAnswer& answer, double) {
      take_answer(group.cell.trials[static_cast<size_t>(answer.line)], task, answer.answer);
      if (options_.on_trial) options_.on_trial(group.cell, answer.line);
      advance(kAnswerToken * options_.max_new_tokens);
    };
    const size_t at_once = options_.on_trial ? 1 : group.rows.size();
    for (size_t i = 0; i < group.rows.size(); i += at_once, before = 0) {
      const auto rows = std::span(group.rows).subspan(i, at_once);
      if (!answer_rows(session_, codec_, rows, options, take)) throw Interrupted();
    }
  }

  Session& session_;
  const TextCodec& codec_;
  int64_t length_;
  const PasskeyOptions& options_;
  const PasskeyProgressFn& progress_;
  std::vector<Group> groups_;
  Sequence base_;
  std::vector<int32_t> base_tokens_;
  int64_t deepest_ = 0, total_ = 0, done_ = 0;
};

}  // namespace

double PasskeyTrial::recall() const {
  return static_cast<double>(found.size()) / static_cast<double>(expected.size());
}

int64_t PasskeyCell::correct() const { return std::ranges::count_if(trials, &PasskeyTrial::correct); }

double PasskeyCell::recall() const {
  double sum = 0;
  for (const auto& trial : trials) sum += trial.recall();
  return sum;
}

Needles needles_of(const PasskeyOptions& options, int64_t length, double depth, int64_t trial) {
  return make_needles(options.needles, depth, NeedleRandom(options.seed, length, depth, trial));
}

bool measure_passkey(Session& session, const TextCodec& codec, int64_t length, const PasskeyOptions& options,
                     const PasskeyCellFn& on_cell, const PasskeyProgressFn& progress) {
  check_memory(session, length + options.max_new_tokens, 2, fmt::format("`lengths` {}", length));
  return uninterrupted([&] { LengthRun(session, codec, length, options, progress).run(on_cell); });
}

}  // namespace lariat
