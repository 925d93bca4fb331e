#include "engine/eval/render/results_csv.h"

#include <fmt/format.h>

#include <cmath>

#include "engine/eval/verdict.h"
#include "models/text/unicode.h"

namespace lariat {
namespace {

using Json = nlohmann::ordered_json;

std::string quoted(const std::string& text) {
  if (text.find_first_of(",\"\r\n") == std::string::npos) return text;
  return "\"" + replace_all(text, "\"", "\"\"") + "\"";
}

std::string field(const Json& value) {
  if (value.is_string()) return quoted(value.get<std::string>());
  if (value.is_boolean()) return value.dump();
  return value.is_number() && std::isfinite(value.get<double>()) ? value.dump() : "";
}

struct CsvRow {
  const char* unit;
  Json value, error{}, low{}, high{}, count{}, from{}, to{}, than{};
};

class Csv {
 public:
  explicit Csv(const Plan& plan) : plan_(plan) {}

  void add(const Record& record) {
    if (const Loss* loss = record.loss()) return add_losses(record, *loss);
    if (const auto* found = std::get_if<Retrieval>(&record.value)) return add_found(record, *found);
    if (const auto* divergence = std::get_if<Divergence>(&record.value)) {
      add_figures(record, *divergence, /*all=*/true);
      for (const DivergenceFigures& part : divergence->positions) add_figures(record, part, /*all=*/false);
    }
    const auto* speed = std::get_if<Speed>(&record.value);
    if (speed == nullptr) return;
    const Timing timing = record.timing.value_or(Timing{});
    add_row(record, "prefill_tok_s", {"tok/s", timing.prefill_tok_s.value_or(NAN)});
    add_row(record, "decode_tok_s", {"tok/s", timing.decode_tok_s.value_or(NAN)});
    add_row(record, "cache_bytes", {"bytes", speed->cache_bytes});
  }

  std::string text =
      "measure,scaling,position_method,stale,length,depth,from,to,value,error,count,factor,model,weights,"
      "dtype,cache_dtype,text,task,than,activations,window_method,stride,step,chat,seed,trials,low,high,"
      "unit,settings,prefill\n";

  void add(const Difference& difference) {
    const auto& [kind, a, b, length, range, gap, count, shown] = difference;
    const bool shares = kind == Kind::kPasskey;
    const double ratio = std::exp(gap.value);
    CsvRow row{"ratio", ratio, ratio * gap.error, std::exp(gap.low_95), std::exp(gap.high_95)};
    if (shares) row = {"share", gap.value, {}, gap.low_95, gap.high_95};
    if (range) row.from = range->from, row.to = range->to;
    row.than = a.name();
    row.count = count;
    Record record = Record::of({kind, b, length});
    if (auto* found = std::get_if<Retrieval>(&record.value)) found->depth = NAN;
    add_row(record, std::string(shares ? name_of(plan_.passkey.task) : name_of(kind)) + "_difference", row);
  }

 private:
  void add_row(const Record& record, std::string_view measure, const CsvRow& row) {
    const Labels labels = labels_of(plan_, record);
    const auto* found = std::get_if<Retrieval>(&record.value);
    for (const Json& value : {Json(measure),
                              Json(labels.rope_scaling),
                              Json(labels.position_method),
                              Json(labels.stale),
                              Json(record.length),
                              found != nullptr ? Json(found->depth) : Json(),
                              row.from,
                              row.to,
                              row.value,
                              row.error,
                              row.count,
                              json_of(labels.rope_factor),
                              Json(labels.model),
                              json_of(labels.weights),
                              Json(labels.dtype),
                              Json(labels.cache_dtype),
                              json_of(labels.text),
                              json_of(labels.task),
                              row.than,
                              json_of(labels.activations),
                              json_of(labels.window_method),
                              json_of(labels.stride),
                              json_of(labels.step),
                              json_of(labels.chat),
                              json_of(labels.seed),
                              json_of(labels.trials),
                              row.low,
                              row.high,
                              Json(row.unit),
                              Json(labels.settings),
                              json_of(labels.prefill)})
      text += field(value) + ",";
    text.back() = '\n';
  }
  template <class T>
  static Json json_of(const std::optional<T>& value) {
    return value ? Json(*value) : Json();
  }

  void add_losses(const Record& record, const Loss& loss) {
    const std::string_view kind = name_of(record.kind());
    const auto row = [](double ppl, double error, int64_t tokens) {
      const double times = std::exp(k95 * error / ppl);
      return CsvRow{"perplexity", ppl, error, ppl / times, ppl * times, tokens};
    };
    add_row(record, kind, row(loss.ppl, loss.error, loss.tokens));
    for (const PositionLoss& at : loss.positions) {
      if (at.tokens == 0) continue;
      CsvRow part = row(std::exp(at.loss), std::exp(at.loss) * at.error, at.tokens);
      part.from = at.from, part.to = at.to;
      add_row(record, kind, part);
    }
  }

  void add_figures(const Record& record, const DivergenceFigures& figures, bool all) {
    static constexpr const char* kUnits[] = {"perplexity", "perplexity", "ratio", "nats",  "nats",
                                             "nats",       "share",      "share", "share", "share"};
    for (size_t i = 0; figures.tokens > 0 && i < figures.all.size(); ++i) {
      const auto& [value, error] = figures.all[i];
      CsvRow row{kUnits[i], value, error.value_or(NAN), {}, {}, figures.tokens};
      if (error && i < 3) {  // exp of a mean
        const double times = std::exp(k95 * *error / value);
        row.low = value / times, row.high = value * times;
      } else if (error) {
        row.low = value - k95 * *error, row.high = value + k95 * *error;
      }
      if (!all) row.from = figures.from, row.to = figures.to;
      const Plan::Against& against = plan_.against.value_or(Plan::Against{});
      row.than = fmt::format("{}: {}", against.model.name, against.column.name());
      add_row(record, fmt::format("{}{}", i == 0 ? "divergence_" : "", kFigures[i]), row);
    }
  }

  void add_found(const Record& record, const Retrieval& found) {
    const NeedleTask task = found.task.value_or(plan_.passkey.task);
    const auto correct = static_cast<double>(found.correct), n = static_cast<double>(found.trials);
    const RetrievalValue value{found.trials, found.recall.value_or(correct)};
    const double share = value.share();
    const auto [low, high] = value.interval();
    add_row(record, name_of(task),
            {"share", share, std::sqrt(share * (1 - share) / n), low, high, found.trials});
  }

  const Plan& plan_;
};

}  // namespace

std::string results_csv(const Measurements& log, const SweepTable& table) {
  Csv csv(log.plan);
  for (const Record& record : log.records) csv.add(record);
  for (const Difference& difference : differences(table)) csv.add(difference);
  return csv.text;
}

}  // namespace lariat
