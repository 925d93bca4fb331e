#pragma once
#include <filesystem>
#include <map>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "engine/eval/measurement_log.h"
#include "engine/lariat.h"

// Logs of `lariat passkey` and `lariat perplexity`, so that an interrupted run resumes.
namespace lariat {

Column column_of(const SessionOptions& session);

// Name of the folder or GGUF file, with fingerprints of weights and texts.
Plan::Model model_identity(const Model& model);

// No measurement is enabled yet.
Plan plan_of(const Engine& engine, const SessionOptions& session, const std::vector<int64_t>& lengths);

// A run's losses in its log: a line per batch of windows or of growing contexts.
class LossJournal {
 public:
  using Losses = std::vector<std::vector<double>>;  // of each reading of a batch

  // of: kind of a sweep unit. The log outlives the journal. asked_for: write errors are thrown; otherwise the
  // journal stops and truncates its file.
  LossJournal(MeasurementLog& log, Column column, int64_t length, std::optional<Kind> of, bool asked_for);

  // Losses of the batch that starts with reading `first`, or null. Throws Error if windows had other sizes.
  const Losses* known(int64_t first, const std::vector<size_t>& sizes) const;
  // reached: last position of growing contexts, 0 for windows.
  void keep(int64_t first, const Losses& losses, int64_t reached);

 private:
  struct Part {
    int64_t reached = 0;
    Losses losses{};
  };
  MeasurementLog& log_;
  Column column_;
  int64_t length_;
  std::optional<Kind> of_;
  std::map<int64_t, Part> known_;
  bool asked_for_, keeps_ = true;
};

}  // namespace lariat
