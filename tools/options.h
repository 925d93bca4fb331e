#pragma once
#include <CLI/CLI.hpp>

#include <filesystem>
#include <string>
#include <vector>

#include "engine/lariat.h"
#include "tools/files.h"
#include "tools/output.h"

// Options that commands with a model share, and the model that they open.
namespace lariat {

struct CommonOptions {
  std::filesystem::path model;
  OpenOptions open{};  // all but the dtypes, which are kept as the words that were typed
  std::string dtype = "auto", quantize = "none", kv_dtype = "auto";
  bool quiet = false;
  bool other_scalings = false;        // the command compares some that open.rope does not name
  const CLI::App* command = nullptr;  // which knows what was typed
};

void add_model_option(CLI::App& command, CommonOptions& options, bool required = true);
// The RoPE options, --device --threads --dtype --quantize --kv-dtype --ctx --prefill-chunk, and --quiet, each
// in its group of the help (tools/help.h).
void add_common_options(CLI::App& command, CommonOptions& options);
// --rope-scaling, --rope-factor, --rope-original-ctx, --rope-theta, --rope-config, --rope-steps and
// --rope-cache. Parsing throws UsageError.
void add_rope_options(CLI::App& command, OpenOptions& options);

// An option such as --kv-dtype, and what it asks for: "auto", "f32", "f16" or "bf16" for both, or "k=..",
// "v=.." or "k=..,v=..", where values may be "q8" too. Parsing throws UsageError.
CLI::Option* add_kv_dtype_option(CLI::App& command, const std::string& name, std::string& value,
                                 const std::string& meaning);

// --tokens or --tokens-file, and the ids that they give.
inline constexpr uint64_t kMaxTokenFileBytes = uint64_t{1} << 30;
void add_token_options(CLI::App& command, std::string& tokens, std::filesystem::path& file);
std::vector<int32_t> given_tokens(const std::string& tokens, const std::filesystem::path& file);

// --template-var NAME=VALUE (repeatable), for what renders a chat template: a further variable of it, JSON
// where VALUE is that and else a text. Parsing throws UsageError.
CLI::Option* add_template_var_option(CLI::App& command, CommonOptions& options);

// The model, with its progress and its warnings on stderr.
Engine open_engine(const CommonOptions& options, Reads reads = Reads::kText);

// Warns of those of `names` that were typed and change nothing; `why` is "with --method chunks", say.
void warn_idle(const CommonOptions& options, std::vector<std::string> names, const std::string& why);
// The same of --rope-steps and --rope-cache.
void warn_of_still_scale(const CommonOptions& options, const RopeScaling& rope);

}  // namespace lariat
