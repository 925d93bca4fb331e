#pragma once
#include <functional>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "models/positions/visible_range.h"

namespace lariat {

struct ModelSpec;
struct RopeScaling;

// Distances at which tokens see keys, where these are not how far the two are apart: what takes a model
// beyond its trained length without another frequency (docs/context-extension.md). A key is cached rotated to
// one position for good, or to two; a token turns its query to a position of its own for each range of keys,
// and the difference of the two is the distance. None depends on how a text is cut into steps, but for a
// stretch that follows the length, as a dynamic scale does.
struct PositionMethod {
  // Of the token at a place of its sequence, in a text of that stretch; empty: the place itself.
  using Positions = std::function<double(int64_t place, double stretch)>;

  std::string name{};                  // with all its values, "dca/chunk=6144/window=2048"; empty: no method
  std::vector<Positions> positions{};  // for each table of `ranges`; the first is that of keys as well
  std::vector<VisibleRange> ranges{};
  std::vector<VisibleRange> unstretched{};  // `ranges` at a stretch of 1; empty: `ranges`
  // What far distances are divided by in a text of that length, on its scale step; only second keys are moved
  // when it changes. Empty: 1.
  std::function<double(double length)> stretch{};
  // Factor of the whole query of the token at a place, in a text of that stretch; empty: 1.
  std::function<double(int64_t place, double stretch)> temperature{};
  // The RoPE of far keys, for the frequencies of near keys. Second keys are rotated by `inv_freq`, and so are
  // the queries by table 1, with `phases` added to their angles. Empty: far keys have the frequencies of near
  // keys.
  struct FarRope {
    std::vector<double> inv_freq, phases;
  };
  std::function<FarRope(std::span<const double> inv_freq, const RopeScaling& rope, double stretch)> far{};

  // Places whose keys no token at place p or behind it sees, [first, last).
  struct Places {
    int64_t first, last;
  };
  Places unseen(int64_t p) const;
  std::span<const VisibleRange> ranges_at(double at) const {
    return at == 1 && !unstretched.empty() ? unstretched : ranges;
  }
};

// "dca", or "dca/chunk=6144/window=2048/temperature=log"; "none" and nothing: no method. What is not given
// follows from the trained length and, where a value depends on how far the method is to reach, from the
// longest sequence that there may be (0: not known). Throws UsageError.
PositionMethod parse_position_method(std::string_view text, int64_t trained, int64_t longest);
// The same of the value of each of a row's keys, in their order, 0 where one has none; temperature: "log",
// "length" or a factor, empty: none.
PositionMethod make_position_method(std::string_view name, std::span<const int64_t> values,
                                    std::optional<std::string_view> temperature, int64_t trained);
std::string known_position_methods(std::string_view separator);
// Whether it begins with the name of a method, which none is not.
bool is_position_method(std::string_view text);

// Throws UsageError where layers of the model place their tokens in another way than by RoPE over all keys.
void check_position_method(const PositionMethod& method, const ModelSpec& spec);

}  // namespace lariat
