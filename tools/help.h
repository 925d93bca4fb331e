#pragma once
#include <CLI/CLI.hpp>
#include <memory>
#include <ostream>
#include <string>
#include <vector>

// The texts that a user reads before anything runs: help, shell completion and the man page, all made from
// the one CLI::App, so that none of them can tell of options that do not exist.
namespace lariat {

// Groups of subcommands. The help shows them in the order in which make_app adds them.
inline constexpr const char* kUseCommands = "Use a model";
inline constexpr const char* kMeasureCommands = "Measure one";
inline constexpr const char* kLookCommands = "Look inside";

// Groups of options: first what people use first, and last kOutputOptions.
inline constexpr const char* kMainOptions = "Options";  // CLI11's own name for them
inline constexpr const char* kSamplingOptions = "Sampling";
inline constexpr const char* kRopeOptions = "RoPE";
inline constexpr const char* kMemoryOptions = "Model and memory";
inline constexpr const char* kAgainstOptions = "Against another model";
inline constexpr const char* kOutputOptions = "Output";

// The program's command line with all its subcommands. Its help is as this file has it, and every option has
// its plain type, so that errors name that one too.
std::unique_ptr<CLI::App> make_app();

// A subcommand in its group of `lariat --help`, with a command line that shows it at work; a test parses it.
CLI::App& add_command(CLI::App& app, const std::string& name, const std::string& description,
                      const std::string& group, const std::string& example);
// Sets what follows "lariat COMMAND" in the usage, one line for each way to call it, where required options
// and option groups (which are shown by themselves) do not tell it.
void set_usage(CLI::App& command, const std::string& lines);
// Options that are added to `command` from here on belong to `group`.
void begin_group(CLI::App& command, const std::string& group);

// A group as the help shows it: without hidden options, those of option groups among the rest, --help at the
// end.
struct OptionGroup {
  std::string name;
  std::vector<const CLI::Option*> options;
};
std::vector<OptionGroup> option_groups(const CLI::App& command);
// The options of these groups.
std::vector<const CLI::Option*> options_of(const CLI::App& command);
// The subcommands with a name, in the order in which they were added.
std::vector<const CLI::App*> commands_of(const CLI::App& app);
// The type of an option's values: N, F, TEXT, FILE, DIR, its values as in "auto|cpu|cuda", "N,N,..." for a
// list, "FILE ..." for several words; "" for a flag. Made of CLI11's type and check unless the option has a
// type_name of its own.
std::string plain_type(const CLI::Option& option);
// "-n, --max-new-tokens N"
std::string option_heading(const CLI::Option& option);
// The description with "[required]" or "[default: 128]" after it.
std::string option_text(const CLI::Option& option);
// The ways to call a subcommand, each as "lariat generate --model DIR ... [options]".
std::vector<std::string> usage_of(const CLI::App& command);

// Prints bash completions (scripts/completion) for the last of `words`, which follow the program's name: a
// candidate per line. ":file" and ":dir" stand for the shell's own names of files and folders.
void print_completions(const CLI::App& app, const std::vector<std::string>& words, std::ostream& out);
// The man page, as troff.
void print_man_page(const CLI::App& app, std::ostream& out);

}  // namespace lariat
