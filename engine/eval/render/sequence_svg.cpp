#include "engine/eval/render/sequence_svg.h"

#include <fmt/format.h>

#include <algorithm>

#include "engine/eval/render/chart.h"
#include "engine/eval/render/sweep_svg.h"
#include "kernels/counted.h"

namespace lariat {
namespace {

constexpr double kLeast = 0.01, kMost = 1e12;  // drawn e-values

using Value = double (*)(const SequencePoint&);

std::string by_row(const Chart& chart, std::string_view style, const PairedCurve& curve, Value value) {
  Points points;
  for (const SequencePoint& point : curve.points)
    points.emplace_back(static_cast<double>(points.size() + 1),
                        std::clamp(value(point), chart.up.low, chart.up.high));
  return chart.curve(style, points);
}

}  // namespace

std::string sequence_svg(const Column& first, const std::vector<PairedCurve>& curves, double threshold,
                         double margin) {
  double rows = 2, least = 0.1, most = 10 * threshold;
  SweepTable table;
  for (const PairedCurve& curve : curves) {
    table.columns.push_back(curve.column);
    rows = std::max(rows, static_cast<double>(curve.points.size()));
    for (const SequencePoint& point : curve.points) {
      least = std::clamp(point.e_value, kLeast, least);
      most = std::clamp(point.e_value, most, std::max(most, kMost));
    }
  }
  const Axis across{1, rows};
  const Chart differences{70, 50, 560, 290, across, {-100, 100}},
      values{70, 340, 560, 480, across, {least, most, true}};
  std::string svg = svg_heading(differences, "difference from " + xml_escaped(first.name()) + ", in points",
                                "mean and confidence sequence; dashed: the margin") +
                    svg_text(values.left, values.top - 12, "start", "note",
                             "e-value (log scale); dashed: a difference is shown");
  for (const double tick : {-100, -50, 0, 50, 100})
    svg += differences.tick_up(tick, fmt::format("{:+g}", tick));
  for (const double tick : round_numbers(values.up)) svg += values.tick_up(tick, fmt::format("{:g}", tick));
  for (const double tick : round_numbers(across)) svg += values.tick_across(tick, fmt::format("{:g}", tick));
  svg += differences.across_at(100 * margin, "origin") + differences.across_at(-100 * margin, "origin") +
         values.across_at(threshold, "origin") +
         svg_text((values.left + values.right) / 2, values.bottom + 38, "middle", "name", "rows");
  double label = differences.top + 8;
  for (const PairedCurve& curve : curves) {
    const std::string name = xml_escaped(curve.column.name());
    svg += "<g class=\"" + colour_of(table, curve.column) + "\">\n<title>" + name + "</title>\n" +
           by_row(differences, "curve", curve, [](const SequencePoint& at) { return 100 * at.difference; }) +
           by_row(differences, "curve leader", curve, [](const SequencePoint& at) { return 100 * at.low; }) +
           by_row(differences, "curve leader", curve, [](const SequencePoint& at) { return 100 * at.high; }) +
           by_row(values, "curve", curve, [](const SequencePoint& at) { return at.e_value; }) +
           svg_text(differences.right + 14, label, "start", "series", name) + "</g>\n" +
           svg_text(differences.right + 14, label + 17, "start", "tick",
                    fmt::format("{} after {}", curve.verdict, counted(std::ssize(curve.points), "row")));
    label += 42;
  }
  return svg_root(780, std::max(530.0, label), "wide", "Differences from " + first.name() + " by row", svg);
}

}  // namespace lariat
