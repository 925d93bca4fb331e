#include "engine/eval/measurement.h"

#include <fmt/format.h>

#include <charconv>

#include "engine/contexts/fingerprint.h"
#include "engine/rope_options.h"
#include "kernels/error.h"
#include "models/positions/parse_position_method.h"
#include "models/spec/rope.h"

namespace lariat {
namespace {
constexpr std::string_view kStale = " stale", kReused = " reused", kFactor = "/factor=";
constexpr double kMostFactor = 1e6;
constexpr std::string_view kKinds[] = {"growing", "passkey",    "perplexity", "speed",
                                       "losses",  "divergence", "answer"};

// Key of all trials of a task at one depth.
std::string cell_key(const Unit& unit, double depth, NeedleTask task) {
  return Record{unit.column, unit.length, Retrieval{.depth = depth, .task = task}}.key();
}

}  // namespace

std::string_view name_of(Kind kind) { return kKinds[static_cast<size_t>(kind)]; }

std::optional<Kind> find_kind(std::string_view name) {
  const auto* const found = std::ranges::find(kKinds, name);
  if (found == std::end(kKinds)) return std::nullopt;
  return static_cast<Kind>(found - kKinds);
}

// --- columns ---

std::string Column::name() const {
  const std::string scaled = factor ? fmt::format("{}{}{}", scaling, kFactor, *factor) : scaling;
  std::string name = method.empty() ? scaled : method;
  if (!method.empty() && scaling != "none") name += "+" + scaled;
  name += reused ? kReused : "";
  return name += stale ? kStale : "";
}

Column Column::fresh() const {
  Column column = *this;
  column.stale = column.reused = false;
  return column;
}

void Column::read(std::string_view name) {
  stale = name.ends_with(kStale);
  if (stale) name.remove_suffix(kStale.size());
  reused = name.ends_with(kReused);
  if (reused) name.remove_suffix(kReused.size());
  const size_t plus = std::min(name.find('+'), name.size());
  std::string_view first = name.substr(0, plus), second = plus < name.size() ? name.substr(plus + 1) : "none";
  if (is_position_method(second)) std::swap(first, second);
  const bool known = is_position_method(first);
  if (known) method = first;
  scaling = known ? second : name;
  const size_t at = scaling.find(kFactor);
  if (at == std::string::npos) return;
  const char *digits = scaling.data() + at + kFactor.size(), *end = scaling.data() + scaling.size();
  double number = 0;
  const auto read = std::from_chars(digits, end, number);
  if (read.ptr != end || !(number >= 1 && number <= kMostFactor)) return;
  factor = number;
  scaling.resize(at);
}

Column parse_column(std::string_view name) {
  Column column = name;
  column.scaling = plain_scaling_name(column.scaling);
  const bool own = column.scaling == "none" || column.scaling == "model";
  if (own ? column.factor.has_value() : !find_rope_type(column.scaling)) {
    throw UsageError(fmt::format(
        "`scalings` {}: unknown; use a scaling ({}, model), also with a factor from 1 to {:.0f} as "
        "SCALING/factor=F, a position method ({}), or both as METHOD+SCALING",
        name, known_scalings(", "), kMostFactor, known_position_methods(", ")));
  }
  return column;
}

// --- records and plans ---

void LossSum::add(double loss) { *this += {1, loss, loss * loss}; }

LossSum& LossSum::operator+=(const LossSum& other) {
  tokens += other.tokens;
  nll += other.nll;
  squares += other.squares;
  return *this;
}

double LossSum::ppl() const { return tokens == 0 ? std::nan("") : std::exp(mean()); }

double LossSum::mean_error() const {
  if (tokens < 2) return std::nan("");
  const auto n = static_cast<double>(tokens);
  return std::sqrt(std::max(squares / n - mean() * mean(), 0.0) / (n - 1));
}

Record Record::of(const Unit& unit) {
  static const decltype(value) kEmpty[] = {Growing{},  Retrieval{},  Loss{},     Speed{},
                                           LossPart{}, Divergence{}, RowAnswer{}};
  return {unit.column, unit.length, kEmpty[static_cast<size_t>(unit.kind)]};
}

const Loss* Record::loss() const {
  const auto* growing = std::get_if<Growing>(&value);
  return growing != nullptr ? growing : std::get_if<Loss>(&value);
}

std::string Record::key() const {
  std::string key = fmt::format("{}/{}/{}", name_of(kind()), column.name(), length);
  if (const auto* found = std::get_if<Retrieval>(&value)) {
    key += "/" + nlohmann::json(found->depth).dump();
    if (found->task) key += fmt::format("/task \"{}\"", name_of(*found->task));
    if (found->trial) key += fmt::format("/trial {}", *found->trial);
  } else if (const auto* part = std::get_if<LossPart>(&value)) {
    if (part->of) key += fmt::format("/of \"{}\"", name_of(*part->of));
    key += fmt::format("/window {}/reached {}", part->window, part->reached);
  } else if (const auto* row = std::get_if<RowAnswer>(&value)) {
    key += fmt::format("/{}:{}/{}", row->file, row->line, row->prompt);
  }
  return key;
}

std::vector<Unit> Plan::units() const {
  std::vector<Unit> units;
  const auto add = [&](Kind kind, bool measured, const std::vector<Column>& of, int64_t length) {
    for (const Column& column : of) {
      if (measured) units.push_back({kind, column, length});
    }
  };
  add(Kind::kGrowing, growing.measured, growing.columns, lengths.back());
  for (auto length = lengths.rbegin(); length != lengths.rend(); ++length) {
    add(Kind::kPasskey, passkey.measured, columns, *length);
    add(Kind::kPerplexity, perplexity.measured, columns, *length);
  }
  for (auto length = lengths.rbegin(); length != lengths.rend(); ++length)
    add(Kind::kSpeed, speed.measured, columns, *length);
  return units;
}

bool Plan::covers(const Record& record) const {
  const auto has = [](const auto& list, const auto& value) { return std::ranges::count(list, value) > 0; };
  const bool kinds[] = {growing.measured,    passkey.measured, perplexity.measured, speed.measured, true,
                        against.has_value(), rows.has_value()};
  if (!kinds[static_cast<size_t>(record.kind())] || !has(lengths, record.length)) return false;
  if (record.kind() == Kind::kGrowing && record.length != lengths.back()) return false;
  if (const auto* found = std::get_if<Retrieval>(&record.value)) {
    const NeedleTask task = found->task.value_or(passkey.task);
    if (!has(passkey.depths, found->depth) || found->trial.value_or(-1) >= passkey.trials ||
        !(passkey.tasks.empty() ? task == passkey.task : has(passkey.tasks, task)))
      return false;
  }
  return has(columns, record.column) || (growing.measured && has(growing.columns, record.column));
}

nlohmann::ordered_json Plan::identity(const Record& record) const {
  const auto* found = std::get_if<Retrieval>(&record.value);
  const bool compares = record.kind() == Kind::kDivergence, part = record.kind() == Kind::kLosses;
  const bool windows = record.kind() == Kind::kPerplexity || compares;
  Plan used{.original_ctx = original_ctx, .columns = {record.column}, .lengths = lengths, .options = options};
  if (!part) used.lengths = {record.length};  // windows of several lengths share a forward pass
  if (windows || part) used.perplexity = perplexity;
  if (!record.column.reused) used.perplexity.prefill.reset();
  if (record.loss() != nullptr) used.perplexity.max_tokens = perplexity.max_tokens;
  const auto* losses = std::get_if<LossPart>(&record.value);
  if (record.kind() == Kind::kGrowing || (losses != nullptr && losses->of == Kind::kGrowing))
    used.growing = {true, growing.step};
  if (found != nullptr) {
    used.passkey = passkey;
    used.passkey.task = found->task.value_or(passkey.task);
    used.passkey.depths = {found->depth};
    used.passkey.tasks.clear();
    if (found->trial) used.passkey.trials = *found->trial;
  }
  if (compares) used.against = against;
  if (record.kind() == Kind::kAnswer && rows) {
    used.rows = rows;
    used.rows->metric.clear();  // answers may be scored again
  }
  used.methods[record.column.method] = methods.value(record.column.method, record.column.method);
  return to_json(used);
}

void Plan::join(const Plan& other) {
  const auto unite = [](auto& all, const auto& more) {
    for (const auto& one : more) {
      if (std::ranges::count(all, one) == 0) all.push_back(one);
    }
  };
  unite(columns, other.columns);
  unite(lengths, other.lengths);
  if (!text) text = other.text;
  if (!against) against = other.against;
  if (!rows) rows = other.rows;
  if (!growing.measured) growing = other.growing;
  unite(growing.columns, other.growing.columns);
  if (!perplexity.measured) perplexity = other.perplexity;
  if (!passkey.measured) passkey = other.passkey;
  if (other.passkey.measured) unite(passkey.depths, other.passkey.depths);
  if (other.passkey.measured) unite(passkey.tasks, other.passkey.tasks);
  sort_unique(lengths);
  sort_unique(passkey.depths);
  speed.measured = speed.measured || other.speed.measured;
  methods.update(other.methods);
}

std::set<std::string> Measurements::keys() const {
  std::set<std::string> keys;
  for (const Record& record : records) keys.insert(record.key());
  return keys;
}

std::vector<Unit> Measurements::missing(std::vector<Unit> units) const {
  const Plan::Passkey& passkey = plan.passkey;
  std::set<std::string> have;
  for (const Record& record : records) {
    const auto* found = std::get_if<Retrieval>(&record.value);
    const bool cell = found != nullptr && !found->trial;  // not the answer of one trial
    have.insert(cell ? cell_key(record.unit(), found->depth, found->task.value_or(passkey.task))
                     : record.key());
  }
  const auto tasks = passkey.tasks.empty() ? std::vector{passkey.task} : passkey.tasks;
  std::erase_if(units, [&](const Unit& unit) {
    if (unit.kind != Kind::kPasskey) return have.contains(Record::of(unit).key());
    return std::ranges::all_of(tasks, [&](NeedleTask task) {
      return std::ranges::all_of(passkey.depths,
                                 [&](double depth) { return have.contains(cell_key(unit, depth, task)); });
    });
  });
  return units;
}

bool same_result(Record a, Record b) {
  a.timing = b.timing = std::nullopt;
  return to_json(a).dump() == to_json(b).dump();  // NaN serializes as null
}

Labels labels_of(const Plan& plan, const Record& record) {
  const Plan::Options& options = plan.options;
  const Column& column = record.column;
  const auto* growing = std::get_if<Growing>(&record.value);
  const auto* found = std::get_if<Retrieval>(&record.value);
  Labels labels{plan.model.name,
                options.weights,
                options.dtype,
                fmt::format("k={} v={}", options.k_dtype, options.v_dtype),
                column.scaling,
                options.activations,
                record.rope_factor,
                plan.methods.value(column.method, column.method),
                column.stale || options.stale_cache,
                {},
                {}};
  if (!labels.rope_factor && growing != nullptr) labels.rope_factor = growing->factor;
  if (!labels.rope_factor && options.frequencies && column.scaling != "none")
    labels.rope_factor = options.factor;
  if (plan.text) labels.text = plan.text->name;
  if (found != nullptr) {
    const Plan::Passkey& passkey = plan.passkey;
    labels.text = passkey.haystack.name;
    labels.task = found->task.value_or(passkey.task);
    labels.chat = passkey.chat.value_or(false);
    labels.seed = passkey.seed;
    labels.trials = passkey.trials;
  }
  const Loss* loss = record.loss();
  const bool reads = loss != nullptr || record.kind() == Kind::kDivergence;
  if (reads) {
    const Plan::Perplexity& windows = plan.perplexity;
    labels.window_method = growing != nullptr ? "growing" : windows.method;
    if (loss != nullptr) labels.stride = loss->stride;
    if (!labels.stride && labels.window_method == "sliding" && windows.stride > 0)
      labels.stride = windows.stride;
    if (growing != nullptr) labels.step = plan.growing.measured ? plan.growing.step : windows.step;
    if (labels.window_method == "anchored" || labels.window_method == "tail" ||
        (loss == nullptr && labels.window_method == "growing"))
      labels.step = windows.step;
  }
  if (column.reused && plan.perplexity.prefill) labels.prefill = plan.perplexity.prefill->name();
  nlohmann::ordered_json all = plan.identity(record);
  all.update({{"model", plan.model.fingerprint}, {"labels", to_json(labels)}});
  if (reads && plan.text) all["text"] = plan.text->fingerprint.value_or("");
  uint64_t sum = 0;
  add_to_checksum(sum, all.dump());
  labels.settings = fmt::format("{:016x}", sum);
  return labels;
}

}  // namespace lariat
