#pragma once
#include <cstdint>
#include <functional>
#include <span>
#include <string>
#include <string_view>

// RULER's rows, byte for byte, by its scripts at this commit with base prompts (no chat template).
namespace lariat {

inline constexpr std::string_view kRulerCommit = "c3f5e3b", kWonderwordsVersion = "3.0.1";

// The tasks without downloads, in RULER's order.
std::span<const std::string_view> ruler_tasks();
// Throws UsageError with the reason if the task cannot be made.
void check_ruler_task(std::string_view name);

struct RulerOptions {
  std::string_view task;
  int64_t length;  // tokens of a row and of its answer
  uint32_t seed;
  std::function<int64_t(std::string_view)> tokens;  // count without special tokens; may throw
};

struct RulerRows {
  std::function<std::string()> next;  // the next JSON line; throws Error if no row fits
  std::function<int64_t()> redrawn;   // attempts that were too long so far
};
// Searches the size of the rows. Throws Error.
RulerRows ruler_rows(const RulerOptions& options);

}  // namespace lariat
