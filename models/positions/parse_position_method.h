#pragma once
#include <cstdint>
#include <string>
#include <string_view>

#include "models/spec/position_method.h"

namespace lariat {

// Parses "dca", or "dca/chunk=6144/window=2048/temperature=log"; "none" or empty: no method. Defaults follow
// from the trained length and, for some methods, from the longest sequence (0: unknown). Throws UsageError.
PositionMethod parse_position_method(std::string_view text, int64_t trained, int64_t longest);
std::string known_position_methods(std::string_view separator);
bool is_position_method(std::string_view text);

}  // namespace lariat
