#include "tools/usage.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <cmath>

#include "kernels/error.h"
#include "models/io/nearest_name.h"
#include "models/text/unicode.h"
#include "tools/help.h"

namespace lariat {
namespace {

const CLI::App* command_named(const CLI::App& app, const std::string& name) {
  const auto commands = commands_of(app);
  const auto found = std::ranges::find(commands, name, &CLI::App::get_name);
  return found == commands.end() ? nullptr : *found;
}

const CLI::App* command_of(const CLI::App& app, const std::vector<std::string>& words) {
  return words.empty() ? nullptr : command_named(app, words[0]);
}

std::vector<std::string> option_names(const CLI::App& command) {
  std::vector<std::string> names;
  for (const CLI::Option* option : options_of(command)) {
    for (const std::string& name : option->get_lnames()) names.push_back("--" + name);
  }
  return names;
}

std::string meant(const std::string& name) { return name.empty() ? "" : " (did you mean " + name + "?)"; }

std::string no_command(const CLI::App& app, const std::string& word) {
  std::vector<std::string> names = {"help", "version"};
  for (const CLI::App* command : commands_of(app)) names.push_back(command->get_name());
  return fmt::format("subcommand \"{}\": unknown{}", word, meant(nearest_name(word, names)));
}

std::string no_option(const CLI::App& command, const std::string& word) {
  if (!word.starts_with("-")) {
    return fmt::format("\"{}\": unexpected word; quote a text of several words", word);
  }
  const std::string name = word.substr(0, word.find('='));
  return fmt::format("{}: unknown option{}", name, meant(nearest_name(name, option_names(command))));
}

// "-temp" is parsed as -t with the value "emp"; the user meant --temperature.
std::string long_name_with_one_dash(const CLI::App& command, const std::vector<std::string>& words) {
  const std::vector<std::string> known = option_names(command);
  for (const std::string& word : words) {
    if (word.size() < 4 || word[0] != '-' || word[1] == '-') continue;
    const std::string name = "-" + word.substr(0, word.find('='));
    const auto begins = [&](const std::string& option) { return option.starts_with(name); };
    if (std::ranges::any_of(known, begins))
      return fmt::format("{}: unknown option{}", name.substr(1), meant(nearest_name(name, known)));
  }
  return "";
}

// Fixes CLI11's grammar.
std::string plainly(const CLI::ParseError& error) {
  std::string text = error.what();
  for (const auto& [theirs, ours] :
       {std::pair("Requires at most 1 options be given from", "give only one of"),
        std::pair("Exactly 1 option from", "one of"),
        std::pair("At Most 1 required but received", "takes 1 value and is given")})
    text = replace_all(text, theirs, ours);
  return text;
}

}  // namespace

std::string check_integer(const std::string& text) {
  int64_t value = 0;
  uint64_t large = 0;
  const bool digits = !text.empty() && text.find_first_not_of("0123456789") == std::string::npos;
  // The option's range check refuses more digits than both types hold.
  const bool integer =
      digits || CLI::detail::lexical_cast(text, value) || CLI::detail::lexical_cast(text, large);
  return integer ? "" : fmt::format("\"{}\" is not an integer", text);
}

std::string check_number(const std::string& text) {
  double value = 0;
  if (!CLI::detail::lexical_cast(text, value)) return fmt::format("\"{}\" is not a number", text);
  return std::isfinite(value) ? "" : fmt::format("{} is not a finite number", text);
}

std::string check_natural(const std::string& text) {
  uint64_t value = 0;
  const bool large =
      std::from_chars(text.data(), text.data() + text.size(), value).ec == std::errc::result_out_of_range;
  const bool fits = !large && !text.starts_with("-");
  return fits ? "" : fmt::format("Value {} not in range 0 to {}", text, UINT64_MAX);
}

std::string check_utf8(const std::string& text) {
  try {
    end_of_utf8(text, 0, /*more_follows=*/false, "the text");
    return "";
  } catch (const Error& e) {
    return e.what();
  }
}

std::string see_help(const CLI::App& app, const std::vector<std::string>& words) {
  const CLI::App* command = command_of(app, words);
  return command == nullptr ? "; see lariat --help" : "; see lariat " + command->get_name() + " --help";
}

std::string explain(const CLI::App& app, const CLI::ParseError& error,
                    const std::vector<std::string>& words) {
  const CLI::App* command = command_of(app, words);
  if (command == nullptr) {
    const std::string& first = words.at(0);
    if (!first.starts_with("-")) return no_command(app, first) + see_help(app, words);
    for (const std::string& word : words) {
      if (command_named(app, word) != nullptr)
        return fmt::format("{0}: precedes the subcommand; write lariat {1} {0}", first, word) +
               see_help(app, {word});
    }
    return no_option(app, first) + see_help(app, words);
  }
  std::string what = long_name_with_one_dash(*command, words);
  // Unknown options come before missing ones: a typo causes both.
  if (const auto unknown = app.remaining(true); what.empty() && !unknown.empty()) {
    const auto option =
        std::ranges::find_if(unknown, [](const std::string& word) { return word.starts_with("-"); });
    what = no_option(*command, option == unknown.end() ? unknown.front() : *option);
  }
  return (what.empty() ? plainly(error) : what) + see_help(app, words);
}

std::string help_of(const CLI::App& app, const std::string& command) {
  if (command.empty() || command == "help" || command == "version") return app.help();
  const CLI::App* found = command_named(app, command);
  if (found == nullptr) throw UsageError(no_command(app, command));
  return found->help();
}

}  // namespace lariat
