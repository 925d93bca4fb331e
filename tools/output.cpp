#include <fmt/ostream.h>
#include <fmt/ranges.h>
#include <unistd.h>

#include <iostream>
#include <set>

#include "models/text/unicode.h"
#include "tools/common.h"

namespace lariat {
namespace {

// Options by setting. Messages below tools/ name settings in backticks.
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
    {"`scalings`", "--scalings"},
    {"`resume`", "--resume"},
    {"`rope_scaling`", "--rope-scaling"},
    {"`rope_factor`", "--rope-factor"},
    {"`rope_original_ctx`", "--rope-original-ctx"},
    {"`rope_theta`", "--rope-theta"},
    {"`rope_config`", "--rope-config"},
};

}  // namespace

std::string with_options(std::string text) {
  for (const auto& [setting, option] : kOptions) text = replace_all(text, setting, option);
  return text;
}

void say(const std::string& line) { std::cerr << one_line("lariat: " + with_options(line)) << "\n"; }

void print_warnings(const std::vector<std::string>& lines, bool quiet) {
  static std::set<std::string> said;  // prints a repeated warning once
  for (const std::string& line : lines) {
    if (!quiet && said.insert(line).second) say("warning: " + line);
  }
}

void warn_idle(const CommonOptions& options, std::vector<std::string> names, const std::string& why) {
  std::erase_if(names, [&](const std::string& name) { return options.command->count(name) == 0; });
  if (names.empty()) return;
  const char* change = names.size() == 1 ? "has" : "have";
  print_warnings({fmt::format("{} {} no effect {}", fmt::join(names, ", "), change, why)}, options.quiet);
}

void warn_of_still_scale(const CommonOptions& options, const RopeScaling& rope) {
  if (rope.depends_on_length()) return;
  warn_idle(options, {"--rope-steps", "--rope-cache"},
            "without a dynamic scale; use --rope-scaling dynamic-yarn");
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

std::string one_line(const std::string& text) {
  constexpr size_t kMost = 4000;
  std::string line = printable(text);
  if (line.size() <= kMost) return line;
  const size_t rest = line.size() - kMost / 4;
  return line.substr(0, char_start(line, kMost / 2)) + " ... " + line.substr(char_start(line, rest));
}

void print_json(const nlohmann::ordered_json& json) {
  std::cout << json.dump(-1, ' ', false, nlohmann::ordered_json::error_handler_t::replace) << "\n"
            << std::flush;
}

}  // namespace lariat
