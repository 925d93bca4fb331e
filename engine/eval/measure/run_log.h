#pragma once
#include <filesystem>
#include <map>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "engine/eval/measurement_log.h"
#include "engine/lariat.h"

// `lariat passkey` and `lariat perplexity` log as a sweep does, with a line per prompt, window or bucket: an
// interrupted run resumes.
namespace lariat {

Column column_of(const SessionOptions& session);

// Name of the folder or GGUF file, with fingerprints of weights and texts.
Plan::Model model_identity(const Model& model);

// No measurement is enabled yet.
Plan plan_of(const Engine& engine, const SessionOptions& session, const std::vector<int64_t>& lengths);

// A run's losses in its log: per batch of windows, or per bucket of a growing context.
class LossJournal {
 public:
  // Losses of readings in one batch, up to position `reached` in a growing context.
  struct Part {
    int64_t reached = 0;
    std::vector<std::vector<double>> losses;
  };

  // of: kind of a sweep unit. The log outlives the journal. asked_for: write errors are thrown; otherwise the
  // journal stops and truncates its file.
  LossJournal(MeasurementLog& log, Column column, int64_t length, std::optional<Kind> of, bool asked_for);

  // Parts of the readings from index `first` on.
  const std::vector<Part>& known(int64_t first) { return known_[first]; }
  // Throws Error if a saved part has another number of losses than its readings.
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
