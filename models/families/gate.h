#pragma once
#include <filesystem>
#include <set>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "models/io/json_fields.h"
#include "models/spec.h"

// What stands between a checkpoint and a wrong result: whatever in it would change the result, and is not
// implemented, is an Error of one line that names the file, the key or tensor and the remedy. What only seems
// to change it is a warning.
namespace lariat {

class Checkpoint;

// A key of config.json (or of its RoPE object) that changes what a model computes and that no family here
// implements.
struct KeyRule {
  std::string_view key;
  // Values at which the key changes nothing, separated by "|": numbers, true, false, words, and
  //   hidden_size, head_dim, 1/sqrt(head_dim), n_kv_heads, ...   that number of the model
  //   qk_norm     true where the family normalises the heads of q and k, else false
  //   activation  the name of the model's
  //   ones        a list of ones
  //   dense       any value in a file that says that there are no experts ("use_moe": false)
  // A null and an empty list, object or text change nothing either.
  std::string_view neutral;
  std::string_view what;  // "divides the logits (Granite)"
};
std::span<const KeyRule> key_rules();
std::span<const KeyRule> rope_key_rules();

// Refuses keys of config.json by key_rules(); warns by warn_unread. `heeds` are the keys, separated by
// spaces, that the family implements; it has read the config.
void check_keys(const JsonFields& config, std::string_view heeds, ModelSpec& spec);

// Warns of the keys that the family did not ask for, unless their value is null, false, 0 or empty, or they
// are known to change nothing: for transformers' class too such a key is none of its own.
void warn_unread(const JsonFields& object, ModelSpec& spec);

// The same for a rope_scaling or rope_parameters object. A key that nobody is known to read is a warning, as
// in transformers.
void check_rope_keys(const JsonFields& object, std::string_view heeds, std::vector<std::string>* warnings);

// Refuses tensors of weights that are stored in another way (quantised, LoRA): to be called first, since
// those that the model reads are missing then.
void refuse_foreign_tensors(const Checkpoint& checkpoint);

// Refuses tensors that are neither in `read` nor known to change nothing (frequencies of RoPE, which are
// computed); a vision tower beside a text model is a warning.
void check_unread_tensors(ModelSpec& spec, const Checkpoint& checkpoint, const std::set<std::string>& read);

// Says what `path` is where it is no checkpoint's folder: nothing, a URL, the name of a model on the hub, a
// file (but a config with `config_file`), a GGUF file, a LoRA adapter, pickled weights, the folder above a
// snapshot or above checkpoints, an empty one. Throws Error then; returns where it may be one.
void refuse_other_formats(const std::filesystem::path& path, bool config_file = false);

}  // namespace lariat
