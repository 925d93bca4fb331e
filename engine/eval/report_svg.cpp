#include <fmt/core.h>

#include <algorithm>
#include <array>
#include <cmath>

#include "engine/eval/chart.h"
#include "engine/eval/report.h"

namespace lariat {
namespace {

constexpr double kLabelHeight = 17;  // between the baselines of two labels

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

double error_of(const PerplexityValue& value) {
  return std::isfinite(value.standard_error) ? value.standard_error : 0;
}

std::string tick_label(double tick) { return tick >= 1e6 ? compact(tick) : fmt::format("{:g}", tick); }

// A line of a chart: values by length or position.
struct Series {
  std::string name, label;  // the whole name, and what stands at the line's end
  int colour = 0;
  bool dashed = false, dots = true;
  std::vector<std::pair<double, PerplexityValue>> points;
};

// What a chart shows.
struct Curves {
  std::string title, across_name;
  Axis across;
  std::vector<int64_t> ticks;
  int64_t original_ctx = 0;
  std::vector<Series> series;
};

class PerplexityChart {
 public:
  PerplexityChart(Curves curves, int width, int height)
      : curves_(std::move(curves)), width_(width), height_(height), chart_{20, 34, 0, height - 46.0} {
    Axis& up = chart_.up;
    up = {HUGE_VAL, 0};
    size_t longest = 12;  // characters
    for (const auto& series : curves_.series) {
      longest = std::max(longest, series.label.size());
      for (const auto& [at, value] : series.points) {
        up.low = std::min(up.low, std::max(value.ppl - error_of(value), value.ppl / 2));
        up.high = std::max(up.high, value.ppl + error_of(value));
      }
    }
    if (up.high == 0) up = {1, 10};  // no points
    up.logarithmic = up.high > 3 * up.low;
    const double margin =
        up.logarithmic ? std::pow(up.high / up.low, 0.05) : 0.06 * std::max(up.high - up.low, 0.01 * up.high);
    up.low = up.logarithmic ? up.low / margin : std::max(up.low - margin, 0.0);
    up.high = up.logarithmic ? up.high * margin : up.high + margin;
    chart_.across = curves_.across;
    chart_.inset = 12;
    chart_.right = width - 22 - 8.0 * static_cast<double>(longest);
    for (const double tick : up.round_numbers())
      chart_.left = std::max(chart_.left, 20 + 7.2 * static_cast<double>(tick_label(tick).size()));
  }

  std::string draw() const {
    std::string svg = fmt::format("<svg viewBox=\"0 0 {} {}\" role=\"img\" aria-label=\"{}\">\n", width_,
                                  height_, curves_.title);
    svg += axes();
    std::vector<std::pair<double, size_t>> labels;
    for (size_t i = 0; i < curves_.series.size(); ++i) {
      const Series& series = curves_.series[i];
      if (series.points.empty()) continue;
      svg += curve(series);
      labels.emplace_back(y(series.points.back().second.ppl), i);
    }
    spread(labels, chart_.top + 4, chart_.bottom);
    for (const auto& [at, i] : labels) svg += end_label(curves_.series[i], at);
    return svg + "</svg>\n";
  }

 private:
  double x(double at) const { return chart_.x(at); }
  double y(double ppl) const { return chart_.y(std::clamp(ppl, chart_.up.low, chart_.up.high)); }

  std::string axes() const {
    const auto [left, top, right, bottom] = std::array{chart_.left, chart_.top, chart_.right, chart_.bottom};
    std::string svg;
    for (const double tick : chart_.up.round_numbers()) svg += chart_.tick_up(tick, tick_label(tick));
    double last = -HUGE_VAL;
    for (const int64_t tick : curves_.ticks) {
      const double at = x(static_cast<double>(tick));
      svg += svg_line(at, bottom, at, bottom + 5, "axis");
      const std::string name = std::to_string(tick);
      const double half = 3.8 * static_cast<double>(name.size());
      if (at - half < last + 6) continue;  // no room beside the one before
      svg += svg_text(at, bottom + 20, "middle", "tick", name);
      last = at + half;
    }
    svg += svg_line(left, bottom, right, bottom, "axis");
    svg += svg_text((left + right) / 2, bottom + 39, "middle", "name", curves_.across_name);
    svg += svg_text(left - 8, top - 12, "start", "name",
                    chart_.up.logarithmic ? "perplexity (log scale)" : "perplexity");
    const auto trained = static_cast<double>(curves_.original_ctx);
    if (trained > chart_.across.low && trained < chart_.across.high) {
      svg += chart_.up_at(trained, "origin");
      svg += svg_text(x(trained) + 5, top + 12, "start", "tick", "trained length");
    }
    return svg;
  }

  std::string curve(const Series& series) const {
    std::string title = xml_escaped(series.name), marks;
    std::vector<std::pair<double, double>> line;
    for (const auto& [across, value] : series.points) {
      const double error = error_of(value), at = x(across);
      title += fmt::format("\n{:.0f}: {}", across, compact(value.ppl));
      line.emplace_back(at, y(value.ppl));
      if (!series.dots) continue;
      marks += svg_line(at, y(value.ppl - error), at, y(value.ppl + error), "error") +
               fmt::format("<circle cx=\"{}\" cy=\"{}\" r=\"3.5\" class=\"dot\"/>\n", svg_number(at),
                           svg_number(y(value.ppl)));
    }
    return fmt::format("<g class=\"c{}{}\"><title>{}</title>\n{}{}</g>\n", series.colour,
                       series.dashed ? " dashed" : "", title, svg_path("curve", line), marks);
  }

  std::string end_label(const Series& series, double at) const {
    const auto& [across, value] = series.points.back();
    const double from = x(across) + 5, height = y(value.ppl), to = chart_.right + 6;
    return fmt::format(
        "<g class=\"c{}\">{}{}</g>\n", series.colour,
        svg_path("leader", {{from, height}, {std::max(from, chart_.right - 4), height}, {to, at}}),
        svg_text(to + 4, at + 4, "start", "series", series.label));
  }

  Curves curves_;
  int width_, height_;
  Chart chart_;
};

// One cell of a map: its colour, and what stands in it.
std::string map_cell(double x, double y, double width, double height,
                     const std::optional<RetrievalValue>& value) {
  const auto box = [&](const std::string& style) {
    return fmt::format("<rect x=\"{}\" y=\"{}\" width=\"{}\" height=\"{}\" rx=\"3\" class=\"{}/>\n",
                       svg_number(x), svg_number(y), svg_number(width), svg_number(height), style);
  };
  const double middle = x + width / 2;
  if (!value) return box("cell\"") + svg_text(middle, y + 19, "middle", "tick", "–");
  return box("cell\"") + box(fmt::format("heat\" fill-opacity=\"{:.2f}\"", value->share())) +
         svg_text(middle, y + 19, "middle", value->share() > 0.7 ? "on" : "off",
                  fmt::format("{}/{}", value->found(), value->trials));
}

}  // namespace

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
  const auto first = static_cast<double>(table.lengths.front()),
             last = static_cast<double>(table.lengths.back());
  Curves curves{"Perplexity by context length",
                "context length (tokens)",
                {first, last, true},
                table.lengths,
                table.original_ctx,
                {}};
  for (const auto& scaling : table.scalings) {
    // Dynamic scalings are dashed: they often lie on the static ones.
    Series series{scaling, scaling, colour_of(scaling), scaling.starts_with("dynamic"), true, {}};
    for (const int64_t length : table.lengths) {
      if (const auto value = table.perplexity_at(scaling, length))
        series.points.emplace_back(static_cast<double>(length), *value);
    }
    curves.series.push_back(std::move(series));
  }
  return PerplexityChart(std::move(curves), width, height).draw();
}

std::string growing_chart(const SweepTable& table, int width, int height) {
  const auto last = static_cast<double>(table.lengths.back());
  Curves curves{"Perplexity by position in a growing context",
                "position (tokens)",
                {0, last, false},
                table.lengths,
                table.original_ctx,
                {}};
  const bool narrow = width < 600;
  for (const auto& column : table.growing_columns) {
    const auto found = table.growing.find(column);
    if (found == table.growing.end()) continue;
    const auto& [label, positions] = found->second;
    // A narrow picture has no room for the whole name; the colour tells whose stale keys they are.
    Series series{label,
                  narrow && is_stale(column) ? "stale" : label,
                  colour_of(scaling_of(column)),
                  is_stale(column),
                  false,
                  {}};
    for (const auto& [from, to, tokens, nll] : positions) {
      const auto value = growing_perplexity(table, column, {from, to});
      if (value)
        series.points.emplace_back(static_cast<double>(from + to) / 2, PerplexityValue{*value, 0, tokens});
    }
    curves.series.push_back(std::move(series));
  }
  return PerplexityChart(std::move(curves), width, height).draw();
}

std::string passkey_map(const SweepTable& table, const std::string& scaling) {
  constexpr double kLeft = 52, kTop = 8, kCellWidth = 56, kCellHeight = 30, kGap = 2;
  const auto columns = static_cast<double>(table.lengths.size()),
             rows = static_cast<double>(table.depths.size());
  const double width = kLeft + columns * kCellWidth + 6, height = kTop + rows * kCellHeight + 42;
  std::string svg = fmt::format(
      "<svg viewBox=\"0 0 {} {}\" style=\"max-width:{}px\" role=\"img\" aria-label=\"Passkeys found under "
      "{}\">\n",
      svg_number(width), svg_number(height), svg_number(width * 1.25), xml_escaped(scaling));
  const auto column = [&](size_t i) { return kLeft + static_cast<double>(i) * kCellWidth; };
  double y = kTop;
  std::vector<double> depths = table.depths;
  std::sort(depths.begin(), depths.end());
  for (const double depth : depths) {
    svg += svg_text(kLeft - 7, y + 19, "end", "tick", fmt::format("{} %", std::llround(100 * depth)));
    for (size_t i = 0; i < table.lengths.size(); ++i) {
      svg += map_cell(column(i), y, kCellWidth - kGap, kCellHeight - kGap,
                      table.passkey_at(scaling, table.lengths[i], depth));
    }
    y += kCellHeight;
  }
  for (size_t i = 0; i < table.lengths.size(); ++i) {
    svg +=
        svg_text(column(i) + kCellWidth / 2 - 1, y + 14, "middle", "tick", std::to_string(table.lengths[i]));
  }
  svg += svg_text(kLeft + columns * kCellWidth / 2, y + 33, "middle", "name", "length (tokens)");
  return svg + "</svg>\n";
}

}  // namespace lariat
