#pragma once
#include <CLI/CLI.hpp>
#include <memory>
#include <ostream>
#include <string>
#include <vector>

// Help, shell completion and man page, generated from one CLI::App.
namespace lariat {

// Groups of subcommands, in the order of the help.
inline constexpr const char* kUseCommands = "Use a model";
inline constexpr const char* kMeasureCommands = "Measure one";
inline constexpr const char* kLookCommands = "Look inside";

// Groups of options.
inline constexpr const char* kMainOptions = "Options";  // CLI11's default name
inline constexpr const char* kSamplingOptions = "Sampling";
inline constexpr const char* kRopeOptions = "RoPE";
inline constexpr const char* kMemoryOptions = "Model and memory";
inline constexpr const char* kAgainstOptions = "Against another model";
inline constexpr const char* kOutputOptions = "Output";

// All subcommands, with plain option types, also in error messages.
std::unique_ptr<CLI::App> make_app();

// A test parses the example.
CLI::App& add_command(CLI::App& app, const std::string& name, const std::string& description,
                      const std::string& group, const std::string& example);
// Sets the usage after "lariat COMMAND", one line per form; default: required options and option groups.
void set_usage(CLI::App& command, const std::string& lines);
// Options added from now on belong to this group.
void begin_group(CLI::App& command, const std::string& group);

// No hidden options; option groups are merged, --help is last.
struct OptionGroup {
  std::string name;
  std::vector<const CLI::Option*> options;
};
std::vector<OptionGroup> option_groups(const CLI::App& command);
std::vector<const CLI::Option*> options_of(const CLI::App& command);
std::vector<const CLI::App*> commands_of(const CLI::App& app);
// N, F, TEXT, FILE, DIR, choices ("auto|cpu|cuda"), "N,N,..." for a list, "FILE ..." for several words; ""
// for a flag. Derived from CLI11's type and check unless type_name is set.
std::string plain_type(const CLI::Option& option);
// "-n, --max-new-tokens N"
std::string option_heading(const CLI::Option& option);
// With "[required]" or "[default: 128]".
std::string option_text(const CLI::Option& option);
// "lariat generate --model DIR ... [options]"
std::vector<std::string> usage_of(const CLI::App& command);

// Prints bash completions for the last of `words`, one per line. ":file" and ":dir" request the shell's
// names.
void print_completions(const CLI::App& app, const std::vector<std::string>& words, std::ostream& out);
// Prints troff.
void print_man_page(const CLI::App& app, std::ostream& out);

}  // namespace lariat
