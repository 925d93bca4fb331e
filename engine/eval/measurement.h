#pragma once
#include <algorithm>
#include <array>
#include <cmath>
#include <cstdint>
#include <iterator>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <utility>
#include <variant>
#include <vector>

#include <nlohmann/json.hpp>

#include "engine/eval/needles.h"

// A Plan lists the measurements, a Record holds one result. measurement_json.cpp is their schema.
namespace lariat {

template <class T>
void sort_unique(std::vector<T>& values) {
  std::ranges::sort(values);
  values.erase(std::unique(values.begin(), values.end()), values.end());
}

// A table column: a RoPE scaling ("model": from config.json), a position method, or both, and whether cached
// keys stay stale, or come from a prefill under another column (Plan::Perplexity::prefill). Names: "yarn",
// "yarn/factor=4", "dca/chunk=6144", "dca+yarn", "dynamic-yarn stale", "yarn reused".
struct Column {
  std::string scaling = "none";
  std::optional<double> factor{};  // of the scaling; unset: as Schedule says
  std::string method{};            // syntax of parse_position_method; empty: none
  bool stale = false, reused = false;

  Column() = default;
  // Parses a name; text without a known method is a scaling.
  template <std::convertible_to<std::string_view> Text>
  Column(const Text& name) {  // NOLINT(google-explicit-constructor): a name is a column
    read(name);
  }
  std::string name() const;
  Column fresh() const;                             // neither stale nor reused
  auto operator<=>(const Column&) const = default;  // NOLINT(modernize-use-nullptr): false positive on <=>

 private:
  void read(std::string_view name);
};
// Throws UsageError for an unknown scaling.
Column parse_column(std::string_view name);

// kLosses: losses saved before a unit ends. Units have the other kinds.
enum class Kind { kGrowing, kPasskey, kPerplexity, kSpeed, kLosses, kDivergence, kAnswer };
std::string_view name_of(Kind kind);
std::optional<Kind> find_kind(std::string_view name);

// A passkey unit produces one record per depth.
struct Unit {
  Kind kind;
  Column column;
  int64_t length;
  bool operator==(const Unit&) const = default;
};

// --- records ---

// Sums of -ln p(token | preceding tokens of its window), in nats.
struct LossSum {
  int64_t tokens = 0;
  double nll = 0, squares = 0;  // of losses and of squared losses

  void add(double loss);
  double mean() const { return nll / static_cast<double>(tokens); }
  double mean_error() const;  // sqrt((mean(loss^2) - mean(loss)^2) / (n - 1)); NaN for n < 2
  double ppl() const;         // exp(nll / n)
  double standard_error() const { return ppl() * mean_error(); }
  LossSum& operator+=(const LossSum& other);
};

// Losses at window positions [from, to).
struct PositionBucket : LossSum {
  int64_t from = 0, to = 0;
};

// Mean loss in nats at positions [from, to) and its standard error; NaN if not finite.
struct PositionLoss {
  int64_t from = 0, to = 0, tokens = 0;
  double loss = NAN, error = NAN;
};
// NaN if a loss is not finite.
inline constexpr size_t kMostBlocks = 512;
struct Loss {
  std::optional<int64_t> stride{};
  int64_t tokens = 0;
  double nll = NAN, ppl = NAN, error = NAN;  // error: standard error of ppl
  std::vector<double> blocks{};              // block_sums (difference.h), for paired differences
  std::vector<PositionLoss> positions{};     // logs: growing contexts only
};
struct Growing : Loss {
  std::optional<double> factor{};                 // static scalings with a factor > 1
  std::optional<int64_t> text_tokens{}, holds{};  // text tokens: all; per context
};
// All trials at one depth, or one trial's answer.
struct Retrieval {
  double depth = 0;
  std::optional<NeedleTask> task{};
  std::optional<int64_t> trial{};
  int64_t trials = 0, correct = 0;
  std::optional<double> recall{};  // summed over the trials
  std::optional<std::string> answer{};
};
struct Speed {
  int64_t cache_bytes = 0;
  std::optional<int64_t> rerotations{};
};
// A line of LossJournal (run_log.h).
struct LossPart {
  std::optional<Kind> of{};
  int64_t window = 0, reached = 0;
  std::vector<int64_t> sizes{};
  std::vector<double> losses{};
};

// A value and its standard error; unset: none.
struct Figure {
  double value = NAN;
  std::optional<double> error{};
};
inline constexpr const char* kFigures[] = {"ppl",    "against_ppl", "ppl_ratio",  "kl",         "kl_p99",
                                           "kl_max", "p_diff",      "p_diff_rms", "p_diff_max", "same_top"};
// Figures of measure/divergence.h, in the order of kFigures, at positions [from, to).
struct DivergenceFigures {
  int64_t from = 0, to = 0, tokens = 0;
  std::array<Figure, std::size(kFigures)> all{};
  const Figure& at(std::string_view key) const { return all[std::ranges::find(kFigures, key) - kFigures]; }
};
struct Divergence : DivergenceFigures {
  std::vector<DivergenceFigures> positions{};  // growing contexts only
};

// The answer to one row of a benchmark.
struct RowAnswer {
  std::string file{};
  int64_t line = 0;
  std::string prompt{};  // checksum
  int64_t tokens = 0, new_tokens = 0;
  std::string answer{};
  double score = NAN;  // 0 to 1
};

// Times and throughput; unset: copied from an equal column.
struct Timing {
  std::optional<double> seconds{}, prefill_tok_s{}, decode_tok_s{}, rerotation_s{};
};

struct Record {
  Column column;
  int64_t length = 0;
  // As in Kind.
  std::variant<Growing, Retrieval, Loss, Speed, LossPart, Divergence, RowAnswer> value{};
  std::optional<double> rope_factor{};  // unset without a scaling
  std::optional<Timing> timing{};

  static Record of(const Unit& unit);  // without a result
  Kind kind() const { return static_cast<Kind>(value.index()); }
  Unit unit() const { return {kind(), column, length}; }
  const Loss* loss() const;  // set for Loss and Growing
  // Unique key within a log: "perplexity/yarn/1024", "passkey/yarn/1024/0.5".
  std::string key() const;
};

// --- plans ---

struct TextFile {
  std::string name{};
  std::optional<int64_t> bytes{};
  std::optional<std::string> fingerprint{};
};

struct PlanModel {
  std::string name, fingerprint, texts;  // folder or GGUF file; checksums: weights, texts
};
struct PlanOptions {
  std::string backend;
  std::optional<std::string> weights{};
  std::string dtype, k_dtype, v_dtype;
  std::optional<int64_t> activations{};  // bits; unset: 8, or weights without quantization
  std::optional<double> factor{}, theta{};
  std::optional<int64_t> steps_per_octave{}, prefill_chunk{};
  std::optional<std::string> frequencies{};  // fingerprint; runs with one scaling
  bool stale_cache = false;
};
struct PlanRows {  // of a benchmark
  std::string metric;
  bool prefix = true, chat = false;         // the answer's prefix, the chat template
  std::optional<int64_t> max_new_tokens{};  // unset: by row
  std::optional<nlohmann::ordered_json> template_variables{};
};
struct PlanAgainst {  // the reference of a divergence
  PlanModel model;
  Column column;
  PlanOptions options;
};

// Header of a log: the settings that the results depend on.
struct Plan {
  using Model = PlanModel;
  using Options = PlanOptions;
  using Against = PlanAgainst;
  struct Growing {
    bool measured = false;
    int64_t step = 0;
    std::vector<Column> columns{};  // Plan::columns plus their stale variants
  };
  struct Perplexity {
    bool measured = false;
    std::string method = "none";
    int64_t stride = 0;  // 0: a fraction of the length
    std::optional<int64_t> step{}, parts{};
    int64_t max_tokens = 0;
    std::optional<int64_t> buckets{};
    std::optional<std::vector<int64_t>> ends{};
    std::optional<Column> prefill{};  // of reused columns
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
    std::vector<NeedleTask> tasks{};  // several tasks: the table columns
  };
  struct Speed {
    bool measured = false;
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
  std::optional<Against> against{};
  std::optional<PlanRows> rows{};
  Shard shard{};
  nlohmann::ordered_json methods = nlohmann::ordered_json::object();  // method -> all settings

  // Most informative first: growing contexts; passkeys and perplexities by falling length; throughput. All
  // columns of a unit run before the next unit.
  std::vector<Unit> units() const;
  bool covers(const Record& record) const;  // column, length, depth, task and trial are planned
  // Equal identities mean equal measurements.
  nlohmann::ordered_json identity(const Record& record) const;
  void join(const Plan& other);  // merges columns, lengths, depths, tasks and measurement kinds
};

// Positions [from, to) of a growing context.
struct PositionRange {
  int64_t from = 0, to = 0;
  std::string name() const { return (from > 0 ? std::to_string(from) + "–" : "up to ") + std::to_string(to); }
};

struct View {
  std::optional<Column> relative_to{};  // adds figures of ratios to this column
  std::vector<PositionRange> ranges{};  // growing context; empty: growing_ranges()'s default
};

struct Measurements {
  Plan plan;
  std::vector<Record> records{};
  View view{};

  std::set<std::string> keys() const;
  // Units without a record, or with missing depths.
  std::vector<Unit> missing(std::vector<Unit> units) const;
  bool complete() const { return missing(plan.units()).empty(); }  // of all shards
};

// A record's settings as printed.
struct Labels {
  std::string model;
  std::optional<std::string> weights;
  std::string dtype, cache_dtype, rope_scaling;
  std::optional<int64_t> activations;  // as in Plan::Options
  std::optional<double> rope_factor;
  std::string position_method;
  bool stale;
  std::optional<std::string> text;
  std::optional<NeedleTask> task;
  std::optional<std::string> window_method{};  // of losses, as Plan::Perplexity::method
  std::optional<int64_t> stride{}, step{};     // of sliding windows; of growing and anchored ones
  std::optional<bool> chat{};                  // of retrieval, as are seed and trials
  std::optional<uint64_t> seed{};
  std::optional<int64_t> trials{};
  std::optional<std::string> prefill{};  // of reused columns
  std::string settings{};                // fingerprint of all settings, also of those without a label
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
nlohmann::ordered_json labelled(const Plan& plan, const Record& record);
// Throw Error naming `where` and a missing or invalid member.
Plan plan_from_json(const nlohmann::ordered_json& json, const std::string& where);
Record record_from_json(const nlohmann::ordered_json& json, const std::string& where);
// Ignores timing.
bool same_result(Record a, Record b);

}  // namespace lariat
