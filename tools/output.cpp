#include "tools/output.h"

#include <fmt/ostream.h>
#include <unistd.h>

#include <iostream>
#include <set>

#include "models/text/unicode.h"

namespace lariat {
namespace {

// Lower layers name settings in backticks.
constexpr std::pair<std::string_view, std::string_view> kOptions[] = {
    {"`model`", "--model"},
    {"`device`", "--device"},
    {"`threads`", "--threads"},
    {"`dtype`", "--dtype"},
    {"`quantize`", "--quantize"},
    {"`kv_dtype`", "--kv-dtype"},
    {"`max_ctx`", "--ctx"},
    {"`prefill_chunk`", "--prefill-chunk"},
    {"`rope_steps`", "--rope-steps"},
    {"`rope_cache`", "--rope-cache"},
    {"`position_method`", "--position-method"},
    {"`max_tokens`", "--max-tokens"},
    {"`lengths`", "--lengths"},
    {"`seed`", "--seed"},
    {"`scalings`", "--scalings"},
    {"`reuse_prefill`", "--reuse-prefill"},
    {"`resume`", "--resume"},
    {"`rope_scaling`", "--rope-scaling"},
    {"`rope_factor`", "--rope-factor"},
    {"`rope_original_ctx`", "--rope-original-ctx"},
    {"`rope_theta`", "--rope-theta"},
    {"`rope_config`", "--rope-config"},
    {"`template_var`", "--template-var"},
    {"`activations`", "--activations"},
    {"`split`", "--split"},
};

}  // namespace

std::string with_options(std::string text) {
  for (const auto& [setting, option] : kOptions) text = replace_all(text, setting, option);
  return text;
}

void say(const std::string& line) { std::cerr << one_line("lariat: " + with_options(line)) << "\n"; }

void print_warnings(const std::vector<std::string>& lines, bool quiet) {
  static std::set<std::string> said;  // deduplicates warnings
  for (const std::string& line : lines) {
    if (!quiet && said.insert(line).second) say("warning: " + line);
  }
}

Progress::Progress(std::string label, int64_t total, bool quiet)
    : label_(std::move(label)), total_(total), visible_(!quiet && isatty(STDERR_FILENO) == 1) {}

void Progress::update(int64_t done, const std::string& note) {
  const auto now = Stopwatch::now();
  if (!visible_ || (drawn_ && now - last_ < std::chrono::milliseconds(100) && done != total_)) return;
  last_ = now;
  drawn_ = true;
  std::string bar;
  if (total_ > 0) {
    constexpr int64_t kWidth = 30;
    const int64_t filled = kWidth * done / total_;
    for (int64_t i = 0; i < kWidth; ++i) bar += i < filled ? "█" : "░";
    bar += fmt::format(" {}% ", 100 * done / total_);
  }
  fmt::print(std::cerr, "\r\033[K{} {}{}", label_, bar, note);
}

void Progress::clear() {
  if (drawn_) fmt::print(std::cerr, "\r\033[K");
  drawn_ = false;
}

std::string duration(double seconds) {
  const auto all = static_cast<int64_t>(std::ceil(seconds)), minutes = all / 60;
  if (all >= 3600) return fmt::format("{}:{:02}:{:02}", minutes / 60, minutes % 60, all % 60);
  return fmt::format("{}:{:02}", minutes, all % 60);
}

void Meter::show(double done, const std::string& note) {
  const double spent = seconds_since(start_);
  std::string left;
  if (done > 0.0 && spent >= 1.0) left = duration(spent * (1.0 - done) / done) + " left";
  bar_.update(static_cast<int64_t>(kSteps * done), note + left);
  if (quiet_ || bar_.visible() || seconds_since(line_) < line_seconds_) return;
  line_ = Stopwatch::now();
  say(fmt::format("{}: {:.0f} % done in {}, {}{}", label_, std::floor(100 * done), duration(spent), note,
                  left));
}

std::string margin(double standard_error, int decimals) {
  return !std::isfinite(standard_error) ? "" : "± " + fixed(standard_error, decimals);
}

std::string one_line(const std::string& text) {
  constexpr size_t kMost = 4000;
  std::string line = printable(text);
  if (line.size() <= kMost) return line;
  const size_t rest = line.size() - kMost / 4;
  return line.substr(0, char_start(line, kMost / 2)) + " ... " + line.substr(char_start(line, rest));
}

std::string json_text(const nlohmann::ordered_json& json) {
  return json.dump(-1, ' ', false, nlohmann::ordered_json::error_handler_t::replace);
}

void print_json(const nlohmann::ordered_json& json) { std::cout << json_text(json) << "\n" << std::flush; }

}  // namespace lariat
