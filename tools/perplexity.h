#pragma once
#include <filesystem>
#include <optional>
#include <string>
#include <vector>

#include "engine/eval/measure/perplexity.h"
#include "tools/measuring.h"
#include "tools/options.h"

// `lariat perplexity`, alone or with --against.
namespace lariat {

// Unset: as for the first model.
struct AgainstOptions {
  std::string reference;  // a folder or "same"; empty: no --against
  std::string quantize, dtype, kv_dtype;
  std::optional<std::string> rope_scaling{}, position_method{};
  std::optional<double> rope_factor{};
  std::optional<std::filesystem::path> rope_config{};
  std::optional<int> activations{};
  std::string rope_cache;
};
void add_against_options(CLI::App& command, AgainstOptions& against);

struct PerplexityCommand {
  CommonOptions common = CommonOptions::measuring();
  AgainstOptions against;
  std::filesystem::path file;
  std::vector<int64_t> ctx;
  int64_t stride = 256, step = 0;  // step 0: default_step()
  std::optional<int64_t> max_tokens{};
  std::string method = "sliding";
  std::vector<int64_t> buckets = {32};  // number of buckets, or their ends
  ContextOptions load_cache;
  std::filesystem::path save_cache, losses;
  ResultFiles files;
  bool one_piece() const { return !load_cache.empty() || !save_cache.empty(); }
};
// Prints a note if the text is shorter than the default window.
PerplexityOptions options_of(const PerplexityCommand& command, const Engine& engine, const TokenSource& text);
// Logs also store the text's `fingerprint`.
Plan plan_of(const PerplexityCommand& command, const Engine& engine, const PerplexityOptions& options,
             std::optional<std::string> fingerprint);
void run_divergence(const PerplexityCommand& command);

}  // namespace lariat
