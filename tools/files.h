#pragma once
#include <CLI/CLI.hpp>

#include <filesystem>
#include <optional>
#include <string>
#include <vector>

#include "engine/contexts/join_contexts.h"
#include "engine/contexts/saved_context.h"
#include "models/text/tokenizer.h"

// The type of options that are kept as a path (not as an optional one), but for those that name another.
template <>
constexpr const char* CLI::detail::type_name<std::filesystem::path>() {
  return "FILE";
}

// The files that a command reads and writes.
namespace lariat {

// An option that names a file which is written. Any other FILE or DIR of a command is read.
CLI::Option* add_output_option(CLI::App& command, const std::string& name, std::filesystem::path& file,
                               const std::string& description);
struct NamedFile {
  std::string name;  // in errors: "--report r.html"
  std::filesystem::path file;
};
struct CommandFiles {
  std::vector<NamedFile> inputs, outputs;
  std::filesystem::path context;  // of --load-cache, which may be saved over
};
// Those of a subcommand whose options were parsed; standard input and output count as inputs.
CommandFiles files_of(const CLI::App& command);
// Throws UsageError when an output is an input too, a file that a model among them is read from, or another
// output, by whatever name or link; and Error when one cannot be written. Nothing is opened.
void check_outputs(const CommandFiles& files);
// --load-cache, and --join for several files with commas between them.
struct ContextOptions {
  std::filesystem::path file;
  std::optional<JoinOptions> join;
  bool empty() const { return file.empty(); }
};
void add_context_options(CLI::App& command, ContextOptions& options, const std::string& description);
// The named context, or an empty one; Ctrl-C during a prefill is an Error.
SavedContext load_contexts(Session& session, const Tokenizer& tokenizer, const ContextOptions& options);
// With --load-cache X --save-cache X the first run begins X: clears `load` where that is not there yet, and
// says so.
void begin_context(std::filesystem::path& load, const std::filesystem::path& save, bool quiet);

}  // namespace lariat
