#include <algorithm>

#include "models/families/family.h"

namespace lariat {
namespace {

// Models with images whose top level alone decides tying, and its default (transformers 5.24,
// configuration_*.py and PreTrainedModel.tie_weights). In others, text_config can tie too.
struct TopTies {
  std::string_view name, model_type;
  std::optional<bool> missing;
};
constexpr TopTies kTopTies[] = {
#define LARIAT_WRAPPER(architecture, type, tokenizer, ties) {#architecture, #type, ties},
#include "models/families/families.def"
};

void read_ties(const JsonFields& top, nlohmann::json& text) {
  const auto tied = top.boolean("tie_word_embeddings");
  const std::string type = top.string("model_type").value_or("");
  const auto names = top.strings("architectures").value_or(std::vector<std::string>{});
  const auto rule = std::ranges::find_if(kTopTies, [&](const TopTies& each) {
    return each.missing &&
           (each.model_type == type || (type.empty() && !names.empty() && each.name == names.front()));
  });
  if (rule != std::end(kTopTies)) {
    text["tie_word_embeddings"] = tied.value_or(*rule->missing);
  } else if (tied.value_or(false)) {
    text["tie_word_embeddings"] = true;
  }
}

}  // namespace

TextPart text_part(const nlohmann::json& config, const std::string& file) {
  const JsonFields top(config, file);
  if (!top.object("text_config")) return {config, ""};
  nlohmann::json text = config["text_config"];
  for (const char* key :
       {"dtype", "torch_dtype", "bos_token_id", "eos_token_id", "quantization_config", "quantization"}) {
    if (!text.contains(key) && config.contains(key)) text[key] = config[key];
  }
  read_ties(top, text);
  return {std::move(text), "text_config."};
}

}  // namespace lariat
