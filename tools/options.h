#pragma once
#include <CLI/CLI.hpp>

#include <filesystem>
#include <string>
#include <vector>

#include "engine/lariat.h"
#include "tools/files.h"
#include "tools/output.h"

// Common options of all commands with a model, and loading of the model.
namespace lariat {

struct CommonOptions {
  std::filesystem::path model;
  OpenOptions open{};  // without dtypes, which are stored as typed
  std::string dtype = "auto", quantize = "none", kv_dtype = "auto";
  bool quiet = false;
  bool other_scalings = false;        // the command also uses other scalings
  const CLI::App* command = nullptr;  // parsed command line
};

void add_model_option(CLI::App& command, CommonOptions& options, bool required = true);
// Adds the RoPE options, --device --threads --dtype --quantize --kv-dtype --ctx --prefill-chunk and --quiet,
// each in its help group (tools/help.h).
void add_common_options(CLI::App& command, CommonOptions& options);
// Adds --rope-scaling, --rope-factor, --rope-original-ctx, --rope-theta, --rope-config, --rope-steps and
// --rope-cache. Parsing throws UsageError.
void add_rope_options(CLI::App& command, OpenOptions& options);

// Adds an option such as --kv-dtype: "auto", "f32", "f16" or "bf16" for both, or "k=..", "v=.." or
// "k=..,v=..", where values may also be "q8". Parsing throws UsageError.
CLI::Option* add_kv_dtype_option(CLI::App& command, const std::string& name, std::string& value,
                                 const std::string& meaning);

// --tokens or --tokens-file, and their token ids.
inline constexpr uint64_t kMaxTokenFileBytes = uint64_t{1} << 30;
void add_token_options(CLI::App& command, std::string& tokens, std::filesystem::path& file);
std::vector<int32_t> given_tokens(const std::string& tokens, const std::filesystem::path& file);

// Adds --template-var NAME=VALUE (repeatable): a chat template variable, parsed as JSON if possible,
// otherwise a string. Parsing throws UsageError.
CLI::Option* add_template_var_option(CLI::App& command, CommonOptions& options);

// Loads the model; progress and warnings go to stderr.
Engine open_engine(const CommonOptions& options, Reads reads = Reads::kText);

// Warns about given options among `names` that have no effect; why: e.g. "with --method chunks".
void warn_idle(const CommonOptions& options, std::vector<std::string> names, const std::string& why);
// The same for --rope-steps and --rope-cache.
void warn_of_still_scale(const CommonOptions& options, const RopeScaling& rope);

}  // namespace lariat
