#pragma once
#include <CLI/CLI.hpp>
#include <string>
#include <vector>

// Words for a command line that makes no sense.
namespace lariat {

// Say what is wrong with the word of an option that takes a number, "" if nothing: NaN and infinity, which
// pass every range or make nothing of it, are no numbers.
std::string check_integer(const std::string& text);
std::string check_number(const std::string& text);
std::string check_natural(const std::string& text);  // of an integer: that it is from 0 to 2^64 - 1
// The same for an option that takes a text.
std::string check_utf8(const std::string& text);

// One line: what is wrong with `words`, which follow the program's name, the option or subcommand that may
// have been meant, and whose help tells more.
std::string explain(const CLI::App& app, const CLI::ParseError& error, const std::vector<std::string>& words);
// "; see lariat generate --help", for the subcommand of `words` if there is one.
std::string see_help(const CLI::App& app, const std::vector<std::string>& words);
// The text of `lariat help [COMMAND]`. Throws UsageError for a command that does not exist.
std::string help_of(const CLI::App& app, const std::string& command);

}  // namespace lariat
