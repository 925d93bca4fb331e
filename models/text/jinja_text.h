#pragma once
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

// Texts as Python's str has them: indices count code points. All arguments are valid UTF-8.
namespace lariat::jinja {

bool is_python_space(char32_t c);  // what str.isspace() and strip() take for whitespace
int64_t count_chars(std::string_view text);
std::vector<std::string_view> chars(std::string_view text);
size_t find_in(std::string_view text, std::string_view part, size_t from = 0);  // linear; npos

// strip() and its kin: whitespace when `set` is null, else the characters in it.
std::string_view strip(std::string_view text, const std::string* set, bool left, bool right);
// split() on whitespace or on a separator (not empty), at most `limit` times when that is not negative.
std::vector<std::string_view> split(std::string_view text, const std::string* separator, int64_t limit);
std::vector<std::string_view> split_right(std::string_view text, const std::string* separator, int64_t limit);
std::vector<std::string_view> split_lines(std::string_view text, bool keep_ends);

// Throw Failure for characters whose upper case is several characters (ligatures, Greek with accents), ß
// aside.
std::string upper(std::string_view text);
std::string lower(std::string_view text);
std::string capitalize(std::string_view text);
std::string title(std::string_view text);         // of str.title()
std::string filter_title(std::string_view text);  // of the filter
// Python's test of that name, for each character and at least one.
bool is_digit(std::string_view text);
bool is_alpha(std::string_view text, bool or_digit);
bool is_space(std::string_view text);
bool is_upper(std::string_view text);
bool is_lower(std::string_view text);

std::string escape_html(std::string_view text);
std::string text_repr(std::string_view text);

}  // namespace lariat::jinja
