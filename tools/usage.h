#pragma once
#include <CLI/CLI.hpp>
#include <string>
#include <vector>

// Error messages for invalid command lines.
namespace lariat {

// Return the error for the value of a numeric option, "" if valid. NaN and infinity are invalid, though they
// pass CLI11's ranges.
std::string check_integer(const std::string& text);
std::string check_number(const std::string& text);
std::string check_natural(const std::string& text);  // for integers from 0 to 2^64 - 1
// Same for options with a text.
std::string check_utf8(const std::string& text);

// One line: the error in `words` (after the program's name), a similar option or subcommand, and the help
// command.
std::string explain(const CLI::App& app, const CLI::ParseError& error, const std::vector<std::string>& words);
// "; see lariat generate --help", for the subcommand in `words`, if any.
std::string see_help(const CLI::App& app, const std::vector<std::string>& words);
// Text of `lariat help [COMMAND]`. Throws UsageError for an unknown command.
std::string help_of(const CLI::App& app, const std::string& command);

}  // namespace lariat
