// `fields` lists each type's members once, for reading and writing.
#include <fmt/format.h>

#include <limits>

#include "engine/eval/measurement.h"
#include "kernels/error.h"
#include "models/io/json_fields.h"

namespace lariat {
namespace {
using Json = nlohmann::ordered_json;
}

void to_json(Json& json, const Column& column) { json = column.name(); }
void from_json(const Json& json, Column& column) { column = json.get<std::string>(); }
void to_json(Json& json, NeedleTask task) { json = name_of(task); }
void from_json(const Json& json, NeedleTask& task) { task = needle_task(json.get<std::string>()).value(); }
void to_json(Json& json, Kind kind) { json = name_of(kind); }
void from_json(const Json& json, Kind& kind) { kind = find_kind(json.get<std::string>()).value(); }

namespace {

// Limits on list sizes and on scalings x lengths x depths: reports draw every cell.
constexpr size_t kMaxList = 100, kMaxCells = 10'000;
constexpr double kMaxCount = int64_t{1} << 49;  // sums fit 64 bits and are exact in double
constexpr double kMostNumber = std::numeric_limits<double>::max();

struct Bounds {
  double low = 0, high = kMaxCount;
};
constexpr Bounds kAnyNumber{-kMostNumber, kMostNumber};
template <class T>
constexpr Bounds bounds_of() {
  const bool real = std::is_same_v<T, double> || std::is_same_v<T, std::vector<double>>;
  return real ? kAnyNumber : Bounds{};
}

class Fields {
 public:
  Fields(Json& json, bool writes, std::string where, const std::string& path = "")
      : json_(json), writes_(writes), where_(std::move(where)), path_(path.empty() ? "" : path + ".") {
    if (writes_) json_ = Json::object();
    if (!json_.is_object()) fail(path, json_, "an object");
  }

  template <class T>
  Fields& operator()(const std::string& key, T& value, Bounds bounds = bounds_of<T>()) {
    member(json_[key], path_ + key, value, bounds);
    return *this;
  }
  // Unset values are omitted; with `null` they are written as null.
  template <class T>
  Fields& operator()(const std::string& key, std::optional<T>& value, Bounds bounds = bounds_of<T>(),
                     bool null = false) {
    if (!writes_ && !json_[key].is_null()) value.emplace();
    if (value) (*this)(key, *value, bounds);
    if (null && !value) json_[key] = nullptr;
    return *this;
  }
  template <class T>
  Fields& nullable(const std::string& key, std::optional<T>& value) {
    return (*this)(key, value, bounds_of<T>(), true);
  }
  template <class T>
  Fields& list(const std::string& key, std::vector<T>& values, Bounds bounds = bounds_of<T>()) {
    (*this)(key, values, bounds);
    require(!values.empty() && values.size() <= kMaxList, key, fmt::format("a list of 1 to {}", kMaxList));
    return *this;
  }
  template <class T>
  Fields& unless_empty(const std::string& key, T& values) {
    return (writes_ ? !values.empty() : json_.contains(key)) ? (*this)(key, values) : *this;
  }
  void require(bool fits, const std::string& key, const std::string& expected) {
    if (!writes_ && !fits) fail(path_ + key, json_.value(key, Json()), expected);
  }
  bool writes() const { return writes_; }

 private:
  [[noreturn]] void fail(const std::string& path, const Json& json, const std::string& expected) const {
    const nlohmann::json value = json;
    throw Error(
        JsonFields::with_value(where_, path, json.is_null() ? nullptr : &value, "expected " + expected));
  }

  template <class T>
  void member(Json& json, const std::string& path, T& value, Bounds bounds) {
    if constexpr (requires(Fields & io) { fields(io, value); }) {
      Fields inner(json, writes_, where_, path);
      fields(inner, value);
    } else if constexpr (std::ranges::range<T> && !std::is_same_v<T, std::string> &&
                         !std::is_same_v<T, Json>) {
      if (writes_) json = Json::array();
      if (!json.is_array()) fail(path, json, "a list");
      if (!writes_) value.resize(json.size());
      for (size_t i = 0; i < value.size(); ++i)
        member(writes_ ? json.emplace_back() : json[i], fmt::format("{}[{}]", path, i), value[i], bounds);
    } else if (writes_) {
      json = value;
    } else if constexpr (std::is_arithmetic_v<T> && !std::is_same_v<T, bool>) {
      value = std::numeric_limits<T>::quiet_NaN();
      if (json.is_null() && bounds.high == kMostNumber) return;
      const bool number = std::is_integral_v<T> ? json.is_number_integer() : json.is_number();
      const double found = number ? json.get<double>() : NAN;
      if (!(found >= bounds.low && found <= bounds.high))
        fail(path, json,
             fmt::format("{} from {:.10g} to {:.10g}", std::is_integral_v<T> ? "an integer" : "a number",
                         bounds.low, bounds.high));
      json.get_to(value);
    } else {
      const bool flag = std::is_same_v<T, bool>, any = std::is_same_v<T, Json>;
      if (!any && (flag ? !json.is_boolean() : !json.is_string()))
        fail(path, json, flag ? "true or false" : "text");
      try {
        json.get_to(value);
      } catch (const std::bad_optional_access&) {
        fail(path, json, "a known name");
      }
    }
  }

  Json& json_;
  bool writes_;
  std::string where_, path_;
};

// --- the schema ---

void fields(Fields& io, PositionLoss& at) {
  io("from", at.from)("to", at.to, {static_cast<double>(at.from) + 1, kMaxCount})("tokens", at.tokens);
  io("loss", at.loss)("stderr", at.error);
}

void fields(Fields& io, Loss& loss) {
  io("stride", loss.stride)("tokens", loss.tokens)("nll", loss.nll)("ppl", loss.ppl)("stderr", loss.error);
  io.unless_empty("blocks", loss.blocks);
  io.require(loss.blocks.size() <= kMostBlocks, "blocks", fmt::format("at most {} sums", kMostBlocks));
}

void fields(Fields& io, Retrieval& found) {
  io("depth", found.depth, {0, 1})("task", found.task)("trial", found.trial)("trials", found.trials);
  const Bounds of_trials{0, static_cast<double>(found.trials)};
  io("correct", found.correct, of_trials)("recall", found.recall, of_trials)("answer", found.answer);
}

void fields(Fields& io, Speed& speed) {
  io("cache_bytes", speed.cache_bytes)("rerotations", speed.rerotations);
}

void fields(Fields& io, LossPart& part) {
  io("of", part.of)("window", part.window)("reached", part.reached)("sizes", part.sizes);
  io("losses", part.losses, {-1, kMostNumber});
}

void fields(Fields& io, DivergenceFigures& figures) {
  io("from", figures.from)("to", figures.to)("tokens", figures.tokens);
  for (size_t i = 0; i < figures.all.size(); ++i) {
    io(kFigures[i], figures.all[i].value, kAnyNumber);
    io(std::string(kFigures[i]) + "_stderr", figures.all[i].error, kAnyNumber);
  }
}

void fields(Fields& io, Divergence& divergence) {
  fields(io, static_cast<DivergenceFigures&>(divergence));
  io.unless_empty("positions", divergence.positions);
}

void fields(Fields& io, RowAnswer& row) {
  io("file", row.file)("line", row.line)("prompt", row.prompt)("tokens", row.tokens);
  io("new_tokens", row.new_tokens)("answer", row.answer)("score", row.score, {0, 1});
}

void fields(Fields& io, Timing& timing) {
  io("seconds", timing.seconds)("prefill_tok_s", timing.prefill_tok_s)("decode_tok_s", timing.decode_tok_s);
  io("rerotation_s", timing.rerotation_s);
}

void fields(Fields& io, Unit& unit) {
  io("kind", unit.kind)("scaling", unit.column)("length", unit.length, {1, kMaxCount});
}

void fields(Fields& io, Record& record) {
  Unit unit = record.unit();
  fields(io, unit);
  if (!io.writes()) record = Record::of(unit);
  std::visit([&](auto& value) { fields(io, value); }, record.value);
  io("timing", record.timing);
  if (auto* growing = std::get_if<Growing>(&record.value)) {
    io("factor", growing->factor)("text_tokens", growing->text_tokens, {1, kMaxCount});
    io("holds", growing->holds, {1, kMaxCount}).list("positions", growing->positions);
  }
  const auto* found = std::get_if<Retrieval>(&record.value);
  const bool part = record.kind() == Kind::kLosses || (found != nullptr && found->trial);
  io("rope_factor", record.rope_factor, kAnyNumber, !part);
}

void fields(Fields& io, Plan::Model& model) {
  io("name", model.name)("fingerprint", model.fingerprint)("texts", model.texts);
}

void fields(Fields& io, TextFile& text) {
  io("name", text.name)("bytes", text.bytes)("fingerprint", text.fingerprint);
}

void fields(Fields& io, Plan::Growing& growing) {
  io("measured", growing.measured);
  if (growing.measured) io("step", growing.step, {1, kMaxCount}).list("columns", growing.columns);
}

void fields(Fields& io, Plan::Perplexity& perplexity) {
  io("measured", perplexity.measured)("method", perplexity.method)("stride", perplexity.stride);
  io("step", perplexity.step)("parts", perplexity.parts)("max_tokens", perplexity.max_tokens, {0, 0x1p62});
  io("buckets", perplexity.buckets)("ends", perplexity.ends)("prefill", perplexity.prefill);
}

void fields(Fields& io, Plan::Passkey& passkey) {
  io("measured", passkey.measured).list("depths", passkey.depths, {0, 1})("trials", passkey.trials);
  io("seed", passkey.seed, {0, 0x1p64})("task", passkey.task)("needles", passkey.needles, {1, kMostNeedles});
  io("haystack", passkey.haystack)("chat", passkey.chat)("template_variables", passkey.template_variables);
  io.unless_empty("tasks", passkey.tasks);
}

void fields(Fields& io, Plan::Speed& speed) { io("measured", speed.measured); }

void fields(Fields& io, Plan::Options& options) {
  io("backend", options.backend)("weights", options.weights)("dtype", options.dtype);
  io("k_dtype", options.k_dtype)("v_dtype", options.v_dtype).nullable("factor", options.factor);
  io("theta", options.theta)("steps_per_octave", options.steps_per_octave);
  io("prefill_chunk", options.prefill_chunk)("frequencies", options.frequencies);
  io("activations", options.activations)("stale_cache", options.stale_cache);
}

void fields(Fields& io, Plan::Against& against) {
  io("model", against.model)("scaling", against.column)("options", against.options);
}

void fields(Fields& io, PlanRows& rows) {
  io("metric", rows.metric)("prefix", rows.prefix)("chat", rows.chat)("max_new_tokens", rows.max_new_tokens);
  io("template_variables", rows.template_variables);
}

void fields(Fields& io, Plan::Shard& shard) {
  io("index", shard.index)("count", shard.count, {1, kMaxCount});
}

void fields(Fields& io, Plan& plan) {
  int64_t version = 1;
  io("lariat_sweep", version)("model", plan.model).nullable("text", plan.text);
  io("original_ctx", plan.original_ctx, {1, kMaxCount}).list("scalings", plan.columns);
  io.list("lengths", plan.lengths, {1, kMaxCount})("growing", plan.growing)("perplexity", plan.perplexity);
  io("passkey", plan.passkey)("speed", plan.speed)("options", plan.options)("shard", plan.shard);
  io.unless_empty("methods", plan.methods)("against", plan.against)("rows", plan.rows);
  const bool reads = plan.perplexity.measured || plan.growing.measured;
  io.require(plan.text || !reads, "text", "an object");
  io.require(plan.methods.is_object() && std::ranges::all_of(plan.methods, &Json::is_string), "methods",
             "an object of text");
  const size_t cells = plan.columns.size() * plan.lengths.size() * plan.passkey.depths.size() *
                       std::max<size_t>(plan.passkey.tasks.size(), 1);
  io.require(cells <= kMaxCells, "lengths",
             fmt::format("at most {} cells (scalings x lengths x depths)", kMaxCells));
}

void fields(Fields& io, Labels& labels) {
  io("model", labels.model).nullable("weights", labels.weights)("dtype", labels.dtype);
  io("cache_dtype", labels.cache_dtype)("rope_scaling", labels.rope_scaling);
  io.nullable("rope_factor", labels.rope_factor)("position_method", labels.position_method);
  io("activations", labels.activations);
  io("stale", labels.stale).nullable("text", labels.text)("task", labels.task);
  io("window_method", labels.window_method)("stride", labels.stride)("step", labels.step);
  io("chat", labels.chat)("seed", labels.seed)("trials", labels.trials)("settings", labels.settings);
  io("prefill", labels.prefill);
}

template <class T>
Json written(T value) {
  Json json;
  Fields io(json, /*writes=*/true, "");
  fields(io, value);
  return json;
}

template <class T>
T read(Json json, const std::string& where) {
  T value;
  Fields io(json, /*writes=*/false, where);
  fields(io, value);
  return value;
}

}  // namespace

Json to_json(const Plan& plan) { return written(plan); }
Json to_json(const Record& record) { return written(record); }
Json to_json(const Unit& unit) { return written(unit); }
Json to_json(const Labels& labels) { return written(labels); }
void to_json(Json& json, const PositionLoss& at) { json = written(at); }
Json labelled(const Plan& plan, const Record& record) {
  Json json = written(record);
  json.update(written(labels_of(plan, record)));
  return json;
}
Plan plan_from_json(const Json& json, const std::string& where) { return read<Plan>(json, where); }
Record record_from_json(const Json& json, const std::string& where) { return read<Record>(json, where); }

}  // namespace lariat
