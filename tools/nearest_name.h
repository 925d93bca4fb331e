#pragma once
#include <span>
#include <string>
#include <string_view>

namespace lariat {

// Which of `known` somebody meant who typed something else: the one with the fewest letters wrong, case
// aside, of those that are near or that begin with it or it with them. "" where there is none.
std::string nearest_name(std::string_view typed, std::span<const std::string> known);

}  // namespace lariat
