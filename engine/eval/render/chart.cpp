#include "engine/eval/render/chart.h"

#include <fmt/core.h>

#include <cmath>

#include "models/text/unicode.h"

namespace lariat {
std::string grouped(double value) {
  std::string digits = fmt::format("{:.0f}", value);
  for (auto i = static_cast<int>(digits.size()) - 3; i > 0 && digits.size() > 4; i -= 3)
    digits.insert(static_cast<size_t>(i), "\u2009");
  return digits;
}

std::string xml_escaped(std::string_view text) {
  std::string out;
  for (const char c : valid_utf8(text)) static_cast<unsigned char>(c) < 0x20 ? out += "\uFFFD" : out += c;
  for (const auto& [character, entity] :
       {std::pair("&", "&amp;"), std::pair("<", "&lt;"), std::pair(">", "&gt;"), std::pair("\"", "&quot;")})
    out = replace_all(out, character, entity);
  return out;
}

std::string svg_root(double width, double height, std::string_view style, std::string_view name,
                     std::string_view inside) {
  return fmt::format(
      "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {} {}\" role=\"img\" aria-label=\"{}\" "
      "class=\"{}\">\n{}</svg>\n",
      svg_number(width), svg_number(height), xml_escaped(name), style, inside);
}

std::string svg_number(double value) {
  std::string digits = fmt::format("{:.1f}", value);
  if (digits.ends_with(".0")) digits.resize(digits.size() - 2);
  return digits;
}

std::string svg_text(double x, double y, std::string_view anchor, std::string_view style,
                     std::string_view text) {
  return fmt::format("<text x=\"{}\" y=\"{}\" text-anchor=\"{}\" class=\"{}\">{}</text>\n", svg_number(x),
                     svg_number(y), anchor, style, text);
}

std::string svg_path(std::string_view style, const Points& points) {
  std::string path;
  for (const auto& [x, y] : points) {
    path += fmt::format("{}{} {}", path.empty() ? "M" : "L", svg_number(x), svg_number(y));
  }
  return fmt::format("<path class=\"{}\" d=\"{}\"/>\n", style, path);
}

double Axis::at(double value) const {
  if (low == high) return 0.5;
  return logarithmic ? std::log(value / low) / std::log(high / low) : (value - low) / (high - low);
}

std::vector<double> round_numbers(const Axis& axis) {
  std::vector<double> all, ticks;
  if (axis.logarithmic) {
    const bool far = std::log10(axis.high / axis.low) > 3;
    for (double e = std::floor(std::log10(axis.low)); e <= std::log10(axis.high); ++e) {
      for (const double digit : {1.0, 2.0, 5.0}) {
        const double tick = digit * std::pow(10.0, e);
        if (tick >= axis.low && tick <= axis.high && (digit == 1.0 || !far)) all.push_back(tick);
      }
    }
    const size_t every = all.size() <= 9 ? 1 : (all.size() + 6) / 7;
    for (size_t i = 0; i < all.size(); i += every) ticks.push_back(all[i]);
    if (ticks.size() >= 3) return ticks;
    ticks.clear();
  }
  const double ten = std::pow(10.0, std::floor(std::log10((axis.high - axis.low) / 3)));
  double step = 10 * ten;
  for (const double digit : {5.0, 2.0, 1.0}) {
    if ((axis.high - axis.low) / (digit * ten) <= 6) step = digit * ten;
  }
  for (double i = std::ceil(axis.low / step); i * step <= axis.high * (1 + 1e-12); ++i)
    ticks.push_back(i * step);
  return ticks;
}

std::string Chart::across_at(double value, std::string_view style) const {
  return svg_line(left, y(value), right, y(value), style);
}

std::string Chart::up_at(double value, std::string_view style) const {
  return svg_line(x(value), top, x(value), bottom, style);
}

std::string Chart::tick_across(double value, std::string_view label) const {
  return up_at(value, "grid") + svg_text(x(value), bottom + 18, "middle", "tick", label);
}

std::string Chart::tick_up(double value, std::string_view label) const {
  return across_at(value, "grid") + svg_text(left - 8, y(value) + 4, "end", "tick", label);
}

std::string Chart::curve(std::string_view style, Points values) const {
  for (auto& [across_value, up_value] : values) {
    across_value = x(across_value);
    up_value = y(up_value);
  }
  return svg_path(style, values);
}

std::string svg_heading(const Chart& chart, std::string_view title, std::string_view note) {
  return svg_text(chart.left, chart.top - 30, "start", "head", title) +
         svg_text(chart.left, chart.top - 12, "start", "note", note);
}

}  // namespace lariat
