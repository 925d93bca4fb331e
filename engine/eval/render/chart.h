#pragma once
#include <string>
#include <string_view>
#include <utility>
#include <vector>

// SVG elements, axes and curves, of which the pictures of `lariat rope` and of a sweep are made.
namespace lariat {

// A number with its figures in groups of three, thin spaces between: 4096, 65 536.
std::string grouped(double value);

// Text as XML and HTML have it; control characters, which XML 1.0 cannot write, become U+FFFD.
std::string xml_escaped(std::string_view text);
// `inside` as a picture of that size in pixels; name: read aloud in place of the picture; style: its class.
std::string svg_root(double width, double height, std::string_view style, std::string_view name,
                     std::string_view inside);

// A number of pixels: one decimal, none where it would be 0.
std::string svg_number(double value);
// anchor: start, middle or end, the point of the text that stands at x. The text has nothing in it that XML
// escapes.
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
  double at(double value) const;  // 0 at low, 1 at high; 0.5 when they are the same
};

// A rectangle of a picture, in pixels from the picture's corner, with an axis along two of its sides.
struct Chart {
  double left, top, right, bottom;
  Axis across{}, up{};

  double x(double value) const { return left + across.at(value) * (right - left); }
  double y(double value) const { return bottom - up.at(value) * (bottom - top); }
  // Lines through the whole rectangle.
  std::string across_at(double value, std::string_view style) const;
  std::string up_at(double value, std::string_view style) const;
  // A grid line and what stands beside it.
  std::string tick_across(double value, std::string_view label) const;
  std::string tick_up(double value, std::string_view label) const;
  // A line through points given in the units of the axes.
  std::string curve(std::string_view style, Points values) const;
};

// A title and a remark above it.
std::string svg_heading(const Chart& chart, std::string_view title, std::string_view note);

}  // namespace lariat
