#pragma once
#include <CLI/CLI.hpp>

#include <filesystem>
#include <optional>
#include <string>
#include <vector>

#include "engine/contexts/join_contexts.h"
#include "engine/contexts/saved_context.h"
#include "models/text/tokenizer.h"

// Default type name of path options.
template <>
constexpr const char* CLI::detail::type_name<std::filesystem::path>() {
  return "FILE";
}

namespace lariat {

// All other FILE and DIR options are inputs.
CLI::Option* add_output_option(CLI::App& command, const std::string& name, std::filesystem::path& file,
                               const std::string& description);
// Whether an input can be read only once: "-", or a pipe.
bool reads_once(const std::filesystem::path& file);
struct NamedFile {
  std::string name;  // in errors: "--report r.html"
  std::filesystem::path file;
};
struct CommandFiles {
  std::vector<NamedFile> inputs, outputs;
  std::filesystem::path context;  // the input of --load-cache; --save-cache and /save may overwrite it
};
// Standard input and output count as inputs.
CommandFiles files_of(const CLI::App& command);
// Throws UsageError if an output is also an input, a file of an input model, or another output, by any name
// or link. Throws Error if an output is not writable. Opens no file.
void check_outputs(const CommandFiles& files);
// --load-cache and --join
struct ContextOptions {
  std::filesystem::path file;
  std::optional<JoinOptions> join;
  bool empty() const { return file.empty(); }
};
void add_context_options(CLI::App& command, ContextOptions& options, const std::string& description);
// Loads the named context, or returns an empty one. Throws Error on Ctrl-C.
SavedContext load_contexts(Session& session, const Tokenizer& tokenizer, const ContextOptions& options);
// With --load-cache X --save-cache X, a missing X is created: clears `load` with a note.
void begin_context(std::filesystem::path& load, const std::filesystem::path& save, bool quiet);

}  // namespace lariat
