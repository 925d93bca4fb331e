#pragma once
#include <filesystem>
#include <map>
#include <set>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "models/io/json_fields.h"
#include "models/spec.h"

// Unsupported content that changes the result throws Error; content that only seems to change it adds a
// warning.
namespace lariat {

class Tensors;

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

// Refuses other weight formats (quantised, LoRA). Runs first, as the model's own tensors are then missing.
void refuse_foreign_tensors(const Tensors& checkpoint);

// Refuses tensors neither in `read` nor harmless (RoPE frequencies, zero biases); warns of a vision tower.
void check_unread_tensors(ModelSpec& spec, const Tensors& checkpoint, const std::set<std::string>& read);

// Throws Error for anything but a checkpoint folder or, with `config_file`, a config file.
void refuse_other_formats(const std::filesystem::path& path, bool config_file = false);

}  // namespace lariat
