#include <algorithm>
#include <cmath>
#include <memory>
#include <numeric>
#include <tuple>
#include <utility>

#include "engine/eval/measure/sweep.h"
#include "engine/interrupt.h"
#include "kernels/error.h"

namespace lariat {
namespace {

using Json = nlohmann::ordered_json;

// Contexts that reused columns continue, in the session of their prefill.
struct Reused {
  std::unique_ptr<Session> session{};
  Prefixes prefixes{};
};

class Runner {
 public:
  Runner(const Schedule& schedule, MeasurementLog& log, const Unit& unit, Reused& reused,
         std::function<void(double done)> progress)
      : schedule_(schedule), log_(log), unit_(unit), reused_(reused), progress_(std::move(progress)) {}

  bool run() {
    const auto* interrupted = schedule_.options().interrupted;
    if (interrupted != nullptr && interrupted->load()) return false;
    if (copy_equal()) return true;
    std::optional<Session> own;
    if (!unit_.column.reused)
      own.emplace(schedule_.engine().model, *schedule_.engine().backend, schedule_.session_for(unit_));
    Measurement what{.kind = unit_.kind,
                     .column = unit_.column,
                     .lengths = {unit_.length},
                     .text = schedule_.text(),
                     .codec = &schedule_.codec(),
                     .passkeys = schedule_.options().passkeys,
                     .of = unit_.kind,
                     .asked_for = false};
    const auto have = log_.contents().keys();
    std::erase_if(what.passkeys.depths, [&](double depth) {
      return have.contains(Record{unit_.column, unit_.length, Retrieval{.depth = depth}}.key());
    });
    std::optional<MeasurementLog> part;
    if (reads()) {
      what.losses = schedule_.perplexity_options(unit_);
      if (unit_.column.reused && !prefill(what.losses)) return false;
      open(part);
      what.log = part ? &*part : nullptr;
    }
    const bool complete = measure(
        own ? *own : *reused_.session, what, [&](const Measured& measured) { keep(measured); },
        [&](double share, const std::string&) { progress_(share); });
    if (complete && part) remove(*part);
    return complete;
  }

 private:
  // Before the column's time is measured. Returns false if interrupted.
  bool prefill(PerplexityOptions& options) {
    const Unit base{unit_.kind, *schedule_.plan().perplexity.prefill, unit_.length};
    if (reused_.prefixes.ctx != unit_.length) {
      reused_.prefixes = {};  // before their session
      reused_.session = std::make_unique<Session>(schedule_.engine().model, *schedule_.engine().backend,
                                                  schedule_.session_for(base));
    }
    options.rope = schedule_.scaling_for(unit_.column, unit_.length);
    options.prefixes = &reused_.prefixes;
    return uninterrupted(
        [&] { fill_prefixes(*reused_.session, *schedule_.text(), options, unit_.length, reused_.prefixes); });
  }

  void append(Record record) {
    const RopeScaling rope = schedule_.scaling_for(record.column, record.length);
    record.rope_factor.reset();
    if (rope.type != RopeType::kDefault) record.rope_factor = rope.factor;
    log_.append(record);
  }

  bool copy_equal() {
    for (const Unit& equal : schedule_.equals_of(unit_)) {
      if (!log_.contents().missing({equal}).empty()) continue;
      if (schedule_.options().on_losses && unit_.kind != Kind::kPasskey) {
        Json line = to_json(unit_);
        line.update({{"same_as", to_json(equal)}});
        schedule_.options().on_losses(line);
      }
      auto have = log_.contents().keys();
      for (Record record : std::vector(log_.contents().records)) {
        if (record.unit() != equal) continue;
        if (equal.kind != unit_.kind) {
          Loss loss = *record.loss();
          loss.stride = schedule_.stride_of(unit_.length);
          loss.positions.clear();
          record.value = loss;
        }
        record.column = unit_.column;
        record.timing.reset();
        if (have.insert(record.key()).second) append(record);
      }
      return true;
    }
    return false;
  }

  bool reads() const { return unit_.kind == Kind::kPerplexity || unit_.kind == Kind::kGrowing; }

  // Saves the unit's finished losses next to the log, if the file can be written.
  void open(std::optional<MeasurementLog>& part) const {
    try {
      part.emplace(part_file(log_.file()), log_.contents().plan, /*resume=*/true);
    } catch (const Error&) {
      part.reset();
    }
  }

  // Unless it has losses of other units.
  void remove(const MeasurementLog& part) const {
    const auto is_other = [&](const Record& kept) {
      const auto* losses = std::get_if<LossPart>(&kept.value);
      return losses != nullptr && std::tie(kept.column, kept.length, losses->of) !=
                                      std::tuple(unit_.column, unit_.length, unit_.kind);
    };
    std::error_code ec;
    if (std::ranges::none_of(part.contents().records, is_other)) std::filesystem::remove(part.file(), ec);
  }

  void keep(const Measured& measured) {
    if (!measured.complete) return;
    Record record = measured.record;
    if (auto* loss = std::get_if<Loss>(&record.value)) {
      if (schedule_.options().reuse.empty()) loss->stride = schedule_.stride_of(unit_.length);
      loss->positions.clear();
    }
    // Before the record: a killed run has either both or measures again.
    if (schedule_.options().on_losses && measured.losses != nullptr) {
      Json line = to_json(unit_);
      line.update({{"losses", losses_json(*measured.losses)}});
      schedule_.options().on_losses(line);
    }
    append(std::move(record));
  }

  const Schedule& schedule_;
  MeasurementLog& log_;
  const Unit& unit_;
  Reused& reused_;
  std::function<void(double done)> progress_;
};

}  // namespace

bool run_sweep(const Schedule& schedule, const Pace& pace, MeasurementLog& log,
               const SweepProgressFn& progress) {
  const std::vector<Unit> left = log.contents().missing(schedule.units());
  const std::vector<double> seconds = schedule.seconds_for(left, log.contents(), pace);
  const double total = std::max(std::accumulate(seconds.begin(), seconds.end(), 0.0), 1e-9);
  double before = 0;
  Reused reused;
  for (size_t i = 0; i < left.size(); ++i) {
    const auto report = [&](double part) {
      const auto length = static_cast<double>(left[i].length);
      // Later tokens of a context take longer.
      if (left[i].kind == Kind::kGrowing) part = pace.reading(0, part * length) / pace.reading(0, length);
      if (progress) progress({left[i], i, left.size(), (before + part * seconds[i]) / total});
    };
    report(0);
    if (!Runner(schedule, log, left[i], reused, report).run()) return false;
    before += seconds[i];
  }
  std::error_code ec;
  if (is_measurement_log(part_file(log.file()))) std::filesystem::remove(part_file(log.file()), ec);
  return true;
}

}  // namespace lariat
