#pragma once
#include <string>
#include <vector>

#include "engine/eval/sweep_log.h"
#include "engine/lariat.h"

// The results of `lariat passkey` and `lariat perplexity` while they are measured are a log like a sweep's,
// with a line for each prompt, window or bucket: a run that was killed goes on where it was.
namespace lariat {

// The name of the session's scaling among a sweep's: "none" where nothing is stretched; " stale" behind it
// where cached keys are left.
std::string column_of(const SessionOptions& session);

// A header that says all that the results of one scaling depend on, but for what is measured: "perplexity"
// and "passkey" say that they are not.
nlohmann::ordered_json run_header(const Engine& engine, const std::vector<int64_t>& lengths);

}  // namespace lariat
