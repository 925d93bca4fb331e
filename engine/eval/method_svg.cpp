#include <fmt/core.h>

#include <algorithm>
#include <array>

#include "engine/eval/chart.h"
#include "engine/eval/rope_svg.h"
#include "models/positions/position_method.h"

namespace lariat {
namespace {

constexpr double kMapSide = 384.0, kMapLeft = 72.0, kMapTop = 96.0;
constexpr int kMapCells = 96;       // of a side
constexpr int kTrainedShades = 10;  // colours of trained distances; one more of those beyond

std::string shade(int colour) {
  const bool trained = colour < kTrainedShades;
  return fmt::format("class=\"{}\" fill-opacity=\"{:.2f}\"", trained ? "hot" : "cold",
                     trained ? (colour + 1.0) / kTrainedShades : 0.8);
}

// Of each cell the last query and the first key: a few sinks show. Cells of one colour beside each other are
// one piece of a path.
std::string draw_cells(const PositionMethod& method, int64_t trained, int64_t length) {
  std::array<std::string, kTrainedShades + 1> paths;
  const auto place = [&](int64_t cell) { return cell * length / kMapCells; };
  const auto colour_of = [&](int row, int column) {
    const double distance = method.distance(place(row + 1) - 1, place(column)).value_or(-1);
    if (distance < 0) return -1;
    return static_cast<int>(std::min(distance / static_cast<double>(trained), 1.0) * kTrainedShades);
  };
  for (int row = 0; row < kMapCells; ++row) {
    for (int from = 0, to = 0; from <= row; from = to) {
      const int colour = colour_of(row, from);
      while (to <= row && colour_of(row, to) == colour) ++to;
      if (colour >= 0)
        paths[static_cast<size_t>(colour)] += fmt::format("M{} {}h{}v1h{}z", from, row, to - from, from - to);
    }
  }
  std::string svg = fmt::format("<g transform=\"translate({} {}) scale({})\" class=\"map\">\n", kMapLeft,
                                kMapTop, kMapSide / kMapCells);
  for (int colour = 0; colour <= kTrainedShades; ++colour)
    svg += fmt::format("<path {} d=\"{}\"/>\n", shade(colour), paths[static_cast<size_t>(colour)]);
  return svg + "</g>\n";
}

std::string draw_shades(double y, double trained) {
  std::string svg;
  for (int colour = 0; colour <= kTrainedShades; ++colour) {
    svg += fmt::format("<rect {} x=\"{:.0f}\" y=\"{:.0f}\" width=\"28\" height=\"12\"/>\n", shade(colour),
                       kMapLeft + 28 * colour, y);
  }
  return svg + svg_text(kMapLeft, y + 26, "start", "tick", "0") +
         svg_text(kMapLeft + 28 * kTrainedShades, y + 26, "middle", "tick", grouped(trained)) +
         svg_text(kMapLeft + 28 * (kTrainedShades + 1) + 8, y + 11, "start", "tick", "untrained");
}

}  // namespace

std::string method_svg(const PositionMethod& method, int64_t trained, int64_t length) {
  const auto tokens = static_cast<double>(length), l0 = static_cast<double>(trained);
  const Chart chart{kMapLeft, kMapTop, kMapLeft + kMapSide, kMapTop + kMapSide, {0.0, tokens}, {tokens, 0.0}};
  std::string body =
      svg_text(kMapLeft, 38, "start", "title", method.name) +
      svg_text(kMapLeft, 62, "start", "sub", "distance at which a query (down) sees a key (across)") +
      draw_cells(method, trained, length);
  for (const double v : {0.0, tokens / 2.0, tokens}) {
    body += svg_text(chart.x(v), chart.bottom + 18, "middle", "tick", grouped(v)) +
            svg_text(chart.left - 8, chart.y(v) + 4, "end", "tick", grouped(v));
  }
  if (l0 < tokens) body += svg_line(kMapLeft, chart.y(l0), chart.x(tokens - l0), chart.bottom, "rule");
  return rope_picture(kMapLeft + kMapSide + 24.0, chart.bottom + 76.0, method.name,
                      body + draw_shades(chart.bottom + 34.0, l0));
}

}  // namespace lariat
