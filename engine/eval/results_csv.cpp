#include "engine/eval/results_csv.h"

#include <fmt/format.h>

#include <cmath>

#include "engine/eval/sweep_column.h"
#include "engine/eval/sweep_table.h"
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
  Json value, error{}, count{}, from{}, to{};
};

// A record that has its labels.

void add_row(std::string& csv, const Json& record, const std::string& measure, const CsvRow& row) {
  const auto of = [&](const char* key) { return field(record.value(key, Json())); };
  csv += fmt::format("{},{},{},{},{},{},{},{},{},{},{}", measure, of("rope_scaling"), of("position_method"),
                     of("stale"), of("length"), of("depth"), field(row.from), field(row.to), field(row.value),
                     field(row.error), field(row.count));
  for (const char* key : {"rope_factor", "model", "weights", "dtype", "cache_dtype", "text", "task"})
    csv += "," + of(key);
  csv += "\n";
}

void add_losses(std::string& csv, const Json& record, const std::string& kind) {
  const auto member = [&](const char* key) { return record.value(key, Json()); };
  add_row(csv, record, kind, {member("ppl"), member("stderr"), member("tokens")});
  for (const Json& bucket : record.value("positions", Json::array())) {
    if (bucket["tokens"] == 0) continue;
    const double ppl = std::exp(number_in(bucket, "loss"));
    add_row(csv, record, kind,
            {ppl, ppl * number_in(bucket, "stderr"), bucket["tokens"], bucket["from"], bucket["to"]});
  }
}

void add_found(std::string& csv, const Json& record, const std::string& task) {
  const bool in_parts = record.value("recall", Json()).is_number() && task != "passkey";
  const double found = record[in_parts ? "recall" : "correct"], n = record["trials"];
  const double share = found / n;
  const double error = std::sqrt(share * (1 - share) / n + 1 / (4 * n * n)) / (1 + 1 / n);
  add_row(csv, record, task, {share, error, record["trials"]});
}

void add_speed(std::string& csv, const Json& record) {
  const Json timing = record.value("timing", Json::object());
  for (const char* key : {"prefill_tok_s", "decode_tok_s"})
    add_row(csv, record, key, {timing.value(key, Json())});
  add_row(csv, record, "cache_bytes", {record["cache_bytes"]});
}

}  // namespace

Json labels_of(const Json& header, const Json& record) {
  const auto in = [](const Json& object, const char* key) {
    return object.is_object() ? object.value(key, Json()) : Json();
  };
  const SweepColumn column = read_column(record["scaling"].get<std::string>());
  const Json options = in(header, "options"), passkey = in(header, "passkey");
  const bool found = record["kind"] == "passkey", one_run = options.contains("frequencies");
  Json factor = record.value("rope_factor", record.value("factor", Json()));
  if (factor.is_null() && one_run && column.scaling != "none") factor = options["factor"];
  const Json k = in(options, "k_dtype"), v = in(options, "v_dtype");
  const Json method = in(in(header, "methods"), column.method.c_str());
  Json labels = {{"model", in(in(header, "model"), "name")},
                 {"weights", in(options, "weights")},
                 {"dtype", in(options, "dtype")},
                 {"cache_dtype", nullptr},
                 {"rope_scaling", column.scaling},
                 {"rope_factor", factor},
                 {"position_method", method.is_null() ? Json(column.method) : method},
                 {"stale", column.stale || in(options, "stale_cache") == true},
                 {"text", in(found ? in(passkey, "haystack") : in(header, "text"), "name")}};
  if (k.is_string() && v.is_string())
    labels["cache_dtype"] = fmt::format("k={} v={}", k.get<std::string>(), v.get<std::string>());
  if (found) labels["task"] = record.value("task", passkey.value("task", "passkey"));
  return labels;
}

std::string results_csv(const SweepRecords& log) {
  std::string csv =
      "measure,scaling,method,stale,length,depth,from,to,value,error,count,factor,model,weights,dtype,"
      "cache_dtype,text,task\n";
  for (Json record : log.records) {
    const std::string kind = record["kind"];
    record.update(labels_of(log.header, record));
    if (kind == "passkey") {
      add_found(csv, record, record["task"]);
    } else if (kind == "speed") {
      add_speed(csv, record);
    } else {
      add_losses(csv, record, kind);
    }
  }
  return csv;
}

}  // namespace lariat
