// What a config says it is, and does not run: the nearest name that does, never a list.
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "kernels/error.h"
#include "models/config.h"

namespace lariat::family_names_test {
namespace {

using nlohmann::json;

std::string error(const json& config) {
  try {
    parse_config(config.dump(), "config.json");
  } catch (const Error& e) {
    return e.what();
  }
  return "";
}

json wrapper(const json& text) {
  return {
      {"architectures", {"LlavaForConditionalGeneration"}}, {"model_type", "llava"}, {"text_config", text}};
}

TEST(FamilyNames, OfArchitectures) {
  const auto of = [](const char* name) { return error({{"architectures", {name}}}); };
  EXPECT_EQ(
      of("GPT2LMHeadModel"),
      "config.json: \"architectures\" is [\"GPT2LMHeadModel\"]; no such architecture runs; docs/models.md "
      "lists those that do");
  EXPECT_EQ(
      of("LlamaForCasualLM"),
      "config.json: \"architectures\" is [\"LlamaForCasualLM\"]; no such architecture runs; did you mean "
      "LlamaForCausalLM, or is it another model? docs/models.md lists those that do");
  for (const auto& [name, near] :
       {std::pair("MixtralForCausaLM", "MixtralForCausalLM"), std::pair("llama", "LlamaForCausalLM"),
        std::pair("BaichuanForCausalLM", "BaiChuanForCausalLM"),
        std::pair("Gemma3nForConditionalGeneration", "Gemma3ForCausalLM"),
        std::pair("Qwen2_5_VlForConditionalGeneration", "Qwen2_5_VLForConditionalGeneration")}) {
    const std::string expected = std::string("did you mean ") + near + ",";
    EXPECT_NE(of(name).find(expected), std::string::npos) << of(name);
  }
  for (const char* name : {"GptOssForCausalLM", "OrionForCausalLM", "BertModel", "ForCausalLM", ""})
    EXPECT_EQ(of(name).find("did you mean"), std::string::npos) << of(name);
  EXPECT_EQ(
      error(json::object()),
      "config.json: \"architectures\" is missing; expected the architecture of a model in docs/models.md");
}

TEST(FamilyNames, OfModelTypes) {
  EXPECT_EQ(
      error({{"model_type", "gpt2"}}),
      "config.json: \"model_type\" is \"gpt2\"; no such model_type runs; docs/models.md lists those that do");
  EXPECT_NE(error({{"model_type", "qwen_3"}}).find("; did you mean qwen3, or"), std::string::npos);
  EXPECT_EQ(error(wrapper({{"model_type", "mistrall"}})),
            "config.json: \"text_config.model_type\" is \"mistrall\"; no such model_type runs; did you mean "
            "mistral, or is it another model? docs/models.md lists those that do");
  EXPECT_EQ(error(wrapper({{"vocab_size", 8}})),
            "config.json: \"text_config.model_type\" is missing; expected the model_type of a model in "
            "docs/models.md");
}

// What stands in text_config beside its type is no matter to transformers.
TEST(FamilyNames, OfATextConfigComeSecond) {
  const json text = {{"architectures", {"MysteryForCausalLM"}}, {"model_type", "llama"}};
  EXPECT_EQ(parse_config(wrapper(text).dump(), "config.json").family, "LlamaForCausalLM");
  const json untyped = {{"architectures", {"Qwen3ForCausalLM"}}};
  EXPECT_EQ(parse_config(wrapper(untyped).dump(), "config.json").family, "Qwen3ForCausalLM");
}

TEST(FamilyNames, ThatContradictTheType) {
  EXPECT_EQ(
      error({{"architectures", {"LlamaForCausalLM"}}, {"model_type", "mistral"}}),
      "config.json: \"model_type\" is \"mistral\"; \"architectures\" says LlamaForCausalLM, whose type is "
      "llama; transformers goes by model_type: write MistralForCausalLM there, or \"llama\" here");
  EXPECT_EQ(
      error({{"architectures", {"DeepseekV3ForCausalLM"}}, {"model_type", "kimi_k2"}}),
      "config.json: \"model_type\" is \"kimi_k2\"; \"architectures\" says DeepseekV3ForCausalLM, whose type "
      "is deepseek_v3: a model of another kind, with code of its own; to run it as that architecture all the "
      "same, write \"deepseek_v3\"");
}

}  // namespace
}  // namespace lariat::family_names_test
