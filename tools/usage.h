#pragma once
#include <CLI/CLI.hpp>
#include <string>
#include <vector>

namespace lariat {

// Return an error for a numeric option's value, "" if valid. NaN and infinity are invalid, though CLI11's
// ranges accept them.
std::string check_integer(const std::string& text);
std::string check_number(const std::string& text);
std::string check_natural(const std::string& text);  // 0 to 2^64 - 1
std::string check_utf8(const std::string& text);

// One line: the error, a similar option or subcommand, and the help command.
std::string explain(const CLI::App& app, const CLI::ParseError& error, const std::vector<std::string>& words);
// "; see lariat generate --help"
std::string see_help(const CLI::App& app, const std::vector<std::string>& words);
// Throws UsageError for an unknown command.
std::string help_of(const CLI::App& app, const std::string& command);

}  // namespace lariat
