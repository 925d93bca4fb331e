#pragma once
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "engine/eval/measure/passkey.h"
#include "engine/eval/measure/perplexity.h"
#include "engine/eval/measure/rows.h"
#include "engine/eval/measurement_log.h"

namespace lariat {

// One kind under one column.
struct Measurement {
  Kind kind = Kind::kPerplexity;  // not kLosses
  Column column{};
  std::vector<int64_t> lengths{};

  const TokenSource* text = nullptr;  // of all kinds except kPasskey, kSpeed and kAnswer
  PerplexityOptions losses{};         // ctx follows from `lengths`
  const TextCodec* codec = nullptr;   // of kPasskey and kAnswer
  PasskeyOptions passkeys{};
  std::span<const BenchmarkRow> rows{};  // of kAnswer: rows without a record, run together
  RowOptions answers{};
  Session* reference = nullptr;  // of kDivergence
  int threads = 0;               // to compare logits; 0: all cores

  // Keeps and restores finished parts.
  MeasurementLog* log = nullptr;
  std::optional<Kind> of{};  // as LossJournal's
  bool asked_for = true;
};

// A result; incomplete if interrupted.
struct Measured {
  const Record& record;
  bool complete = true;
  const std::vector<float>* losses = nullptr;  // by text token, as PerplexityResult's
  const PasskeyCell* cell = nullptr;
};
using Sink = std::function<void(const Measured&)>;
// share: finished part; note: values so far.
using MeasureProgressFn = std::function<void(double share, const std::string& note)>;

// Passes the records of all lengths to `sink`, of passkeys one per depth. Returns false if interrupted.
bool measure(Session& session, const Measurement& what, const Sink& sink,
             const MeasureProgressFn& progress = {});
Record record_of(const PerplexityResult& result, const Column& column);
Record record_of(const PasskeyCell& cell, const Column& column, NeedleTask task);

inline constexpr int64_t kSpeedSteps = 32;                   // decoded by kSpeed
std::vector<int32_t> some_tokens(int64_t n, int64_t vocab);  // deterministic

}  // namespace lariat
