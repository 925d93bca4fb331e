#pragma once
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "engine/eval/measure/sweep.h"
#include "engine/eval/sequential.h"

namespace lariat {

// Result of a column compared with the first one, over the same rows.
enum class Verdict { kUndecided, kBetter, kWorse, kExcluded };  // kExcluded: a difference of the margin
std::string_view name_of(Verdict verdict);

struct AskOptions {
  RowOptions rows;
  // Probability of a false verdict among all columns. Each column stops at its verdict; unset: no verdicts.
  std::optional<double> stop{};
  double margin = 0.1;
};

struct AskedColumn {
  Column column;
  std::optional<double> rope_factor{};    // as Record's
  std::vector<double> scores{};           // of the first rows, in the order of Asking::rows()
  std::vector<bool> empty{};              // is_empty_answer
  std::vector<SequencePoint> sequence{};  // against the first column, by row; with AskOptions::stop
  Verdict verdict = Verdict::kUndecided;
};

// Asks every column the same rows, row by row. With AskOptions::stop, rows run in one random order, so that
// no file and no length comes first.
class Asking {
 public:
  // rows: at least one; the schedule's length is the longest text with its answer. log: keeps answers and
  // knows earlier ones; null: none.
  Asking(const Schedule& schedule, std::vector<BenchmarkRow> rows, const AskOptions& options,
         MeasurementLog* log);

  // Returns false if interrupted.
  bool run(const MeasureProgressFn& progress);

  const std::vector<BenchmarkRow>& rows() const { return rows_; }
  const std::vector<AskedColumn>& columns() const { return columns_; }
  bool is_binary() const { return binary_; }
  double threshold() const { return 1 / alpha_; }  // e-value that shows a difference

 private:
  int64_t length() const { return schedule_.options().lengths.back(); }
  bool decided() const;
  bool ask(size_t column, size_t first, size_t n);
  void decide(size_t column);

  const Schedule& schedule_;
  AskOptions options_;
  MeasurementLog* log_;
  std::vector<BenchmarkRow> rows_;
  bool binary_;
  double alpha_;                              // of one comparison
  std::map<std::string, std::string> known_;  // answers by Record::key
  std::vector<AskedColumn> columns_;
  std::vector<std::unique_ptr<Session>> sessions_;  // by column
  std::vector<PairedSequence> sequences_;           // by column
};

}  // namespace lariat
