#include "tools/help.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <map>
#include <sstream>

#include "tools/commands.h"
#include "tools/files.h"
#include "tools/usage.h"

namespace lariat {
namespace {

constexpr size_t kLineWidth = 80;
constexpr size_t kTextColumn = 37;           // start of descriptions
constexpr const char* kLongIndent = "    ";  // width of "-n, "

std::vector<std::string> wrap(const std::string& text, size_t columns) {
  std::vector<std::string> lines(1);
  std::istringstream words(text);
  for (std::string word; words >> word;) {
    std::string& line = lines.back();
    if (line.empty()) {
      line = word;
    } else if (line.size() + 1 + word.size() <= columns) {
      line += " " + word;
    } else {
      lines.push_back(word);
    }
  }
  return lines;
}

// A long heading gets its own line.
std::string two_columns(const std::string& heading, const std::string& text, size_t column) {
  std::string block = "  " + heading;
  for (size_t start = 0; block.size() - start > kLineWidth;) {  // a long list of choices
    const size_t bar = block.rfind('|', start + kLineWidth - 1);
    if (bar == block.npos || bar < start) break;
    block.insert(bar + 1, "\n" + std::string(8, ' '));
    start = bar + 2;
  }
  bool beside = block.size() + 2 <= column;
  for (const std::string& line : wrap(text, kLineWidth - column)) {
    if (!beside) block += "\n";
    const size_t filled = beside ? block.size() : 0;
    block += std::string(column - filled, ' ') + line;
    beside = false;
  }
  return block + "\n";
}

std::string group_text(const OptionGroup& group) {
  std::string text = "\n" + group.name + ":\n";
  for (const CLI::Option* option : group.options) {
    const std::string indent = option->get_snames().empty() ? kLongIndent : "";
    text += two_columns(indent + option_heading(*option), option_text(*option), kTextColumn);
  }
  return text;
}

std::string command_help(const CLI::App& command) {
  std::string text = command.get_description() + "\n\n";
  const char* before = "Usage: ";
  for (const std::string& usage : usage_of(command)) {
    for (const std::string& line : wrap(usage, kLineWidth - 11)) {
      text += before + line + "\n";
      before = "           ";
    }
    before = "       ";
  }
  for (const OptionGroup& group : option_groups(command)) text += group_text(group);
  if (!command.get_footer().empty()) text += "\nExample:\n  " + command.get_footer() + "\n";
  return text;
}

std::string program_help(const CLI::App& app) {
  std::string text = app.get_description() + "\n\nUsage: " + app.get_name() + " COMMAND [options]\n";
  std::string group;
  for (const CLI::App* command : commands_of(app)) {
    if (command->get_group() != group) text += "\n" + command->get_group() + ":\n";
    group = command->get_group();
    text += two_columns(command->get_name(), command->get_description(), 16);
  }
  for (const OptionGroup& options : option_groups(app)) text += group_text(options);
  return text + "\n" + app.get_name() + " help COMMAND shows a command's options and an example.\n";
}

// CLI11's base class stores labels.
class HelpFormatter : public CLI::FormatterBase {
 public:
  std::string make_help(const CLI::App* app, std::string /*name*/,
                        CLI::AppFormatMode /*mode*/) const override {
    return app->get_parent() == nullptr ? program_help(*app) : command_help(*app);
  }
};

std::string version_text() {
  const auto build = build_json();
  return fmt::format("lariat {}\nCUDA {}, MPI {}, processor path {}", build["version"].get<std::string>(),
                     build["cuda"].get<std::string>(), build["mpi"].get<bool>() ? "yes" : "no",
                     build["cpu"].get<std::string>());
}

// "--max-new-tokens N"
std::string usage_heading(const CLI::Option& option) {
  return "--" + option.get_lnames().at(0) + " " + plain_type(option);
}

std::string usage_label(const CLI::App& command) { return "usage of " + command.get_name(); }

// "N", "auto|cpu|cuda"
std::string word_type(const CLI::Option& option) {
  static const std::map<std::string, std::string> kPlain = {{"INT", "N"}, {"UINT", "N"}, {"FLOAT", "F"}};
  std::string full = option.get_type_name();         // CLI11: "INT:INT in [0 - 9]", "TEXT:{none,q8,q4}"
  if (full.find('|') < full.find(':')) return full;  // lariat: "auto|cpu|cuda|cuda:N"
  const size_t colon = std::min(full.find(':'), full.size());
  std::string type = full.substr(0, colon);
  if (type == "TEXT" && full.substr(colon, 2) == ":{") {
    type = full.substr(colon + 2, full.find('}', colon) - colon - 2);
    std::replace(type.begin(), type.end(), ',', '|');
  }
  const auto plain = kPlain.find(type);
  return plain == kPlain.end() ? type : plain->second;
}

// CLI11 stores option groups as subcommands without a name.
std::vector<const CLI::App*> nameless(const CLI::App& command) {
  return command.get_subcommands([](const CLI::App* sub) { return sub->get_name().empty(); });
}

std::vector<const CLI::Option*> visible_options(const CLI::App& app, bool required) {
  return app.get_options([&](const CLI::Option* option) {
    return option != app.get_help_ptr() && !option->get_group().empty() && option->get_required() == required;
  });
}

// Sets plain types, and checks of numbers.
void finish_options(CLI::App& app) {
  for (CLI::App* command : app.get_subcommands([](CLI::App*) { return true; })) {
    finish_options(*command);
    for (CLI::Option* option : command->get_options()) {
      if (option->get_items_expected_max() == 0) continue;
      const std::string type = word_type(*option);
      const bool natural = option->get_type_name() == "UINT";
      option->type_name(type);
      for (int i = 0; option->get_type_name() != type; ++i) option->get_validator(i)->description("");
      // transform() inserts a check before the existing checks.
      if (natural) option->transform(CLI::Validator(check_natural, ""));
      if (type == "N") option->transform(CLI::Validator(check_integer, ""));
      if (type == "TEXT") option->transform(CLI::Validator(check_utf8, ""));
      if (type == "F") option->transform(CLI::Validator(check_number, ""));
    }
  }
}

}  // namespace

std::unique_ptr<CLI::App> make_app() {
  auto app = std::make_unique<CLI::App>("LLM inference with a consistent RoPE cache", "lariat");
  app->require_subcommand(1);
  app->formatter(std::make_shared<HelpFormatter>());
  app->option_defaults()->always_capture_default();
  app->set_help_flag("-h,--help", "this text");
  app->set_version_flag("-v,--version", version_text, "show version and build features");
  // In the order of the help.
  add_generate_command(*app);
  add_chat_command(*app);
  add_serve_command(*app);
  add_score_command(*app);
  add_tasks_command(*app);
  add_perplexity_command(*app);
  add_passkey_command(*app);
  add_ask_command(*app);
  add_sweep_command(*app);
  add_bench_command(*app);
  add_inspect_command(*app);
  add_rope_command(*app);
  add_tokenize_commands(*app);
  add_logits_command(*app);
  finish_options(*app);
  app->parse_complete_callback([&app = *app] {  // before the subcommand does anything
    for (const CLI::App* command : app.get_subcommands()) check_outputs(files_of(*command));
  });
  return app;
}

CLI::App& add_command(CLI::App& app, const std::string& name, const std::string& description,
                      const std::string& group, const std::string& example) {
  return *app.add_subcommand(name, description)->group(group)->footer(example);
}

void set_usage(CLI::App& command, const std::string& lines) {
  command.get_formatter()->label(usage_label(command), lines);
}

void begin_group(CLI::App& command, const std::string& group) { command.option_defaults()->group(group); }

std::vector<OptionGroup> option_groups(const CLI::App& command) {
  std::vector<const CLI::Option*> options = visible_options(command, true);
  const auto append = [&](const std::vector<const CLI::Option*>& more) {
    options.insert(options.end(), more.begin(), more.end());
  };
  for (const CLI::App* sub : nameless(command)) append(visible_options(*sub, false));
  append(visible_options(command, false));
  std::vector<OptionGroup> groups = {{kMainOptions, {}}};
  for (const CLI::Option* option : options) {
    const auto named = [&](const OptionGroup& group) { return group.name == option->get_group(); };
    auto group = std::find_if(groups.begin(), groups.end(), named);
    if (group == groups.end()) group = groups.insert(groups.end(), {option->get_group(), {}});
    group->options.push_back(option);
  }
  std::stable_partition(groups.begin(), groups.end(),
                        [](const OptionGroup& group) { return group.name != kOutputOptions; });
  if (command.get_help_ptr() != nullptr) groups.back().options.push_back(command.get_help_ptr());
  return groups;
}

std::vector<const CLI::Option*> options_of(const CLI::App& command) {
  std::vector<const CLI::Option*> all;
  for (const OptionGroup& group : option_groups(command))
    all.insert(all.end(), group.options.begin(), group.options.end());
  return all;
}

std::vector<const CLI::App*> commands_of(const CLI::App& app) {
  return app.get_subcommands(
      [](const CLI::App* sub) { return !sub->get_name().empty() && !sub->get_group().empty(); });
}

std::string plain_type(const CLI::Option& option) {
  if (option.get_items_expected_max() == 0) return "";
  const std::string type = word_type(option);
  if (option.get_delimiter() == ',') {
    return type + (type.find('|') == std::string::npos ? "," + type : "") + ",...";
  }
  return type + (option.get_items_expected_max() > 1 ? " ..." : "");
}

std::string option_heading(const CLI::Option& option) {
  std::vector<std::string> names;
  for (const std::string& name : option.get_snames()) names.push_back("-" + name);
  for (const std::string& name : option.get_lnames()) names.push_back("--" + name);
  const std::string type = plain_type(option);
  return fmt::format("{}{}{}", fmt::join(names, ", "), type.empty() ? "" : " ", type);
}

std::string option_text(const CLI::Option& option) {
  std::string text = option.get_description();
  if (option.get_required()) return text + " [required]";
  std::string value = option.get_default_str();
  if (value.size() >= 2 && value.front() == '[' && value.back() == ']')
    value = value.substr(1, value.size() - 2);
  if (value.empty() || value == "{}" || option.get_items_expected_max() == 0) return text;
  return text + " [default: " + value + "]";
}

std::vector<std::string> usage_of(const CLI::App& command) {
  const std::string start = "lariat " + command.get_name();
  std::vector<std::string> usages;
  const std::string label = usage_label(command), given = command.get_formatter()->get_label(label);
  if (given != label) {  // an unset label equals its key
    std::istringstream lines(given);
    for (std::string line; std::getline(lines, line);) usages.push_back(start + " " + line);
    return usages;
  }
  std::string usage = start;
  for (const CLI::Option* option : visible_options(command, true)) usage += " " + usage_heading(*option);
  for (const CLI::App* sub : nameless(command)) {
    if (sub->get_require_option_min() == 0) continue;
    std::vector<std::string> ways;
    for (const CLI::Option* option : visible_options(*sub, false)) ways.push_back(usage_heading(*option));
    usage += fmt::format(" ({})", fmt::join(ways, " | "));
  }
  return {usage + " [options]"};
}

}  // namespace lariat
