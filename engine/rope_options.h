#pragma once
#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <string_view>

#include "models/rope.h"

namespace lariat {

// Parses the name of a scaling in any case, with the aliases "none" (default) and "su" (longrope, from the
// first Phi-3). Throws UsageError.
RopeType parse_rope_type(std::string_view name);
// Canonical name of a scaling for lists and comparisons: "YaRN" is "yarn", "default" is "none".
std::string plain_scaling_name(std::string_view name);
// Whether a scaling needs a factor: every static scaling except longrope, which has its own lists.
bool needs_factor(RopeType type);
std::string known_scalings(std::string_view separator);  // "none, linear, ...", for errors and help

// RoPE scaling options; unset: the model's own. Errors name the settings: `rope_scaling`, `rope_factor`,
// `rope_original_ctx`, `rope_theta`, `rope_config`.
struct RopeOptions {
  std::optional<std::string> scaling{};
  std::optional<double> factor{};
  std::optional<int64_t> original_ctx{};
  std::optional<double> theta{};
  std::optional<std::filesystem::path> config{};  // a JSON file with rope_scaling or rope_parameters
};

// The model's RoPE with the options applied, in this order:
// 1. `config` replaces the model's rope_scaling with the file's.
// 2. A `scaling` of another type replaces it with that type and its defaults; the same type keeps its
//    parameters. L0 stays the model's, except for dynamic, where it is max_position_embeddings as in
//    transformers. none or default turns scaling off. linear, ntk, yarn, llama3 and proportional then need
//    `factor`; longrope comes only from a `config`.
// 3. `factor`, `original_ctx` and `theta` replace those numbers.
// Throws UsageError naming the setting, or Error naming the file and the key.
RopeScaling resolve_rope(const RopeScaling& own, const RopeOptions& options);

// The longest sequence that the model and its scaling support; unset for a scaling without a limit.
std::optional<int64_t> reach_of(const RopeScaling& rope);

}  // namespace lariat
