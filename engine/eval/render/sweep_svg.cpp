#include "engine/eval/render/sweep_svg.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <utility>

#include "engine/eval/render/chart.h"
#include "engine/eval/verdict.h"

namespace lariat {
namespace {

// Scalings with a fixed colour; unknown names use the colour of none. The colours suit all colour vision
// types (hues after Okabe and Ito, darkened for contrast), and every line is labelled.
constexpr std::array kColoured{"none",         "linear",       "ntk",        "dynamic",
                               "yarn",         "dynamic-yarn", "llama3",     "longrope",
                               "proportional", "model",        "yarn-radix", "dynamic-yarn-radix"};

// Columns with a method use colours that the sweep lacks, the most distinct first.
constexpr std::array kFree{"ntk",   "linear", "dynamic",      "llama3",  "proportional",
                           "model", "yarn",   "dynamic-yarn", "longrope"};

std::string group(const std::string& style, const std::string& inside) {
  return fmt::format("<g class=\"{}\">{}</g>\n", style, inside);
}

// --- lines over lengths or positions ---

struct Point {
  double at = 0, ppl = 0, error = 0;
};

struct Series {
  std::string label;
  Column column;
  std::string colour;
  bool dashed = false, dots = false;
  std::vector<Point> points;
};

struct Curves {
  std::string name, across_name;
  Axis across;
  std::vector<Series> series;
  std::string up_name = "perplexity";
};

std::string tick_label(double tick) { return tick >= 1e6 ? compact(tick) : fmt::format("{:.6g}", tick); }

constexpr double kMostRatio = 1.4;

// Covers all values with their errors.
Axis perplexity_axis(const std::vector<Series>& series) {
  double low = HUGE_VAL, high = 0;
  for (const Series& one : series) {
    for (const Point& point : one.points) {
      low = std::min(low, std::max(point.ppl - point.error, point.ppl / 2));
      high = std::max(high, point.ppl + point.error);
    }
  }
  if (high > 3 * low) {
    const double margin = std::pow(high / low, 0.05);
    return {low / margin, high * margin, true};
  }
  const double margin = 0.06 * std::max(high - low, 0.01 * high);
  return {std::max(low - margin, 0.0), high + margin, false};
}

// Much worse columns leave the figure.
std::vector<Series> near_one(std::vector<Series> ratios) {
  for (Series& series : ratios)
    std::erase_if(series.points, [](const Point& point) { return point.ppl > kMostRatio; });
  return ratios;
}

struct Label {
  const Series* series = nullptr;
  double from_x = 0, from_y = 0, y = 0;
};

// Spaces labels at least one line apart, between top and bottom.
void spread(std::vector<Label>& labels, double top, double bottom) {
  constexpr double kLine = 17;
  std::ranges::stable_sort(labels, {}, &Label::y);
  for (Label& label : labels) top = (label.y = std::max(label.y, top)) + kLine;
  for (auto label = labels.rbegin(); label != labels.rend(); ++label)
    bottom = (label->y = std::min(label->y, bottom)) - kLine;
}

// All lengths; positions in fewer than three lengths get four equal steps.
std::vector<int64_t> ticks_across(const SweepTable& table, const Curves& curves) {
  const int64_t longest = table.lengths.back();
  if (curves.across.logarithmic || table.lengths.size() > 2) return table.lengths;
  return {longest / 4, longest / 2, longest - longest / 4, longest};
}

std::string length_ticks(const Chart& chart, const std::vector<int64_t>& lengths) {
  std::string svg;
  double free = -HUGE_VAL;
  for (const int64_t length : lengths) {
    const std::string name = std::to_string(length);
    const double x = chart.x(static_cast<double>(length)), half = 3.8 * static_cast<double>(name.size());
    svg += svg_line(x, chart.bottom, x, chart.bottom + 5, "axis");
    if (x - half < free + 6) continue;  // would overlap the previous label
    svg += svg_text(x, chart.bottom + 20, "middle", "tick", name);
    free = x + half;
  }
  return svg;
}

// An arrow with the value where the line leaves the frame for `point`; adds that place to the line.
std::string leaves(const Chart& chart, const Point* before, const Point& point, Points& line) {
  const double edge = std::clamp(point.ppl, chart.up.low, chart.up.high);
  double at = point.at;
  if (before != nullptr) at -= (point.ppl - edge) / (point.ppl - before->ppl) * (point.at - before->at);
  const double x = chart.x(at), y = chart.y(edge), back = point.ppl > edge ? 8 : -8;
  line.emplace_back(x, y);
  return svg_path("arrow", {{x - 4, y + back}, {x, y}, {x + 4, y + back}}) +
         svg_text(x + 7, y + (back > 0 ? 10 : -3), "start", "series", compact(point.ppl));
}

std::string curve_of(const Chart& chart, const Series& series) {
  std::string title = xml_escaped(series.label), svg;
  Points line;
  const Point* before = nullptr;
  bool inside = true;
  const auto y = [&](double ppl) { return chart.y(std::clamp(ppl, chart.up.low, chart.up.high)); };
  for (const Point& point : series.points) {
    title += fmt::format("\n{:g}: {}", point.at, compact(point.ppl));
    const bool was_inside = std::exchange(inside, chart.up.holds(point.ppl));
    if (!inside && was_inside) {
      svg += leaves(chart, before, point, line) + svg_path("curve", std::exchange(line, {}));
    }
    before = &point;
    if (!inside) continue;
    const double x = chart.x(point.at);
    line.emplace_back(x, y(point.ppl));
    if (!series.dots) continue;
    svg += svg_line(x, y(point.ppl - point.error), x, y(point.ppl + point.error), "error") +
           fmt::format("<circle class=\"dot\" cx=\"{}\" cy=\"{}\" r=\"3.5\"/>\n", svg_number(x),
                       svg_number(y(point.ppl)));
  }
  return group(series.colour + (series.dashed ? " dashed" : ""),
               "<title>" + title + "</title>" + (line.empty() ? "" : svg_path("curve", line)) + svg);
}

// Narrow figures shorten stale columns (the colour identifies the scaling) and omit a method's settings.
std::string end_label(const Series& series, const std::string& style) {
  if (style != "narrow") return series.label;
  if (series.column.stale) return "stale";
  std::string label = series.label;
  const size_t slash = series.column.method.empty() ? label.size() : label.find('/');
  return slash < label.size() ? label.erase(slash, label.find_first_of("+ ", slash) - slash) : label;
}

std::string names_of(const Chart& chart, const std::vector<Series>& series, const std::string& style) {
  std::vector<Label> labels;
  for (const Series& one : series) {
    const Point& last = one.points.back();
    const double y = chart.y(std::clamp(last.ppl, chart.up.low, chart.up.high));
    labels.push_back({&one, chart.x(last.at) + 5, y, y});
  }
  spread(labels, chart.top + 4, chart.bottom);
  std::string svg;
  for (const auto& [one, from_x, from_y, y] : labels) {
    const double edge = chart.right + 12;  // edge of the frame
    svg += group(one->colour,
                 svg_path("leader", {{from_x, from_y}, {std::max(from_x, edge - 4), from_y}, {edge + 6, y}}) +
                     svg_text(edge + 10, y + 4, "start", "series", xml_escaped(end_label(*one, style))));
  }
  return svg;
}

std::string draw(Curves curves, const SweepTable& table, double width, double height,
                 const std::string& style) {
  std::erase_if(curves.series, [](const Series& one) { return one.points.empty(); });
  if (curves.series.empty()) return "";
  const bool ratios = curves.up_name != "perplexity";
  Axis up = perplexity_axis(ratios ? near_one(curves.series) : curves.series);
  if (ratios) up = {std::min(up.low, 0.99), std::max(up.high, 1.01)};
  const auto ticks = round_numbers(up);
  size_t longest = 12;
  double left = 20;
  for (const Series& one : curves.series) longest = std::max(longest, end_label(one, style).size());
  for (const double tick : ticks)
    left = std::max(left, 20 + 7.2 * static_cast<double>(tick_label(tick).size()));
  const double right = std::max(width - 22 - 8 * static_cast<double>(longest), width / 2);
  const Chart frame{left, 34, right, height - 46, curves.across, up};
  Chart chart = frame;  // keeps points off the frame
  chart.left += 12;
  chart.right -= 12;
  std::string svg;
  for (const double tick : ticks) svg += frame.tick_up(tick, tick_label(tick));
  svg += length_ticks(chart, ticks_across(table, curves)) +
         svg_line(left, chart.bottom, right, chart.bottom, "axis") +
         svg_text((left + right) / 2, chart.bottom + 39, "middle", "name", curves.across_name) +
         svg_text(left - 8, chart.top - 12, "start", "name",
                  xml_escaped(curves.up_name) + (chart.up.logarithmic ? " (log scale)" : ""));
  const auto trained = static_cast<double>(table.original_ctx);
  if (trained > curves.across.low && trained < curves.across.high) {
    svg += chart.up_at(trained, "origin") +
           svg_text(chart.x(trained) + 5, chart.top + 12, "start", "tick", "trained length");
  }
  for (const Series& one : curves.series) svg += curve_of(chart, one);
  return svg_root(width, height, style, curves.name, svg + names_of(chart, curves.series, style));
}

SweepPicture both_widths(const std::string& name, const SweepTable& table, const Curves& curves) {
  return {name, "", draw(curves, table, 980, 420, "wide"), draw(curves, table, 360, 340, "narrow")};
}

// --- figures ---

Curves growing_curves(const SweepTable& table) {
  Curves curves{"Perplexity by position in a growing context",
                "position (tokens)",
                {0, static_cast<double>(table.lengths.back())},
                {}};
  for (const Column& column : table.growing_columns) {
    const GrowingValue* grown = find_cell(table.growing, column);
    if (grown == nullptr) continue;
    Series series{grown->label, column, colour_of(table, column), column.stale, false, {}};
    for (const auto& bucket : grown->positions) {
      if (const auto sum = growing_sum(table, column, {bucket.from, bucket.to}))
        series.points.push_back({static_cast<double>(bucket.from + bucket.to) / 2, sum->ppl(), 0});
    }
    curves.series.push_back(std::move(series));
  }
  return curves;
}

std::vector<Difference> bucket_differences(const SweepTable& table, const Column& column) {
  std::vector<Difference> all;
  const GrowingValue* grown = find_cell(table.growing, column);
  for (size_t i = 0; grown != nullptr && i < grown->positions.size(); ++i) {
    const auto there = growing_differences(table, {grown->positions[i].from, grown->positions[i].to});
    all.insert(all.end(), there.begin(), there.end());
  }
  return all;
}

// Dashes dynamic scalings, which often overlap the static ones.
Curves length_curves(const SweepTable& table) {
  const auto low = static_cast<double>(table.lengths.front()),
             high = static_cast<double>(table.lengths.back());
  Curves curves{"Perplexity by context length", "context length (tokens)", {low, high, true}, {}};
  for (const Column& column : table.columns) {
    const bool dynamic = column.scaling.starts_with("dynamic");
    Series series{column.name(), column, colour_of(table, column), dynamic, true, {}};
    for (const int64_t length : table.lengths) {
      const auto* value = find_cell(table.perplexity, {column, length});
      if (value == nullptr) continue;
      const double error = std::isnan(value->error) ? 0 : value->error;
      series.points.push_back({static_cast<double>(length), value->ppl, error});
    }
    curves.series.push_back(std::move(series));
  }
  return curves;
}

// Perplexity ratios to the view's column, with 99 % intervals of the paired differences.
Curves ratio_curves(const SweepTable& table, bool growing) {
  const Column& base = *table.view.relative_to;
  Curves curves = growing ? growing_curves(table) : length_curves(table);
  curves.name += ", as a ratio to " + base.name();
  curves.up_name = "ratio to " + base.name() + ", bars: 99 % intervals";
  const std::vector<Difference> found = growing ? bucket_differences(table, base) : differences(table);
  for (Series& series : curves.series) {
    series.dots = true;
    series.points.clear();
    for (const auto& [kind, a, b, length, range, gap, count, shown] : found) {
      const bool turned = a == series.column && b == base;
      if (kind == Kind::kPasskey || growing != range.has_value()) continue;
      if (!turned && !(a == base && b == series.column)) continue;
      const double low = std::exp(turned ? -gap.high : gap.low),
                   high = std::exp(turned ? -gap.low : gap.high);
      const double at =
          range ? static_cast<double>(range->from + range->to) / 2 : static_cast<double>(length);
      const double ratio = std::exp(turned ? -gap.value : gap.value);
      series.points.push_back({at, ratio, (high - low) / 2});
    }
  }
  return curves;
}

// Share found by length (columns) and depth (rows).
std::string heat_picture(const SweepTable& table, const RetrievalMap& map) {
  constexpr double kEdge = 52, kTop = 8, kCell = 56, kRow = 30, kGap = 2;
  std::vector<double> depths = table.depths;
  std::ranges::sort(depths);
  const double right = kEdge + kCell * static_cast<double>(table.lengths.size());
  const double bottom = kTop + kRow * static_cast<double>(depths.size());
  const auto box = [&](double x, double y, const std::string& rest) {
    return fmt::format("<rect x=\"{}\" y=\"{}\" width=\"{}\" height=\"{}\" rx=\"3\" {}/>\n", x, y,
                       kCell - kGap, kRow - kGap, rest);
  };
  std::string svg;
  for (size_t row = 0; row < depths.size(); ++row) {
    const double y = kTop + kRow * static_cast<double>(row);
    svg += svg_text(kEdge - 7, y + 19, "end", "tick", fmt::format("{:.0f} %", 100 * depths[row]));
    for (size_t i = 0; i < table.lengths.size(); ++i) {
      const double x = kEdge + kCell * static_cast<double>(i), middle = x + (kCell - kGap) / 2;
      svg += box(x, y, "class=\"cell\"");
      const auto* found = find_cell(table.passkey, {map.column, map.task, table.lengths[i], depths[row]});
      if (found == nullptr) {
        svg += svg_text(middle, y + 19, "middle", "tick", "–");
        continue;
      }
      svg += box(x, y, fmt::format("class=\"heat\" fill-opacity=\"{:.2f}\"", found->share())) +
             svg_text(middle, y + 19, "middle", found->share() > 0.7 ? "on" : "off",
                      fmt::format("{:.{}f}/{}", found->found, found->in_parts ? 1 : 0, found->trials));
    }
  }
  for (size_t i = 0; i < table.lengths.size(); ++i) {
    svg += svg_text(kEdge + kCell * static_cast<double>(i) + kCell / 2 - 1, bottom + 14, "middle", "tick",
                    std::to_string(table.lengths[i]));
  }
  svg += svg_text((kEdge + right) / 2, bottom + 33, "middle", "name", "length (tokens)");
  return svg_root(right + 6, bottom + 42, "map", "Found under " + map.name, svg);
}

}  // namespace

std::string colour_of(const SweepTable& table, const Column& column) {
  // Others of one scaling get the colours that are left.
  const auto is_plain = [](const Column& of) { return of.method.empty() && !of.factor; };
  if (is_plain(column))
    return "of-" + (std::ranges::count(kColoured, column.scaling) > 0 ? column.scaling : "none");
  std::vector<std::string> free(kFree.begin(), kFree.end());
  std::vector<Column> others;
  for (const Column& other : table.columns) {
    if (!is_plain(other)) others.push_back(other.fresh());
    if (is_plain(other)) std::erase(free, other.scaling);
  }
  const auto at = std::ranges::find(others, column.fresh()) - others.begin();
  return "of-" + (free.empty() ? "none" : free[static_cast<size_t>(at) % free.size()]);
}

std::vector<SweepPicture> sweep_pictures(const SweepTable& table) {
  std::vector<SweepPicture> all = {both_widths("growing", table, growing_curves(table)),
                                   both_widths("perplexity", table, length_curves(table))};
  if (table.view.relative_to) {
    all.push_back(both_widths("growing-ratio", table, ratio_curves(table, true)));
    all.push_back(both_widths("perplexity-ratio", table, ratio_curves(table, false)));
  }
  std::erase_if(all, [](const SweepPicture& picture) { return picture.wide.empty(); });
  if (table.passkey.empty()) return all;
  int number = 0;
  for (const RetrievalMap& map : retrieval_maps(table)) {
    std::string name = "found-" + map.name;
    // Column names in logs are untrusted; file names use safe characters only.
    constexpr std::string_view kPlain = "abcdefghijklmnopqrstuvwxyz0123456789+-";
    if (name.size() > 60 || name.find_first_not_of(kPlain) < name.size())
      name = fmt::format("found-{}", number);
    all.push_back({name, map.name, heat_picture(table, map), ""});
    ++number;
  }
  return all;
}

// Style for print and for renderers without CSS variables.
const std::string_view kSweepSvgStyle = R"(<style>
svg { fill: #1f2328; }
text { font: 12.5px system-ui, -apple-system, "Segoe UI", Roboto, "DejaVu Sans", sans-serif; }
.tick, .name { fill: #5d646d; } .series { font-weight: 600; stroke: none; } .grid { stroke: #ecebe7; }
.axis, .origin { stroke: #5d646d; } .origin { stroke-dasharray: 2 4; } .curve, .leader { fill: none; }
.curve { stroke-width: 2.25; stroke-linejoin: round; stroke-linecap: round; } .leader { opacity: .45; }
.arrow { fill: none; stroke-width: 2.25; } .dashed .curve { stroke-dasharray: 7 5; }
.error { stroke-width: 1.25; opacity: .7; }
.cell { fill: #f0efeb; } .heat { fill: #0f766e; } .on { fill: #ffffff; font-weight: 600; }
.of-none { stroke: #6b7280; fill: #6b7280; } .of-linear { stroke: #b45309; fill: #b45309; }
.of-ntk { stroke: #7c3aed; fill: #7c3aed; } .of-dynamic { stroke: #be185d; fill: #be185d; }
.of-yarn { stroke: #0f766e; fill: #0f766e; } .of-dynamic-yarn { stroke: #1d4ed8; fill: #1d4ed8; }
.of-llama3 { stroke: #4d7c0f; fill: #4d7c0f; } .of-longrope { stroke: #92400e; fill: #92400e; }
.of-proportional { stroke: #0e7490; fill: #0e7490; } .of-model { stroke: #111827; fill: #111827; }
.of-yarn-radix { stroke: #047857; fill: #047857; } .of-dynamic-yarn-radix { stroke: #4338ca; fill: #4338ca; }
</style>
)";

std::string svg_file(const std::string& picture) {
  std::string file = picture;
  return file.insert(file.find('>') + 1, "\n" + std::string(kSweepSvgStyle));
}

}  // namespace lariat
