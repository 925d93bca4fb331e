#include "engine/eval/report_svg.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <cstdio>

namespace lariat {
namespace {

constexpr double kLabelHeight = 17;  // between the baselines of two labels

std::string num(double value) {
  char text[32];
  std::snprintf(text, sizeof text, "%.1f", value);
  std::string digits = text;
  if (digits.size() > 2 && digits.compare(digits.size() - 2, 2, ".0") == 0) digits.resize(digits.size() - 2);
  return digits;
}

std::string svg_text(double x, double y, std::string_view anchor, std::string_view style,
                     std::string_view text) {
  return "<text x=\"" + num(x) + "\" y=\"" + num(y) + "\" text-anchor=\"" + std::string(anchor) +
         "\" class=\"" + std::string(style) + "\">" + xml_escaped(text) + "</text>\n";
}

std::string svg_line(double x1, double y1, double x2, double y2, std::string_view style) {
  return "<line x1=\"" + num(x1) + "\" y1=\"" + num(y1) + "\" x2=\"" + num(x2) + "\" y2=\"" + num(y2) +
         "\" class=\"" + std::string(style) + "\"/>\n";
}

// Round numbers of an axis that holds [low, high]: 1, 2 and 5 times powers of ten when it is logarithmic,
// else equal steps of such a number.
std::vector<double> round_numbers(double low, double high, bool logarithmic) {
  std::vector<double> ticks;
  if (logarithmic) {
    const double decades = std::log10(high / low);
    for (double ten = std::pow(10.0, std::floor(std::log10(low))); ten <= high; ten *= 10) {
      for (const double digit : {1.0, 2.0, 5.0}) {
        if (decades > 3 && digit != 1.0) continue;
        if (digit * ten >= low && digit * ten <= high) ticks.push_back(digit * ten);
      }
    }
    if (ticks.size() >= 3 && ticks.size() <= 9) return ticks;
    ticks.clear();
    if (decades > 3) {
      const double step = std::ceil(decades / 6);
      for (double e = std::ceil(std::log10(low)); e <= std::log10(high); e += step) {
        ticks.push_back(std::pow(10.0, e));
      }
      return ticks;
    }
  }
  const double span = high - low, ten = std::pow(10.0, std::floor(std::log10(span / 3)));
  double step = ten;
  for (const double digit : {2.0, 5.0, 10.0}) {
    if (span / step > 6) step = digit * ten;
  }
  for (double i = std::ceil(low / step); i * step <= high * (1 + 1e-12); ++i) ticks.push_back(i * step);
  return ticks;
}

// Moves labels apart: sorted by their wish, each at least kLabelHeight below the one before, all inside
// [top, bottom].
void spread(std::vector<std::pair<double, size_t>>& labels, double top, double bottom) {
  std::sort(labels.begin(), labels.end());
  double free = top;
  for (auto& [y, index] : labels) {
    y = std::max(y, free);
    free = y + kLabelHeight;
  }
  double limit = bottom;
  for (auto it = labels.rbegin(); it != labels.rend(); ++it) {
    it->first = std::min(it->first, limit);
    limit = it->first - kLabelHeight;
  }
}

struct Point {
  double x, y, low, high;
};

class PerplexityChart {
 public:
  PerplexityChart(const SweepTable& table, int width, int height)
      : table_(table), width_(width), height_(height), right_(width - 118), bottom_(height - 46) {
    low_ = HUGE_VAL;
    for (const auto& [key, value] : table.perplexity) {
      const double error = std::isfinite(value.standard_error) ? value.standard_error : 0;
      low_ = std::min(low_, std::max(value.ppl - error, value.ppl / 2));
      high_ = std::max(high_, value.ppl + error);
    }
    logarithmic_ = high_ > 3 * low_;
    const double margin =
        logarithmic_ ? std::pow(high_ / low_, 0.05) : 0.06 * std::max(high_ - low_, 0.01 * high_);
    low_ = logarithmic_ ? low_ / margin : std::max(low_ - margin, 0.0);
    high_ = logarithmic_ ? high_ * margin : high_ + margin;
    left_ = 20;
    ticks_ = round_numbers(low_, high_, logarithmic_);
    for (const double tick : ticks_)
      left_ = std::max(left_, 20 + 7.2 * static_cast<double>(label(tick).size()));
  }

  std::string draw() const {
    std::string svg = "<svg viewBox=\"0 0 " + std::to_string(width_) + " " + std::to_string(height_) +
                      "\" role=\"img\" aria-label=\"Perplexity by context length\">\n";
    svg += axes();
    std::vector<std::pair<double, size_t>> labels;
    for (size_t i = 0; i < table_.scalings.size(); ++i) {
      const auto points = points_of(table_.scalings[i]);
      if (points.empty()) continue;
      svg += curve(table_.scalings[i], points);
      labels.emplace_back(points.back().y, i);
    }
    spread(labels, top_ + 4, bottom_);
    for (const auto& [y, i] : labels) svg += end_label(table_.scalings[i], y);
    return svg + "</svg>\n";
  }

 private:
  std::string label(double tick) const {
    if (tick >= 1e6) return compact(tick);
    char text[32];
    std::snprintf(text, sizeof text, "%g", tick);
    return text;
  }
  double x(int64_t length) const {
    const auto first = static_cast<double>(table_.lengths.front()),
               last = static_cast<double>(table_.lengths.back());
    if (first == last) return (left_ + right_) / 2;
    const double inset = 12;
    const double t = std::log(static_cast<double>(length) / first) / std::log(last / first);
    return left_ + inset + t * (right_ - left_ - 2 * inset);
  }
  double y(double ppl) const {
    const double clamped = std::clamp(ppl, low_, high_);
    const double t =
        logarithmic_ ? std::log(clamped / low_) / std::log(high_ / low_) : (clamped - low_) / (high_ - low_);
    return bottom_ - t * (bottom_ - top_);
  }

  std::string axes() const {
    std::string svg;
    for (const double tick : ticks_) {
      svg += svg_line(left_, y(tick), right_, y(tick), "grid");
      svg += svg_text(left_ - 8, y(tick) + 4, "end", "tick", label(tick));
    }
    double last = -HUGE_VAL;
    for (const int64_t length : table_.lengths) {
      svg += svg_line(x(length), bottom_, x(length), bottom_ + 5, "axis");
      const std::string name = std::to_string(length);
      const double half = 3.8 * static_cast<double>(name.size());
      if (x(length) - half < last + 6) continue;  // no room beside the one before
      svg += svg_text(x(length), bottom_ + 20, "middle", "tick", name);
      last = x(length) + half;
    }
    svg += svg_line(left_, bottom_, right_, bottom_, "axis");
    svg += svg_text((left_ + right_) / 2, bottom_ + 39, "middle", "name", "context length (tokens)");
    svg += svg_text(left_ - 8, top_ - 12, "start", "name",
                    logarithmic_ ? "perplexity (log scale)" : "perplexity");
    if (table_.original_ctx > table_.lengths.front() && table_.original_ctx < table_.lengths.back()) {
      svg += svg_line(x(table_.original_ctx), top_, x(table_.original_ctx), bottom_, "origin");
      svg += svg_text(x(table_.original_ctx) + 5, top_ + 12, "start", "tick", "trained length");
    }
    return svg;
  }

  std::vector<Point> points_of(const std::string& scaling) const {
    std::vector<Point> points;
    for (const int64_t length : table_.lengths) {
      const auto value = table_.perplexity_at(scaling, length);
      if (!value) continue;
      const double error = std::isfinite(value->standard_error) ? value->standard_error : 0;
      points.push_back({x(length), y(value->ppl), y(value->ppl - error), y(value->ppl + error)});
    }
    return points;
  }

  std::string curve(const std::string& scaling, const std::vector<Point>& points) const {
    const std::string colour = "c" + std::to_string(colour_of(scaling));
    // Dynamic scalings are dashed: they often lie on the static ones.
    const bool dashed = scaling.rfind("dynamic", 0) == 0;
    std::string svg =
        "<g class=\"" + colour + (dashed ? " dashed" : "") + "\"><title>" + xml_escaped(scaling);
    for (const int64_t length : table_.lengths) {
      const auto value = table_.perplexity_at(scaling, length);
      if (value) svg += "\n" + std::to_string(length) + ": " + compact(value->ppl);
    }
    svg += "</title>\n<polyline points=\"";
    for (const Point& point : points) svg += num(point.x) + "," + num(point.y) + " ";
    svg += "\" class=\"curve\"/>\n";
    for (const Point& point : points) {
      svg += svg_line(point.x, point.low, point.x, point.high, "error");
      svg += "<circle cx=\"" + num(point.x) + "\" cy=\"" + num(point.y) + "\" r=\"3.5\" class=\"dot\"/>\n";
    }
    return svg + "</g>\n";
  }

  std::string end_label(const std::string& scaling, double at) const {
    const auto points = points_of(scaling);
    const std::string colour = "c" + std::to_string(colour_of(scaling));
    const double from = points.back().x + 5, to = right_ + 6;
    std::string svg = "<g class=\"" + colour + "\"><polyline class=\"leader\" points=\"" + num(from) + "," +
                      num(points.back().y) + " " + num(std::max(from, right_ - 4)) + "," +
                      num(points.back().y) + " " + num(to) + "," + num(at) + "\"/>\n";
    return svg + svg_text(to + 4, at + 4, "start", "series", scaling) + "</g>\n";
  }

  const SweepTable& table_;
  int width_, height_;
  double left_, right_, top_ = 34, bottom_;
  double low_ = 0, high_ = 0;
  bool logarithmic_ = false;
  std::vector<double> ticks_;
};

}  // namespace

std::string xml_escaped(std::string_view text) {
  std::string out;
  for (const char c : text) {
    switch (c) {
      case '<':
        out += "&lt;";
        break;
      case '>':
        out += "&gt;";
        break;
      case '&':
        out += "&amp;";
        break;
      case '"':
        out += "&quot;";
        break;
      default:
        if (static_cast<unsigned char>(c) >= 0x20 || c == '\n') out += c;
    }
  }
  return out;
}

int colour_of(const std::string& scaling) {
  static const std::array<const char*, 10> kNames = {"none",         "linear",       "ntk",    "dynamic",
                                                     "yarn",         "dynamic-yarn", "llama3", "longrope",
                                                     "proportional", "model"};
  for (size_t i = 0; i < kNames.size(); ++i) {
    if (scaling == kNames[i]) return static_cast<int>(i);
  }
  return 0;
}

std::string perplexity_chart(const SweepTable& table, int width, int height) {
  return PerplexityChart(table, width, height).draw();
}

std::string passkey_map(const SweepTable& table, const std::string& scaling) {
  constexpr double kLeft = 52, kTop = 8, kCellWidth = 56, kCellHeight = 30, kGap = 2;
  const auto columns = static_cast<double>(table.lengths.size()),
             rows = static_cast<double>(table.depths.size());
  const double width = kLeft + columns * kCellWidth + 6, height = kTop + rows * kCellHeight + 42;
  std::string svg = "<svg viewBox=\"0 0 " + num(width) + " " + num(height) +
                    "\" style=\"max-width:" + num(width * 1.25) +
                    "px\" role=\"img\" aria-label=\"Passkeys found under " + xml_escaped(scaling) + "\">\n";
  double y = kTop;
  std::vector<double> depths = table.depths;
  std::sort(depths.begin(), depths.end());
  for (const double depth : depths) {
    svg += svg_text(kLeft - 7, y + 19, "end", "tick", std::to_string(std::llround(100 * depth)) + " %");
    double x = kLeft;
    for (const int64_t length : table.lengths) {
      const auto value = table.passkey_at(scaling, length, depth);
      const std::string box = "<rect x=\"" + num(x) + "\" y=\"" + num(y) + "\" width=\"" +
                              num(kCellWidth - kGap) + "\" height=\"" + num(kCellHeight - kGap) +
                              "\" rx=\"3\" class=\"";
      svg += box + "cell\"/>\n";
      if (value) {
        char opacity[16];
        std::snprintf(opacity, sizeof opacity, "%.2f", value->share());
        svg += box + "heat\" fill-opacity=\"" + opacity + "\"/>\n";
        svg += svg_text(x + kCellWidth / 2 - 1, y + 19, "middle", value->share() > 0.7 ? "on" : "off",
                        std::to_string(value->correct) + "/" + std::to_string(value->trials));
      } else {
        svg += svg_text(x + kCellWidth / 2 - 1, y + 19, "middle", "tick", "–");
      }
      x += kCellWidth;
    }
    y += kCellHeight;
  }
  double x = kLeft;
  for (const int64_t length : table.lengths) {
    svg += svg_text(x + kCellWidth / 2 - 1, y + 14, "middle", "tick", std::to_string(length));
    x += kCellWidth;
  }
  svg += svg_text(kLeft + columns * kCellWidth / 2, y + 33, "middle", "name", "length (tokens)");
  return svg + "</svg>\n";
}

}  // namespace lariat
