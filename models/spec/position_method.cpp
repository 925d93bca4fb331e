#include "models/spec/position_method.h"

#include <fmt/format.h>

#include <algorithm>

#include "kernels/error.h"
#include "models/spec/spec.h"

namespace lariat {

void check_position_method(const PositionMethod& method, const ModelSpec& spec) {
  if (method.ranges.empty()) return;
  const auto fail = [&](const std::string& what) {
    throw UsageError(fmt::format("`position_method` {}: {}", method.name, what));
  };
  const auto refuse = [&](std::string_view what) {
    fail(fmt::format("not supported: a {} has {}; use none", spec.family, what));
  };
  if (!spec.has_rope()) refuse(spec.position_kind());
  if (!spec.mrope_axes.empty()) refuse("positions of three parts (M-RoPE)");
  for (const LayerSpec& layer : spec.layers) {
    if (layer.attention.latent) refuse("latent attention");
    if (layer.attention.sliding_window > 0) refuse("sliding windows");
    if (layer.attention.rope > 0) refuse("layers with a second RoPE");
  }
  try {
    if (method.far) method.far(rope_unscaled(spec.rope()).inv_freq, spec.rope(), 1);
  } catch (const UsageError& e) {
    fail(e.what());
  }
}

std::optional<double> PositionMethod::distance(int64_t i, int64_t j, double length) const {
  const double by = stretch ? stretch(length) : 1;
  const auto position = [&](size_t table, int64_t index) {
    return positions[table] ? positions[table](index, by) : static_cast<double>(index);
  };
  for (const VisibleRange& range : ranges_at(by)) {
    if (j >= range.begin.at(i) && j < range.end.at(i))
      return position(range.table, i) - position(range.second_keys, j);
  }
  return std::nullopt;
}

PositionMethod::Places PositionMethod::unseen(int64_t p) const {
  Places places{0, KeyEdge::kUnbounded};
  for (const VisibleRange& range : ranges) {
    if (range.end.most < KeyEdge::kUnbounded) {
      places.first = std::max<int64_t>(places.first, range.end.most);
    } else {
      places.last = std::min(places.last, range.begin.at(p));
    }
  }
  return places;
}

}  // namespace lariat
