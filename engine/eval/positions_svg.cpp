#include <fmt/core.h>

#include <algorithm>
#include <cmath>
#include <iterator>

#include "engine/eval/rope_svg.h"

namespace lariat {
namespace {

constexpr double kPanelWidth = 256.0, kPanelHeight = 150.0, kMapSize = 256.0;
constexpr int kAlibiHeads = 8;
constexpr size_t kVaswaniPairs = 256;  // d_model = 512, the base model of arXiv 1706.03762
constexpr int kStripes = 100;          // of a map; divides all its lengths

// --- scores by distance ---

// Distances 1..reach; the same axes for all, so that they can be compared.
std::string frame(const Chart& chart, const std::string& title, const std::string& note, double l0) {
  std::string svg = svg_heading(chart, title, note);
  for (const double v : {-1.0, -0.5, 0.0, 0.5, 1.0}) {
    if (v >= chart.up.low) svg += chart.tick_up(v, fmt::format("{:g}", v));
  }
  const double room = chart.right - chart.left, decades = std::log10(chart.across.high);
  const double step = std::max(1.0, std::ceil(decades * 52.0 / room));  // a label is 52 pixels wide at most
  for (double e = 0.0; e <= decades; e += step)
    svg += chart.tick_across(std::pow(10.0, e), grouped(std::pow(10.0, e)));
  return svg + chart.up_at(l0, "rule");
}

// Over the pairs that rotate.
template <class Value>
double mean_of_pairs(const std::vector<double>& inv_freq, const Value& value) {
  double sum = 0.0, pairs = 0.0;
  for (const double f : inv_freq) {
    if (f == 0.0) continue;
    sum += value(f);
    pairs += 1.0;
  }
  return sum / pairs;
}

Points score_curve(const std::vector<double>& inv_freq, double reach) {
  return over_distances(reach, [&](double m) { return rotary_score(inv_freq, m); });
}

std::string draw_sinusoidal(const Chart& chart, double l0) {
  return frame(chart, "Sinusoidal", "added to embeddings: their product", l0) +
         chart.curve("curve ink", score_curve(sinusoidal_frequencies(kVaswaniPairs), chart.across.high));
}

// No formula and no decay: a row of numbers for each of the first L0 positions, and none beyond.
std::string draw_learned(const Chart& chart, double l0) {
  const double edge = chart.x(l0), width = edge - chart.left, middle = chart.left + width / 2.0;
  const double y = (chart.top + chart.bottom) / 2.0;
  std::string svg = frame(chart, "Learned", "added: a table, nothing beyond its end", l0);
  svg +=
      fmt::format("<rect class=\"table\" x=\"{}\" y=\"{}\" width=\"{}\" height=\"{}\"/>\n",
                  svg_number(chart.left), svg_number(chart.top), svg_number(width), svg_number(kPanelHeight));
  if (width > 130.0) {
    svg += svg_text(middle, y - 6, "middle", "mark", "a row per position,");
    svg += svg_text(middle, y + 11, "middle", "mark", "as training made it");
  }
  if (chart.right - edge > 34.0) svg += svg_text((edge + chart.right) / 2.0, y + 3, "middle", "mark", "none");
  return svg;
}

std::string draw_t5(const Chart& chart, double l0) {
  Points steps;
  const auto height = [](double distance) { return 1.0 - t5_bucket(static_cast<int64_t>(distance)) / 31.0; };
  for (double m = 1.0; m <= std::min(chart.across.high, 128.0); ++m) {
    if (m > 1.0) steps.emplace_back(m, height(m - 1.0));
    steps.emplace_back(m, height(m));
  }
  steps.emplace_back(chart.across.high, steps.back().second);
  return frame(chart, "T5", "added to the scores: a bias per bucket", l0) + chart.curve("curve ink", steps);
}

std::string draw_alibi(const Chart& chart, double l0) {
  std::string svg = frame(chart, "ALiBi", "added to the scores: \u2212m \u00b7 distance", l0), labels;
  for (const int head : {1, 3, 5, 8}) {
    Points points;
    for (int i = 0; i <= 100; ++i) {
      const double m = std::pow(chart.across.high, i / 100.0);
      points.emplace_back(m, alibi_weight(head, kAlibiHeads, m));
    }
    svg += chart.curve("curve ink", points);
    const double half = std::log(2.0) * std::exp2(8.0 * head / kAlibiHeads);  // the distance of weight 1/2
    if (const double x = chart.x(half) + 5.0; x < chart.right - 34.0)
      labels += svg_text(x, chart.y(0.5) + 4, "start", "mark", fmt::format("1/{}", 1 << head));
  }
  return svg + labels;
}

std::string draw_rope(const Chart& chart, const RopeScaling& rope, const std::string& style, double length,
                      double l0) {
  std::string svg = frame(chart, "RoPE", "rotates q and k: the mean cosine of the pairs' angles", l0);
  double x = chart.right;
  const auto add = [&](const std::string& label, const std::string& curve,
                       const std::vector<double>& inv_freq) {
    svg += chart.curve("curve " + curve, score_curve(inv_freq, chart.across.high));
    svg += svg_text(x, chart.top - 28, "end", "label", label);
    x -= 7.3 * static_cast<double>(label.size()) + 8.0;
    svg += svg_line(x - 26.0, chart.top - 32.5, x, chart.top - 32.5, "curve " + curve);
    x -= 48.0;
  };
  add("no scaling", "plain", rope_unscaled(rope).inv_freq);
  if (rope.type != RopeType::kDefault)
    add(std::string(name_of(rope.type)), style, rope_frequencies(rope, length).inv_freq);
  return svg;
}

// --- maps ---

// Colours end at these scores; the two below 0 have a colour of their own.
constexpr double kEdges[] = {-0.1, 0.0, 0.05, 0.1, 0.15, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 1.0};
constexpr int kColours = std::size(kEdges), kNegative = 2;

int stripe_colour(double score) {
  return std::min<int>(static_cast<int>(std::upper_bound(kEdges, std::end(kEdges), score) - kEdges),
                       kColours - 1);
}

// The lowest colour above 0 is not quite the paper's, which is that of keys after their query.
std::string paint(int colour) {
  const double opacity = colour < kNegative ? (kNegative - colour) / 2.5
                                            : (colour - kNegative + 0.7) / (kColours - kNegative - 0.3);
  return fmt::format("class=\"{}\" fill-opacity=\"{:.2f}\"", colour < kNegative ? "cold" : "hot", opacity);
}

// Queries downwards, keys to the right, causal. The score depends on their distance alone, so a map is made
// of stripes beside the diagonal; neighbours of one colour are drawn as one.
std::string draw_map(const RopeScaling& rope, int64_t tokens, double left, double top) {
  const auto length = static_cast<double>(tokens);
  const auto scores = rotary_stripes(rope_frequencies(rope, length).inv_freq, tokens, kStripes);
  std::string svg = fmt::format("<g transform=\"translate({} {}) scale({:g})\" class=\"map\">\n",
                                svg_number(left), svg_number(top), kMapSize / kStripes);
  for (int from = 0, to = 0; from < kStripes; from = to) {
    const int colour = stripe_colour(scores[static_cast<size_t>(from)]);
    while (to < kStripes && stripe_colour(scores[static_cast<size_t>(to)]) == colour) ++to;
    svg += fmt::format("<path {0} d=\"M0 {1}L{2} {5}H{3}L0 {4}Z\"/>\n", paint(colour), from, kStripes - from,
                       kStripes - to, to, kStripes);
  }
  svg += "</g>\n";
  const Chart chart{left, top, left + kMapSize, top + kMapSize, {0.0, length}, {length, 0.0}};
  for (const double v : {0.0, length / 2.0, length}) {
    svg += svg_text(chart.x(v), chart.bottom + 18, "middle", "tick", grouped(v));
    svg += svg_text(chart.left - 8, chart.y(v) + 4, "end", "tick", grouped(v));
  }
  svg += svg_path("grid", {{left, top}, {chart.right, chart.bottom}, {left, chart.bottom}, {left, top}});
  if (const auto l0 = static_cast<double>(rope.original_ctx); l0 < length)
    svg += svg_line(left, chart.y(l0), chart.x(length - l0), chart.bottom, "rule");
  const double scale = rope_scale(rope, length);
  svg += svg_text(chart.right, top + 14, "end", "head", grouped(length) + " tokens");
  return svg + svg_text(chart.right, top + 32, "end", "note",
                        scale > 1.0 ? fmt::format("scale {:.4g}", scale) : std::string("not stretched"));
}

std::string draw_colours(double right, double y) {
  std::string svg;
  constexpr double kWidth = 28.0;
  for (int i = 0; i < kColours; ++i) {
    const double x = right - kWidth * (kColours - i);
    svg += fmt::format("<rect {} x=\"{}\" y=\"{}\" width=\"{:g}\" height=\"12\"/>\n", paint(i), svg_number(x),
                       svg_number(y), kWidth);
    if (i + 1 < kColours)
      svg += svg_text(x + kWidth, y + 26, "middle", "tick", fmt::format("{:g}", kEdges[i]));
  }
  return svg;
}

}  // namespace

int t5_bucket(int64_t distance) {
  constexpr int kBuckets = 32, kExact = kBuckets / 2;
  constexpr double kMaxDistance = 128.0;
  if (distance < kExact) return static_cast<int>(distance);
  const double octaves = std::log(static_cast<double>(distance) / kExact) / std::log(kMaxDistance / kExact);
  return std::min(kExact + static_cast<int>(octaves * (kBuckets - kExact)), kBuckets - 1);
}

double alibi_weight(int head, int heads, double distance) {
  return std::exp(-std::exp2(-8.0 * head / heads) * distance);
}

std::vector<double> sinusoidal_frequencies(size_t pairs) {
  std::vector<double> frequencies;
  for (size_t i = 0; i < pairs; ++i)
    frequencies.push_back(std::pow(1e4, -static_cast<double>(i) / static_cast<double>(pairs)));
  return frequencies;
}

double rotary_score(const std::vector<double>& inv_freq, double distance) {
  return mean_of_pairs(inv_freq, [&](double f) { return std::cos(distance * f); });
}

std::vector<double> rotary_stripes(const std::vector<double>& inv_freq, int64_t tokens, int stripes) {
  const int64_t stripe = tokens / stripes;
  const auto width = static_cast<double>(stripe);
  std::vector<double> scores;
  scores.reserve(static_cast<size_t>(stripes));
  for (int i = 0; i < stripes; ++i) {
    // The mean of cos(f m) over m = i w .. (i + 1) w - 1, by Dirichlet's kernel.
    scores.push_back(mean_of_pairs(inv_freq, [&](double f) {
      return std::cos(f * (i * width + (width - 1.0) / 2.0)) * std::sin(f * width / 2.0) /
             (width * std::sin(f / 2.0));
    }));
  }
  return scores;
}

std::string positions_svg(const RopeScaling& rope, const std::string& style, double length, double reach,
                          double left, double right, double& y) {
  const auto l0 = static_cast<double>(rope.original_ctx);
  const double gap = (right - left - 3.0 * kPanelWidth) / 2.0;
  double low = 0.0;
  for (const auto& inv_freq : {sinusoidal_frequencies(kVaswaniPairs), rope_unscaled(rope).inv_freq,
                               rope_frequencies(rope, length).inv_freq}) {
    for (const auto& [m, score] : score_curve(inv_freq, reach)) low = std::min(low, score);
  }
  const auto chart = [&](int column, int columns) {
    const double x = left + column * (kPanelWidth + gap);
    return Chart{x,
                 y,
                 x + columns * kPanelWidth + (columns - 1) * gap,
                 y + kPanelHeight,
                 {1.0, reach, true},
                 {std::floor(low * 10.0) / 10.0, 1.0}};
  };
  std::string svg = svg_text(left, y, "start", "title", "Positions side by side");
  svg += svg_text(left, y + 24, "start", "sub",
                  "what a position leaves of a score over a distance in tokens, 1 at distance 0; dashed: the "
                  "original context, " +
                      grouped(l0));
  y += 92.0;
  svg += draw_sinusoidal(chart(0, 1), l0) + draw_learned(chart(1, 1), l0) + draw_t5(chart(2, 1), l0);
  y += kPanelHeight + 92.0;
  svg += draw_alibi(chart(0, 1), l0) + draw_rope(chart(1, 2), rope, style, length, l0);
  y += kPanelHeight + 84.0;
  svg += svg_text(left, y, "start", "title", "Queries (down) and keys (across)");
  const std::string_view scaling = rope.type == RopeType::kDefault ? "without scaling" : name_of(rope.type);
  svg += svg_text(left, y + 24, "start", "sub",
                  fmt::format("the score that RoPE leaves, {}, at three lengths", scaling));
  svg += draw_colours(right, y - 8);
  y += 56.0;
  double x = left;
  for (const int64_t tokens : {100, 1000, 10000}) {
    svg += draw_map(rope, tokens, x, y);
    x += kMapSize + gap;
  }
  y += kMapSize;
  return svg;
}

}  // namespace lariat
