#include "engine/eval/render/rope_svg.h"

#include <fmt/core.h>

#include <algorithm>
#include <cmath>
#include <complex>
#include <functional>
#include <numbers>
#include <utility>

#include "engine/eval/render/chart.h"
#include "models/spec/rope_config.h"

namespace lariat {
namespace {

constexpr double kWidth = 980.0, kLeft = 72.0, kRight = 956.0;

// One curve: a scaling, or several scalings with equal frequencies.
struct Curve {
  std::string label, style;  // style: CSS class
  std::vector<double> inv_freq;
};

std::string pair_ticks(const Chart& chart) {
  std::string svg;
  const int last = static_cast<int>(chart.across.high), step = std::max(1, (last + 3) / 4);
  for (int pair = 0; pair <= last; pair += step) svg += chart.tick_across(pair, std::to_string(pair));
  return svg + svg_text(chart.right, chart.bottom + 36, "end", "note", "pair, fast → slow");
}

// Plots value(inv_freq, pair) of all rotating pairs.
template <typename F>
std::string pair_curve(const Chart& chart, const Curve& series, const F& value) {
  Points points;
  for (size_t i = 0; i < series.inv_freq.size(); ++i) {
    if (series.inv_freq[i] > 0.0) points.emplace_back(static_cast<double>(i), value(series.inv_freq[i], i));
  }
  return chart.curve("curve " + series.style, points);
}

// Style for light and dark pages, standalone or embedded, and for viewers without CSS variables. Dashes
// distinguish overlapping curves.
const char* const kRopeStyle = R"(<style>
text { font: 13px system-ui, -apple-system, "Segoe UI", Roboto, "DejaVu Sans", sans-serif; fill: #1f2328; }
.title { font-size: 21px; font-weight: 650; } .head { font-size: 15px; font-weight: 650; }
.note, .tick, .sub { fill: #59636e; } .tick, .mark { font-size: 12px; }
.mark { paint-order: stroke; stroke: #ffffff; stroke-width: 4px; stroke-linejoin: round; }
.paper { fill: #ffffff; } .grid { stroke: #e4e8ec; fill: none; }
.rule { stroke: #59636e; stroke-dasharray: 3 3; fill: none; }
.curve { fill: none; stroke-width: 2.2; stroke-linejoin: round; stroke-linecap: round; }
.plain { stroke: #8a939d; } .linear { stroke: #d9480f; } .ntk { stroke: #2563eb; } .yarn { stroke: #0b8f83; }
.llama3 { stroke: #8b35d6; stroke-dasharray: 8 5; } .own { stroke: #be185d; }
.chosen { stroke-width: 3.4; }
.sinus { stroke: #8a939d; stroke-dasharray: 2 5; }
@media (prefers-color-scheme: dark) {
text { fill: #e6e9ed; } .note, .tick, .sub { fill: #9aa4af; } .paper { fill: #0f1318; } .mark { stroke: #0f1318; }
.grid { stroke: #262d35; } .rule { stroke: #9aa4af; } .plain, .sinus { stroke: #7d8893; }
.linear { stroke: #ff9a4d; } .ntk { stroke: #7aa9ff; } .yarn { stroke: #34d3c3; } .llama3 { stroke: #c893ff; }
.own { stroke: #ff7ab8; }
}
</style>
)";

// --- figures ---

bool same(const std::vector<double>& a, const std::vector<double>& b) {
  if (a.size() != b.size()) return false;
  for (size_t i = 0; i < a.size(); ++i) {
    if (std::abs(a[i] - b[i]) > 1e-9 * std::abs(b[i])) return false;
  }
  return true;
}

double factor_of(const RopeScaling& rope, double length) {
  const double own = rope_scale(rope, length), reached = length / static_cast<double>(rope.original_ctx);
  if (own > 1.0) return own;
  return reached > 1.0 ? reached : 4.0;
}

// Curves of all types that need only a factor, and of `rope` at `length`.
std::vector<Curve> make_series(const RopeScaling& rope, double length, double factor) {
  RopeScaling whole = rope;  // proportional: pairs of the whole head
  if (rope.type == RopeType::kProportional) whole.partial_rotary_factor = 1.0;
  std::vector<Curve> all{
      {"no scaling", "plain", rope_unscaled(rope_of_type(whole, RopeType::kDefault)).inv_freq}};
  const auto add = [&](const std::string& label, const std::string& style, std::vector<double> inv_freq) {
    for (Curve& s : all) {
      if (!same(s.inv_freq, inv_freq)) continue;
      s.label += label.empty() ? " (chosen)" : " = " + label;
      if (label.empty()) s.style += " chosen";
      return;
    }
    all.push_back(
        {label.empty() ? std::string(name_of(rope.type)) + " (chosen)" : label, style, std::move(inv_freq)});
  };
  const double stretched = factor * static_cast<double>(rope.original_ctx);
  for (const auto& [type, style] :
       {std::pair(RopeType::kLinear, "linear"), std::pair(RopeType::kNtk, "ntk"),
        std::pair(RopeType::kDynamic, "ntk"), std::pair(RopeType::kYarn, "yarn"),
        std::pair(RopeType::kDynamicYarn, "yarn"), std::pair(RopeType::kLlama3, "llama3")}) {
    RopeScaling other = rope_of_type(whole, type);
    other.original_ctx = rope.original_ctx;
    if (!other.depends_on_length()) other.factor = factor;
    if (other.rotary_dim < 4) continue;  // too few pairs for NTK
    add(std::string(name_of(type)), style, rope_frequencies(other, stretched).inv_freq);
  }
  if (rope.type != RopeType::kDefault) add("", "own chosen", rope_frequencies(rope, length).inv_freq);
  return all;
}

std::string draw_ratios(const std::vector<Curve>& all, Chart chart) {
  const auto& plain = all.front().inv_freq;
  double low = 0.5;
  for (const Curve& s : all) {
    for (size_t i = 0; i < s.inv_freq.size(); ++i) {
      if (s.inv_freq[i] > 0.0) low = std::min(low, s.inv_freq[i] / plain[i]);
    }
  }
  chart.across.high = static_cast<double>(std::max<size_t>(plain.size() - 1, 1));
  chart.up = {low / 1.12, 1.12, true};
  std::string svg = svg_heading(chart, "How much each pair is slowed",
                                "its frequency over the unscaled one; fast pairs left");
  const double octaves = std::ceil(-std::log2(low) - 1e-9), step = std::max(1.0, std::ceil(octaves / 6.0));
  for (double o = 0.0; std::exp2(-o) >= low / 1.1; o += step)
    svg += chart.tick_up(std::exp2(-o), o == 0.0 ? "1" : fmt::format("1/{:.0f}", std::exp2(o)));
  svg += pair_ticks(chart);
  for (const Curve& s : all) {
    svg += pair_curve(chart, s, [&](double inv_freq, size_t pair) { return inv_freq / plain[pair]; });
  }
  return svg;
}

// turns: of the fastest pair that YaRN slows, within L0; 0: not drawn.
std::string draw_wavelengths(const std::vector<Curve>& all, double l0, double reach, double turns,
                             Chart chart) {
  const auto wavelength = [](double inv_freq, size_t) { return 2.0 * std::numbers::pi / inv_freq; };
  double longest = reach * 1.6;
  for (const Curve& s : all) {
    for (const double f : s.inv_freq) {
      if (f > 0.0) longest = std::max(longest, wavelength(f, 0));
    }
  }
  chart.across.high = static_cast<double>(std::max<size_t>(all.front().inv_freq.size() - 1, 1));
  chart.up = {std::min(4.0, l0 / 1.5), longest * 1.3, true};
  std::string svg = svg_heading(chart, "Wavelengths", "tokens per full rotation, on a logarithmic scale");
  for (double v = 10.0; v <= longest * 1.3; v *= 10.0)
    svg += chart.tick_up(v, v < 1e4   ? fmt::format("{:.0f}", v)
                            : v < 1e6 ? fmt::format("{:.0f}k", v / 1e3)
                            : v < 1e9 ? fmt::format("{:.0f}M", v / 1e6)
                                      : fmt::format("{:.0e}", v));
  svg += pair_ticks(chart);
  for (const double v : {l0, reach}) svg += chart.across_at(v, "rule");
  if (turns > 1) {  // YaRN's ramp
    svg += chart.across_at(l0 / turns, "rule") + svg_text(chart.right - 8, chart.y(l0 / turns) + 16, "end",
                                                          "mark", fmt::format("{:g} turns in it", turns));
  }
  for (const Curve& s : all) svg += pair_curve(chart, s, wavelength);
  // Labels avoid the curves: slow pairs lie above the original context, fast pairs below the stretched one.
  svg += svg_text(chart.right - 8, chart.y(l0) + 16, "end", "mark", "original " + grouped(l0));
  return svg +
         svg_text(chart.left + 8, chart.y(reach) - 7, "start", "mark", "stretched to " + grouped(reach));
}

// A curve over log-spaced distances 1..reach. Each point averages the distances within an eighth, as scores
// oscillate faster than a pixel.
Points over_distances(double reach, const std::function<double(double)>& decay) {
  constexpr int kPoints = 160, kMost = 24;
  Points points;
  for (int i = 0; i < kPoints; ++i) {
    const double at = std::pow(reach, static_cast<double>(i) / (kPoints - 1));
    const double from = std::ceil(at / 1.125 - 1e-9), to = std::max(from, std::floor(at * 1.125));
    const int n = static_cast<int>(std::min<double>(kMost, to - from + 1.0));
    if (n == 1 && at != 1.0 && points.back().first == from) continue;
    double sum = 0.0;
    for (int k = 0; k < n; ++k) sum += decay(n == 1 ? from : from + std::floor((to - from) * k / (n - 1)));
    points.emplace_back(n == 1 ? std::min(from, reach) : at, sum / n);
  }
  return points;
}

std::string draw_decay(const std::vector<Curve>& all, double l0, double reach, Chart chart) {
  chart.across = {1.0, reach, true};
  std::string svg =
      svg_heading(chart, "Long-range decay",
                  "bound on what reaches over a distance (RoFormer, section 3.4.3), relative to distance 0");
  for (const double v : {0.0, 0.25, 0.5, 0.75, 1.0}) svg += chart.tick_up(v, fmt::format("{:.2f}", v));
  for (double v = 1.0; v <= reach; v *= 10.0) svg += chart.tick_across(v, grouped(v));
  svg += svg_text(chart.right, chart.bottom + 38, "end", "note", "distance in tokens");
  svg += chart.up_at(l0, "rule");
  const double x = chart.x(l0);
  const bool room = x > chart.left + 200.0;  // the label fits left of the line
  svg += svg_text(x + (room ? -6 : 6), chart.top + 14, room ? "end" : "start", "mark",
                  "original context " + grouped(l0));
  svg += chart.up_at(reach, "rule");
  svg += svg_text(chart.right - 6, chart.top + 32, "end", "mark", "stretched to " + grouped(reach));
  const auto sinus = sinusoidal_frequencies(all.front().inv_freq.size());
  svg += chart.curve("curve sinus",
                     over_distances(reach, [&](double m) { return std::abs(sinusoidal_score(sinus, m)); }));
  for (const Curve& s : all) {
    svg += chart.curve("curve " + s.style,
                       over_distances(reach, [&](double m) { return rope_decay(s.inv_freq, m); }));
  }
  return svg;
}

// Distances that the last of `length` tokens sees; gaps are masked keys.
std::string draw_distances(const PositionMethod& method, double l0, int64_t length, Chart chart) {
  chart.across = chart.up = {1.0, static_cast<double>(std::max<int64_t>(length, 10)), true};
  std::string svg = svg_heading(chart, "Distances under " + method.name,
                                fmt::format("as the last of {} tokens sees them", length));
  for (double v = 1.0; v <= chart.up.high; v *= 10.0)
    svg += chart.tick_up(v, grouped(v)) + chart.tick_across(v, grouped(v));
  svg += svg_text(chart.right, chart.bottom + 38, "end", "note", "distance in tokens") +
         chart.across_at(l0, "rule") +
         svg_text(chart.left + 8, chart.y(l0) - 7, "start", "mark", "original context " + grouped(l0)) +
         chart.curve("curve plain", {{1.0, 1.0}, {chart.up.high, chart.up.high}});
  constexpr int kPoints = 1200;
  Points line;
  const auto end_line = [&] {
    if (!line.empty()) svg += chart.curve("curve own", std::exchange(line, {}));
  };
  int64_t before = 0;
  for (int i = 0; i < kPoints; ++i) {
    const auto d =
        static_cast<int64_t>(std::pow(static_cast<double>(length), static_cast<double>(i) / kPoints));
    if (d == std::exchange(before, d) || d >= length) continue;
    const auto seen = method.distance(length - 1, length - 1 - d, static_cast<double>(length));
    if (!seen) {
      end_line();
    } else {
      line.emplace_back(static_cast<double>(d), std::max(*seen, 1.0));
    }
  }
  end_line();
  return svg;
}

// Draws labels from `y` on and sets `y` to the last row. A character has about 7 px.
std::string draw_legend(const std::vector<Curve>& all, bool sinus, double& y) {
  std::string svg;
  double x = kLeft;
  const auto item = [&](const std::string& style, const std::string& label) {
    const double width = 34.0 + 7.3 * static_cast<double>(label.size()) + 22.0;
    if (x + width > kRight && x > kLeft) {
      x = kLeft;
      y += 24.0;
    }
    svg += svg_line(x, y - 4.5, x + 26, y - 4.5, "curve " + style);
    svg += svg_text(x + 34.0, y, "start", "label", label);
    x += width;
  };
  for (const Curve& s : all) item(s.style, s.label);
  if (sinus) item("sinus", "sinusoidal positions (decay only)");
  return svg;
}

}  // namespace

double rope_decay(const std::vector<double>& inv_freq, double distance) {
  std::complex<double> sum = 0.0;
  double total = 0.0;
  for (const double f : inv_freq) {
    sum += std::polar(1.0, distance * f);
    total += std::abs(sum);
  }
  const auto n = static_cast<double>(inv_freq.size());
  return total / (n * (n + 1.0) / 2.0);
}

std::vector<double> sinusoidal_frequencies(size_t pairs) {
  std::vector<double> frequencies;
  for (size_t i = 0; i < pairs; ++i)
    frequencies.push_back(std::pow(1e4, -static_cast<double>(i) / static_cast<double>(pairs)));
  return frequencies;
}

double sinusoidal_score(const std::vector<double>& inv_freq, double distance) {
  double sum = 0.0;
  for (const double f : inv_freq) sum += std::cos(distance * f);
  return sum / static_cast<double>(inv_freq.size());
}

std::string rope_svg(const RopeScaling& rope, double length, RopePanels panels,
                     const PositionMethod& method) {
  const double factor = factor_of(rope, length), l0 = static_cast<double>(rope.original_ctx);
  const double reach = std::max(factor * l0, 10.0);
  const std::vector<Curve> all = make_series(rope, length, factor);
  const double a = rope_frequencies(rope, length).attention_factor;
  const std::string temperature = a == 1.0 ? "" : fmt::format(", attention factor {:.4g}", a);
  const bool ramps = rope.type == RopeType::kYarn || rope.type == RopeType::kDynamicYarn;
  std::string body = svg_text(kLeft, 42, "start", "title",
                              fmt::format("RoPE scalings at {:.4g} times the original context", factor)) +
                     svg_text(kLeft, 66, "start", "sub",
                              fmt::format("{} rotary dimensions, theta {:.10g}, original context {}{}",
                                          rope.rotary_dim, rope.theta, grouped(l0), temperature));
  const auto drawn = [&](RopePanels panel) { return panels == RopePanels::kAll || panels == panel; };
  double y = 98.0;
  body += draw_legend(all, drawn(RopePanels::kDecay), y);
  y += 62.0;
  if (drawn(RopePanels::kFrequencies)) {
    body += draw_ratios(all, {kLeft, y, kLeft + 380.0, y + 250.0});
    body += draw_wavelengths(all, l0, reach, ramps ? rope.beta_fast : 0.0,
                             {kRight - 380.0, y, kRight, y + 250.0});
    y += 250.0 + 104.0;
  }
  if (drawn(RopePanels::kDecay)) {
    body += draw_decay(all, l0, reach, {kLeft, y, kRight, y + 280.0});
    y += 280.0 + 104.0;
  }
  if (!method.ranges.empty()) {
    body += draw_distances(method, l0, static_cast<int64_t>(length), {kLeft, y, kRight, y + 280.0});
    y += 280.0 + 104.0;
  }
  return fmt::format(
      "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {0:.0f} {1:.0f}\" width=\"{0:.0f}\" "
      "height=\"{1:.0f}\" role=\"img\" aria-label=\"RoPE scalings compared\">\n"
      "{2}<rect class=\"paper\" width=\"{0:.0f}\" height=\"{1:.0f}\"/>\n{3}</svg>\n",
      kWidth, y - 60.0, kRopeStyle, body);
}

}  // namespace lariat
