#include "engine/eval/results_csv.h"

#include <fmt/format.h>

#include <cmath>
#include <vector>

#include "engine/eval/sweep_log.h"

namespace lariat {
namespace {

using Json = nlohmann::ordered_json;

std::string quoted(const std::string& text) {
  if (text.find_first_of(",\"\r\n") == std::string::npos) return text;
  std::string out = "\"";
  for (const char c : text) out += c == '"' ? "\"\"" : std::string(1, c);
  return out + "\"";
}

std::string number(const Json& record, const char* key) {
  const Json value = record.value(key, Json());
  return value.is_number() ? value.dump() : "";
}

std::string number(double value) { return std::isfinite(value) ? Json(value).dump() : ""; }

// Of a bucket's mean loss, in nats.
double error_of(const Json& bucket) {
  const Json error = bucket.value("stderr", Json());
  return error.is_number() ? error.get<double>() : NAN;
}

// The rows of one record.
class Rows {
 public:
  Rows(const Json& record, std::string& out) : record_(record), out_(out) {}

  struct Row {
    std::string value, error{}, count{}, from{}, to{};
  };
  void add(const std::string& measure, const Row& row) {
    const std::string column = record_["scaling"];
    out_ += fmt::format("{},{},{},{},{},{},{},{},{},{}\n", measure, quoted(scaling_of(column)),
                        is_stale(column), number(record_, "length"), number(record_, "depth"), row.from,
                        row.to, row.value, row.error, row.count);
  }

  void add_losses(const std::string& kind) {
    add(kind, {number(record_, "ppl"), number(record_, "stderr"), number(record_, "tokens")});
    for (const Json& bucket : record_.value("positions", Json::array())) {
      if (bucket["tokens"] == 0) continue;
      const Json loss = bucket.value("loss", Json());
      const double ppl = loss.is_number() ? std::exp(loss.get<double>()) : NAN;
      add(kind, {number(ppl), number(ppl * error_of(bucket)), number(bucket, "tokens"),
                 number(bucket, "from"), number(bucket, "to")});
    }
  }

  void add_found(const std::string& task) {
    const bool in_parts = record_.value("recall", Json()).is_number() && task != "passkey";
    const double found = record_[in_parts ? "recall" : "correct"], n = record_["trials"];
    const double share = found / n;
    const double error = std::sqrt(share * (1 - share) / n + 1 / (4 * n * n)) / (1 + 1 / n);
    add(task, {number(share), number(error), number(record_, "trials")});
  }

  void add_speed() {
    const Json timing = record_.value("timing", Json::object());
    for (const char* key : {"prefill_tok_s", "decode_tok_s"}) add(key, {number(timing, key)});
    add("cache_bytes", {number(record_, "cache_bytes")});
  }

 private:
  const Json& record_;
  std::string& out_;
};

}  // namespace

std::string results_csv(std::span<const Json> records, const std::string& task) {
  std::string csv = "measure,scaling,stale,length,depth,from,to,value,error,count\n";
  for (const Json& record : records) {
    const std::string kind = record["kind"];
    Rows rows(record, csv);
    if (kind == "passkey") {
      rows.add_found(record.value("task", task));
    } else if (kind == "speed") {
      rows.add_speed();
    } else {
      rows.add_losses(kind);
    }
  }
  return csv;
}

}  // namespace lariat
