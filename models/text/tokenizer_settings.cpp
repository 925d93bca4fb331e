#include "models/text/tokenizer_settings.h"

#include <fmt/format.h>

#include <algorithm>

#include "kernels/error.h"
#include "models/families/tokenizers.h"

namespace lariat::tok {
namespace {

// Keys that change no id, and keys of models/text/chat_template.cpp.
constexpr std::string_view kHarmless =
    "backend chat_control_tokens chat_template clean_up_tokenization_spaces device_map errors from_slow "
    "init_inputs is_local local_files_only max_len max_length merges_file model_input_names model_max_length "
    "name_or_path pad_to_multiple_of pad_token_type pad_token_type_id padding padding_side processor_class "
    "response_schema response_template return_token_type_ids revision spaces_between_special_tokens "
    "special_tokens_map_file stride tokenizer_file transformers_version trim_offsets truncation "
    "truncation_side truncation_strategy trust_remote_code use_default_system_prompt use_fast verbose "
    "vocab_file";

constexpr std::string_view kConfig = "tokenizer_config.json", kSpecialTokensMap = "special_tokens_map.json",
                           kAddedTokens = "added_tokens.json";

constexpr const char* kUnknown = "unknown key; ignored";

// AutoTokenizer's class for a model_type (transformers 5.24, models/auto/tokenization_auto.py). After "=" it
// overrides the declared class; "=" alone is a plain TokenizersBackend. "": the declared class.
constexpr std::pair<std::string_view, std::string_view> kClassOfType[] = {
#define LARIAT_FAMILY(architecture, type, reader, tokenizer, ...) {#type, tokenizer},
#define LARIAT_WRAPPER(architecture, type, tokenizer, ties) {#type, tokenizer},
#include "models/families/families.def"
};

constexpr std::pair<const char*, const char*> kWarned[] = {
    {"auto_map", "the tokenizer's custom code is not run; its files are used"},
    {"do_lower_case", "ignored, as in transformers 5: texts keep their case"},
    {"fix_mistral_regex", "ignored: the pattern of tokenizer.json is used unchanged"},
    {"sp_model_kwargs", "ignored: SentencePiece runs without options"},
};

// "<s>" or {"content": "<s>", …}; special in both cases.
AddedToken read_special(const nlohmann::json& value, const JsonFields& fields, const std::string& key,
                        std::vector<std::string>& warnings) {
  AddedToken token{.content = value.is_string() ? value.get<std::string>() : "", .normalized = false};
  if (value.is_object())
    token = read_added_token({value, fields.file(), fields.path(key) + ".", JsonFields::with_key}, warnings);
  token.special = true;
  return token;
}

// Reads keys ending in _token, and the lists of special tokens, which may be objects of names and tokens.
void read_named(const JsonFields& fields, TokenizerSettings& settings) {
  const auto add = [&](const std::string& name, const nlohmann::json& value, const std::string& path,
                       bool is_role) {
    if (value.is_string() && value.get_ref<const std::string&>().empty()) return;
    settings.named[name] = {fmt::format("{}: key '{}'", fields.file(), fields.path(path)),
                            read_special(value, fields, path, settings.warnings), is_role};
  };
  for (const std::string& key : fields.keys()) {
    const bool lists =
        has_name("additional_special_tokens extra_special_tokens model_specific_special_tokens", key);
    if (!lists && (!key.ends_with("_token") || key == "add_bos_token" || key == "add_eos_token")) continue;
    const nlohmann::json* value = fields.find(key);
    settings.given.insert(key);
    settings.named.erase(key);
    if (value == nullptr) continue;
    if (!lists) {
      if (value->is_string() || value->is_object()) {
        add(key, *value, key, true);
      } else if (has_name(kRoles, key)) {
        fields.fail(key, "expected a token");
      } else if (is_set(value)) {
        settings.warnings.push_back(fields.message(key.substr(0, 60), kUnknown));
      }
      continue;
    }
    if (!value->is_array() && !value->is_object()) fields.fail(key, "expected a list of tokens");
    size_t place = 0;
    for (const auto& [name, item] : value->items()) {
      if (!item.is_string() && !item.is_object()) fields.fail(key, "expected a list of tokens");
      const std::string path = fmt::format("{}[{}]", key, place++);
      add(value->is_object() ? name : path, item, path, false);
    }
  }
}

// {"128000": {"content": …}, …}
void read_added_decoder(const JsonFields& fields, TokenizerSettings& settings) {
  for (const std::string& key : fields.keys()) {
    const bool digits =
        !key.empty() && key.size() <= 8 && key.find_first_not_of("0123456789") == std::string::npos;
    if (!digits || std::stoll(key) >= kMaxId) fields.fail(key.substr(0, 60), "not an id; correct the key");
    settings.added.push_back(read_added_token(fields.need_object(key), settings.warnings));
    settings.added.back().id = static_cast<int32_t>(std::stoll(key));
  }
}

void read_config(const JsonFields& root, TokenizerSettings& settings) {
  settings.tokenizer_class = root.string("tokenizer_class").value_or("");
  settings.add_bos = root.boolean("add_bos_token");
  settings.add_eos = root.boolean("add_eos_token");
  settings.add_prefix_space = root.boolean("add_prefix_space");
  if (root.present("legacy")) settings.legacy = root.boolean("legacy").value_or(false);
  settings.split_special = root.boolean("split_special_tokens").value_or(false);
  if (const auto fields = root.object("added_tokens_decoder")) read_added_decoder(*fields, settings);
  read_named(root, settings);
  for (const auto& [key, what] : kWarned) {
    if (is_set(root.find(key))) settings.warn(key, what);
  }
  warn_of_unread(root, kHarmless, settings.warnings);
}

void read_special_tokens_map(const ModelTexts& texts, TokenizerSettings& settings) {
  const nlohmann::json& json = texts.object(kSpecialTokensMap);
  const JsonFields root(json, texts.file(kSpecialTokensMap).string(), "", JsonFields::with_key);
  read_named(root, settings);
  warn_of_unread(root, "", settings.warnings);
}

// {"token": id}
void read_added_tokens(const ModelTexts& texts, TokenizerSettings& settings) {
  const nlohmann::json& json = texts.object(kAddedTokens);
  const JsonFields root(json, texts.file(kAddedTokens).string(), "", JsonFields::with_key);
  for (const std::string& content : root.keys()) {
    if (content.empty()) root.fail("", "an empty token; remove it");
    const auto id = static_cast<int32_t>(root.need_integer(content, 0, kMaxId - 1));
    const bool special = std::any_of(settings.named.begin(), settings.named.end(), [&](const auto& named) {
      return named.second.token.content == content;
    });
    settings.added_with.push_back({.content = content, .id = id, .normalized = !special, .special = special});
  }
}

// transformers does not open added_tokens.json if tokenizer_config.json lists the added tokens.
void warn_of_added_tokens(const ModelTexts& texts, TokenizerSettings& settings) {
  const nlohmann::json& json = texts.object(kAddedTokens);
  const JsonFields root(json, texts.file(kAddedTokens).string(), "", JsonFields::with_key);
  for (const std::string& content : root.keys()) {
    const bool known = std::any_of(settings.added.begin(), settings.added.end(),
                                   [&](const AddedToken& token) { return token.content == content; });
    if (known) continue;
    settings.warnings.push_back(
        root.message(content.substr(0, 60), "not in added_tokens_decoder of tokenizer_config.json; ignored"));
  }
}

}  // namespace

void TokenizerSettings::warn(std::string_view key, const std::string& what) {
  warnings.push_back(wording(file, std::string(key), nullptr, what));
}

TokenizerSettings read_tokenizer_settings(const ModelTexts& texts) {
  TokenizerSettings settings;
  settings.file = texts.file(kConfig).string();
  settings.wording = texts.wording(JsonFields::with_key);
  bool lists_added = false;
  if (texts.has(kConfig)) {
    const nlohmann::json& json = texts.object(kConfig);
    const JsonFields root(json, settings.file, "", settings.wording);
    read_config(root, settings);
    lists_added = root.has("added_tokens_decoder");
  }
  if (!lists_added && texts.has(kSpecialTokensMap)) read_special_tokens_map(texts, settings);
  settings.known = find_class(texts, settings.tokenizer_class);
  if (texts.has(kAddedTokens))
    lists_added ? warn_of_added_tokens(texts, settings) : read_added_tokens(texts, settings);
  return settings;
}

std::string vocabulary_name(const ModelTexts& texts, const TokenizerSettings& settings) {
  if (texts.vocabulary()) return std::string(kGgufVocabulary);
  if (texts.has("tokenizer.json")) return "tokenizer.json";
  if (settings.known != nullptr && *settings.known->tiktoken != '\0') return settings.known->tiktoken;
  return texts.has("tokenizer.model") ? "tokenizer.model" : "";
}

const TokenizerClass* find_class(const ModelTexts& texts, std::string_view declared) {
  if (declared.ends_with("Fast")) declared.remove_suffix(4);
  const auto is_it = [&](const TokenizerClass& known) {
    if (*known.tiktoken != '\0') return texts.has(known.tiktoken);
    const bool named = has_name(known.names, declared);
    if (!named || known.version.empty()) return named;
    const nlohmann::json config =
        texts.has("config.json") ? texts.object("config.json") : nlohmann::json::object();
    return has_version(JsonFields(config, texts.file("config.json").string()), known);
  };
  const auto* known = std::ranges::find_if(kTokenizerClasses, is_it);
  return known == std::end(kTokenizerClasses) ? nullptr : known;
}

std::map<std::string, std::string> tokens_of_class(const ModelTexts& texts, std::string declared,
                                                   bool byte_level) {
  nlohmann::json config;
  try {
    config = texts.object("config.json");
  } catch (const Error&) {  // errors of config.json are reported when the model is loaded
  }
  const auto text = [&](const char* key) {
    return config.is_object() && config.contains(key) && config[key].is_string() ? config[key] : "-";
  };
  const std::string type = text("model_type");
  if (declared.empty()) declared = text("tokenizer_class");
  const TokenizerClass* known = find_class(texts, declared);
  if (known != nullptr && known->pieces == Pieces::kRebuilt && byte_level) known = nullptr;
  // Some files declare wrong classes (MODELS_WITH_INCORRECT_HUB_TOKENIZER_CLASS).
  for (const auto& [name, registered] : kClassOfType) {
    const bool overrides = registered.starts_with('=');
    if (name == type && !registered.empty() && (overrides || declared == "-"))
      known = find_class(texts, registered.substr(overrides ? 1 : 0));
  }
  std::map<std::string, std::string> tokens;
  const auto words = split(known != nullptr ? known->tokens : "", ' ');
  for (size_t i = 0; i + 1 < words.size(); i += 2) tokens.emplace(words[i], words[i + 1]);
  return tokens;
}

void warn_of_unread(const JsonFields& fields, std::string_view harmless, std::vector<std::string>& warnings) {
  for (const std::string& key : fields.unread_keys()) {
    if (has_name(harmless, key) || !is_set(fields.find(key))) continue;
    warnings.push_back(fields.message(key.substr(0, 60), kUnknown));
  }
}

AddedToken read_added_token(const JsonFields& fields, std::vector<std::string>& warnings) {
  AddedToken token;
  token.content = fields.need_string("content");
  if (token.content.empty() || token.content.size() > kMaxTokenBytes) {
    fields.fail("content",
                fmt::format("a token of {} bytes; expected 1 to {}", token.content.size(), kMaxTokenBytes));
  }
  token.single_word = fields.boolean("single_word").value_or(false);
  token.lstrip = fields.boolean("lstrip").value_or(false);
  token.rstrip = fields.boolean("rstrip").value_or(false);
  token.special = fields.boolean("special").value_or(false);
  token.normalized = fields.boolean("normalized").value_or(!token.special);
  warn_of_unread(fields, "__type id", warnings);
  return token;
}

}  // namespace lariat::tok
