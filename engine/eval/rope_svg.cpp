#include "engine/eval/rope_svg.h"

#include <algorithm>
#include <cmath>
#include <complex>
#include <cstdarg>
#include <cstdio>
#include <numbers>
#include <utility>

#include "models/rope_config.h"

namespace lariat {
namespace {

constexpr double kWidth = 980.0, kLeft = 72.0, kRight = 956.0;

// One curve: a way to stretch the model, or several that come to the same.
struct Series {
  std::string label, style;  // style: a CSS class below
  std::vector<double> inv_freq;
};

std::string format(const char* pattern, ...) __attribute__((format(printf, 1, 2)));
std::string format(const char* pattern, ...) {
  char text[512];
  va_list args;
  va_start(args, pattern);
  std::vsnprintf(text, sizeof text, pattern, args);
  va_end(args);
  return text;
}

// 4096, 65 536: figures in groups of three with thin spaces.
std::string grouped(double value) {
  std::string digits = format("%.0f", value);
  for (auto i = static_cast<int>(digits.size()) - 3; i > 0 && digits.size() > 4; i -= 3)
    digits.insert(static_cast<size_t>(i), "\u2009");
  return digits;
}

// --- the picture's pieces ---

struct Axis {
  double lo, hi;
  bool log = false;
  double at(double v) const { return log ? std::log(v / lo) / std::log(hi / lo) : (v - lo) / (hi - lo); }
};

struct Panel {
  double x, y, w, h;
  Axis across, up;
  std::string svg{};

  double px(double v) const { return x + w * across.at(v); }
  double py(double v) const { return y + h * (1.0 - up.at(v)); }

  void text(double tx, double ty, const char* style, const std::string& words) {
    svg += format("<text x=\"%.1f\" y=\"%.1f\" class=\"%s\">", tx, ty, style) + words + "</text>\n";
  }
  void head(const std::string& title, const std::string& note) {
    text(x, y - 30, "head", title);
    text(x, y - 12, "note", note);
  }
  void tick_x(double v, const std::string& label) {
    svg += format("<path class=\"grid\" d=\"M%.1f %.1fV%.1f\"/>\n", px(v), y, y + h);
    text(px(v), y + h + 18, "tick mid", label);
  }
  void tick_y(double v, const std::string& label) {
    svg += format("<path class=\"grid\" d=\"M%.1f %.1fH%.1f\"/>\n", x, py(v), x + w);
    text(x - 8, py(v) + 4, "tick end", label);
  }
  void pair_ticks() {
    const int last = static_cast<int>(across.hi), step = std::max(1, (last + 3) / 4);
    for (int pair = 0; pair <= last; pair += step) tick_x(pair, std::to_string(pair));
    text(x + w, y + h + 36, "note end", "pair");
  }
  void curve(const std::string& style, const std::vector<std::pair<double, double>>& points) {
    svg += "<path class=\"curve " + style + "\" d=\"";
    const char* step = "M";
    for (const auto& [vx, vy] : points) {
      svg += format("%s%.1f %.1f", step, px(vx), py(vy));
      step = "L";
    }
    svg += "\"/>\n";
  }
};

// For light and dark pages, alone or embedded, and for viewers without CSS variables. Curves that lie on each
// other differ in their dashes.
const char* const kStyle = R"(<style>
text { font: 13px system-ui, -apple-system, "Segoe UI", Roboto, "DejaVu Sans", sans-serif; fill: #1f2328; }
.title { font-size: 21px; font-weight: 650; } .head { font-size: 15px; font-weight: 650; }
.note, .tick, .sub { fill: #59636e; } .tick, .mark { font-size: 12px; }
.mid { text-anchor: middle; } .end { text-anchor: end; }
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

// --- what is drawn ---

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

// Every type that is made of a factor alone, at `factor`, and `rope` itself at `length`.
std::vector<Series> make_series(const RopeScaling& rope, double length, double factor) {
  RopeScaling whole = rope;  // a proportional head counts all its pairs, turning or not
  if (rope.type == RopeType::kProportional) whole.partial_rotary_factor = 1.0;
  std::vector<Series> all{
      {"no scaling", "plain", rope_unscaled(rope_of_type(whole, RopeType::kDefault)).inv_freq}};
  const auto add = [&](const std::string& label, const std::string& style, std::vector<double> inv_freq) {
    for (Series& s : all) {
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

std::string draw_ratios(const std::vector<Series>& all, double x, double y, double w, double h) {
  const auto& plain = all.front().inv_freq;
  double low = 0.5;
  for (const Series& s : all) {
    for (size_t i = 0; i < s.inv_freq.size(); ++i) {
      if (s.inv_freq[i] > 0.0) low = std::min(low, s.inv_freq[i] / plain[i]);
    }
  }
  const auto last = static_cast<double>(std::max<size_t>(plain.size() - 1, 1));
  Panel panel{x, y, w, h, {0.0, last}, {low / 1.12, 1.12, true}};
  panel.head("How much each pair is slowed", "its frequency over the unscaled one; fast pairs left");
  const double octaves = std::ceil(-std::log2(low) - 1e-9), step = std::max(1.0, std::ceil(octaves / 6.0));
  for (double o = 0.0; std::exp2(-o) >= low / 1.1; o += step)
    panel.tick_y(std::exp2(-o), o == 0.0 ? "1" : "1/" + format("%.0f", std::exp2(o)));
  panel.pair_ticks();
  for (const Series& s : all) {
    std::vector<std::pair<double, double>> points;
    for (size_t i = 0; i < s.inv_freq.size(); ++i) {
      if (s.inv_freq[i] > 0.0) points.emplace_back(static_cast<double>(i), s.inv_freq[i] / plain[i]);
    }
    panel.curve(s.style, points);
  }
  return panel.svg;
}

std::string draw_wavelengths(const std::vector<Series>& all, double l0, double reach, double x, double y,
                             double w, double h) {
  double longest = reach * 1.6;
  for (const Series& s : all) {
    for (const double f : s.inv_freq) {
      if (f > 0.0) longest = std::max(longest, 2.0 * std::numbers::pi / f);
    }
  }
  const auto last = static_cast<double>(std::max<size_t>(all.front().inv_freq.size() - 1, 1));
  Panel panel{x, y, w, h, {0.0, last}, {std::min(4.0, l0 / 1.5), longest * 1.3, true}};
  panel.head("Wavelengths", "tokens per turn, on a logarithmic scale");
  for (double v = 10.0; v <= longest * 1.3; v *= 10.0)
    panel.tick_y(v, v < 1e4   ? format("%.0f", v)
                    : v < 1e6 ? format("%.0fk", v / 1e3)
                    : v < 1e9 ? format("%.0fM", v / 1e6)
                              : format("%.0e", v));
  panel.pair_ticks();
  for (const double v : {l0, reach})
    panel.svg += format("<path class=\"rule\" d=\"M%.1f %.1fH%.1f\"/>\n", x, panel.py(v), x + w);
  for (const Series& s : all) {
    std::vector<std::pair<double, double>> points;
    for (size_t i = 0; i < s.inv_freq.size(); ++i) {
      if (s.inv_freq[i] > 0.0)
        points.emplace_back(static_cast<double>(i), 2.0 * std::numbers::pi / s.inv_freq[i]);
    }
    panel.curve(s.style, points);
  }
  // Where the curves are not: slow pairs lie above the original context, fast ones below the stretched one.
  panel.text(x + w - 8, panel.py(l0) + 16, "mark end", "original " + grouped(l0));
  panel.text(x + 8, panel.py(reach) - 7, "mark", "stretched to " + grouped(reach));
  return panel.svg;
}

// A curve over distances 1..reach, log-spaced. The bound wiggles faster than a pixel; each point is the mean
// over the distances within an eighth of it.
template <typename F>
std::vector<std::pair<double, double>> over_distances(double reach, const F& decay) {
  constexpr int kPoints = 160, kMost = 24;
  std::vector<std::pair<double, double>> points;
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

std::string draw_decay(const std::vector<Series>& all, double l0, double reach, double x, double y, double w,
                       double h) {
  Panel panel{x, y, w, h, {1.0, reach, true}, {0.0, 1.0}};
  panel.head("Long-range decay",
             "bound on what reaches over a distance (RoFormer, section 3.4.3), relative to distance 0");
  for (const double v : {0.0, 0.25, 0.5, 0.75, 1.0}) panel.tick_y(v, format("%.2f", v));
  for (double v = 1.0; v <= reach; v *= 10.0) panel.tick_x(v, grouped(v));
  panel.text(x + w, y + h + 38, "note end", "distance in tokens");
  panel.svg += format("<path class=\"rule\" d=\"M%.1f %.1fV%.1f\"/>\n", panel.px(l0), y, y + h);
  const bool room = panel.px(l0) > x + 200.0;  // left of its line, unless that is at the panel's edge
  panel.text(panel.px(l0) + (room ? -6 : 6), y + 14, room ? "mark end" : "mark",
             "original context " + grouped(l0));
  panel.svg += format("<path class=\"rule\" d=\"M%.1f %.1fV%.1f\"/>\n", x + w, y, y + h);
  panel.text(x + w - 6, y + 32, "mark end", "stretched to " + grouped(reach));
  const size_t pairs = all.front().inv_freq.size();
  panel.curve("sinus", over_distances(reach, [&](double m) { return sinusoidal_decay(pairs, m); }));
  for (const Series& s : all)
    panel.curve(s.style, over_distances(reach, [&](double m) { return rope_decay(s.inv_freq, m); }));
  return panel.svg;
}

// Labels in rows; returns the height used. A character of 13 px system-ui is 7 px wide on average.
std::string draw_legend(const std::vector<Series>& all, double y, double& bottom) {
  std::string svg;
  double x = kLeft;
  const auto item = [&](const std::string& style, const std::string& label) {
    const double width = 34.0 + 7.3 * static_cast<double>(label.size()) + 22.0;
    if (x + width > kRight && x > kLeft) {
      x = kLeft;
      y += 24.0;
    }
    svg += format("<path class=\"curve %s\" d=\"M%.1f %.1fh26\"/>\n", style.c_str(), x, y - 4.5);
    svg += format("<text x=\"%.1f\" y=\"%.1f\">", x + 34.0, y) + label + "</text>\n";
    x += width;
  };
  for (const Series& s : all) item(s.style, s.label);
  item("sinus", "sinusoidal positions (decay only)");
  bottom = y;
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

double sinusoidal_decay(size_t pairs, double distance) {
  const auto n = static_cast<double>(pairs);
  double sum = 0.0;
  for (size_t i = 0; i < pairs; ++i) sum += std::cos(distance * std::pow(1e4, -static_cast<double>(i) / n));
  return std::abs(sum) / n;
}

std::string rope_svg(const RopeScaling& rope, double length) {
  const double factor = factor_of(rope, length), l0 = static_cast<double>(rope.original_ctx);
  const double reach = std::max(factor * l0, 10.0);
  const std::vector<Series> all = make_series(rope, length, factor);
  std::string body;
  double legend = 0.0;
  body += format(
      "<text x=\"%.0f\" y=\"42\" class=\"title\">RoPE scalings at %.4g times the original context</text>\n",
      kLeft, factor);
  body +=
      format("<text x=\"%.0f\" y=\"66\" class=\"sub\">%lld rotary dimensions, theta %.10g, original context ",
             kLeft, static_cast<long long>(rope.rotary_dim), rope.theta) +
      grouped(l0) + "</text>\n";
  body += draw_legend(all, 98.0, legend);
  const double top = legend + 62.0, height = 250.0;
  body += draw_ratios(all, kLeft, top, 380.0, height);
  body += draw_wavelengths(all, l0, reach, 576.0, top, 380.0, height);
  const double second = top + height + 104.0;
  body += draw_decay(all, l0, reach, kLeft, second, kRight - kLeft, 280.0);
  const double bottom = second + 280.0 + 56.0;
  return format(
             "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 %.0f %.0f\" width=\"%.0f\" "
             "height=\"%.0f\" "
             "role=\"img\" aria-label=\"RoPE scalings compared\">\n",
             kWidth, bottom, kWidth, bottom) +
         kStyle + format("<rect class=\"paper\" width=\"%.0f\" height=\"%.0f\"/>\n", kWidth, bottom) + body +
         "</svg>\n";
}

}  // namespace lariat
