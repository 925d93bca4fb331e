#pragma once
#include "engine/eval/measure/run_log.h"
#include "engine/eval/measure/sweep.h"
#include "engine/eval/render/report.h"
#include "engine/eval/render/results_csv.h"
#include "tests/engine/engine_test_util.h"

namespace lariat::test {

using Json = nlohmann::ordered_json;

inline Measurements empty_log(const std::vector<Column>& columns, const std::vector<int64_t>& lengths) {
  Plan plan{.model = {"m", "", ""},
            .text = TextFile{"text.txt"},
            .original_ctx = 512,
            .columns = columns,
            .lengths = lengths};
  plan.perplexity = {.measured = true, .method = "sliding", .stride = 256};
  plan.passkey = {.measured = true, .depths = {0, 0.5, 1}, .trials = 5};
  plan.speed.measured = true;
  plan.options = {.backend = "cpu", .dtype = "bf16", .k_dtype = "f16", .v_dtype = "bf16"};
  return {plan};
}

inline void add_record(Measurements& log, const char* kind, const Column& column, int64_t length,
                       const Json& values) {
  Json record = to_json(Unit{find_kind(kind).value(), column, length});
  record.update(Json{{"tokens", 0}});
  record.update(values);
  log.records.push_back(record_from_json(record, "a test"));
}

inline void add_growing(Measurements& log, const Column& column, int64_t length, const Json& values,
                        int64_t step) {
  add_record(log, "growing", column, length, values);
  log.plan.growing.measured = true;
  log.plan.growing.step = step;
  log.plan.growing.columns.push_back(column);
}

inline std::string page_of(const Measurements& log, const Json& more = Json::object()) {
  return report_page(log, tabulate(log), more);
}
inline std::string csv_of(const Measurements& log) { return results_csv(log, tabulate(log)); }

// Rows of a CSV as {column: field}.
inline std::vector<std::map<std::string, std::string>> csv_rows(const std::string& csv) {
  std::vector<std::vector<std::string>> lines(1, {""});
  bool quoted = false;
  for (const char c : csv) {
    std::string& field = lines.back().back();
    if (c == '"') {
      quoted = !quoted;
      if (quoted && !field.empty()) field += c;  // a doubled quote
    } else if (quoted || (c != ',' && c != '\n')) {
      field += c;
    } else if (c == ',') {
      lines.back().emplace_back();
    } else {
      lines.push_back({""});
    }
  }
  std::vector<std::map<std::string, std::string>> rows;
  for (size_t i = 1; i + 1 < lines.size(); ++i) {
    EXPECT_EQ(lines[i].size(), lines[0].size()) << csv;
    for (size_t at = 0; at < lines[0].size(); ++at)
      (at == 0 ? rows.emplace_back() : rows.back())[lines[0][at]] = lines[i].at(at);
  }
  return rows;
}

// Another valid value at a path of flatten().
inline Json changed_setting(const Json& plan, const std::string& name) {
  Json other = plan;
  Json& value = other[Json::json_pointer(name)];
  if (value.is_string()) {
    value = name == "/passkey/task" ? "tracking" : value.get<std::string>() + "x";
  } else if (value.is_boolean()) {
    value = !value.get<bool>();
  } else {
    value = value.is_number_float() ? Json(value.get<double>() / 2 + 0.1) : Json(value.get<int64_t>() + 1);
  }
  return other;
}

inline Loss& loss_in(Record& record) { return const_cast<Loss&>(*record.loss()); }

inline std::string fox_lines(int count) {
  std::string text;
  for (int i = 0; i < count; ++i)
    text += "The fox number " + std::to_string(i * i % 97) + " jumps over it.\n";
  return text;
}

class SmallSweep : public FolderTest {
 protected:
  SmallSweep(int64_t trained, const std::string& text) {
    engine_.options.kv_dtype = {DType::kF32, DType::kF32};
    engine_.tokenizer = Tokenizer::load(golden_dir() / "tokenizers" / "llama-mini");
    engine_.backend = std::make_unique<CpuBackend>(1);
    ModelSpec config = load_config(checkpoint_dir("llama_gqa"));
    config.vocab_size = engine_.tokenizer->vocab_size();
    config.rope().original_ctx = config.rope().max_position_embeddings = trained;
    engine_.model = random_model(config, *engine_.backend, DType::kF32, 5);
    put("text.txt", text);
    options_.text = dir_ / "text.txt";
  }

  Measurements run(const std::string& log_name) {
    Schedule measured(engine_, options_);
    measured.check();
    MeasurementLog log(dir_ / log_name, measured.plan(), /*resume=*/true);
    EXPECT_TRUE(run_sweep(measured, {}, log, {}));
    return log.contents();
  }

  Engine engine_;
  SweepOptions options_;
};

inline Json find_record(const Measurements& log, const std::string& kind, const std::string& column,
                        std::optional<int64_t> length = {}) {
  for (const Record& one : log.records) {
    if (name_of(one.kind()) == kind && one.column == Column(column) && (!length || one.length == *length))
      return to_json(one);
  }
  return nullptr;
}

}  // namespace lariat::test
