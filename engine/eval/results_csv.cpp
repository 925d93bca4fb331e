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
  return value.is_number() && std::isfinite(value.get<double>()) ? value.dump() : "";
}

struct CsvRow {
  Json value, error{}, count{}, from{}, to{};
};

void add_row(std::string& csv, const Json& record, const std::string& measure, const CsvRow& row) {
  const SweepColumn column = read_column(record["scaling"].get<std::string>());
  csv += fmt::format("{},{},{},{},{},{},{},{},{},{},{}\n", measure, quoted(column.scaling),
                     quoted(column.method), column.stale, field(record["length"]),
                     field(record.value("depth", Json())), field(row.from), field(row.to), field(row.value),
                     field(row.error), field(row.count));
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

std::string results_csv(const SweepRecords& log) {
  std::string csv = "measure,scaling,method,stale,length,depth,from,to,value,error,count\n";
  const std::string task = log.header["passkey"].value("task", "passkey");
  for (const Json& record : log.records) {
    const std::string kind = record["kind"];
    if (kind == "passkey") {
      add_found(csv, record, record.value("task", task));
    } else if (kind == "speed") {
      add_speed(csv, record);
    } else {
      add_losses(csv, record, kind);
    }
  }
  return csv;
}

}  // namespace lariat
