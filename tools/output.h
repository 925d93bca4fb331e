#pragma once
#include <fmt/core.h>

#include <cmath>
#include <cstdint>
#include <string>
#include <vector>

#include <nlohmann/json.hpp>

#include "engine/stopwatch.h"

// Messages, warnings and progress on stderr, JSON on stdout.
namespace lariat {

// The text with the options in place of the settings that it names in backticks: "`max_ctx`" is "--ctx".
std::string with_options(std::string text);
// One line on stderr: "lariat: " and this text, as with_options() and one_line() make it. Everything that is
// said there and may hold a name out of a file or of the user's goes through it.
void say(const std::string& line);
// Each on a line of stderr as "lariat: warning: ...", once in a run; nothing with --quiet.
void print_warnings(const std::vector<std::string>& lines, bool quiet);

// A message for a terminal, whatever it holds: one line of valid UTF-8 of at most some 4000 bytes without
// control characters, which could move the cursor or retitle the window.
std::string one_line(const std::string& text);

// One JSON object on stdout; bytes that are not UTF-8 become U+FFFD.
void print_json(const nlohmann::ordered_json& json);

// A line on stderr that is redrawn in place; silent when stderr is not a terminal or --quiet was given.
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

// "0:07", "12:33" or "1:02:03".
std::string duration(double seconds);

// A progress bar with the time left, which is said once enough is done to tell; where there is no terminal, a
// line of it every minute.
class Meter {
 public:
  Meter(const char* label, bool quiet, double line_seconds = 60)
      : label_(label), quiet_(quiet), line_seconds_(line_seconds), bar_(label, kSteps, quiet) {}
  void show(double done, const std::string& note);  // done: the share, 0 ... 1

 private:
  static constexpr int64_t kSteps = 1000;
  const char* label_;
  bool quiet_;
  double line_seconds_;
  Progress bar_;
  Stopwatch::time_point start_ = Stopwatch::now(), line_ = start_;
};

// A number with so many decimals, "nan" without the sign that it may have.
inline std::string fixed(double value, int decimals) {
  return fmt::format("{:.{}f}", std::isnan(value) ? std::abs(value) : value, decimals);
}
std::string margin(double standard_error, int decimals);  // "± 0.12"; "" where there is none (NaN)

}  // namespace lariat
