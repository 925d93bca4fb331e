#pragma once
#include <CLI/CLI.hpp>

#include <filesystem>
#include <string>
#include <vector>

#include "engine/lariat.h"
#include "tools/files.h"
#include "tools/output.h"

// Options of all commands with a model.
namespace lariat {

struct CommonOptions {
  std::filesystem::path model;
  OpenOptions open{};  // without dtypes, which are stored as typed
  std::string dtype = "auto", quantize = "none", kv_dtype = "auto";
  bool quiet = false;
  bool other_scalings = false;        // also uses other scalings
  const CLI::App* command = nullptr;  // parsed command line

  // Options of a command that measures a model's predictions.
  static CommonOptions measuring() {
    CommonOptions options;
    options.open.activations = 16;
    return options;
  }
};

void add_model_option(CLI::App& command, CommonOptions& options, bool required = true);
struct CommonParts {
  bool one_scaling = true;  // false: hides options of one scaling, which the command refuses; no --rope-cache
  bool ctx = true;          // --ctx
};
// Each option has its help group (tools/help.h).
void add_common_options(CLI::App& command, CommonOptions& options, const CommonParts& parts = {});
// Parsing throws UsageError.
void add_rope_options(CLI::App& command, OpenOptions& options, bool one_scaling = true);
CLI::Option* add_position_option(CLI::App& command, OpenOptions& options);

// "auto", "f32", "f16" or "bf16" for both, or "k=..", "v=.." or "k=..,v=.."; values may be "q8". Parsing
// throws UsageError.
CLI::Option* add_kv_dtype_option(CLI::App& command, const std::string& name, std::string& value,
                                 const std::string& meaning);

inline constexpr uint64_t kMaxTokenFileBytes = uint64_t{1} << 30;
void add_token_options(CLI::App& command, std::string& tokens, std::filesystem::path& file);
std::vector<int32_t> given_tokens(const std::string& tokens, const std::filesystem::path& file);

// Adds --template-var NAME=VALUE (repeatable), parsed as JSON if possible, otherwise a string. Parsing throws
// UsageError.
CLI::Option* add_template_var_option(CLI::App& command, CommonOptions& options);

// Progress and warnings go to stderr.
Engine open_engine(const CommonOptions& options, Reads reads = Reads::kText);

// Bits of the activations; null without quantized weights.
nlohmann::ordered_json activations_json(const Model& model, const SessionOptions& options);

// Warns about given options among `names` that have no effect; why: e.g. "with --method chunks".
void warn_idle(const CommonOptions& options, std::vector<std::string> names, const std::string& why);
// Same for --rope-steps and --rope-cache.
void warn_of_still_scale(const CommonOptions& options, const RopeScaling& rope);

}  // namespace lariat
