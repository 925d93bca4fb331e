#include <algorithm>
#include <array>

#include "models/families/family.h"

namespace lariat {
namespace {

// Warns of unread keys about positions.
void warn_of_foreign_positions(const JsonFields& json, std::vector<std::string>& warnings) {
  constexpr std::array<std::string_view, 5> kParts{"rope", "rotary", "ntk", "logn", "alibi"};
  for (const std::string& key : json.unread_keys()) {
    const bool of_positions = std::any_of(kParts.begin(), kParts.end(), [&](std::string_view part) {
      return key.find(part) != std::string::npos;
    });
    const nlohmann::json* value = of_positions ? json.find(key) : nullptr;
    if (value != nullptr && *value != false && *value != 0)
      warnings.push_back(json.message(key.substr(0, 60), "ignored: not a key of a Llama"));
  }
}

}  // namespace

RopeScaling read_foreign_rope(const JsonFields& json, std::string_view named_by,
                              std::vector<std::string>& warnings) {
  warnings.push_back(json.message(named_by,
                                  "unsupported architecture; this is the RoPE of a Llama with these keys, "
                                  "possibly not the model's"));
  RopeDefaults defaults;
  // DeepSeek's attention rotates a part of each head, other models the whole.
  const char* dim = json.has("qk_rope_head_dim") ? "qk_rope_head_dim" : "head_dim";
  if (const auto head_dim = json.integer(dim, 2, kMaxHeadDim)) {
    defaults.head_dim = *head_dim;
  } else {
    const auto hidden = json.integer("hidden_size", 1, kMaxHidden);
    const auto heads = json.integer("num_attention_heads", 1, kMaxHeads);
    if (!hidden || !heads) json.fail("head_dim", "expected head_dim, or hidden_size and num_attention_heads");
    defaults.head_dim = *hidden / *heads;
    if (defaults.head_dim > kMaxHeadDim)
      json.fail("hidden_size", "expected a head size of at most " + std::to_string(kMaxHeadDim));
  }
  if (!json.has("max_position_embeddings")) json.fail("max_position_embeddings", "expected an integer");
  defaults.scales_queries = true;  // does not affect the rotation
  // transformers' use of both keys is unknown.
  defaults.partial_is_key = true;
  defaults.interleave_is_key = true;
  defaults.warnings = &warnings;
  if (json.has("rope_local_base_freq"))
    warnings.push_back(json.message("rope_local_base_freq", "not shown; the base of layers with a window"));
  RopeScaling rope = read_rope(json, defaults);
  warn_of_foreign_positions(json, warnings);
  return rope;
}

}  // namespace lariat
