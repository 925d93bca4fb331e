#pragma once
#include <cstdint>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <string_view>

#include "models/spec/rope.h"

namespace lariat {

// Parses a name in any case; "none" is default, "su" is longrope (first Phi-3). Throws UsageError.
RopeType parse_rope_type(std::string_view name);
// Canonical name: "YaRN" is "yarn", "default" is "none".
std::string plain_scaling_name(std::string_view name);
// True for every static scaling except longrope, which has its own lists.
bool needs_factor(RopeType type);
std::string known_scalings(std::string_view separator);  // "none, linear, ..."

// Unset: the model's own. Errors name the settings `rope_scaling`, `rope_factor` and so on.
struct RopeOptions {
  std::optional<std::string> scaling{};
  std::optional<double> factor{};
  std::optional<int64_t> original_ctx{};
  std::optional<double> theta{};
  std::optional<std::filesystem::path> config{};  // a JSON file with rope_scaling or rope_parameters
};

// Applies the options to the model's RoPE, in this order:
// 1. `config` replaces the model's rope_scaling.
// 2. A `scaling` of another type replaces it with that type and its defaults; the same type keeps its
//    parameters. L0 stays the model's, except for dynamic: max_position_embeddings, as in transformers. none
//    or default: off. linear, ntk, yarn, llama3 and proportional need `factor`; longrope needs `config`.
// 3. `factor`, `original_ctx` and `theta` replace those numbers.
// Throws UsageError naming the setting, or Error naming the file and the key.
RopeScaling resolve_rope(const RopeScaling& own, const RopeOptions& options);

// Reads a rope_scaling or rope_parameters object, or a config with one: its RoPE keys and
// max_position_embeddings apply, its head size does not. `original_ctx` overrides the file. Throws Error.
RopeScaling rope_from_json(const nlohmann::json& object, const std::string& file, const RopeScaling& own,
                           std::optional<int64_t> original_ctx = {});

// The longest supported sequence; unset: no limit.
std::optional<int64_t> reach_of(const RopeScaling& rope);

}  // namespace lariat
