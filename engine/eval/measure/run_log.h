#pragma once
#include <filesystem>
#include <map>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "engine/eval/measurement_log.h"
#include "engine/lariat.h"

// The results of `lariat passkey` and `lariat perplexity` while they are measured are a log like a sweep's,
// with a line for each prompt, window or bucket: a run that was killed goes on where it was.
namespace lariat {

// The session's scaling, position method and keys as a column.
Column column_of(const SessionOptions& session);

// The name of the model's folder or GGUF file, and fingerprints of its weights and its texts.
Plan::Model model_identity(const Model& model);

// A plan of a run with one column, in which nothing is measured yet.
Plan plan_of(const Engine& engine, const SessionOptions& session, const std::vector<int64_t>& lengths);

// The losses that a run has found, in its log: of windows, or of a growing context bucket by bucket, whose
// context is put away beside the log.
class LossJournal {
 public:
  // Losses of readings that went on together, up to the position `reached` where the context grows.
  struct Part {
    int64_t reached = 0;
    std::vector<std::vector<double>> losses;
  };

  // of: the kind of a sweep's unit; the log outlives the journal. asked_for: a log that cannot be written is
  // an error; else nothing more is kept, and its space is given back.
  LossJournal(MeasurementLog& log, Column column, int64_t length, std::optional<Kind> of, bool asked_for);

  // The parts of the readings from number `first` on, in order.
  const std::vector<Part>& known(int64_t first) { return known_[first]; }
  // Throws Error where a part that was known has another number of losses than its readings have.
  void check(const Part& part, const std::vector<size_t>& sizes) const;
  void keep(int64_t first, const Part& part);

 private:
  MeasurementLog& log_;
  Column column_;
  int64_t length_;
  std::optional<Kind> of_;
  std::map<int64_t, std::vector<Part>> known_;
  bool asked_for_, keeps_ = true;
};

}  // namespace lariat
