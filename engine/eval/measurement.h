#pragma once
#include <algorithm>
#include <cmath>
#include <cstdint>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <utility>
#include <variant>
#include <vector>

#include <nlohmann/json.hpp>

#include "engine/eval/needles.h"

// The types of a measurement: a Plan lists the measurements, each Record holds one result.
// measurement_json.cpp is their schema in logs and reports.
namespace lariat {

// Sorts lengths or depths and removes repetitions.
template <class T>
void sort_unique(std::vector<T>& values) {
  std::ranges::sort(values);
  values.erase(std::unique(values.begin(), values.end()), values.end());
}

// A column of tables: a RoPE scaling ("model": the one in config.json), a position method, or both; and
// whether cached keys stay stale when the scale moves. Options, results and tables use the same name: "yarn",
// "dca/chunk=6144", "dca+yarn", "dynamic-yarn stale".
struct Column {
  std::string scaling = "none";
  std::string method{};  // as parse_position_method reads it; empty: none
  bool stale = false;

  Column() = default;
  // Reads a name from results: text without a known method is a scaling.
  template <std::convertible_to<std::string_view> Text>
  Column(const Text& name) {  // NOLINT(google-explicit-constructor): a name is a column
    read(name);
  }
  std::string name() const;
  Column fresh() const;  // the column whose keys are not stale
  auto operator<=>(const Column&) const =
      default;  // NOLINT(modernize-use-nullptr): it takes the 0 of <=> for one

 private:
  void read(std::string_view name);
};
// Reads a name from the command line. Throws UsageError for an unknown scaling or method.
Column parse_column(std::string_view name);

// The kinds of measurement; kLosses: a part of an interrupted one. A sweep's units have the first four.
enum class Kind { kGrowing, kPasskey, kPerplexity, kSpeed, kLosses };
std::string_view name_of(Kind kind);
std::optional<Kind> find_kind(std::string_view name);

// One measurement of a sweep; a passkey unit makes one record per depth.
struct Unit {
  Kind kind;
  Column column;
  int64_t length;
  bool operator==(const Unit&) const = default;
};

// --- records ---

// Losses of scored tokens, -ln p(token | its window so far) in nats.
struct LossSum {
  int64_t tokens = 0;           // n
  double nll = 0, squares = 0;  // the sums of the losses and of their squares

  void add(double loss);
  double mean() const { return nll / static_cast<double>(tokens); }
  double mean_error() const;  // sqrt((mean(loss^2) - mean(loss)^2) / (n - 1)); NaN of fewer than 2 tokens
  double ppl() const;         // exp(nll / n)
  double standard_error() const { return ppl() * mean_error(); }
  LossSum& operator+=(const LossSum& other);
};

// The losses of the scored tokens at window positions [from, to).
struct PositionBucket : LossSum {
  int64_t from = 0, to = 0;
};

// The mean loss at positions [from, to), in nats, with its standard error; NaN where it is not finite.
struct PositionLoss {
  int64_t from = 0, to = 0, tokens = 0;
  double loss = NAN, error = NAN;
};
// Losses of windows. NaN where a model gives no finite number.
inline constexpr size_t kMostBlocks = 512;
struct Loss {
  std::optional<int64_t> stride{};
  int64_t tokens = 0;
  double nll = NAN, ppl = NAN, error = NAN;  // error: standard error of ppl
  std::vector<double> blocks{};              // block_sums (verdict.h)
  std::vector<PositionLoss> positions{};     // in logs, of growing contexts only
};
struct Growing : Loss {
  std::optional<double> factor{};                 // of a static scaling that stretches
  std::optional<int64_t> text_tokens{}, holds{};  // tokens of the text; tokens of the text in one context
};
// Trials at one depth, or the answer of one trial.
struct Retrieval {
  double depth = 0;
  std::optional<NeedleTask> task{};
  std::optional<int64_t> trial{};
  int64_t trials = 0, correct = 0;
  std::optional<double> recall{};  // the sum over the trials
  std::optional<std::string> answer{};
};
struct Speed {
  int64_t cache_bytes = 0;
  std::optional<int64_t> rerotations{};
};
// Losses of windows read together, or of one part of growing contexts (run_log.h).
struct LossPart {
  std::optional<Kind> of{};
  int64_t window = 0, reached = 0;
  std::vector<int64_t> sizes{};
  std::vector<double> losses{};
};

// How fast the measurement ran; a result copied from an equal column has none.
struct Timing {
  std::optional<double> seconds{}, prefill_tok_s{}, decode_tok_s{}, rerotation_s{};
};

struct Record {
  Column column;
  int64_t length = 0;
  std::variant<Growing, Retrieval, Loss, Speed, LossPart> value{};  // in the order of Kind
  std::optional<double> rope_factor{};                              // unset without a scaling
  std::optional<Timing> timing{};

  static Record of(const Unit& unit);  // without a result
  Kind kind() const { return static_cast<Kind>(value.index()); }
  Unit unit() const { return {kind(), column, length}; }
  const Loss* loss() const;  // of Loss and Growing
  // Identifies the record in its log: "perplexity/yarn/1024", "passkey/yarn/1024/0.5".
  std::string key() const;
};

// --- plans ---

struct TextFile {
  std::string name{};
  std::optional<int64_t> bytes{};
  std::optional<std::string> fingerprint{};
};

// The header of a log: everything its results depend on.
struct Plan {
  struct Model {
    std::string name, fingerprint, texts;  // folder or GGUF file; of its weights; of its text files
  };
  struct Growing {
    bool measured = false;
    int64_t step = 0;
    std::vector<Column> columns{};  // Plan::columns, and those with stale keys
  };
  struct Perplexity {
    bool measured = false;
    std::string method = "none";
    int64_t stride = 0;  // 0: a share of the length
    std::optional<int64_t> step{}, parts{};
    int64_t max_tokens = 0;
    std::optional<int64_t> buckets{};
    std::optional<std::vector<int64_t>> ends{};
  };
  struct Passkey {
    bool measured = false;
    std::vector<double> depths = {0.0};
    int64_t trials = 0;
    uint64_t seed = 0;
    NeedleTask task = NeedleTask::kPasskey;
    int64_t needles = 4;
    TextFile haystack{"noise"};
    std::optional<bool> chat{};
    std::optional<nlohmann::ordered_json> template_variables{};
    std::vector<NeedleTask> tasks{};  // several tasks, which are then the columns of tables
  };
  struct Speed {
    bool measured = false;
  };
  struct Options {
    std::string backend;
    std::optional<std::string> weights{};
    std::string dtype, k_dtype, v_dtype;
    std::optional<double> factor{}, theta{};
    std::optional<int64_t> steps_per_octave{}, prefill_chunk{};
    std::optional<std::string> frequencies{};  // of a run with one scaling
    bool stale_cache = false;
  };
  struct Shard {
    int64_t index = 0, count = 1;
  };
  Model model{};
  std::optional<TextFile> text{};
  int64_t original_ctx = 1;
  std::vector<Column> columns{};
  std::vector<int64_t> lengths{};
  Growing growing{};
  Perplexity perplexity{};
  Passkey passkey{};
  Speed speed{};
  Options options{};
  Shard shard{};
  nlohmann::ordered_json methods = nlohmann::ordered_json::object();  // a column's method: all its values

  // All units, most informative first: growing contexts, then by falling length passkeys and perplexities,
  // then speed; all columns of a unit before the next.
  std::vector<Unit> units() const;
  bool covers(const Record& record) const;  // the plan asks for its column, length, depth, task and trial
  // The key of the record, and the settings that its result depends on: equal for two plans that would
  // measure the same.
  nlohmann::ordered_json identity(const Record& record) const;
  void join(const Plan& other);  // adds its columns, lengths, depths, tasks and kinds of measurement
};

// Positions [from, to) of a growing context.
struct PositionRange {
  int64_t from = 0, to = 0;
  std::string name() const { return (from > 0 ? std::to_string(from) + "–" : "up to ") + std::to_string(to); }
};

// Settings of tables and pictures.
struct View {
  std::optional<Column> relative_to{};  // also pictures of ratios to this column
  std::vector<PositionRange> ranges{};  // of a growing context; empty: see growing_ranges
};

struct Measurements {
  Plan plan;
  std::vector<Record> records{};
  View view{};

  std::set<std::string> keys() const;  // of the records
  // The units of `units` that have no record, or lack a depth.
  std::vector<Unit> missing(std::vector<Unit> units) const;
  bool complete() const { return missing(plan.units()).empty(); }  // over all shards
};

// The settings of a record, as a row of a table, a CSV or a report names them.
struct Labels {
  std::string model;
  std::optional<std::string> weights;
  std::string dtype, cache_dtype, rope_scaling;
  std::optional<double> rope_factor;
  std::string position_method;
  bool stale;
  std::optional<std::string> text;
  std::optional<NeedleTask> task;
};
Labels labels_of(const Plan& plan, const Record& record);

// --- JSON ---

void to_json(nlohmann::ordered_json& json, const Column& column);
void to_json(nlohmann::ordered_json& json, NeedleTask task);
void to_json(nlohmann::ordered_json& json, Kind kind);
void to_json(nlohmann::ordered_json& json, const PositionLoss& at);
nlohmann::ordered_json to_json(const Plan& plan);
nlohmann::ordered_json to_json(const Record& record);
nlohmann::ordered_json to_json(const Unit& unit);
nlohmann::ordered_json to_json(const Labels& labels);
nlohmann::ordered_json labelled(const Plan& plan, const Record& record);  // the record with its labels
// Throw Error naming `where` and the member that is missing or outside its bounds; a plan has at most 10,000
// cells.
Plan plan_from_json(const nlohmann::ordered_json& json, const std::string& where);
Record record_from_json(const nlohmann::ordered_json& json, const std::string& where);
// Whether two records hold the same result, however long each took.
bool same_result(Record a, Record b);

}  // namespace lariat
