#pragma once
#include <span>
#include <string>
#include <string_view>

namespace lariat {

// Finds which of `known` somebody meant who wrote something else: one that begins or ends with it or that it
// begins with, else the one with the fewest letters wrong, case aside. "" where none is near.
std::string nearest_name(std::string_view typed, std::span<const std::string> known);

}  // namespace lariat
