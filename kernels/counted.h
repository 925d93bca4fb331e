#pragma once
#include <concepts>
#include <string>
#include <string_view>

namespace lariat {

// "1 token", "2 tokens"; `plural` overrides the default plural in s.
template <std::integral T>
std::string counted(T n, std::string_view noun, std::string_view plural = {}) {
  std::string text = std::to_string(n) + " ";
  if (n == 1) return text.append(noun);
  return plural.empty() ? text.append(noun) + "s" : text.append(plural);
}

}  // namespace lariat
