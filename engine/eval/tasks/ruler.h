#pragma once
#include <cstdint>
#include <functional>
#include <string>
#include <string_view>

// Rows of RULER (github.com/NVIDIA/RULER, Apache-2.0, whose texts they hold) without a chat template: the
// files of scripts/data/synthetic, byte for byte, as each task draws in the order of its script.
namespace lariat {

inline constexpr std::string_view kRulerCommit = "c3f5e3b", kWonderwordsVersion = "3.0.1";
// The tasks without downloads.
inline constexpr std::string_view kRulerTasks[] = {
    "niah_single_1", "niah_multikey_2", "niah_multikey_3", "vt", "cwe", "fwe"};
struct RulerOptions {
  std::string_view task;
  int64_t length;  // tokens of a row and its answer
  uint32_t seed;
  std::function<int64_t(std::string_view)> tokens;  // counts without special tokens; may throw
};

// Searches the size of the rows; returns a function that makes the next row: a JSON line. Both throw Error if
// no row fits.
std::function<std::string()> ruler_rows(const RulerOptions& options);

}  // namespace lariat
