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

// The gate between a checkpoint and a wrong result: whatever in it would change the result, and is not
// implemented, is an Error of one line that names the file, the key or tensor and the remedy. What only seems
// to change it is a warning.
namespace lariat {

class Tensors;

// Keys that change what a model computes, with a space between them, and what they do to it ("divides the
// logits (Granite)"). `neutral` says with which values they do nothing, separated by |: numbers, true, words,
// "ones" for a list of ones, "dense" for any in a file whose "use_moe" is false, or a number or a flag of the
// model by its name in gate.cpp (head_dim, qk_norm). Where the model has no such flag set, false, 0, null and
// an empty list, object or text do nothing either.
struct KeyRule {
  std::string_view keys, neutral, what;
};
std::span<const KeyRule> refused_keys();

// A model's own values, by the words of the rules and the names of keys that no reader asked for.
using KeyValues = std::map<std::string_view, nlohmann::json>;

// Goes over the members of a config, or of an object in it, for which no reader asked. Those of
// refused_keys() throw Error unless their value is neutral; of others that say something there is a warning,
// unless they are known to change nothing: to transformers' class too they are no keys of its own. Rules
// compare with the values in `known`. warnings: null where no caller reads them.
void check_unread(const JsonFields& object, const KeyValues& known, std::vector<std::string>* warnings);
// Compares with the RoPE and the first layer of `spec`.
void check_unread(const JsonFields& object, const ModelSpec& spec, std::vector<std::string>* warnings);

// Refuses tensors of weights that are stored in another way (quantised, LoRA): to be called first, since
// those that the model reads are missing then.
void refuse_foreign_tensors(const Tensors& checkpoint);

// Refuses tensors that are neither in `read` nor known to change nothing (frequencies of RoPE, which are
// computed, and biases of zeros); a vision tower beside a text model is a warning.
void check_unread_tensors(ModelSpec& spec, const Tensors& checkpoint, const std::set<std::string>& read);

// Throws Error where `path` is not a checkpoint folder: it does not exist, names a model on the hub, is a
// file (a config file is allowed with `config_file`), a LoRA adapter, pickled weights, or the folder of a
// GGUF file or of snapshots.
void refuse_other_formats(const std::filesystem::path& path, bool config_file = false);

}  // namespace lariat
