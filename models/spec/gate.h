#pragma once
#include <map>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "models/io/json_fields.h"
#include "models/spec/spec.h"

// Unsupported content throws Error if it changes the result, and else adds a warning.
namespace lariat {

// Keys (separated by spaces) that change a model's computation, and their effect ("divides the logits
// (Granite)"). `neutral`: values without effect, separated by |: numbers, true, words, "ones" (a list of
// ones), "dense" (any value, if "use_moe" is false), or a model's value by its name in gate.cpp (head_dim,
// qk_norm). Unset values (is_set) are neutral too, unless the model's value is true.
struct KeyRule {
  std::string_view keys, neutral, what;
};
std::span<const KeyRule> refused_keys();

// A model's values by the rules' words.
using KeyValues = std::map<std::string_view, nlohmann::json>;

// A key of refused_keys() throws Error unless its value is neutral; another set key adds a warning unless it
// is harmless. warnings: may be null.
void check_unread(const JsonFields& object, const KeyValues& known, std::vector<std::string>* warnings);
// Takes `known` from the RoPE and the first layer of `spec`.
void check_unread(const JsonFields& object, const ModelSpec& spec, std::vector<std::string>* warnings);

std::optional<Activation> find_activation(std::string_view name);

}  // namespace lariat
