#pragma once
#include "tools/common.h"

// `lariat perplexity --against`: how far a model is from another, or from itself run in another way.
namespace lariat {

// --against and its options; what is unset is as the first model's.
struct AgainstOptions {
  std::string reference;  // a folder, or "same"; empty: not asked for
  std::string quantize, dtype, kv_dtype;
  std::optional<std::string> rope_scaling{};
  std::optional<double> rope_factor{};
};
void add_against_options(CLI::App& command, AgainstOptions& against);

// What of `lariat perplexity` a divergence needs.
struct DivergenceCommand {
  const CommonOptions& common;
  const AgainstOptions& against;
  const std::filesystem::path& file;
  const std::vector<int64_t>& ctx;  // at most one
  const std::string& method;
  int64_t stride, max_tokens;
  bool json;
};
void run_divergence(const DivergenceCommand& command);

}  // namespace lariat
