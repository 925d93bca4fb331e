#pragma once
#include <span>
#include <string>
#include <string_view>

namespace lariat {

// Finds the name that a misspelt `typed` meant: with a common prefix or suffix, else with the fewest wrong
// letters, ignoring case. "": none is near.
std::string nearest_name(std::string_view typed, std::span<const std::string> known);

}  // namespace lariat
