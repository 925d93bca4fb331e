#include "tests/models/tokenizer_test_util.h"

namespace lariat::test {
namespace {

using nlohmann::json;
using Lines = std::vector<std::string>;
namespace fs = std::filesystem;

constexpr const char* kConfig = "tokenizer_config.json";

Tokenizer load_with(const TempFolder& dir, const std::string& base, const json& files,
                    const json& change = json::object()) {
  for (const char* name : {"tokenizer.json", "tokenizer.model"}) {
    if (fs::exists(golden_dir() / base / name)) fs::copy(golden_dir() / base / name, dir.path);
  }
  if (!change.empty()) {
    json spec = read_json(dir.path / "tokenizer.json");
    for (const auto& [pointer, value] : change.items()) spec[json::json_pointer(pointer)] = value;
    dir.put("tokenizer.json", spec.dump());
  }
  for (const auto& [name, value] : files.items()) dir.put(name, value.dump());
  return Tokenizer::load(dir.path);
}

Lines warnings_of(const std::string& base, const json& files, const json& change = json::object()) {
  const TempFolder dir;
  Lines lines = load_with(dir, base, files, change).warnings();
  for (std::string& line : lines)
    line.erase(0, line.starts_with(dir.path.string()) ? dir.path.string().size() + 1 : 0);
  return lines;
}

void expect_lines(const Lines& lines, const Lines& words) {
  ASSERT_EQ(lines.size(), words.size()) << json(lines) << json(words);
  for (size_t i = 0; i < lines.size(); ++i) EXPECT_TRUE(names(lines[i], words[i]));
}

TEST(TokenizerSettings, Warnings) {
  struct Case {
    const char* base;
    json files;
    Lines want;
  };
  const json llama = {{"tokenizer_class", "LlamaTokenizer"}};
  const auto config = [](const json& keys, json more = json::object()) {
    more.update(keys);
    return json{{kConfig, more}};
  };
  const std::vector<Case> cases = {
      {"byte-mini",
       config({{"add_bos_token", true}, {"bos_token", "<|im_start|>"}}),
       {"tokenizer_config.json | add_bos_token | true"}},
      {"llama-mini", config({{"add_bos_token", false}}), {"tokenizer_config.json | add_bos_token | false"}},
      {"llama-mini", config({{"add_eos_token", true}}), {"tokenizer_config.json | add_eos_token | true"}},
      {"sp-mini", config({{"add_eos_token", true}}), {"tokenizer_config.json | add_eos_token | true"}},
      {"llama-mini", config({{"legacy", false}}, llama), {"tokenizer_config.json | legacy | false"}},
      {"metaspace-mini", config({{"legacy", true}}, llama), {"tokenizer_config.json | legacy | true"}},
      {"llama-mini",
       config({{"add_prefix_space", false}}),
       {"tokenizer_config.json | add_prefix_space | false"}},
      {"byte-mini",
       config({{"add_prefix_space", true}}),
       {"tokenizer_config.json | add_prefix_space | true"}},
      {"sp-mini",
       config({{"add_prefix_space", false}}),
       {"tokenizer_config.json | add_prefix_space | false"}},
      {"sp-mini",
       config({{"tokenizer_class", "OtherTokenizer"}}),
       {"tokenizer_config.json | tokenizer_class | OtherTokenizer"}},
      {"byte-mini", config({{"pad_token", "<pad>"}}), {"tokenizer_config.json | pad_token | <pad>"}},
      {"sp-mini",
       config({{"additional_special_tokens", {"<s>", "<pad>"}}}),
       {"tokenizer_config.json | additional_special_tokens[1] | <pad>"}},
      {"byte-mini",
       {{"special_tokens_map.json", {{"pad_token", "<pad>"}, {"other", 1}}}},
       {"special_tokens_map.json | other", "special_tokens_map.json | pad_token | <pad>"}},
      {"byte-mini",
       {{kConfig, {{"added_tokens_decoder", {{"2", {{"content", "<|im_end|>"}, {"odd", 1}}}}}}},
        {"added_tokens.json", {{"<|im_end|>", 2}, {"<new>", 367}}},
        {"special_tokens_map.json", {{"pad_token", "<pad>"}}}},
       {"tokenizer_config.json | added_tokens_decoder.2.odd", "added_tokens.json | <new>"}},
      {"byte-mini",
       config({{"auto_map", {{"AutoTokenizer", {"x.X", nullptr}}}},
               {"do_lower_case", true},
               {"fix_mistral_regex", true},
               {"sp_model_kwargs", {{"enable_sampling", true}}},
               {"use_token", true},
               {"invented", "x"}}),
       {"tokenizer_config.json | use_token", "tokenizer_config.json | auto_map",
        "tokenizer_config.json | do_lower_case", "tokenizer_config.json | fix_mistral_regex",
        "tokenizer_config.json | sp_model_kwargs", "tokenizer_config.json | invented"}},
  };
  for (const Case& c : cases) expect_lines(warnings_of(c.base, c.files), c.want);
}

// Cases of golden/tokenizers/roles.json: tokens from the files or the class.
TEST(TokenizerSettings, SpecialTokensEqualTransformers) {
  const json cases = read_json(golden_dir() / "roles.json");
  EXPECT_GE(cases.size(), 110U);
  for (const json& one : cases) {
    SCOPED_TRACE(one.dump());
    const TempFolder dir;
    json change = json::object();
    for (const auto& [key, value] : one["change"].items()) change["/" + key] = value;
    const Tokenizer tokenizer = load_with(dir, one["base"], one["files"], change);
    json roles = one["roles"];
    for (auto it = roles.begin(); it != roles.end();)
      it = *it == "" ? roles.erase(it) : std::next(it);  // no effect
    EXPECT_EQ(json(tokenizer.special_tokens()), roles);
    for (const std::string& line : tokenizer.warnings())
      EXPECT_TRUE(names(line, "<nowhere>") || names(line, "tokenizer_class"))
          << "the class's tokens may be missing";
  }
}

// Default tokens act like tokens named in the files.
TEST(TokenizerSettings, AClassesDefaultTokensApply) {
  const TempFolder dir;
  const json files = {{kConfig, {{"tokenizer_class", "Qwen2Tokenizer"}}}};
  const Tokenizer tokenizer = load_with(dir, "byte-mini", files, {{"/added_tokens", json::array()}});
  const auto id = tokenizer.token_to_id("<|endoftext|>");
  ASSERT_TRUE(id.has_value());
  EXPECT_EQ(tokenizer.encode("<|endoftext|>", false), std::vector<int32_t>{*id});
  EXPECT_TRUE(tokenizer.is_special(*id));
  EXPECT_EQ(tokenizer.eos_ids(), std::vector<int32_t>{*id});
  EXPECT_FALSE(tokenizer.bos_id());
}

TEST(TokenizerSettings, UsedAndHarmlessKeysDoNotWarn) {
  const json harmless = {{"model_max_length", 2048},
                         {"padding_side", "left"},
                         {"chat_template", "{{ x }}"},
                         {"clean_up_tokenization_spaces", true},
                         {"sp_model_kwargs", json::object()},
                         {"use_default_system_prompt", false},
                         {"do_lower_case", false},
                         {"unknown_but_null", nullptr},
                         {"unknown_but_false", false},
                         {"unk_token", nullptr},
                         {"errors", "replace"},
                         {"legacy", false},
                         {"split_special_tokens", false},
                         {"max_length", 2},
                         {"truncation", true}};
  EXPECT_EQ(warnings_of("byte-mini", {{kConfig, harmless}}), Lines{});
  for (const char* name :
       {"llama3-mini", "qwen-mini", "byte-mini", "llama-mini", "metaspace-mini", "gemma-mini"})
    EXPECT_EQ(Tokenizer::load(golden_dir() / name).warnings(), Lines{}) << name;
  const json both = {{"tokenizer_class", "LlamaTokenizer"}, {"legacy", false}, {"add_prefix_space", false}};
  EXPECT_EQ(warnings_of("sp-mini", {{kConfig, both}}), Lines{});
}

TEST(TokenizerSettings, PublishedFilesDoNotWarn) {
  for (const char* name : {"llama2-hf", "llama3", "minimind", "qwen2", "qwen3"}) {
    const fs::path folder = shared_dir() / "tokenizers" / name;
    LARIAT_NEEDS(folder);
    EXPECT_EQ(Tokenizer::load(folder).warnings(), Lines{}) << name;
  }
}

TEST(TokenizerSettings, KeysOfTokenizerJson) {
  EXPECT_EQ(warnings_of("llama-mini", json::object(),
                        {{"/truncation", {{"max_length", 2}}}, {"/padding", {{"pad_id", 0}}}}),
            Lines{});
  const std::vector<std::pair<const char*, const char*>> unknown = {
      {"/odd", "odd"},
      {"/normalizer/odd", "normalizer.odd"},
      {"/normalizer/normalizers/1/odd", "normalizer.normalizers[1].odd"},
      {"/model/odd", "model.odd"},
      {"/post_processor/odd", "post_processor.odd"},
      {"/decoder/decoders/0/odd", "decoder.decoders[0].odd"},
      {"/added_tokens/0/odd", "added_tokens[0].odd"}};
  for (const auto& [pointer, path] : unknown) {
    expect_lines(warnings_of("llama-mini", json::object(), {{pointer, true}}),
                 {std::string("tokenizer.json | ") + path});
  }
  expect_lines(warnings_of("byte-mini", json::object(), {{"/pre_tokenizer/odd", 3}}),
               {"tokenizer.json | pre_tokenizer.odd"});
}

TEST(TokenizerSettings, ManyWarningsAreTruncated) {
  json config = json::object();
  for (int i = 0; i < 50; ++i) config["odd" + std::to_string(i)] = 1;
  const Lines lines = warnings_of("byte-mini", {{kConfig, config}});
  ASSERT_EQ(lines.size(), 21u);
  EXPECT_TRUE(names(lines.back(), "30"));
}

// The appended token is named and skipped: the model must continue the text.
TEST(TokenizerSettings, ATemplateThatEndsInEos) {
  json spec = read_json(golden_dir() / "llama-mini" / "tokenizer.json").at("post_processor");
  spec["single"].push_back({{"SpecialToken", {{"id", "</s>"}, {"type_id", 0}}}});
  spec["special_tokens"]["</s>"] = {{"id", "</s>"}, {"ids", {2}}, {"tokens", {"</s>"}}};
  const Tokenizer tokenizer =
      load_changed("llama-mini", {{"post_processor", spec}}, {{"add_eos_token", true}});
  const Tokenizer plain = load_changed("llama-mini", json::object());
  EXPECT_EQ(tokenizer.encode("the boats", true), plain.encode("the boats", true));
  ASSERT_EQ(tokenizer.warnings().size(), 1u);
  EXPECT_TRUE(names(tokenizer.warnings()[0], "tokenizer.json | post_processor | </s>"));
}

}  // namespace
}  // namespace lariat::test
