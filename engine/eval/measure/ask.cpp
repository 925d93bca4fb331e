#include "engine/eval/measure/ask.h"

#include <fmt/format.h>

#include <algorithm>
#include <tuple>

#include "engine/contexts/memory_check.h"
#include "engine/runtime/scheduler.h"
#include "kernels/counted.h"

namespace lariat {
namespace {

// Rows that run together if no answer may be lost.
constexpr size_t kAtOnce = Scheduler::kSameBitsRows;

void shuffle(std::vector<BenchmarkRow>& rows) {
  NeedleRandom random(/*seed=*/0, std::ssize(rows), 0, 0);
  for (size_t i = rows.size(); i-- > 1;)
    std::swap(rows[i], rows[static_cast<size_t>(random.below(static_cast<int64_t>(i) + 1))]);
}

}  // namespace

std::string_view name_of(Verdict verdict) {
  constexpr std::string_view kNames[] = {"not decided", "better", "worse", "excluded"};
  return kNames[static_cast<size_t>(verdict)];
}

Asking::Asking(const Schedule& schedule, std::vector<BenchmarkRow> rows, const AskOptions& options,
               MeasurementLog* log)
    : schedule_(schedule), options_(options), log_(log), rows_(std::move(rows)) {
  binary_ = std::ranges::all_of(rows_, [&](const BenchmarkRow& row) {
    return lariat::is_binary(options.rows.metric, row.references.size());
  });
  if (options.stop) shuffle(rows_);
  if (log != nullptr) {
    for (const Record& record : log->contents().records) {
      if (const auto* kept = std::get_if<RowAnswer>(&record.value))
        known_.emplace(record.key(), kept->answer);
    }
  }
  const Engine& engine = schedule.engine();
  std::vector<Session*> sessions;
  for (const Column& column : schedule.plan().columns) {
    columns_.push_back({.column = column});
    const RopeScaling rope = schedule.scaling_for(column, length());
    if (rope.type != RopeType::kDefault) columns_.back().rope_factor = rope.factor;
    sessions_.push_back(std::make_unique<Session>(engine.model, *engine.backend,
                                                  schedule.session_for({Kind::kAnswer, column, length()})));
    sessions_.back()->prefixes().keep_at_most(length() / kKvPage + 1);  // of one text
    sessions.push_back(sessions_.back().get());
  }
  check_memory(sessions, length(), 1, fmt::format("a row of {}", counted(length(), "token")));
  const auto comparisons = static_cast<double>(std::max<size_t>(columns_.size() - 1, 1));
  alpha_ = options.stop.value_or(1) / comparisons;
  sequences_.assign(columns_.size(), PairedSequence(alpha_));
}

bool Asking::run(const MeasureProgressFn& progress) {
  const size_t most = log_ != nullptr || options_.stop ? 1 : kAtOnce;
  for (size_t first = 0; first < rows_.size() && !decided(); first += most) {
    const size_t n = std::min(most, rows_.size() - first);
    for (size_t i = 0; i < columns_.size(); ++i) {
      AskedColumn& column = columns_[i];
      if (column.verdict != Verdict::kUndecided) continue;
      if (progress)
        progress(static_cast<double>(first) / static_cast<double>(rows_.size()),
                 fmt::format("row {} of {}, {}  ", first + 1, rows_.size(), column.column.name()));
      if (!ask(i, first, n)) return false;
      if (options_.stop && i > 0) decide(i);
    }
  }
  return true;
}

bool Asking::decided() const {
  return columns_.size() > 1 &&
         std::ranges::none_of(columns_.begin() + 1, columns_.end(), [](const AskedColumn& column) {
           return column.verdict == Verdict::kUndecided;
         });
}

// Asks rows [first, first + n), unless the log knows the answers.
bool Asking::ask(size_t column, size_t first, size_t n) {
  AskedColumn& asked = columns_[column];
  std::vector<double> scores(n);
  std::vector<bool> empty(n);
  const auto rows = std::span(rows_).subspan(first, n);
  const auto take = [&](size_t i, const std::string& answer) {
    scores[i] = row_score(rows[i], options_.rows.metric, answer);
    empty[i] = is_empty_answer(answer);
  };
  const auto known = known_.find(Record{asked.column, length(), rows[0].id}.key());
  if (known != known_.end()) {
    take(0, known->second);
  } else {
    const Measurement what{.kind = Kind::kAnswer,
                           .column = asked.column,
                           .lengths = {length()},
                           .codec = &schedule_.codec(),
                           .rows = rows,
                           .answers = options_.rows,
                           .log = log_};
    const auto sink = [&](const Measured& measured) {
      const auto& found = std::get<RowAnswer>(measured.record.value);
      for (size_t i = 0; i < n; ++i) {
        if (std::tie(rows[i].id.file, rows[i].id.line) == std::tie(found.file, found.line))
          take(i, found.answer);
      }
    };
    if (!measure(*sessions_[column], what, sink)) return false;
  }
  asked.scores.insert(asked.scores.end(), scores.begin(), scores.end());
  asked.empty.insert(asked.empty.end(), empty.begin(), empty.end());
  return true;
}

// Compares the last row's scores and everything before.
void Asking::decide(size_t column) {
  AskedColumn& asked = columns_[column];
  PairedSequence& sequence = sequences_[column];
  sequence.add(asked.scores.back(), columns_[0].scores.back());
  int64_t only = 0, only_first = 0;
  double sum = 0;
  for (size_t i = 0; i < asked.scores.size(); ++i) {
    const double difference = asked.scores[i] - columns_[0].scores[i];
    only += difference > 0 ? 1 : 0;
    only_first += difference < 0 ? 1 : 0;
    sum += difference;
  }
  SequencePoint& at = asked.sequence.emplace_back();
  std::tie(at.low, at.high) = sequence.interval();
  at.difference = sum / static_cast<double>(asked.scores.size());
  at.e_value = binary_ ? discordant_e_value(only, only_first) : sequence.e_value();
  const bool shown = at.e_value >= threshold();
  if (shown) asked.verdict = sum > 0 ? Verdict::kBetter : Verdict::kWorse;
  if (!shown && sequence.excluded(options_.margin)) asked.verdict = Verdict::kExcluded;
}

}  // namespace lariat
