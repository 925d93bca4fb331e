#pragma once
#include <string>
#include <string_view>
#include <utility>
#include <vector>

// SVG elements, axes and curves for the figures of `lariat rope` and sweeps.
namespace lariat {

// Groups digits by three with thin spaces: 4096, 65 536.
std::string grouped(double value);

// Escapes text for XML and HTML; control characters, which XML 1.0 forbids, become U+FFFD.
std::string xml_escaped(std::string_view text);
// Wraps `inside` in an <svg>, in pixels. name: text for screen readers; style: CSS class.
std::string svg_root(double width, double height, std::string_view style, std::string_view name,
                     std::string_view inside);

// Formats pixels with at most one decimal.
std::string svg_number(double value);
// anchor: start, middle or end. The text must not need XML escapes.
std::string svg_text(double x, double y, std::string_view anchor, std::string_view style,
                     std::string_view text);
using Points = std::vector<std::pair<double, double>>;
std::string svg_path(std::string_view style, const Points& points);
inline std::string svg_line(double x1, double y1, double x2, double y2, std::string_view style) {
  return svg_path(style, {{x1, y1}, {x2, y2}});
}

struct Axis {
  double low = 0, high = 1;
  bool logarithmic = false;
  bool holds(double value) const { return value >= low && value <= high; }
  double at(double value) const;  // 0 at low, 1 at high; 0.5 if low == high
};

// Tick values: 1, 2 and 5 times powers of ten on a logarithmic axis, otherwise equal steps.
std::vector<double> round_numbers(const Axis& axis);

// Plot area, in pixels from the figure's corner.
struct Chart {
  double left, top, right, bottom;
  Axis across{}, up{};

  double x(double value) const { return left + across.at(value) * (right - left); }
  double y(double value) const { return bottom - up.at(value) * (bottom - top); }
  // Lines across the plot area.
  std::string across_at(double value, std::string_view style) const;
  std::string up_at(double value, std::string_view style) const;
  // Grid lines with labels.
  std::string tick_across(double value, std::string_view label) const;
  std::string tick_up(double value, std::string_view label) const;
  // A polyline in axis units.
  std::string curve(std::string_view style, Points values) const;
};

std::string svg_heading(const Chart& chart, std::string_view title, std::string_view note);

}  // namespace lariat
