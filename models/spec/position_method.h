#pragma once
#include <functional>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "models/spec/visible_range.h"

namespace lariat {

struct ModelSpec;
struct RopeScaling;

// Attention at other distances than the tokens' own: extends a model beyond its trained length with unchanged
// frequencies (docs/context-extension.md). A key is cached rotated to one or two fixed positions; a query is
// rotated to a separate position for each range of keys. Distances do not depend on steps, except by a
// stretch that follows the length.
struct PositionMethod {
  // Position of the token at index `place` for a stretch; empty: the index.
  using Positions = std::function<double(int64_t place, double stretch)>;

  std::string name{};                  // with all values, "dca/chunk=6144/window=2048"; empty: no method
  std::vector<Positions> positions{};  // one per table of `ranges`; the first is also the keys'
  std::vector<VisibleRange> ranges{};
  std::vector<VisibleRange> unstretched{};  // `ranges` at a stretch of 1; empty: `ranges`
  // Divisor of far distances for a length (a scale step); moves only second keys. Empty: 1.
  std::function<double(double length)> stretch{};
  // Factor of the whole query of the token at index `place`; empty: 1.
  std::function<double(int64_t place, double stretch)> temperature{};
  // RoPE of far keys, from the near keys' frequencies (empty: the same). `inv_freq` rotates second keys and
  // the queries of table 1; `phases` are added to the queries' angles.
  struct FarRope {
    std::vector<double> inv_freq, phases;
  };
  std::function<FarRope(std::span<const double> inv_freq, const RopeScaling& rope, double stretch)> far{};

  // Indices [first, last) of keys that no token at index p or later sees.
  struct Places {
    int64_t first, last;
  };
  Places unseen(int64_t p) const;
  // Distance that the token at index i of a text of this length sees to key j; unset: the key is masked.
  std::optional<double> distance(int64_t i, int64_t j, double length) const;
  std::span<const VisibleRange> ranges_at(double at) const {
    return at == 1 && !unstretched.empty() ? unstretched : ranges;
  }
};

// Throws UsageError if a layer of the model does not use RoPE over all keys.
void check_position_method(const PositionMethod& method, const ModelSpec& spec);

}  // namespace lariat
