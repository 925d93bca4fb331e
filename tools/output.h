#pragma once
#include <fmt/core.h>

#include <cmath>
#include <cstdint>
#include <string>
#include <vector>

#include <nlohmann/json.hpp>

#include "engine/stopwatch.h"

// stderr: messages, warnings and progress. stdout: JSON.
namespace lariat {

// "`max_ctx`" becomes "--ctx".
std::string with_options(std::string text);
// Prints "lariat: " and the text on stderr, after with_options() and one_line(). Use for all messages with
// names from files or users.
void say(const std::string& line);
// Prints each line once per run as "lariat: warning: ..."; nothing with --quiet.
void print_warnings(const std::vector<std::string>& lines, bool quiet);

// Sanitizes a message for a terminal: one line of valid UTF-8, about 4000 bytes at most, without control
// characters.
std::string one_line(const std::string& text);

// One line; invalid UTF-8 becomes U+FFFD.
std::string json_text(const nlohmann::ordered_json& json);
void print_json(const nlohmann::ordered_json& json);

// A redrawn line on stderr; silent without a terminal or with --quiet.
class Progress {
 public:
  Progress(std::string label, int64_t total, bool quiet);
  Progress(const Progress&) = delete;
  Progress& operator=(const Progress&) = delete;
  ~Progress() { clear(); }
  void update(int64_t done, const std::string& note = "");  // draws at most ten times a second
  void clear();
  bool visible() const { return visible_; }

 private:
  std::string label_;
  int64_t total_;
  bool visible_;
  bool drawn_ = false;
  Stopwatch::time_point last_{};
};

// "0:07", "12:33" or "1:02:03"
std::string duration(double seconds);

// Progress with the estimated time left; without a terminal, one line per minute.
class Meter {
 public:
  Meter(const char* label, bool quiet, double line_seconds = 60)
      : label_(label), quiet_(quiet), line_seconds_(line_seconds), bar_(label, kSteps, quiet) {}
  void show(double done, const std::string& note);  // done: 0 to 1

 private:
  static constexpr int64_t kSteps = 1000;
  const char* label_;
  bool quiet_;
  double line_seconds_;
  Progress bar_;
  Stopwatch::time_point start_ = Stopwatch::now(), line_ = start_;
};

// NaN becomes "nan" without a sign.
inline std::string fixed(double value, int decimals) {
  return fmt::format("{:.{}f}", std::isnan(value) ? std::abs(value) : value, decimals);
}
std::string margin(double standard_error, int decimals);  // "± 0.12"; NaN: ""

}  // namespace lariat
