#pragma once
#include <string>
#include <string_view>

namespace lariat {

// A column of a sweep: a RoPE scaling, "model" being what config.json says, a position method, or both; and
// whether cached keys stay as they were written when the scale moves. Its name is the same in options,
// results and tables: "yarn", "dca/chunk=6144", "dca+yarn", "dynamic-yarn stale".
struct SweepColumn {
  std::string scaling = "none";
  std::string method{};  // as parse_position_method reads it; empty: none
  bool stale = false;
};

std::string name_of(const SweepColumn& column);

// Of any text, as results may hold it: what names no method is a scaling.
SweepColumn read_column(std::string_view name);

// Of what a user asks for. Throws UsageError where there is no such scaling or method.
SweepColumn parse_column(std::string_view name);

}  // namespace lariat
