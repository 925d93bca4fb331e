#include "engine/eval/token_list.h"

#include <algorithm>
#include <charconv>

#include "kernels/error.h"

namespace lariat {

std::vector<int32_t> parse_token_list(std::string_view text, const std::string& where) {
  std::vector<int32_t> tokens;
  const char* separators = ", \t\r\n";
  for (size_t at = text.find_first_not_of(separators); at != std::string_view::npos;
       at = text.find_first_not_of(separators, at)) {
    const size_t end = std::min(text.find_first_of(separators, at), text.size());
    int32_t id = 0;
    const auto [stop, error] = std::from_chars(text.data() + at, text.data() + end, id);
    if (error != std::errc() || stop != text.data() + end || id < 0) {
      throw Error(where + ": '" + std::string(text.substr(at, std::min<size_t>(end - at, 40))) +
                  "' is not a token id; give numbers separated by commas or spaces");
    }
    tokens.push_back(id);
    at = end;
  }
  if (tokens.empty()) throw Error(where + ": no token ids");
  return tokens;
}

}  // namespace lariat
