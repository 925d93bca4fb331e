#pragma once
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace lariat {

// Token ids separated by commas or whitespace, at least one. Throws Error naming `where` and the first word
// that is none.
std::vector<int32_t> parse_token_list(std::string_view text, const std::string& where);

}  // namespace lariat
