#include "engine/eval/measure/measure.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <memory>
#include <utility>

#include "engine/eval/measure/divergence.h"
#include "engine/eval/measure/run_log.h"
#include "engine/stopwatch.h"

namespace lariat {
namespace {

class Measuring {
 public:
  Measuring(Session& session, const Measurement& what, const Sink& sink, const MeasureProgressFn& progress)
      : session_(session), what_(what), sink_(sink), progress_(progress) {}

  bool run() {
    if (what_.kind == Kind::kPasskey) return passkeys();
    if (what_.kind == Kind::kDivergence) return divergences();
    if (what_.kind == Kind::kAnswer) return answers();
    if (what_.kind != Kind::kSpeed) return losses();
    for (const int64_t length : what_.lengths) speed(length);
    return true;
  }

 private:
  void show(double share, const std::string& note) const {
    if (progress_) progress_(share, note);
  }

  // Time since the last result.
  Timing timing() { return {.seconds = seconds_since(std::exchange(start_, Stopwatch::now()))}; }

  bool losses() {
    PerplexityOptions options = what_.losses;
    options.ctx = what_.lengths;
    std::optional<LossJournal> journal;
    if (what_.log != nullptr) {
      journal.emplace(*what_.log, what_.column, std::ranges::max(what_.lengths), what_.of, what_.asked_for);
      options.journal = &*journal;
    }
    const auto results =
        measure_perplexity(session_, *what_.text, options, [&](const PerplexityProgress& at) {
          std::string note;
          for (const auto& result : at.results)
            note += fmt::format("ppl({}) {:.3f}  ", result.ctx, result.ppl());
          show(at.share(), note);
        });
    for (const PerplexityResult& result : results) {
      Record record = record_of(result, what_.column);
      record.timing = timing();
      if (auto* grown = std::get_if<Growing>(&record.value)) {
        const RopeScaling& rope = session_.rope();
        if (needs_factor(rope.type) && rope.factor > 1) grown->factor = rope.factor;
        grown->text_tokens = what_.text->size();
        grown->holds = result.ctx - std::ssize(options.bos);
      }
      sink_({record, result.complete, &result.losses});
    }
    return results.front().complete;
  }

  // Restores earlier answers and logs new ones.
  void keep_answers(PasskeyOptions& options, int64_t length) const {
    MeasurementLog& log = *what_.log;
    const auto of_trial = [column = what_.column, length, task = options.needles.task](double depth,
                                                                                       int64_t trial) {
      return Record{column, length, Retrieval{.depth = depth, .task = task, .trial = trial, .trials = 1}};
    };
    const auto answers = std::make_shared<std::map<std::string, std::string>>();
    for (const Record& record : log.contents().records) {
      const auto* found = std::get_if<Retrieval>(&record.value);
      if (found != nullptr && found->answer) answers->emplace(record.key(), *found->answer);
    }
    options.known = [=](double depth, int64_t trial) -> std::optional<std::string> {
      const auto found = answers->find(of_trial(depth, trial).key());
      if (found == answers->end()) return std::nullopt;
      return found->second;
    };
    options.on_trial = [=, &log](const PasskeyCell& cell, int64_t trial) {
      const PasskeyTrial& answered = cell.trials[static_cast<size_t>(trial)];
      Record record = of_trial(cell.depth, trial);
      auto& found = std::get<Retrieval>(record.value);
      found.correct = answered.correct() ? 1 : 0;
      found.recall = answered.recall();
      found.answer = answered.answer;
      log.append(record);
    };
  }

  bool passkeys() {
    PasskeyOptions options = what_.passkeys;
    double total = 0, before = 0, found = 0, trials = 0;
    for (const int64_t length : what_.lengths) total += static_cast<double>(length);
    for (const int64_t length : what_.lengths) {
      if (what_.log != nullptr) keep_answers(options, length);
      const auto on_cell = [&](const PasskeyCell& cell) {
        found += cell.recall();
        trials += static_cast<double>(cell.trials.size());
        Record record = record_of(cell, what_.column, options.needles.task);
        record.timing = timing();
        sink_({.record = record, .cell = &cell});
      };
      const auto at = [&](double part) {
        const std::string share = trials > 0 ? fmt::format(", found {:.0f} %", 100 * found / trials) : "";
        show((before + part * static_cast<double>(length)) / total,
             fmt::format("{} tokens{}  ", length, share));
      };
      if (!measure_passkey(session_, *what_.codec, length, options, on_cell, at)) return false;
      before += static_cast<double>(length);
    }
    return true;
  }

  bool answers() {
    const auto keep = [&](const RowAnswer& answer, double seconds) {
      Record record{what_.column, what_.lengths.front(), answer, {}, Timing{.seconds = seconds}};
      if (session_.rope().type != RopeType::kDefault) record.rope_factor = session_.rope().factor;
      if (what_.log != nullptr) what_.log->append(record);
      sink_({.record = record});
    };
    return answer_rows(session_, *what_.codec, what_.rows, what_.answers, keep);
  }

  void speed(int64_t length) {
    const auto read = [&](Sequence& sequence, std::span<const int32_t> tokens) {
      to_host(session_.backend(), forward(session_, {&sequence, tokens}));
    };
    const std::vector<int32_t> tokens = some_tokens(length, session_.model().spec.vocab_size);
    {
      Sequence warm = session_.new_sequence();  // warms up pages, threads and packed weights
      read(warm, std::span(tokens).first(std::min<size_t>(tokens.size(), 64)));
      read(warm, std::span(tokens).first(1));
    }
    Sequence sequence = session_.new_sequence();
    auto start = Stopwatch::now();
    read(sequence, tokens);
    const double prefill = seconds_since(start);
    start = Stopwatch::now();
    for (int i = 0; i < kSpeedSteps; ++i)
      read(sequence, std::span(tokens).subspan(static_cast<size_t>(i) % tokens.size(), 1));
    const double decode = seconds_since(start);
    const KvCache& cache = sequence.cache();
    const Timing timing{.prefill_tok_s = static_cast<double>(length) / prefill,
                        .decode_tok_s = kSpeedSteps / decode,
                        .rerotation_s = cache.rerotations().seconds};
    const Speed speed{static_cast<int64_t>(cache.bytes()), cache.rerotations().count};
    const Record record{what_.column, length, speed, {}, timing};
    sink_({.record = record});
  }

  bool divergences() {
    PerplexityOptions options = what_.losses;
    const bool grows = options.method == PerplexityMethod::kGrowing;
    for (const int64_t length : what_.lengths) {
      Record record = Record::of({Kind::kDivergence, what_.column, length});
      if (what_.log != nullptr) {
        const std::vector<Record>& kept = what_.log->contents().records;
        if (const auto known = std::ranges::find(kept, record.key(), &Record::key); known != kept.end()) {
          sink_({.record = *known});
          continue;
        }
      }
      options.ctx = {length};
      const DivergenceResult result = measure_divergence(
          session_, *what_.reference, *what_.text, options, what_.threads, [&](int64_t position) {
            show(static_cast<double>(position) / static_cast<double>(what_.text->size()),
                 fmt::format("{}  ", length));
          });
      record.value = divergence_of(result, grows ? bucket_ends(options, 0, length) : std::vector<int64_t>());
      if (what_.log != nullptr && result.complete) what_.log->append(record);
      sink_({record, result.complete});
      if (!result.complete) return false;
    }
    return true;
  }

  Session& session_;
  const Measurement& what_;
  const Sink& sink_;
  const MeasureProgressFn& progress_;
  Stopwatch::time_point start_ = Stopwatch::now();
};

}  // namespace

bool measure(Session& session, const Measurement& what, const Sink& sink, const MeasureProgressFn& progress) {
  return Measuring(session, what, sink, progress).run();
}

Record record_of(const PerplexityResult& result, const Column& column) {
  Growing losses{loss_of(result, result.stride > 0 ? std::optional(result.stride) : std::nullopt)};
  losses.positions = losses_of(result.positions);
  if (result.method == PerplexityMethod::kGrowing) return {column, result.ctx, losses};
  return {column, result.ctx, static_cast<Loss>(losses)};
}

Record record_of(const PasskeyCell& cell, const Column& column, NeedleTask task) {
  Retrieval found{.depth = cell.depth, .trials = std::ssize(cell.trials), .correct = cell.correct()};
  if (task != NeedleTask::kPasskey) found.recall = cell.recall();
  return {column, cell.length, found};
}

}  // namespace lariat
