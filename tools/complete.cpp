#include <fmt/format.h>

#include <algorithm>
#include <sstream>

#include "tools/help.h"

namespace lariat {
namespace {

bool is_option(const std::string& word) { return word.size() > 1 && word[0] == '-'; }

// Type "auto|cpu|cuda" has three values, "DIR" folders, "N" none.
void print_values(const CLI::Option& option, const std::string& current, std::ostream& out) {
  const std::string type = plain_type(option);
  std::string before;  // of a list: the text up to the last comma
  if (option.get_delimiter() == ',') before = current.substr(0, current.rfind(',') + 1);
  std::istringstream values(type.substr(0, type.find_first_of(", ")));
  for (std::string value; std::getline(values, value, '|');) {
    if (value == "FILE") out << ":file\n";
    if (value == "DIR") out << ":dir\n";
    const bool literal = std::ranges::none_of(value, [](char c) { return c >= 'A' && c <= 'Z'; });
    if (literal && (before + value).starts_with(current)) out << before << value << "\n";
  }
}

void print_options(const CLI::App& command, const std::vector<std::string>& given, const std::string& current,
                   std::ostream& out) {
  for (const CLI::Option* option : options_of(command)) {
    const bool repeatable = option->get_multi_option_policy() == CLI::MultiOptionPolicy::TakeAll;
    const auto same = [&](const std::string& word) { return is_option(word) && option->check_name(word); };
    if (!repeatable && std::ranges::any_of(given, same)) continue;
    for (const std::string& name : option->get_lnames()) {
      if (("--" + name).starts_with(current)) out << "--" << name << "\n";
    }
  }
}

// The option whose value follows `words`; nullptr: an option name follows.
const CLI::Option* option_waiting(const CLI::App& command, const std::vector<std::string>& words) {
  size_t values = 0;
  for (auto word = words.rbegin(); word != words.rend(); ++word, ++values) {
    if (!is_option(*word)) continue;
    const auto options = options_of(command);
    const auto option =
        std::ranges::find_if(options, [&](const CLI::Option* known) { return known->check_name(*word); });
    // An option may take several words, as --merge does.
    const bool waits =
        option != options.end() && values < static_cast<size_t>((*option)->get_items_expected_max());
    return waits ? *option : nullptr;
  }
  return nullptr;
}

}  // namespace

void print_completions(const CLI::App& app, const std::vector<std::string>& words, std::ostream& out) {
  // bash splits --option=value into three words; the last word may be "=".
  std::vector<std::string> before = words;
  std::string current;
  if (!before.empty()) {
    current = before.back() == "=" ? "" : before.back();
    if (before.back() != "=") before.pop_back();
  }
  std::erase(before, "=");
  const bool help = before.size() == 1 && before[0] == "help";
  if (help) before.clear();  // commands follow `help`
  const CLI::App* command = &app;
  if (before.empty() && !help && std::string_view("help").starts_with(current)) out << "help\n";
  for (const CLI::App* sub : commands_of(app)) {
    if (!before.empty() && sub->get_name() == before[0]) command = sub;
    if (before.empty() && sub->get_name().starts_with(current)) out << sub->get_name() << "\n";
  }
  if (command == &app && !before.empty()) return;  // unknown command
  const CLI::Option* waiting = is_option(current) ? nullptr : option_waiting(*command, before);
  if (waiting != nullptr) return print_values(*waiting, current, out);
  if (command != &app || is_option(current)) print_options(*command, before, current, out);
}

}  // namespace lariat
