#include "engine/eval/sweep_column.h"

#include <fmt/core.h>

#include <algorithm>
#include <utility>

#include "engine/rope_options.h"
#include "kernels/error.h"
#include "models/positions/position_method.h"
#include "models/rope.h"

namespace lariat {
namespace {
constexpr std::string_view kStale = " stale";
}

std::string name_of(const SweepColumn& column) {
  std::string name = column.method.empty() ? column.scaling : column.method;
  if (!column.method.empty() && column.scaling != "none") name += "+" + column.scaling;
  return column.stale ? name + std::string(kStale) : name;
}

SweepColumn read_column(std::string_view name) {
  SweepColumn column{.stale = name.ends_with(kStale)};
  if (column.stale) name.remove_suffix(kStale.size());
  const size_t plus = std::min(name.find('+'), name.size());
  std::string_view method = name.substr(0, plus),
                   scaling = plus < name.size() ? name.substr(plus + 1) : "none";
  if (is_position_method(scaling)) std::swap(method, scaling);
  if (is_position_method(method)) {
    column.method = method;
    column.scaling = scaling;
  } else {
    column.scaling = name;
  }
  return column;
}

SweepColumn parse_column(std::string_view name) {
  SweepColumn column = read_column(name);
  column.scaling = plain_scaling_name(column.scaling);
  const bool own = column.scaling == "none" || column.scaling == "model";
  if (!own && !find_rope_type(column.scaling)) {
    throw UsageError(
        fmt::format("`scalings` {}: expected a scaling ({}, model), a position method ({}), or both as "
                    "METHOD+SCALING",
                    name, known_scalings(", "), known_position_methods(", ")));
  }
  return column;
}

}  // namespace lariat
