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

// Gate between a checkpoint and a wrong result. Unsupported content that changes the result is an Error of
// one line: file, key or tensor, and remedy. Content that only seems to change it is a warning.
namespace lariat {

class Tensors;

// Keys (separated by spaces) that change a model's computation, and their effect ("divides the logits
// (Granite)"). `neutral`: values without effect, separated by |: numbers, true, words, "ones" (a list of
// ones), "dense" (any value, if "use_moe" is false), or a model's value by its name in gate.cpp (head_dim,
// qk_norm). false, 0, null and empty values are neutral too, unless that flag of the model is set.
struct KeyRule {
  std::string_view keys, neutral, what;
};
std::span<const KeyRule> refused_keys();

// A model's values, by the rules' words and by unread keys.
using KeyValues = std::map<std::string_view, nlohmann::json>;

// Checks the unread members of a config or of an object in it. Keys of refused_keys() throw Error unless
// their value is neutral. Other set keys add a warning unless known as harmless: transformers' class ignores
// them too. known: values for the rules. warnings: null if unused.
void check_unread(const JsonFields& object, const KeyValues& known, std::vector<std::string>* warnings);
// Compares with the RoPE and the first layer of `spec`.
void check_unread(const JsonFields& object, const ModelSpec& spec, std::vector<std::string>* warnings);

// Refuses other weight formats (quantised, LoRA). Runs first, as the model's own tensors are then missing.
void refuse_foreign_tensors(const Tensors& checkpoint);

// Refuses tensors neither in `read` nor harmless (RoPE frequencies, zero biases); warns of a vision tower.
void check_unread_tensors(ModelSpec& spec, const Tensors& checkpoint, const std::set<std::string>& read);

// Throws Error for a path that is missing, a model name on the hub, a file (`config_file` allows a config
// file), a LoRA adapter, pickled weights, or a folder of GGUF files or snapshots.
void refuse_other_formats(const std::filesystem::path& path, bool config_file = false);

}  // namespace lariat
